"""A device that accepts no connections, reached through a hub: a relay, a topic, and a directory.

The device connects to the hub, registers an alias, and keeps the relay alive: it pings through it
and registers again when the hub loses it. Messages for the device go to `forward_to_` and the
alias. The names and payloads are those of Ockam's services, so either side may be an Ockam
node.

It prints:

    relay: up, forward_to_printer
    the phone asked: 'page' was printed
    relay: down, the first hop of the route stopped
    relay: up, forward_to_printer
    the phone asked again: 'page' was printed
    the screen shows: out of paper
    found printer-1, which takes A4: 'page' was printed
"""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.actors.services import (
    Announcer,
    DiscoveryClient,
    DiscoveryService,
    PubSubService,
    RelayClient,
    StaticRelayService,
    Subscriber,
)
from onward.actors.sessions import route_over
from onward.protocol import Message
from onward.protocol.services import (
    DISCOVERY,
    PUB_SUB,
    STATIC_FORWARDING_API,
    STATIC_FORWARDING_SERVICE,
)
from onward.protocol.sessions import LivenessOptions


class Printer(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, b"'%b' was printed" % message.payload)


def came_up(relay: RelayClient) -> None:
    print(f"relay: up, {relay.name}")


def went_down(relay: RelayClient) -> None:
    print(f"relay: down, {relay.cause}")


async def offer_services(hub: Node) -> str:
    """Start the three services of the hub; return where it listens."""
    listener = await hub.listen(
        "tcp://127.0.0.1:0",
        expose=[STATIC_FORWARDING_SERVICE, STATIC_FORWARDING_API, PUB_SUB, DISCOVERY],
    )
    # Relays and topics are made while the node runs; this is through what they can be reached.
    at = [listener.address]
    await hub.start(lambda: StaticRelayService(expose_at=at), address=STATIC_FORWARDING_SERVICE)
    await hub.start(lambda: PubSubService(expose_at=at), address=PUB_SUB)
    await hub.start(DiscoveryService, address=DISCOVERY)
    return listener.uri


async def main() -> None:
    async with Node("hub") as hub, Node("device") as device, Node("phone") as phone:
        uri = await offer_services(hub)
        await device.start(Printer, address="print")

        route = route_over(device, uri, STATIC_FORWARDING_SERVICE, expose=["print"])
        relay = await RelayClient.on(
            device,
            route,
            alias="printer",
            times=LivenessOptions(ping_interval=1, retry=0.05),
            on_up=came_up,
            on_down=went_down,
        )
        await relay.until_up(5)
        to_hub = await phone.connect(uri)
        answer = await phone.request([to_hub, "forward_to_printer", "print"], b"page", timeout=5)
        print(f"the phone asked: {answer.payload.decode()}")

        await device.stop_worker(relay.relay[0])  # the connection is lost
        await relay.until_down()
        await relay.until_up(5)
        answer = await phone.request([to_hub, "forward_to_printer", "print"], b"page", timeout=5)
        print(f"the phone asked again: {answer.payload.decode()}")

        shown = asyncio.Event()

        def show(message: Message) -> None:
            print(f"the screen shows: {message.payload.decode()}")
            shown.set()

        await Subscriber.on(phone, [to_hub, PUB_SUB], "screen", "trouble", show)
        # A request to the service comes behind the subscription: then there is the topic.
        book = DiscoveryClient(phone, [to_hub, DISCOVERY])
        await book.list()
        link = relay.relay[0]
        device.send([link, "pub_sub_t_trouble"], b"out of paper")
        await shown.wait()

        announcer = await Announcer.on(
            device, [link, DISCOVERY], "printer-1", "print", {"takes": b"A4"}
        )
        await announcer.until_announced(5)
        found = await DiscoveryClient(hub, DISCOVERY).get("printer-1")
        assert found is not None
        answer = await hub.request(found.route, b"page", timeout=5)
        takes = found.metadata["takes"].decode()
        print(f"found {found.name}, which takes {takes}: {answer.payload.decode()}")
        await relay.close()  # the hub takes the relay away


if __name__ == "__main__":
    asyncio.run(main())
