"""Connections that have ended are freed at once: the cycle collector has nothing to find."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import NamedTuple
from uuid import uuid4

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.protocol import LinkDown
from onward.transports.rsocket import PeerDialler
from onward.transports.rsocket._link import Link
from onward.transports.rsocket._listener import RSocketListener
from tests.support.compiled import interpreted
from tests.support.loops import on_both_loops
from tests.support.proxy import CuttingProxy
from tests.support.rsocket_peer import *
from tests.support.transports import eventually
from tests.support.websocket_peer import BINARY, handshake, ws_frame
from tests.transports.client.clustered import Site, sites
from tests.transports.rsocket.test_sockets import Client

pytestmark = interpreted
"""The figures are those of objects of Python: what is compiled has others."""

L, REJECTED = 0x040, 0x202
TIMES = 3
KINDS = ((RR, None), (STREAM, 4), (CHANNEL, 4))
_streams = count(1, 2)


class Pair(NamedTuple):
    """Two brokers with a link through a proxy, and clients of both.

    Attributes:
        near: The broker that has dialled.
        far: The other one.
        proxy: The proxy.
        requesters: A client of each, which stays.
    """

    near: Site
    far: Site
    proxy: CuttingProxy
    requesters: tuple[Client, Client]

    def linked(self) -> bool:
        return all(each.cluster.membership.linked for each in (self.near, self.far))

    def apart(self) -> bool:
        return not any(each.cluster.membership.linked for each in (self.near, self.far))


def links_of(site: Site) -> list[Link]:
    """Return the connections that a broker has accepted."""
    return list(site.listener._links)


async def client(site: Site, service: str = "", flags: int = 0) -> Client:
    """Connect a client, as a destination if it has a service; with flags of its SETUP."""
    before = len(links_of(site))
    where = site.uri.rpartition(":")[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(where))
    registered = composite((BROKER_FRAME, route_setup(uuid4(), service))) if service else None
    writer.write(setup(registered, flags=flags))
    await eventually(lambda: len(links_of(site)) == before + 1)
    if service:
        await eventually(lambda: any(row.service == service for row in site.broker.routes()))
    return Client(reader, writer)


async def ask(requester: Client, destination: Client | None, service: str) -> None:
    """Open a request of each kind and routing, and wait until the destination has them all."""
    for kind, n in KINDS:
        for routing in (UNICAST, MULTICAST):
            asked = asked_for(service, routing)
            requester.send(request(kind, next(_streams), asked, b"data", n=n))
            if destination is not None:
                await destination.next()


@asynccontextmanager
async def pair() -> AsyncGenerator[Pair]:
    async with sites(1) as made:
        (far,) = made.all
        async with CuttingProxy(int(far.uri.rpartition(":")[2])).running() as proxy:
            near = await made.start(seeds=[f"rsocket+tcp://127.0.0.1:{proxy.port}"])
            yield Pair(near, far, proxy, (await client(near), await client(far)))


@contextmanager
def found() -> Generator[Counter[str]]:
    """Yield the classes of objects that the collector finds, filled at the end.

    They are those of this project, and of the library for the handshake of WebSockets.
    """
    left = Counter[str]()
    gc.collect()
    gc.disable()
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        names = (f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
        left.update(name for name in names if name.startswith(("onward.", "websockets.")))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def left_by(act: Callable[[], Awaitable[object]], times: int = TIMES) -> Counter[str]:
    """Return what the collector finds after something has happened a few times."""
    await act()
    with found() as left:
        for _ in range(times):
            await act()
        await asyncio.sleep(0)
    return left


@on_both_loops
@pytest.mark.parametrize("end", [Client.close, Client.reset])
async def test_a_client(end: Callable[[Client], None]) -> None:
    async with sites(1) as made:
        (site,) = made.all
        destination = await client(site, "a")

        async def once() -> None:
            requester = await client(site, "b")
            await ask(requester, destination, "a")
            requester.send(request(RR, next(_streams), asked_for("nowhere")))
            await eventually(lambda: site.broker.statistics().waiting == 1)
            end(requester)
            await eventually(lambda: len(links_of(site)) == 1)
            await eventually(lambda: not site.broker.statistics().waiting)

        assert not await left_by(once)
        destination.reset()


@on_both_loops
async def test_a_destination_with_requests_in_hand() -> None:
    async with sites(1) as made:
        (site,) = made.all
        requester = await client(site)

        async def once() -> None:
            destination = await client(site, "a")
            await ask(requester, destination, "a")
            destination.reset()
            await eventually(lambda: len(links_of(site)) == 1)

        assert not await left_by(once)
        requester.reset()


@on_both_loops
async def test_a_multicast_that_no_destination_takes() -> None:
    async with sites(1) as made:
        (site,) = made.all
        requester = await client(site)
        # They honour leases, and lease nothing.
        destinations = [await client(site, "a", flags=L) for _ in range(2)]

        async def once() -> None:
            for kind, n in KINDS:
                asked = asked_for("a", MULTICAST)
                requester.send(request(kind, next(_streams), asked, b"data", n=n))
                while not (found := errors([await requester.next()])):
                    pass  # the requester's direction of a channel is closed before
                assert found[0][1] == REJECTED

        assert not await left_by(once)
        for each in (requester, *destinations):
            each.reset()


@on_both_loops
async def test_a_client_by_websocket() -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+ws://127.0.0.1:0", broker=broker)
        assert isinstance(listener, RSocketListener)
        port = int(listener.uri.rstrip("/").rpartition(":")[2])

        async def once() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(handshake(host="127.0.0.1") + ws_frame(BINARY, setup()[3:]))
            assert b" 101 " in await reader.readuntil(b"\r\n")
            await eventually(lambda: bool(listener._links))
            writer.transport.abort()
            await eventually(lambda: not listener._links)

        assert not await left_by(once)


@on_both_loops
async def test_a_link_of_brokers_that_is_cut_with_requests_under_way() -> None:
    async with pair() as p:
        near, far = p.requesters
        destinations = (await client(p.far, "at-far"), await client(p.near, "at-near"))
        both = (p.near, p.far)
        await eventually(lambda: all(map(routes_of_the_other, both)))

        async def once() -> None:
            await ask(near, destinations[0], "at-far")
            await ask(far, destinations[1], "at-near")
            p.proxy.cut()
            await eventually(p.apart)
            await eventually(p.linked)
            await eventually(lambda: all(map(routes_of_the_other, both)))

        assert not await left_by(once, 1)  # a broker that is lost often is used later
        for each in (*p.requesters, *destinations):
            each.reset()


def routes_of_the_other(site: Site) -> bool:
    """Whether a broker has a route of the other one that it would choose."""
    (row,) = site.cluster.peers()
    return row.state == "up" and row.routes == 1


@on_both_loops
async def test_a_broker_that_is_dialled_and_does_not_answer() -> None:
    async with pair() as p:
        p.proxy.refuses = True
        uri = f"rsocket+tcp://127.0.0.1:{p.proxy.port}"
        dialler = PeerDialler(p.near.broker)

        async def once() -> None:
            with pytest.raises(LinkDown):
                await dialler.connect(uri, p.near.cluster)

        assert not await left_by(once)
        for each in p.requesters:
            each.reset()
