"""The routing table of a node: where a message goes, by its destination, its scope and its origin.

| scope | from an engine of this node |
| --- | --- |
| local | engines and topics of this node; a topic's copies stay here |
| a domain | also the nodes of that domain, and relays that are in it |
| any | everything |

A message from the network is delivered here or refused, whatever its scope: it is never passed on,
so tables that point at each other end after one hop. One that says that its scope is local is
refused, as is a request that only engines of this node may make.

What is here is told by the node itself, and nothing that the network says replaces it. What is
elsewhere is told by the directory, and the entries that were used longest ago give way.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ._identities import Destination, DestinationKind, Identity
from ._preferences import SCOPE_ANY, SCOPE_LOCAL, Protocol, RoutingScope, ScopeKind
from ._routes import (
    AtNode,
    DeliverLocally,
    Dialable,
    Disconnect,
    FanOut,
    HasMembers,
    LookUp,
    RefusalReason,
    Refuse,
    RemoteRoute,
    RouteChanged,
    RoutingDecision,
    RoutingEvent,
    RoutingLimits,
    ToDomain,
    ToPeer,
    ViaNode,
    ViaRelay,
)

__all__ = ["CONTROL_PROTOCOLS", "RoutingCounters", "RoutingTable"]

CONTROL_PROTOCOLS: Final = frozenset({"onward/directory", "onward/router", "onward/topics"})
"""Names of the protocols of requests that only engines of the same node may make."""

_KINDS: Final[dict[type, frozenset[DestinationKind]]] = {
    AtNode: frozenset({DestinationKind.ENGINE, DestinationKind.TOPIC}),
    Dialable: frozenset({DestinationKind.NODE}),
    ViaNode: frozenset({DestinationKind.NODE}),
    HasMembers: frozenset({DestinationKind.DOMAIN}),
}
"""The kinds of destinations that a route may be to."""


@dataclass(slots=True)
class RoutingCounters:
    """Counts of a routing table.

    Attributes:
        evicted: Routes that were let go at the limit `remote`.
        unbanned: Banned identities that were let go at the limit `banned`.
        ignored: Updates of what is at this node, which changed nothing.
    """

    evicted: int = 0
    unbanned: int = 0
    ignored: int = 0


class RoutingTable:
    """The routing table of a node.

    Args:
        node: The node.
        limits: The limits of the table.
        control: Names of the protocols that the network may not use.
    """

    __slots__ = (
        "_at_node",
        "_banned",
        "_control",
        "_engines",
        "_limits",
        "_links",
        "_node",
        "_remote",
        "_topics",
        "_workers",
        "counters",
    )

    def __init__(
        self,
        node: Identity,
        limits: RoutingLimits | None = None,
        control: frozenset[str] = CONTROL_PROTOCOLS,
    ) -> None:
        self._node = node
        self._limits = RoutingLimits() if limits is None else limits
        self._control = control
        self._engines: dict[Identity, bytes] = {}
        self._workers: dict[bytes, dict[Identity, None]] = {}
        self._topics: dict[Identity, RoutingScope] = {}
        self._links: dict[Identity, int] = {}
        self._remote: OrderedDict[Destination, RemoteRoute] = OrderedDict()
        # The routes that depend on a node: engines at it, and nodes that it relays to.
        self._at_node: dict[Identity, dict[Destination, None]] = {}
        self._banned: OrderedDict[Identity, None] = OrderedDict()
        self.counters = RoutingCounters()

    def __len__(self) -> int:
        """Return the number of routes to what is elsewhere."""
        return len(self._remote)

    # What is here.

    def add_engine(self, engine: Identity, worker: bytes) -> bool:
        """Add an engine of this node, or move it to another worker; false at the limit."""
        if engine in self._engines:
            self.remove_engine(engine)
        elif len(self._engines) >= self._limits.engines:
            return False
        self._forget(Destination(DestinationKind.ENGINE, engine))
        self._engines[engine] = worker
        self._workers.setdefault(worker, {})[engine] = None
        return True

    def remove_engine(self, engine: Identity) -> None:
        """Remove an engine of this node, if it is there."""
        worker = self._engines.pop(engine, None)
        if worker is None:
            return
        engines = self._workers[worker]
        del engines[engine]
        if not engines:
            del self._workers[worker]

    def end_worker(self, worker: bytes) -> tuple[Identity, ...]:
        """Remove a worker that has ended and return the engines that it was."""
        engines = tuple(self._workers.pop(worker, ()))
        for engine in engines:
            del self._engines[engine]
        return engines

    def add_topic(self, topic: Identity, scope: RoutingScope) -> bool:
        """Add a topic that this node publishes; false at the limit."""
        if topic not in self._topics and len(self._topics) >= self._limits.topics:
            return False
        self._forget(Destination(DestinationKind.TOPIC, topic))
        self._topics[topic] = scope
        return True

    def remove_topic(self, topic: Identity) -> None:
        """Remove a topic, if it is there."""
        self._topics.pop(topic, None)

    # What is elsewhere.

    def open_link(self, node: Identity, link: int) -> list[RoutingEvent] | None:
        """Add a link to a node, in place of the one before; `None` at the limit."""
        if node in self._banned:
            return [Disconnect(node, link)]
        if node not in self._links and len(self._links) >= self._limits.links:
            return None
        self._links[node] = link
        return [RouteChanged(Destination(DestinationKind.NODE, node))]

    def close_link(self, node: Identity, link: int) -> list[RoutingEvent]:
        """Remove a link that has ended, unless a newer one is in its place."""
        if self._links.get(node) != link:
            return []
        del self._links[node]
        return [RouteChanged(Destination(DestinationKind.NODE, node))]

    def update(
        self, destination: Destination, route: RemoteRoute | None, trust: int = 128
    ) -> list[RoutingEvent]:
        """Apply an update of the directory.

        Args:
            destination: An engine, a topic, a node or a domain.
            route: The route to it; `None` for none any more.
            trust: 0 to ban it: its routes and all that lead through it are purged, its link is
                closed, and messages from it and to it are refused until an update with more.

        Raises:
            ValueError: The route is to another kind of destination.
        """
        if route is not None and destination.kind not in _KINDS[type(route)]:
            raise ValueError(f"{route} is no route to {destination.kind.name}")
        if self._is_here(destination):
            self.counters.ignored += 1
            if trust:  # it may have been banned while it was elsewhere
                self._banned.pop(destination.identity, None)
            return []
        if trust == 0:
            return self._ban(destination)
        if destination.identity in self._banned:
            del self._banned[destination.identity]
        elif self._remote.get(destination) == route:
            return []
        self._forget(destination)
        if route is not None:
            self._learn(destination, route)
        return [RouteChanged(destination)]

    def route(self, destination: Destination) -> RemoteRoute | None:
        """Return the route to what is elsewhere, without using it."""
        return self._remote.get(destination)

    def destinations(self) -> tuple[Destination, ...]:
        """Return what there are routes to that is elsewhere, that used longest ago first."""
        return tuple(self._remote)

    def beyond(self, node: Identity, most: int) -> Destination | None:
        """Return the destination that leads through a node for longest, if more than `most` do."""
        depending = self._at_node.get(node, {})
        return next(iter(depending)) if len(depending) > most else None

    def is_banned(self, identity: Identity) -> bool:
        """Whether an identity has no trust."""
        return identity in self._banned

    # The decision.

    def decide(
        self,
        destination: Destination,
        source: Identity,
        protocol: Protocol,
        scope: RoutingScope = SCOPE_ANY,
        peer: Identity | None = None,
    ) -> RoutingDecision:
        """Decide about one message.

        Args:
            destination: Its destination.
            source: The engine that it is from.
            protocol: What its body is written in.
            scope: Its scope.
            peer: The node that it came from over a link; `None` for an engine of this node.
        """
        banned = self._banned
        if banned and (source in banned or destination.identity in banned or peer in banned):
            return Refuse(RefusalReason.BANNED)
        if peer is not None:
            return self._decide_of_network(destination, protocol, scope, peer)
        identity = destination.identity
        match destination.kind:
            case DestinationKind.ENGINE:
                return self._to_engine(destination, scope)
            case DestinationKind.TOPIC:
                return self._to_topic(destination, scope)
            case DestinationKind.DOMAIN:
                return self._to_domain(destination, scope)
            case _:
                if identity == self._node:
                    return DeliverLocally(None)
                if scope.kind is ScopeKind.LOCAL:
                    return Refuse(RefusalReason.SCOPE)
                if destination.kind is DestinationKind.NODE:
                    return self._to_node(identity, scope)
                return self._via_relay(identity, None, scope)

    def _decide_of_network(
        self, destination: Destination, protocol: Protocol, scope: RoutingScope, peer: Identity
    ) -> RoutingDecision:
        if scope.kind is ScopeKind.LOCAL:
            return Refuse(RefusalReason.SCOPE)
        if protocol.name in self._control:
            return Refuse(RefusalReason.CONTROL)
        identity = destination.identity
        if destination.kind is DestinationKind.ENGINE and identity in self._engines:
            return DeliverLocally(self._engines[identity])
        if destination.kind is DestinationKind.NODE and identity == self._node:
            return DeliverLocally(None)
        if destination.kind is DestinationKind.TOPIC and self._is_open_to(identity, peer):
            return FanOut(identity, SCOPE_LOCAL)
        return Refuse(RefusalReason.NOT_HERE)

    def _is_open_to(self, topic: Identity, peer: Identity) -> bool:
        """Whether a peer may publish to a topic of this node, as far as its scope goes."""
        scope = self._topics.get(topic, SCOPE_LOCAL)
        if scope.domain is None:
            return scope.kind is ScopeKind.ANY
        members = self._members(scope.domain)
        return members is not None and peer in members

    def _to_engine(self, destination: Destination, scope: RoutingScope) -> RoutingDecision:
        worker = self._engines.get(destination.identity)
        if worker is not None:
            return DeliverLocally(worker)
        if scope.kind is ScopeKind.LOCAL:
            return Refuse(RefusalReason.SCOPE)
        return self._at_its_node(destination, scope)

    def _to_topic(self, destination: Destination, scope: RoutingScope) -> RoutingDecision:
        reach = self._topics.get(destination.identity)
        if reach is not None:
            return FanOut(destination.identity, _narrower(scope, reach))
        if scope.kind is ScopeKind.LOCAL:
            return Refuse(RefusalReason.UNKNOWN)
        return self._at_its_node(destination, scope)

    def _at_its_node(self, destination: Destination, scope: RoutingScope) -> RoutingDecision:
        route = self._use(destination)
        if not isinstance(route, AtNode):
            return LookUp(destination)
        if route.node == self._node:
            # The directory has it here, and it has ended.
            return Refuse(RefusalReason.UNKNOWN)
        return self._to_node(route.node, scope)

    def _to_domain(self, destination: Destination, scope: RoutingScope) -> RoutingDecision:
        if scope.kind is ScopeKind.LOCAL or scope.domain not in {None, destination.identity}:
            return Refuse(RefusalReason.SCOPE)
        if self._use(destination) is None:
            return LookUp(destination)
        return ToDomain(destination.identity)

    def _to_node(self, node: Identity, scope: RoutingScope) -> RoutingDecision:
        stop = self._stop(node, scope)
        if stop is not None:
            return stop
        link = self._links.get(node)
        if link is not None:
            return ToPeer(node, link)
        destination = Destination(DestinationKind.NODE, node)
        route = self._use(destination)
        if isinstance(route, ViaNode):
            return self._via_relay(route.relay, node, scope)
        return LookUp(destination) if route is None else ToPeer(node, None)

    def _via_relay(
        self, relay: Identity, node: Identity | None, scope: RoutingScope
    ) -> RoutingDecision:
        if relay == self._node:
            return Refuse(RefusalReason.LOOP)
        stop = self._stop(relay, scope)
        if stop is not None:
            return stop
        link = self._links.get(relay)
        if link is not None:
            return ViaRelay(relay, link, node)
        destination = Destination(DestinationKind.NODE, relay)
        route = self._use(destination)
        if isinstance(route, ViaNode):
            return Refuse(RefusalReason.LOOP)
        return LookUp(destination) if route is None else ViaRelay(relay, None, node)

    def _stop(self, node: Identity, scope: RoutingScope) -> RoutingDecision | None:
        """Return the decision that a message goes no further to a node, if it is one."""
        if node in self._banned:
            return Refuse(RefusalReason.BANNED)
        if scope.domain is None:
            return None
        members = self._members(scope.domain)
        if members is None:
            return LookUp(Destination(DestinationKind.DOMAIN, scope.domain))
        return None if node in members else Refuse(RefusalReason.SCOPE)

    def _members(self, domain: Identity) -> frozenset[Identity] | None:
        route = self._use(Destination(DestinationKind.DOMAIN, domain))
        return route.nodes if isinstance(route, HasMembers) else None

    def _use(self, destination: Destination) -> RemoteRoute | None:
        route = self._remote.get(destination)
        if route is not None:
            self._remote.move_to_end(destination)
        return route

    # Changes.

    def _is_here(self, destination: Destination) -> bool:
        identity = destination.identity
        if destination.kind is DestinationKind.TOPIC and identity in self._topics:
            return True
        return identity == self._node or identity in self._engines

    def _learn(self, destination: Destination, route: RemoteRoute) -> None:
        self._remote[destination] = route
        node = _node_of(route)
        if node is not None:
            self._at_node.setdefault(node, {})[destination] = None
        if len(self._remote) > self._limits.remote:
            self._forget(next(iter(self._remote)))
            self.counters.evicted += 1

    def _forget(self, destination: Destination) -> None:
        route = self._remote.pop(destination, None)
        node = None if route is None else _node_of(route)
        if node is None:
            return
        depending = self._at_node[node]
        del depending[destination]
        if not depending:
            del self._at_node[node]

    def _ban(self, destination: Destination) -> list[RoutingEvent]:
        identity = destination.identity
        self._banned[identity] = None
        self._banned.move_to_end(identity)
        if len(self._banned) > self._limits.banned:
            self._banned.popitem(last=False)
            self.counters.unbanned += 1
        gone = [destination, *self._at_node.get(identity, ())]
        gone += (Destination(kind, identity) for kind in DestinationKind)
        events: list[RoutingEvent] = []
        for each in dict.fromkeys(gone):
            if each == destination or each in self._remote:
                self._forget(each)
                events.append(RouteChanged(each))
        link = self._links.pop(identity, None)
        if link is not None:
            events.append(Disconnect(identity, link))
        return events


def _node_of(route: RemoteRoute) -> Identity | None:
    """Return the node that a route depends on."""
    match route:
        case AtNode(node) | ViaNode(node):
            return node
        case _:
            return None


def _narrower(scope: RoutingScope, reach: RoutingScope) -> RoutingScope:
    """Return what is in two scopes; that of this node if they are two domains."""
    if scope == reach or reach.kind is ScopeKind.ANY:
        return scope
    return reach if scope.kind is ScopeKind.ANY else SCOPE_LOCAL
