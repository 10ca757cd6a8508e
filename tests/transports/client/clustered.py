"""Brokers of a cluster on real sockets, each on a node of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.cluster import Cluster, ClusterOptions
from onward.actors.security import Authorization
from onward.protocol.security import read_rules
from onward.transports.rsocket import PeerDialler, PeerOptions, RSocketListener
from tests.support.transports import eventually

TCP = "rsocket+tcp://127.0.0.1:0"
NOWHERE = "rsocket+tcp://127.0.0.1:0"
"""The URI of a broker that others cannot dial."""


class Site:
    """A broker of a cluster.

    Attributes:
        node: Its node.
        broker: The broker.
        cluster: Its cluster.
        listener: Its listener.
        uri: Its URI, for clients and brokers.
    """

    def __init__(
        self, node: Node, broker: Broker, cluster: Cluster, listener: RSocketListener
    ) -> None:
        self.node = node
        self.broker = broker
        self.cluster = cluster
        self.listener = listener
        self.uri = listener.uri


class Sites:
    """The brokers of a cluster, in the order in which they were started."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.all: list[Site] = []
        self._stack = stack

    async def start(
        self,
        uri: str = TCP,
        *,
        tls: Any = None,
        peer_tls: Any = None,
        rules: str | None = None,
        tells: bool = True,
        seeds: Sequence[str] | None = None,
    ) -> Site:
        """Start a broker that joins the others, and tells clients of them.

        Args:
            uri: Where it listens.
            tls: The encryption of its listener.
            peer_tls: The encryption of the links that it opens.
            rules: The rules of authorization.
            tells: Whether it tells clients of its URI.
            seeds: The URIs of others, if not their own; then it is dialled by none.
        """
        node = await self._stack.enter_async_context(Node(f"broker-{len(self.all)}"))
        broker = await Broker.attach(
            node,
            BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.5)),
            authorization=None if rules is None else Authorization(read_rules(rules)),
        )
        dialled = tuple(each.uri for each in self.all) if seeds is None else tuple(seeds)
        cluster = await Cluster.attach(
            node,
            broker,
            ClusterOptions(seeds=dialled),
            connect=PeerDialler(broker, None, PeerOptions(tls=peer_tls)).connect,
        )
        options = {} if tls is None else {"tls": tls}
        listener = await node.listen(uri, broker=broker, peers=cluster, **options)
        assert isinstance(listener, RSocketListener)
        advertised = listener.uri if seeds is None else NOWHERE
        cluster.join(advertised, listener.uri if tells else "")
        site = Site(node, broker, cluster, listener)
        self.all.append(site)
        await self.meshed()
        return site

    async def stop(self, site: Site) -> None:
        """Stop a broker for good."""
        self.all.remove(site)
        await site.node.stop()

    async def meshed(self) -> None:
        """Wait until each broker has a link to each other one."""
        count = len(self.all) - 1
        await eventually(
            lambda: all(len(each.cluster.membership.linked) == count for each in self.all)
        )


@asynccontextmanager
async def sites(count: int, **more: Any) -> AsyncGenerator[Sites]:
    """Start brokers that form a cluster."""
    async with AsyncExitStack() as stack:
        made = Sites(stack)
        for _ in range(count):
            await made.start(**more)
        yield made
