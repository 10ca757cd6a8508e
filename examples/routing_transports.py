"""The routing document's second example: workers on two nodes, and a transport between them.

    [(A1) -> (TransportA)] -> [(TransportC) -> C1]
          1                2                3

    [(A1) <- (TransportA)] <- [(TransportC) <- C1]
          6                5                4

A transport is two workers that act like one: a message for `TransportA`, less its own address,
leaves `TransportC` with an address on the return route that leads back. In this example that
address is not a connection but the other node: `{type: TransportType, data: AddressOfA}`. Any
worker on node `C` can use it, at any time, so a transport of this kind needs an address type.

Messages 2 and 5, between the two, have the transport's own format: here a line of text over TCP,
as in the document.

It prints:

    1  onward_route: {type: TransportType, data: AddressOfC} -> C1
       return_route: A1
    2  or:C1,rr:A1,payload:hello
    3  onward_route: C1
       return_route: {type: TransportType, data: AddressOfA} -> A1
    4  onward_route: {type: TransportType, data: AddressOfA} -> A1
       return_route: C1
    5  or:A1,rr:C1,payload:hello
    6  onward_route: A1
       return_route: {type: TransportType, data: AddressOfC} -> C1
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from onward.actors import Node, Worker
from onward.protocol import Address, AddressLike, Message, Route, format_route, route

TRANSPORT_TYPE: Final = 200
ADDRESS_OF_A: Final = Address(TRANSPORT_TYPE, b"AddressOfA")
ADDRESS_OF_C: Final = Address(TRANSPORT_TYPE, b"AddressOfC")

Show = Callable[[int, "Message | str"], object]
Ports = dict[Address, int]


class Transport(Worker):
    """One of the workers of the transport: it has the address of the other node as one of its own.

    Args:
        own: The address of this node.
        ports: Where each node listens; in earnest, the address itself would say.
        show: Shows what is sent to the other worker.
        number: The number of the message that this is.
    """

    def __init__(self, own: Address, ports: Ports, show: Show, number: int) -> None:
        super().__init__()
        self._own = own
        self._ports = ports
        self._show = show
        self._number = number

    async def on_start(self) -> None:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self._ports[self._own] = self._server.sockets[0].getsockname()[1]

    async def handle_message(self, message: Message) -> None:
        """Send a message to the node that its first address names."""
        onward, back = (
            format_route(each) for each in (message.onward_route[1:], message.return_route)
        )
        line = f"or:{onward},rr:{back},payload:{message.payload.decode()}".replace("0#", "")
        self._show(self._number, line)
        _, writer = await asyncio.open_connection("127.0.0.1", self._ports[message.to])
        # The transport also sends its own address, in its own format.
        writer.write(f"{self._own}\n{line}\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, line = [(await reader.readline()).decode().strip() for _ in range(2)]
        writer.close()
        onward, back, payload = (
            line.removeprefix("or:").replace(",rr:", ",payload:").split(",payload:")
        )
        self.route(Message(route(onward), route(sender, back), payload.encode()))

    async def on_stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()


class A1(Worker):
    def __init__(self, show: Show, answered: asyncio.Event) -> None:
        super().__init__()
        self._show = show
        self._answered = answered

    def ask(self) -> None:
        message = Message((ADDRESS_OF_C, Address(0, b"C1")), (self.address,), b"hello")
        self._show(1, message)
        self.route(message)

    def handle_message(self, message: Message) -> None:
        self._show(6, message)
        self._answered.set()


class C1(Worker):
    def __init__(self, show: Show) -> None:
        super().__init__()
        self._show = show

    def handle_message(self, message: Message) -> None:
        self._show(3, message)
        answer = message.reply(message.payload)
        self._show(4, answer)
        self.route(answer)


async def run(show: Show) -> None:
    """Run the example; show each message as it is sent or gets to its worker."""
    ports: Ports = {}
    answered = asyncio.Event()
    asking = A1(show, answered)
    async with Node("A") as a, Node("C") as c:
        # As each of them has the other node's address, no rule is needed for the type.
        transport_a: list[AddressLike] = ["TransportA", ADDRESS_OF_C]
        transport_c: list[AddressLike] = ["TransportC", ADDRESS_OF_A]
        await a.start(lambda: Transport(ADDRESS_OF_A, ports, show, 2), address=transport_a)
        await c.start(lambda: Transport(ADDRESS_OF_C, ports, show, 5), address=transport_c)
        await c.start(lambda: C1(show), address="C1")
        await a.start(lambda: asking, address="A1")
        asking.ask()
        await answered.wait()


def written(steps: Route) -> str:
    """Write a route as the document does."""
    return " -> ".join(
        f"{{type: TransportType, data: {value.decode()}}}" if kind else value.decode()
        for kind, value in steps
    )


def print_message(number: int, message: Message | str) -> None:
    if isinstance(message, str):
        print(f"{number}  {message}")
    else:
        print(f"{number}  onward_route: {written(message.onward_route)}")
        print(f"   return_route: {written(message.return_route)}")


if __name__ == "__main__":
    asyncio.run(run(print_message))
