"""The broker of a node of a running topology, and its part in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, cast
from uuid import UUID

from ...protocol import OnwardError
from ...protocol.topology import BrokerPlan, ListenerPlan, TopologyPlan
from .._node import Node
from ..broker import Broker
from ..cluster import Cluster, ClusterOptions, ConnectPeer
from ._errors import TopologyFailed

__all__ = ["SIMULATED", "RunningBroker"]


SIMULATED: Final = "rsocket+sim"
"""The scheme of listeners for RSocket in a simulated network."""


class _PeerTransport(Protocol):
    """A transport by which brokers dial each other; those for RSocket are."""

    def peer_dialler(self, broker: Broker) -> ConnectPeer:
        """Return what dials other brokers for a broker."""
        ...


class RunningBroker:
    """The broker of a node.

    Args:
        name: The name of the node.
        plan: The broker's plan.
        broker: The broker.
        cluster: Its cluster; `None` if it is in none.

    Attributes:
        name: As given.
        broker: As given.
        cluster: As given.
    """

    def __init__(
        self, name: str, plan: BrokerPlan, broker: Broker, cluster: Cluster | None
    ) -> None:
        self.name = name
        self._plan = plan
        self.broker = broker
        self.cluster = cluster

    @classmethod
    async def start(
        cls, topology: TopologyPlan, name: str, node: Node, *, simulated: bool = False
    ) -> RunningBroker | None:
        """Start the broker of a node; it dials no other one before `join`.

        Args:
            topology: The topology.
            name: The name of the node.
            node: The node.
            simulated: Whether the node is one of a simulated network, where its listeners are.

        Raises:
            TopologyFailed: It cannot be started.
        """
        part = topology.node(name)
        plan = part.broker
        if plan is None:
            return None
        try:
            if simulated and plan.seeds:
                raise TopologyFailed(plan.place, f"{plan.seeds[0]} is not part of the simulation")
            broker = await Broker.attach(node, broker_id=_random_id(node))
            listener = part.broker_listener
            cluster: Cluster | None = None
            if plan.cluster and listener is not None:
                uri = f"{SIMULATED}://" if simulated else listener.uri
                transport = cast("_PeerTransport", node.parts.transports.use(uri))
                options = ClusterOptions(
                    name=name,
                    zone=plan.zone,
                    locality=cast("Literal['prefer', 'even']", plan.locality),
                )
                dial = transport.peer_dialler(broker)
                cluster = await Cluster.attach(node, broker, options, connect=dial)
        except TopologyFailed:
            raise
        except (OnwardError, ValueError) as error:
            raise TopologyFailed(plan.place, f"cannot start: {error}") from error
        return cls(name, plan, broker, cluster)

    def options_of(self, listener: ListenerPlan) -> dict[str, Any]:
        """Return the options of a listener for RSocket, besides those of the file."""
        if not listener.is_for_broker:
            return {}
        found: dict[str, Any] = {"broker": self.broker}
        if self.cluster is not None:
            found["peers"] = self.cluster
        return found

    def join(self, topology: TopologyPlan, uris: Mapping[str, str]) -> None:
        """Dial the other brokers of the cluster from now on.

        Args:
            topology: The topology.
            uris: The URIs of the listeners, by `ListenerPlan.id`.
        """
        cluster, own = self.cluster, topology.node(self.name).broker_listener
        if cluster is None or own is None:
            return
        places = (each.broker_listener for each in topology.peers_of(self.name))
        seeds = [uris[each.id] for each in places if each is not None and each.id in uris]
        cluster.adjust(replace(cluster.options, seeds=(*seeds, *self._plan.seeds)))
        cluster.join(uris.get(own.id, ""))

    def register(self) -> None:
        """Make the workers destinations, once they have started.

        Raises:
            TopologyFailed: One cannot be a destination.
        """
        for each in self._plan.destinations:
            try:
                self.broker.register(
                    each.worker,
                    service=each.service,
                    tags=each.tags,
                    route_id=_random_id(self.broker.node),
                )
            except OnwardError as error:
                raise TopologyFailed(each.place, f"cannot be a destination: {error}") from error


def _random_id(node: Node) -> UUID:
    """Return an id of 122 random bits, which in a simulated network come from its seed."""
    return UUID(node.random_address().value.decode(), version=4)
