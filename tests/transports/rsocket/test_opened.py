"""A connection that one broker opens to another: both relay requests over it, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from onward.actors import Node
from onward.actors.broker import Answer, Broker, BrokerOptions, Handlers, Request, WaitingOptions
from onward.protocol import InDoubt, NotDelivered
from onward.protocol.broker import RouteSetup
from onward.protocol.rsocket import Setup
from onward.transports.client import Client, ClientOptions, RetryOptions, connect
from onward.transports.client._dial import parse_place
from onward.transports.client._metadata import setup_metadata
from onward.transports.rsocket import LeaseOptions, LinkOptions, RSocketListener
from onward.transports.rsocket._link import Link
from tests.support.rsocket_opened import opened_link
from tests.support.transports import eventually

SCHEMES = ["rsocket+tcp://127.0.0.1:0", "rsocket+ws://127.0.0.1:0/"]
OPTIONS = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
CLIENT = ClientOptions(retry=RetryOptions(max_tries=1))


def handlers_of(name: str, begun: asyncio.Event) -> Handlers:
    """Return handlers whose answers begin with a name."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> Answer:
        return Answer(name.encode() + b" " + request.data, request.metadata)

    @handlers.response("wait")
    async def wait(_request: Request) -> bytes:
        begun.set()
        await asyncio.sleep(3600)
        return b""

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield b"%s %d" % (name.encode(), number)

    @handlers.channel
    async def shout(_request: Request, incoming: Any) -> AsyncGenerator[bytes]:
        async for data in incoming:
            yield name.encode() + b" " + data.upper()

    return handlers


def metadata_of(service: str) -> bytes:
    """Return the metadata that registers a broker as a destination at the other."""
    return setup_metadata(RouteSetup(uuid4().bytes, service, ()), CLIENT)


class Side(NamedTuple):
    """A broker, with a requester and a destination of its own.

    Attributes:
        name: The name of the service of its destination.
        broker: The broker.
        listener: The listener for its clients.
        requester: A requester.
        begun: Set when a handler of the destination waits.
    """

    name: str
    broker: Broker
    listener: RSocketListener
    requester: Client
    begun: asyncio.Event


@asynccontextmanager
async def side(name: str, uri: str, options: LinkOptions) -> AsyncGenerator[Side]:
    begun = asyncio.Event()
    async with Node(name) as node:
        broker = await Broker.attach(node, OPTIONS)
        listener = await node.listen(uri, broker=broker, options=options)
        assert isinstance(listener, RSocketListener)
        async with (
            connect(listener.uri, service=name, handlers=handlers_of(name, begun)),
            connect(listener.uri, options=CLIENT) as requester,
        ):
            yield Side(name, broker, listener, requester, begun)


def lacks(at: Side, service: str) -> bool:
    """Return whether a broker has no destination of a service."""
    return all(row.service != service for row in at.broker.routes())


async def joined(near: Side, far: Side, options: LinkOptions) -> tuple[Link, Link]:
    """Open a connection from one broker to the other, a destination at both; return its ends."""
    setup = Setup(metadata=metadata_of(near.name), lease=options.lease is not None)
    link = await opened_link(near.broker, setup, options, peer=far.name)
    before = set(far.listener._links)
    await parse_place(far.listener.uri, CLIENT).dialler.open(lambda: link)
    await eventually(lambda: not lacks(far, near.name))
    (accepted,) = set(far.listener._links) - before
    accepted.core.send_metadata_push(metadata_of(far.name))
    accepted.flush_soon()
    await eventually(lambda: not lacks(near, far.name))
    return link, accepted


@asynccontextmanager
async def both(
    uri: str, options: LinkOptions | None = None
) -> AsyncGenerator[tuple[Side, Side, Link, Link]]:
    options = options or LinkOptions()
    async with side("near", uri, options) as near, side("far", uri, options) as far:
        ends = await joined(near, far, options)
        yield near, far, *ends


async def source(*elements: bytes) -> AsyncGenerator[bytes]:
    for element in elements:
        yield element


async def check_all(asker: Side, there: Side) -> None:
    """Make a request of each kind, from a client of one broker to one of the other."""
    asked, name = f"service={there.name}", there.name.encode()
    client = asker.requester
    answer = await client.request(asked, b"hi", b"about")
    assert (answer.data, answer.metadata) == (name + b" hi", b"about")
    large = b"x" * 300_000
    assert (await client.request(asked, large)).data == name + b" " + large
    got = [each.data async for each in client.stream(asked, b"200")]
    assert got == [b"%s %d" % (name, number) for number in range(200)]
    got = [each.data async for each in client.channel(asked, source(b"a", b"b", b"c"))]
    assert got == [name + b" " + each for each in (b"A", b"B", b"C")]


@pytest.mark.parametrize("uri", SCHEMES)
async def test_requests_are_relayed_in_both_directions(uri: str) -> None:
    async with both(uri) as (near, far, link, accepted):
        await asyncio.gather(check_all(near, far), check_all(far, near))
        assert not link.core.streams
        assert not accepted.core.streams
        # Stream Identifiers: "Stream IDs on a client MUST start at 1 and increment by 2
        # sequentially", "on a server MUST start at 2".
        assert (link.core.open(4).id % 2, accepted.core.open(4).id % 2) == (1, 0)


async def test_leases_hold_in_both_directions() -> None:
    options = LinkOptions(lease=LeaseOptions(requests=3, interval=100.0))
    async with both(SCHEMES[0], options) as (near, far, link, accepted):
        assert link.leases is not None
        assert accepted.leases is not None
        for asker, there in ((near, far), (far, near)):
            asked = f"service={there.name}"
            for _ in range(3):
                await asker.requester.request(asked, b"")
            with pytest.raises(NotDelivered):
                await asker.requester.request(asked, b"")


@pytest.mark.parametrize("lost", ["near", "far"])
async def test_the_loss_of_the_connection_ends_the_requests_of_both_sides(lost: str) -> None:
    async with both(SCHEMES[0]) as (near, far, link, accepted):
        requests: list[asyncio.Task[Answer]] = []
        for asker, there in ((near, far), (far, near)):
            asking = asker.requester.request(f"service={there.name}", b"", route="wait")
            requests.append(asyncio.ensure_future(asking))
            await there.begun.wait()
        (link if lost == "near" else accepted).abort()
        for request in requests:
            with pytest.raises(InDoubt):
                await request
        for asker, there in ((near, far), (far, near)):
            await eventually(partial(lacks, asker, there.name))
            with pytest.raises(NotDelivered):
                await asker.requester.request(f"service={there.name}", b"")
