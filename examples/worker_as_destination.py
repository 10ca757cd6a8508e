"""A broker inside a program, with a worker as a destination.

The worker registers with tags. It gets requests of another worker, through an address of type 32,
and of an RSocket client; it cannot tell the two apart. When it withdraws, requests of both fail
without being handed over, so they can safely be repeated later.

It prints:

    a worker asks: 3 apples in the eu store
    a client asks: 3 pears in the eu store
    a worker is told: no route: service=stock region=eu
    a client is told: REJECTED no route: service=stock region=eu
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.exceptions import RSocketProtocolError
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import metadata_item
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.tcp import TransportTCP

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.protocol import Message, NoRoute
from onward.protocol.broker import (
    MIME_BROKER_FRAME,
    AddressFrame,
    Dialect,
    RoutingType,
    make_tags,
)

STOCK = {"service": "stock", "region": "eu"}


class Stock(Worker):
    """A worker that replies with the stock of an item."""

    def handle_message(self, message: Message) -> None:
        # The payload is the request's data; the reply goes along the return route.
        self.reply(message, b"3 %b in the eu store" % message.payload)


async def worker_asks(node: Node, what: bytes) -> None:
    try:
        answer = await node.request("32#service=stock region=eu", what, timeout=5)
        print("a worker asks:", answer.payload.decode())
    except NoRoute as error:
        print("a worker is told:", error)


@asynccontextmanager
async def connected(uri: str) -> AsyncGenerator[AwaitableRSocket]:
    """Connect to a broker as any RSocket client does."""
    host, _, port = uri.partition("://")[2].rpartition(":")
    transport = TransportTCP(*await asyncio.open_connection(host, int(port)))

    async def transports() -> AsyncGenerator[TransportTCP]:
        yield transport

    composite = WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA
    async with RSocketClient(transports(), metadata_encoding=composite) as client:
        yield AwaitableRSocket(client)


async def client_asks(client: AwaitableRSocket, what: bytes) -> None:
    # The request's metadata says what tags its destination has to carry.
    frame = AddressFrame(uuid.uuid4().bytes, RoutingType.UNICAST, make_tags(STOCK))
    address = metadata_item(frame.serialize(Dialect.REFERENCE), MIME_BROKER_FRAME)
    request = Payload(what, CompositeMetadata([address]).serialize())
    try:
        answer = await asyncio.wait_for(client.request_response(request), timeout=5)
        print("a client asks:", (answer.data or b"").decode())
    except RSocketProtocolError as error:
        print("a client is told:", error.error_code.name, error.data)


async def main() -> None:
    async with Node() as node:
        # By default a request waits five seconds for a destination to come.
        broker = await Broker.attach(
            node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
        )
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)

        worker = await node.start(Stock)
        registration = broker.register(worker, service="stock", tags={"region": "eu"})
        async with connected(listener.uri) as client:
            await worker_asks(node, b"apples")
            await client_asks(client, b"pears")

            registration.withdraw()
            await worker_asks(node, b"apples")
            await client_asks(client, b"pears")


if __name__ == "__main__":
    asyncio.run(main())
