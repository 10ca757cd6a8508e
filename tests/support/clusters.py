"""Clusters of brokers in one process, with peer links in memory, on the virtual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, Handlers, Registration, Request
from onward.actors.cluster import (
    Cluster,
    ClusterOptions,
    PeerConnection,
    PeerStatistics,
    ResolveSeed,
)
from onward.protocol import TAGS, Address
from onward.protocol.broker import BrokerInfo, Dialect, RouteAdd, RouteRemove, RouteSetup
from onward.protocol.cluster import (
    BROKERS_ROUTE,
    REMOTE_BROKER_INFO_ROUTE,
    ROUTES_ROUTE,
    Element,
    ElementKind,
    PeerInfo,
)
from onward.protocol.security import ANONYMOUS, Principal
from tests.support.peer_links import PeerNetwork

SPECIFICATION = Dialect.SPECIFICATION
SOON = 0.2
"""Seconds after which what was changed is known to all brokers with a link."""


class Site:
    """One broker of a cluster.

    Attributes:
        uri: The URI at which others reach it.
        node: Its node.
        broker: The broker.
        cluster: Its cluster.
    """

    def __init__(self, uri: str, node: Node, broker: Broker, cluster: Cluster) -> None:
        self.uri = uri
        self.node = node
        self.broker = broker
        self.cluster = cluster
        self.evicted: list[str] = []

    async def serve(self, service: str, route_id: UUID | None = None) -> Registration:
        """Register a worker as a destination."""
        worker = await self.node.start(Worker)
        return self.broker.register(worker, service=service, route_id=route_id)

    async def connect(
        self, service: str, route_id: UUID, principal: Principal = ANONYMOUS
    ) -> Registration:
        """Register a connection as a destination; `evicted` has the reason if it is closed."""
        worker = await self.node.start(Worker)
        setup = RouteSetup(route_id.bytes, service)
        registered: list[Registration] = []

        def evict(reason: str) -> None:
            self.evicted.append(reason)

        registered.append(
            self.broker.connect(setup, worker, peer="client", evict=evict, principal=principal)
        )
        # The time of a registration is that of the wall clock, also on the virtual clock: one that
        # is later in a test has a later one.
        at = int(time.time() * 1000)
        while int(time.time() * 1000) == at:
            pass
        return registered[0]

    def found(self, service: str) -> list[bytes]:
        """Return the home brokers of the routes that a request for a service may go to."""
        index = self.broker.index
        ask = index.asked(Address(TAGS, f"service={service}".encode()))
        return sorted(entry.broker_id for entry in index.candidates(ask))

    def peer(self, of: Site | bytes | str) -> PeerStatistics:
        """Return the row of a peer broker, by its site, its id or its URI."""
        if isinstance(of, str):
            return next(row for row in self.cluster.peers() if row.uri == of)
        broker_id = of if isinstance(of, bytes) else of.id
        return next(
            row
            for row in self.cluster.peers()
            if row.broker_id == UUID(bytes=broker_id).hex
            or row.broker_id == str(UUID(bytes=broker_id))
        )

    @property
    def id(self) -> bytes:
        """The id of the broker, 16 bytes."""
        return self.broker.broker_id.bytes


class Clusters:
    """Brokers and the network between them.

    Attributes:
        network: The network.
        sites: The brokers by name.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self.network = PeerNetwork()
        self.sites: dict[str, Site] = {}
        self._stack = stack

    async def start(
        self,
        name: str,
        seeds: Sequence[str] = (),
        *,
        options: ClusterOptions = ClusterOptions(),  # noqa: B008 - frozen
        broker_options: BrokerOptions = BrokerOptions(management=False),  # noqa: B008 - frozen
        join: bool = True,
        resolve: ResolveSeed | None = None,
        broker_id: UUID | None = None,
    ) -> Site:
        """Start a broker; its URI is made of its name."""
        uri = f"test://{name}"
        node = await self._stack.enter_async_context(Node(name))
        broker = await Broker.attach(node, broker_options, broker_id=broker_id)
        cluster = await Cluster.attach(
            node,
            broker,
            replace(options, name=name, seeds=tuple(f"test://{each}" for each in seeds)),
            connect=self.network.connect_from(uri),
            random=lambda: 0.5,
            resolve=resolve,
        )
        self.network.listen(uri, cluster)
        site = self.sites[name] = Site(uri, node, broker, cluster)
        if join:
            cluster.join(uri)
        return site

    async def kill(self, site: Site) -> None:
        """Cut all links of a broker, and have it unreachable."""
        self.network.withdraw(site.uri)
        await site.node.stop()


