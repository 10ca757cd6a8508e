"""A broker that is one of two, for `cluster.py`: told by hand what the other has.

    python benchmarks/_peer_broker.py
    python benchmarks/_peer_broker.py URI SERVICE ROUTE

The second form dials the broker at the URI, and knows that it has a route of the service. Either
prints `listening rsocket+tcp://127.0.0.1:PORT`.

It has the event loop, the garbage collection and the options that `onward broker` has.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from uuid import UUID

from onward.actors import Node, new_event_loop
from onward.actors.broker import Broker, Handlers
from onward.actors.broker.table._remote import PeerRoutes
from onward.actors.cluster import PeerConnection
from onward.protocol.broker import BrokerInfo, RouteAdd
from onward.transports.rsocket import PeerDialler


class Cluster:
    """The `PeerHandlers` of a broker that takes every other for a peer broker."""

    def __init__(self, broker: Broker) -> None:
        self.info = BrokerInfo(broker.broker_id.bytes, int(time.time() * 1000))

    def greet(self, info: BrokerInfo) -> None:
        """Refuse no broker."""

    def on_connected(self, connection: PeerConnection) -> Handlers:
        """Serve no requests but those that are forwarded."""
        del connection
        return Handlers()

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Go on: the load ends by itself."""


def tell(broker: Broker, connection: PeerConnection, service: str, route_id: UUID) -> None:
    """Add a route of another broker to the table."""
    index, broker_id = broker.index, connection.info.broker_id
    peer = PeerRoutes(broker_id, "far")
    index.peer_joined(peer)
    peer.connected(connection.address, connection.peer)
    index.add_remote(peer, RouteAdd(broker_id, route_id.bytes, int(time.time() * 1000), service))


async def main(uri: str = "", service: str = "", route: str = "") -> None:
    """Serve until the process is killed."""
    async with Node("peer") as node:
        broker = await Broker.attach(node)
        cluster = Cluster(broker)
        if uri:
            connection = await PeerDialler(broker).connect(uri, cluster)
            tell(broker, connection, service, UUID(route))
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker, peers=cluster)
        gc.freeze()
        print(f"listening {listener.uri}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
