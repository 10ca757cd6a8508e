"""Requests routed by tags: to workers of the node, and from an RSocket client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from functools import partial

from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.extensions.composite_metadata import CompositeMetadata, CompositeMetadataItem
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.tcp import TransportTCP

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.protocol import Message, NoRoute
from onward.protocol.broker import MIME_BROKER_FRAME, AddressFrame, Dialect, RoutingType, make_tags


# --8<-- [start:worker]
class Shop(Worker):
    def __init__(self, town: str) -> None:
        super().__init__()
        self.town = town

    def handle_message(self, message: Message) -> None:
        self.reply(message, f"{self.town}: {message.payload.decode()}".encode())


# --8<-- [end:worker]


# --8<-- [start:main]
async def main() -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        for town, region in (("Berlin", "eu"), ("Lyon", "eu"), ("Quito", "south")):
            worker = await node.start(partial(Shop, town))
            broker.register(worker, service="shop", tags={"region": region})

        for _ in range(4):
            answer = await node.request("32#service=shop region=eu", b"tea")
            print(answer.payload.decode())
        answer = await node.request("32#service=shop region=south", b"mate")
        print(answer.payload.decode())


# --8<-- [end:main]


# --8<-- [start:unmatched]
async def unmatched() -> None:
    async with Node() as node:
        await Broker.attach(node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0)))
        try:
            await node.request("32#service=shop region=moon", b"cheese")
        except NoRoute as error:
            print(error)


# --8<-- [end:unmatched]


# --8<-- [start:address]
COMPOSITE = WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA


def addressed(data: bytes, **tags: str) -> Payload:
    frame = AddressFrame(uuid.uuid4().bytes, RoutingType.UNICAST, make_tags(tags))
    item = CompositeMetadataItem(MIME_BROKER_FRAME, frame.serialize(Dialect.REFERENCE))
    return Payload(data, CompositeMetadata([item]).serialize())


# --8<-- [end:address]


# --8<-- [start:client]
async def client(host: str, port: int) -> None:
    async def transports() -> AsyncGenerator[TransportTCP]:
        yield TransportTCP(*await asyncio.open_connection(host, port))

    async with RSocketClient(transports(), metadata_encoding=COMPOSITE) as rsocket:
        request = addressed(b"a question", service="shop", region="south")
        answer = await AwaitableRSocket(rsocket).request_response(request)
        print((answer.data or b"").decode())


# --8<-- [end:client]


# --8<-- [start:listen]
async def with_a_client() -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        quito = await node.start(partial(Shop, "Quito"))
        broker.register(quito, service="shop", tags={"region": "south"})

        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        host, _, port = listener.uri.removeprefix("rsocket+tcp://").rpartition(":")
        await client(host, int(port))


# --8<-- [end:listen]

if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(unmatched())
    asyncio.run(with_a_client())