@asynccontextmanager
async def clusters() -> AsyncGenerator[Clusters]:
    """Provide clusters, and stop all brokers at the end."""
    async with AsyncExitStack() as stack:
        yield Clusters(stack)


class FakePeer:
    """A broker that sends whatever a test wants.

    Attributes:
        info: Its BROKER_INFO.
        connection: The link to it.
        lost: The reasons for which links were lost.
        subscriptions: The positions from which its routes were asked for.
        told: The brokers that it was told of.
        answer: Its answer to a comparison of the brokers that are known.
    """

    def __init__(self, **facts: Any) -> None:
        now = int(time.time() * 1000)
        facts = {"broker_id": uuid4().bytes, "timestamp": now, "instance": now, **facts}
        self.facts = PeerInfo(**facts)
        self.connection: PeerConnection | None = None
        self.connected = 0
        self.lost: list[str] = []
        self.subscriptions: list[bytes] = []
        self.told: list[PeerInfo] = []
        self.elements: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answer = b""

    @property
    def info(self) -> BrokerInfo:
        """Its BROKER_INFO."""
        return self.facts.frame()

    def greet(self, info: BrokerInfo) -> None:
        """Let each broker in."""

    def on_connected(self, connection: PeerConnection) -> Handlers:
        """Use a link."""
        self.connection = connection
        self.connected += 1
        handlers = Handlers()

        @handlers.stream(ROUTES_ROUTE)
        async def routes(request: Request) -> AsyncGenerator[bytes]:
            self.subscriptions.append(request.data)
            while (element := await self.elements.get()) is not None:
                yield element

        @handlers.response(REMOTE_BROKER_INFO_ROUTE)
        async def told(request: Request) -> bytes:
            self.told.append(PeerInfo.parse(request.data))
            return b""

        @handlers.response(BROKERS_ROUTE)
        async def compare(request: Request) -> bytes:
            return self.answer

        del routes, told, compare
        return handlers

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Remember the reason."""
        self.lost.append(reason)

    def route(self, service: str, *, broker_id: bytes | None = None, ahead: int = 0) -> bytes:
        """Return a ROUTE_ADD of a new route."""
        return self.added(service, broker_id=broker_id, ahead=ahead).serialize(SPECIFICATION)

    def added(
        self,
        service: str,
        *,
        broker_id: bytes | None = None,
        route_id: bytes | None = None,
        ahead: int = 0,
    ) -> RouteAdd:
        """Return a ROUTE_ADD, as a value."""
        timestamp = int(time.time() * 1000) + ahead
        home = broker_id or self.facts.broker_id
        return RouteAdd(home, route_id or uuid4().bytes, timestamp, service)

    def removed(self, route_id: bytes, *, broker_id: bytes | None = None) -> bytes:
        """Return a ROUTE_REMOVE."""
        timestamp = int(time.time() * 1000) + 1
        home = broker_id or self.facts.broker_id
        return RouteRemove(home, route_id, timestamp).serialize(SPECIFICATION)

    def snapshot(self, *frames: bytes, sequence: int = 0) -> bytes:
        """Return the only part of a snapshot."""
        return self._element(ElementKind.SNAPSHOT, sequence or len(frames), frames, last=True)

    def changes(self, *frames: bytes, sequence: int) -> bytes:
        """Return changes up to a number."""
        return self._element(ElementKind.CHANGES, sequence, frames)

    def _element(
        self, kind: ElementKind, sequence: int, frames: Sequence[bytes], *, last: bool = False
    ) -> bytes:
        element = Element(kind, self.facts.broker_id, self.facts.instance, sequence, frames, last)
        return element.serialize()

    def send(self, *elements: bytes | None) -> None:
        """Send elements, as credit allows; `None` ends the stream."""
        for element in elements:
            self.elements.put_nowait(element)
