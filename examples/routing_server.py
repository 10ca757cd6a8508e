"""The routing document's fourth example: a device that does not know the way reaches a phone.

    [(Dev1)] -> [(DevServer)] -> [(Broker)] -> [(PhoneRegistry)] -> [(Phone1)]
             1                2                                  3

    [(Dev1)] <- [(DevServer)] <- [(Broker)] <- [(PhoneRegistry)] <- [(Phone1)]
                                                                 4

The device knows its server, and that it wants a phone. The server puts in the way to the phones,
and the identity of the device on the return route; the registry replaces "a phone" by one that
there is. The phone answers along the return route, and need not know any of this.

Each of them could be on a node of its own. They are on one here, as what happens to the routes
is the same.

It prints, with what the device gets in the end, which has no number in the document:

    1  onward_route: DevServer -> Phone
       return_route: Dev
    2  onward_route: Broker -> PhoneRegistry -> Phone
       return_route: DevServer -> Dev1
    3  onward_route: Phone1
       return_route: PhoneRegistry -> Broker -> DevServer -> Dev1
    4  onward_route: PhoneRegistry -> Broker -> DevServer -> Dev1
       return_route: Phone1
    -  onward_route: Dev
       return_route: DevServer -> Broker -> PhoneRegistry -> Phone1
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onward.actors import Node, Worker
from onward.actors.workers import Forwarder
from onward.protocol import Address, Message, Route, address, route

Show = Callable[[str, Message], object]


class Device(Worker):
    def __init__(self, show: Show, answered: asyncio.Event) -> None:
        super().__init__()
        self._show = show
        self._answered = answered

    def ask(self) -> None:
        message = Message(route("DevServer => Phone"), (self.address,), b"the door bell")
        self._show("1", message)
        self.route(message)

    def handle_message(self, message: Message) -> None:
        self._show("-", message)
        self._answered.set()


class DevServer(Worker):
    """Knows the way to the phones, and which device is where.

    Args:
        show: Shows what it passes on.
        devices: The identity of each device, by its address.
    """

    def __init__(self, show: Show, devices: dict[Address, Address]) -> None:
        super().__init__()
        self._show = show
        self._identities = devices
        self._devices = {identity: device for device, identity in devices.items()}
        self._phones = route("Broker => PhoneRegistry")

    def handle_message(self, message: Message) -> None:
        onward, back, payload, source, context = message
        if onward[1] in self._devices:
            # For a device, by its identity.
            onward = (self._devices[onward[1]], *onward[2:])
            self.route(Message(onward, (self.address, *back), payload, source, context))
            return
        onward = (*self._phones, *onward[1:])
        back = (self.address, self._identities[back[0]], *back[1:])
        passed_on = Message(onward, back, payload, source, context)
        self._show("2", passed_on)
        self.route(passed_on)


class PhoneRegistry(Worker):
    """Knows the phones: puts one that there is in place of "a phone"."""

    def __init__(self, phones: dict[Address, Address]) -> None:
        super().__init__()
        self._phones = phones

    def handle_message(self, message: Message) -> None:
        onward, back, payload, source, context = message
        next_step = self._phones.get(onward[1], onward[1])
        onward = (next_step, *onward[2:])
        self.route(Message(onward, (self.address, *back), payload, source, context))


class Phone(Worker):
    def __init__(self, show: Show) -> None:
        super().__init__()
        self._show = show

    def handle_message(self, message: Message) -> None:
        self._show("3", message)
        answer = message.reply(b"coming")
        self._show("4", answer)
        self.route(answer)


async def run(show: Show) -> None:
    """Run the example; show each message as it is sent or gets to its worker."""
    answered = asyncio.Event()
    device = Device(show, answered)
    devices, phones = {address("Dev"): address("Dev1")}, {address("Phone"): address("Phone1")}
    async with Node() as node:
        await node.start(lambda: Phone(show), address="Phone1")
        await node.start(lambda: PhoneRegistry(phones), address="PhoneRegistry")
        await node.start(Forwarder, address="Broker")
        await node.start(lambda: DevServer(show, devices), address="DevServer")
        await node.start(lambda: device, address="Dev")
        device.ask()
        await answered.wait()


def written(steps: Route) -> str:
    """Write a route as the document does."""
    return " -> ".join(step.value.decode() for step in steps)


def print_message(number: str, message: Message) -> None:
    print(f"{number}  onward_route: {written(message.onward_route)}")
    print(f"   return_route: {written(message.return_route)}")


if __name__ == "__main__":
    asyncio.run(run(print_message))
