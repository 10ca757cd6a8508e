"""The routing document's third example: a message establishes a session, over TCP.

    [(A1) -> (TCPClientA) -> (TCPClientConnectionA1)] -> [(TCPServerConnectionC1) -> (C1)]
          1               2                           3                           4
    [(A1) <- (TCPClientConnectionA1)] <- [(TCPServerConnectionC1) <- (C1)]
          7                           6                           5

`A1` names a node without a connection: `{type: #TCP, data: AddressOfC}`, which is written
`1#127.0.0.1:port`. `TCPClientA` resolves addresses of that type. It makes the connection, and
replaces the address by that of its worker. From then on the two workers of the connection are the
session: a return route with their addresses is complete, without a further lookup.

Messages 3 and 6 are the transport's own. The connections have random addresses; they are shown
by the document's names for them.

It prints:

    1  onward_route: {type: #TCP, data: AddressOfC} -> C1
       return_route: A1
    2  onward_route: TCPClientConnectionA1 -> C1
       return_route: A1
    4  onward_route: C1
       return_route: TCPServerConnectionC1 -> A1
    5  onward_route: TCPServerConnectionC1 -> A1
       return_route: C1
    7  onward_route: A1
       return_route: TCPClientConnectionA1 -> C1
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onward.actors import Node, Worker
from onward.protocol import TCP, Address, Message, Route
from onward.transports import TcpTransport

Show = Callable[[int, Message], object]


class A1(Worker):
    def __init__(self, show: Show, answered: asyncio.Event) -> None:
        super().__init__()
        self._show = show
        self._answered = answered

    def ask(self, node_c: Address) -> None:
        message = Message((node_c, Address(0, b"C1")), (self.address,), b"hello")
        self._show(1, message)
        self.route(message)

    def handle_message(self, message: Message) -> None:
        self._show(7, message)
        self._answered.set()


class C1(Worker):
    def __init__(self, show: Show) -> None:
        super().__init__()
        self._show = show

    def handle_message(self, message: Message) -> None:
        self._show(4, message)
        answer = message.reply(message.payload)
        self._show(5, answer)
        self.route(answer)


async def run(show: Show) -> None:
    """Run the example; show each message as it is sent or gets to its worker."""

    class TCPClientA(TcpTransport):
        """The transport as it is, but for showing what it makes of a message."""

        def resolve(self, message: Message) -> Message:
            passed_on = super().resolve(message)
            show(2, passed_on)
            return passed_on

    answered = asyncio.Event()
    asking = A1(show, answered)
    async with Node("A") as a, Node("C") as c:
        await c.start(lambda: C1(show), address="C1")
        listener = await c.listen("tcp://127.0.0.1:0", expose=["C1"])
        a.add_transport(TCPClientA)
        await a.start(lambda: asking, address="A1")
        asking.ask(Address(TCP, listener.uri.removeprefix("tcp://").encode()))
        await answered.wait()


class Printer:
    """Prints messages with the document's names for the connections."""

    def __init__(self) -> None:
        self._names: dict[Address, str] = {}

    def __call__(self, number: int, message: Message) -> None:
        if number == 2:
            self._names[message.onward_route[0]] = "TCPClientConnectionA1"
        elif number == 4:
            self._names[message.return_route[0]] = "TCPServerConnectionC1"
        print(f"{number}  onward_route: {self.written(message.onward_route)}")
        print(f"   return_route: {self.written(message.return_route)}")

    def written(self, route: Route) -> str:
        """Write a route as the document does."""
        return " -> ".join(map(self._name, route))

    def _name(self, address: Address) -> str:
        if address.type == TCP:
            return "{type: #TCP, data: AddressOfC}"
        return self._names.get(address) or address.value.decode()


if __name__ == "__main__":
    asyncio.run(run(Printer()))
