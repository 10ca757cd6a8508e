"""A broker of a simulated cluster: the pure state machines, the real routing table, and the little
that an actor adds. What a variant has to break is a method or a class attribute of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Final, Protocol

from onward.protocol.broker import (
    Entry,
    RouteAdd,
    RouteRemove,
    RoutingTable,
    TagList,
    Update,
    tag_set,
)
from onward.protocol.cluster import (
    CaughtUp,
    ClusterFrameError,
    ClusterLimits,
    Compare,
    Dial,
    Element,
    ElementKind,
    Linked,
    LinkRefused,
    Membership,
    PeerInfo,
    Position,
    Presence,
    PresenceAction,
    PresenceState,
    RoundBegan,
    RoundEnded,
    RouteAdded,
    RouteFeed,
    RouteLog,
    RouteRefused,
    RouteRemoved,
    RouteSubscription,
    SubscribeAgain,
    SubscriptionEvent,
    Tell,
)
from tests.simulated.cluster_network import Network, Wire

CREDIT: Final = 3
"""Elements that a subscriber asks for at first: few, so that some wait for more."""
EPOCH: Final = 1_760_000_000_000
"""The time of all clocks at the start, in milliseconds, but for their skew."""
SERVICE: Final = "orders"
QUERY: Final = tag_set(((1, SERVICE),))
RETRIES: Final = 2


class Client(Protocol):
    """A destination, as a broker knows it."""

    route_id: bytes

    def closed(self, connection: Connection) -> None: ...


@dataclass(eq=False, slots=True)
class Connection:
    """A connection of a destination to a broker, and its registration there."""

    client: Client
    broker: Broker
    timestamp: int = 0
    open: bool = True
    entry: Entry[Connection | None] | None = None


@dataclass(eq=False, slots=True)
class Peer:
    """One peer broker, as another broker keeps it."""

    broker_id: bytes
    presence: Presence
    subscription: RouteSubscription
    info: PeerInfo
    wire: Wire | None = None
    # The number of the stream that was asked for, and of the one that is fed.
    asked: int = 0
    fed: int = 0
    feed: RouteFeed | None = None
    fed_from: int = 0
    fed_changes: int = 0
    # Bytes of the elements that were fed, over all streams, without marks.
    fed_bytes: int = 0
    credit: int = 0


@dataclass(eq=False, slots=True)
class Request:
    """A request of a client of a broker.

    Attributes:
        number: Its number.
        multicast: Whether it goes to all destinations.
        route_id: The destination that it names, if it does.
        tries: Number of destinations that have refused it.
        legs: Number of answers that are to come.
        ends: How it has ended: once, if all is well.
        via: The brokers that it has passed before this one.
        tried: Zones that it was sent to.
        parent: Of one that came from another zone: who waits for the answer.
    """

    number: int
    multicast: bool
    route_id: bytes | None = None
    tries: int = 0
    legs: int = 0
    ends: list[str] = field(default_factory=list[str])
    via: tuple[bytes, ...] = ()
    tried: set[str] = field(default_factory=set[str])
    parent: Any = None


class Watcher(Protocol):
    """What a run is told by its brokers."""

    def violation(self, text: str) -> None: ...
    def delivered(self, request: Request, connection: Connection) -> None: ...
    def sent_part(self, number: int, other: int) -> None: ...


class Broker:
    """One process of a broker.

    Args:
        network: Where.
        number: The host; the id and the address are made of it.
        clock_skew: Time by which its clock is ahead, in milliseconds.
        limits: Of the cluster.
        watcher: What a violation is told to.
        slow: Time after which an element is counted as taken, in seconds.
    """

    Feed: ClassVar[type[RouteFeed]] = RouteFeed
    Log: ClassVar[type[RouteLog]] = RouteLog
    Subscription: ClassVar[type[RouteSubscription]] = RouteSubscription
    Members: ClassVar[type[Membership]] = Membership
    Presence: ClassVar[type[Presence]] = Presence

    def __init__(
        self,
        network: Network,
        number: int,
        *,
        clock_skew: int,
        limits: ClusterLimits,
        watcher: Watcher,
        find: Callable[[str], Broker | None],
        seeds: Iterable[int],
        slow: float = 0.0,
        zone: str = "",
    ) -> None:
        self.network = network
        self.number = number
        self.alive = True
        self.stalled_until = -inf
        self.clock_skew = clock_skew
        self.limits = limits
        self.watcher = watcher
        self.slow = slow
        self._find = find
        self.id = identity(number)
        instance = self.clock()
        info = PeerInfo(self.id, instance, instance, f"sim://{number}", zone=zone)
        now = network.clock.now
        self.membership = self.Members(
            info,
            seeds=[f"sim://{seed}" for seed in seeds],
            allowed=("sim://*",),
            limits=limits,
            now=now,
            random=network.draw.random,
        )
        self.table = self.make_table()
        self.log = self.Log(self.id, instance, limits)
        self.peers: dict[bytes, Peer] = {}
        self.own: dict[bytes, Connection] = {}
        # When a registration of this broker was removed.
        self.removed: dict[tuple[bytes, int], float] = {}
        self.requests: dict[tuple[int, bytes], Request] = {}
        self._dialled: dict[Wire, str] = {}
        self._wake_at = inf
        # The number of its log at the last turn.
        self._fed = 0
        self.poke()

    def make_table(self) -> RoutingTable[Connection | None]:
        """Return the table of the routes of its zone."""
        return RoutingTable()

    def clock(self) -> int:
        """Return the time by its own clock, in milliseconds."""
        return EPOCH + int(self.network.clock.now * 1000) + self.clock_skew

    # --- time -----------------------------------------------------------------------------------

    def poke(self) -> None:
        """Do what is to be done now, and see to it that the rest is done in time."""
        now = self.network.clock.now
        for task in self.membership.due(now):
            if isinstance(task, Dial):
                self.network.connect(self, self._find(task.uri), self._connecting(task.uri))
            elif (peer := self.peer_for(task.to)).wire is not None:
                self._ask(peer, task)
        at = self.membership.get_timer()
        changed, self._fed = self.log.sequence != self._fed, self.log.sequence
        for peer in self.peers.values():
            at = min(at, self._serve(peer, changed=changed))
        self._schedule_at(at)

    def _serve(self, peer: Peer, *, changed: bool) -> float:
        """Do what is due for one peer broker; return when there is more to do.

        Args:
            peer: The peer broker.
            changed: Whether there is something new in the log that it reads.
        """
        now = self.network.clock.now
        at = self._timer_of(peer)
        if not changed and now < at:
            return at
        self.act(peer, peer.presence.tick(now))
        self._pump(peer)
        return self._timer_of(peer)

    def peer_for(self, broker_id: bytes) -> Peer:
        """Return the peer broker as one that is told of others."""
        return self.peers[broker_id]

    def _ask(self, peer: Peer, task: Compare | Tell) -> None:
        if isinstance(task, Tell):
            self._send(peer, "tell", task.info)
        else:
            self._send(peer, "compare", task.digest)

    def _timer_of(self, peer: Peer) -> float:
        at = inf if peer.presence.wake_at is None else peer.presence.wake_at
        if peer.feed is not None and peer.credit:
            at = min(at, peer.feed.get_timer())
        return at

    def _schedule_at(self, at: float) -> None:
        if at < self._wake_at:
            self._wake_at = max(at, self.network.clock.now)
            self.network.clock.at(self._wake_at, self._wake, self._wake_at)

    def _wake(self, at: float) -> None:
        if not self.alive or at != self._wake_at:
            return
        if self.network.is_stalled(self):
            self._wake_at = self.stalled_until
            self.network.clock.at(self._wake_at, self._wake, self._wake_at)
            return
        self._wake_at = inf
        self.poke()

    # --- links ----------------------------------------------------------------------------------

    def _connecting(self, uri: str) -> Callable[[Wire | None], None]:
        def done(wire: Wire | None) -> None:
            if not self.alive:
                return
            if wire is None:
                self.membership.failed(uri, "no connection", self.network.clock.now)
                self.poke()
                return
            self._dialled[wire] = uri
            wire.send(self, ("hello", self.membership.own))

        return done

    def receive(self, wire: Wire, message: Any) -> None:
        name, *rest = message
        peer = None if name == "hello" else self._peer_of(wire)
        if name == "hello":
            self._hello(wire, *rest)
        elif peer is not None:
            getattr(self, f"on_{name}")(peer, *rest)
        if peer is not None and name in ("credit", "element"):
            # All but a few messages are one of these two, and concern this peer broker alone.
            self._pump(peer)
            self._schedule_at(self._timer_of(peer))
        else:
            self.poke()

    def _peer_of(self, wire: Wire) -> Peer | None:
        peer: Peer | None = wire.peers[wire.side(self)]
        return None if peer is None or peer.wire is not wire else peer

    def _hello(self, wire: Wire, info: PeerInfo) -> None:
        now = self.network.clock.now
        uri = self._dialled.pop(wire, None)
        found = self.membership.connected(info, wire, dialled=uri, now=now)
        if isinstance(found, LinkRefused):
            wire.close(self, found.reason.name)
            return
        assert isinstance(found, Linked)
        if uri is None:
            wire.send(self, ("hello", self.membership.own))
        self.linked(wire, info, found)

    def linked(self, wire: Wire, info: PeerInfo, found: Linked) -> None:
        """Use a link that is kept."""
        now = self.network.clock.now
        peer = self.peers.get(info.broker_id)
        if peer is None:
            peer = self.peers[info.broker_id] = Peer(
                info.broker_id,
                self.Presence(self.limits, now),
                self.Subscription(info.broker_id, self.limits),
                info,
            )
        old, peer.wire, peer.info = found.replaces, wire, info
        wire.peers[wire.side(self)] = peer
        peer.feed = None
        if old is not None:
            old.close(self, "replaced")
            self._cancel(peer)
        self.on_linked(peer)

    def on_linked(self, peer: Peer) -> None:
        now = self.network.clock.now
        peer.subscription.lost(now)
        self.act(peer, peer.presence.linked_up(now))
        self._subscribe(peer)

    def _subscribe(self, peer: Peer) -> None:
        peer.asked += 1
        self._send(peer, "subscribe", peer.asked, peer.subscription.request(self.network.clock.now))

    def connection_lost(self, wire: Wire, reason: str) -> None:
        now = self.network.clock.now
        uri = self._dialled.pop(wire, None)
        if uri is not None:
            self.membership.failed(uri, reason, now)
        peer = self._peer_of(wire)
        if peer is not None:
            self.membership.lost(peer.broker_id, wire, now)
            peer.wire = peer.feed = None
            peer.subscription.lost(now)
            self.on_lost(peer, reason)
            self._cancel(peer)
        self.poke()

    def on_lost(self, peer: Peer, reason: str) -> None:
        self.act(peer, peer.presence.lost(self.network.clock.now, reason))

    def act(self, peer: Peer, actions: tuple[PresenceAction, ...]) -> None:
        table = self.table_for(peer)
        for action in actions:
            if action is PresenceAction.SUSPEND:
                table.suspend(peer.broker_id)
            elif action is PresenceAction.REVEAL:
                table.reveal(peer.broker_id)
            else:
                while removed := table.drop(peer.broker_id, 100):
                    self.lost_routes(peer, removed)
                peer.subscription = self.Subscription(peer.broker_id, self.limits)

    def _send(self, peer: Peer, name: str, *rest: Any) -> None:
        assert peer.wire is not None
        data = rest[-1] if rest else b""
        size = len(data) if isinstance(data, bytes) else 130
        self.network.counts[name] += 1
        self.network.counts[f"bytes of {name}"] += size
        peer.wire.send(self, (name, *rest), size)

    # --- the list of brokers ----------------------------------------------------------------------

    def on_tell(self, peer: Peer, info: PeerInfo) -> None:
        self.membership.heard(info, peer.broker_id, self.network.clock.now)

    def on_compare(self, peer: Peer, digest: bytes) -> None:
        self._send(peer, "compared", self.membership.answer(peer.broker_id, digest))

    def on_compared(self, peer: Peer, answer: bytes) -> None:
        self.membership.compared(peer.broker_id, answer, self.network.clock.now)

    # --- routes: sent -----------------------------------------------------------------------------

    def log_for(self, peer: Peer) -> RouteLog:
        """Return the log that a peer broker reads."""
        return self.log

    def on_subscribe(self, peer: Peer, number: int, data: bytes) -> None:
        position, log = Position.parse(data), self.log_for(peer)
        peer.feed = self.Feed(log, position)
        peer.fed, peer.credit = number, CREDIT
        peer.fed_from, peer.fed_changes = log.sequence, 0
        if not peer.feed.statistics().snapshots:
            peer.fed_from = position.sequence

    def on_credit(self, peer: Peer, number: int) -> None:
        if number == peer.fed:
            peer.credit += 1

    def _pump(self, peer: Peer) -> None:
        while peer.feed is not None and peer.credit:
            data = peer.feed.next(self.network.clock.now)
            if data is None:
                break
            peer.credit -= 1
            element = Element.parse(data)
            if element.kind is not ElementKind.MARK:
                peer.fed_bytes += len(data)
            self._count(peer, element)
            self._send(peer, "element", peer.fed, data)

    def _count(self, peer: Peer, element: Element) -> None:
        self.network.counts[f"elements: {element.kind.name.lower()}"] += 1
        if element.kind is ElementKind.SNAPSHOT and not element.last:
            self.watcher.sent_part(self.number, int.from_bytes(peer.broker_id) - 1)
        if element.kind is ElementKind.CHANGES:
            peer.fed_changes += len(element.frames)
            if peer.fed_changes > self.log.sequence - peer.fed_from:
                self.watcher.violation("a change was sent twice on one stream")

    # --- routes: received -------------------------------------------------------------------------

    def on_element(self, peer: Peer, number: int, data: bytes) -> None:
        if number != peer.asked:
            return
        now = self.network.clock.now
        try:
            events = peer.subscription.receive(Element.parse(data), now, self.clock())
        except ClusterFrameError as error:
            self.watcher.violation(f"an honest broker sent a bad frame: {error}")
            self.act(peer, peer.presence.wrong(now, str(error)))
            self.membership.pause(peer.broker_id, now + self.limits.pause)
            wire = peer.wire
            if wire is not None:
                wire.close(self, "bad frame")
                self.connection_lost(wire, "bad frame")
            return
        for event in events:
            self.apply(peer, event)
        if peer.wire is not None:
            self.network.clock.at(now + self.slow, self._grant, peer, peer.wire, number)

    def _grant(self, peer: Peer, wire: Wire, number: int) -> None:
        if peer.wire is wire and number == peer.asked and self.alive:
            wire.send(self, ("credit", number))

    def apply(self, peer: Peer, event: SubscriptionEvent) -> None:
        match event:
            case RoundBegan():
                self.table_for(peer).begin_round(peer.broker_id)
            case RouteAdded(route):
                self.add_remote(peer, route)
            case RouteRemoved(route):
                self.remove_remote(peer, route)
            case RouteRefused(route):
                entry = self.table_for(peer).entry_of(route.route_id, peer.broker_id)
                if entry is not None:
                    gone = RouteRemove(peer.broker_id, route.route_id, entry.timestamp + 1)
                    self.remove_remote(peer, gone)
            case RoundEnded():
                self.sweep(peer)
            case CaughtUp():
                self.act(peer, peer.presence.caught_up(self.network.clock.now))
            case SubscribeAgain(reason):
                self.watcher.violation(f"something was missing: {reason}")
                self._subscribe(peer)

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        update = self.table_for(peer).add(
            route.route_id,
            route.broker_id,
            route.service_name,
            route.tags,
            route.timestamp,
            None,
            now=self.clock(),
        )
        self.beaten(update)

    def remove_remote(self, peer: Peer, route: RouteRemove) -> None:
        update = self.table_for(peer).remove(
            route.route_id,
            route.timestamp,
            broker_id=route.broker_id,
            now=self.clock(),
            remember=False,
        )
        self.beaten(update)

    def sweep(self, peer: Peer) -> None:
        while removed := self.table_for(peer).sweep(peer.broker_id, 100):
            self.lost_routes(peer, removed)

    def table_for(self, peer: Peer) -> RoutingTable[Connection | None]:
        """Return the table that has what a peer broker tells."""
        return self.table

    def lost_routes(self, peer: Peer, removed: Sequence[Update[Connection | None]]) -> None:
        """See that routes of a peer broker were removed from the table."""
        for update in removed:
            self.beaten(update)

    def beaten(self, update: Update[Connection | None]) -> None:
        """Close the connection of an own route that one of another broker hides."""
        other = update.other
        if other is update.entry:
            return  # it was hidden before
        if other is not None and other.broker_id == self.id and other.target is not None:
            self.network.counts["replaced by a newer connection"] += 1
            self.close(other.target)

    # --- own routes -------------------------------------------------------------------------------

    def next_timestamp(self, route_id: bytes) -> int:
        return self.table.next_timestamp(route_id, self.clock())

    def register(self, client: Client) -> Connection:
        route_id = client.route_id
        connection = Connection(client, self, self.next_timestamp(route_id))
        tags = self.tags_of(client)
        update = self.table.add(
            route_id, self.id, SERVICE, tags, connection.timestamp, connection, now=self.clock()
        )
        entry = self.table.entry_of(route_id, self.id)
        if entry is None or entry is not update.entry or entry.target is not connection:
            self.watcher.violation("the newest registration is not the visible one")
        previous = self.own.get(route_id)
        connection.entry = entry
        self.own[route_id] = connection
        if entry is not None:
            self.tell(RouteAdd(self.id, route_id, entry.timestamp, SERVICE, entry.tags))
        if previous is not None:
            self._gone(previous)
            previous.open = False
            previous.client.closed(previous)
        self.poke()
        return connection

    def tags_of(self, client: Client) -> TagList:
        return ((6, "eu"), ("client", client.route_id.hex()))

    def tell(self, change: RouteAdd | RouteRemove) -> None:
        self.log.add(change)

    def _gone(self, connection: Connection) -> None:
        key = connection.client.route_id, connection.timestamp
        self.removed[key] = self.network.clock.now

    def close(self, connection: Connection) -> None:
        """End the connection of a destination, by this broker or by the destination."""
        if not connection.open:
            return
        connection.open = False
        route_id = connection.client.route_id
        self._gone(connection)
        if self.own.get(route_id) is connection:
            del self.own[route_id]
            timestamp = self.table.next_timestamp(route_id, self.clock())
            if connection.entry is not None:
                self.table.discard(connection.entry, now=self.clock())
            self.tell(RouteRemove(self.id, route_id, timestamp))
        connection.client.closed(connection)
        if self.alive:
            self.poke()

    # --- requests ---------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        found = list(self.table.candidates(QUERY))
        if not request.multicast:
            self._unicast(request, found)
            return
        for home in dict.fromkeys(entry.broker_id for entry in found):
            if home == self.id:
                self._deliver_all(request, [e for e in found if e.broker_id == home])
            else:
                request.legs += 1
                self._forward(request, self.peers[home], None)
        if not request.legs:
            self.finish(request, "done")

    def finish(self, request: Request, outcome: str) -> None:
        request.ends.append(outcome)

    def _unicast(
        self, request: Request, found: list[Entry[Connection | None]], refused: bytes = b""
    ) -> None:
        wanted = request.route_id
        found = [
            entry
            for entry in found
            if entry.route_id == (wanted or entry.route_id) and entry.route_id != refused
        ]
        if not found:
            self.no_route(request)
            return
        entry = self.network.draw.choice(found)
        if entry.target is not None:
            self.watcher.delivered(request, entry.target)
            self.finish(request, "done")
            return
        request.legs += 1
        self._forward(request, self.peers[entry.broker_id], entry.route_id)

    def no_route(self, request: Request) -> None:
        """End a request that no route is left for."""
        self.finish(request, "rejected")

    def _forward(self, request: Request, peer: Peer, route_id: bytes | None) -> None:
        if peer.wire is None:
            self.watcher.violation("a route of a peer broker without a link was chosen")
            self._ended(request, "canceled")
            return
        self.requests[request.number, peer.broker_id] = request
        self._send(peer, "request", request, route_id, (*request.via, self.id))

    def on_request(
        self, peer: Peer, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        if len(via) > 1:
            self.watcher.violation("a request of a peer broker was forwarded")
            return
        self.serve(peer, request, route_id, via)

    def serve(
        self, peer: Peer, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        found = self.table.candidates(self.table.at(QUERY, self.id))
        if route_id is not None:
            found = tuple(entry for entry in found if entry.route_id == route_id)
        self._deliver_all(request, found)
        self._send(peer, "answer", request, "done" if found else "rejected", route_id)

    def _deliver_all(self, request: Request, found: Iterable[Entry[Connection | None]]) -> None:
        for entry in found:
            if entry.target is not None:
                self.watcher.delivered(request, entry.target)

    def on_answer(self, peer: Peer, request: Request, outcome: str, route_id: bytes | None) -> None:
        if self.requests.pop((request.number, peer.broker_id), None) is None:
            return
        if outcome == "rejected" and not request.multicast and request.tries < RETRIES:
            request.tries += 1
            request.legs -= 1
            self.network.counts["requests tried again"] += 1
            found = list(self.table.candidates(QUERY))
            self._unicast(request, found, route_id or b"")
        else:
            self._ended(request, outcome)

    def _ended(self, request: Request, outcome: str) -> None:
        request.legs -= 1
        if not request.legs:
            self.finish(request, outcome)

    def _cancel(self, peer: Peer) -> None:
        """End the requests that were under way by a link."""
        for key in [key for key in self.requests if key[1] == peer.broker_id]:
            self._ended(self.requests.pop(key), "canceled")

    # --- its end ----------------------------------------------------------------------------------

    def crash(self, *, silently: bool) -> None:
        """End the process; its host closes the connections, unless it is gone too."""
        wires = [wire for wire in self.network.wires if self in wire.ends]
        for wire in wires:
            if silently:
                wire.open[wire.side(self)] = False
            else:
                wire.close(self, "reset")
        self.alive = False
        for request in set(self.requests.values()):
            request.ends.append("gone")
        for connection in list(self.own.values()):
            connection.open = False
            connection.client.closed(connection)
        self.own.clear()
        self.network.look()

    @property
    def shown(self) -> set[bytes]:
        """The peer brokers the routes of which are used."""
        used = (PresenceState.JOINING, PresenceState.UP)
        return {peer.broker_id for peer in self.peers.values() if peer.presence.state in used}


def identity(number: int) -> bytes:
    """Return the id of the broker of a host."""
    return (number + 1).to_bytes(16)
