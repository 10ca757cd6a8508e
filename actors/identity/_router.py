"""The router of a node: messages to identities, out of the node and into it.

What a worker sends to an identity elsewhere goes over the link to that identity, as over a
transport; the router signs it, and finds the node to give it to. What comes from another node is
verified, and delivered by the link to the identity that has signed it. Topics, relays, domains and
the directory are parts of it: each serves its kind of destination and its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ...protocol import Address, Message, NotExposed, UnreadableAddress
from ...protocol.identity import (
    SCOPE_ANY,
    AdvertKind,
    AtNode,
    DeliverLocally,
    Destination,
    DestinationKind,
    DirectoryLimits,
    Identity,
    IdentityError,
    LookUp,
    RefusalReason,
    Refuse,
    ReplayWindows,
    RoutingDecision,
    RoutingLimits,
    RoutingScope,
    RoutingTable,
    SealingKeys,
    SigningKey,
    Target,
    ToPeer,
    Verifiers,
    ViaNode,
    ViaRelay,
    parse_target,
)
from .._errors import Unresolved
from .._worker import Worker
from ..routing._pending import Pending
from ._carriage import ENGINE, Carriage, is_reserved
from ._clock import ClockFollower
from ._correspondences import Correspondences
from ._engines import Engine, Engines
from ._incoming import Incoming
from ._options import IdentityOptions
from ._other_threads import OtherThreads
from ._outgoing import ONWARD, Outgoing, check_security
from ._parking import Awaited
from ._router_part import RouterParts
from .directory._heard_adverts import HeardAdverts
from .directory._lookups_part import LookupsPart
from .directory._own_adverts import OwnAdverts
from .directory._service import DirectoryService
from .directory._standing import Standing
from .links._dialling import Dialling
from .links._greetings import Greetings
from .links._peers import PeerEvents, Peers
from .links._session import Session

__all__ = ["Router"]


class Router(RouterParts, PeerEvents):
    """The router of a node. All of it on the node's loop, but for its rule.

    Args:
        worker: Its worker.
        key: The key of the node.
        sealing: The keys that others seal to.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        verifiers: Public keys that are ready to verify.
        directory: The directory of the node.

    Attributes:
        own: The identity of the node.
        engines: The engines of the node.
        table: What is here, and where the rest is.
        counts: What was refused or dropped, by its reason.
        peers: The links to other nodes.
        links: The links between identities of this node and others.
        greetings: What nodes tell each other first.
        sealing_keys: The keys that what is sealed for the node is opened with. Call
            `own_adverts.changed` when the present one has changed.
        awaited: The identities that messages wait for.
        lookups: The look-ups of the node.
        dialling: The links that it opens for messages.
        own_adverts: The adverts of the node and its engines.
        heard_adverts: The adverts that other nodes tell, and the routes that follow from them.
        directory: What is known of identities.
        standing: Which identities are banned, and how messages to others are carried.
        outgoing: What goes out of the node.
        incoming: What comes into it.
        verifiers: Public keys that are ready to verify.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        started: When the node was started, or its clock set, in Unix milliseconds.
    """

    def __init__(
        self,
        worker: Worker,
        key: SigningKey,
        sealing: SealingKeys,
        options: IdentityOptions,
        milliseconds: Callable[[], int],
        verifiers: Verifiers,
        directory: DirectoryService,
    ) -> None:
        super().__init__()
        self.own: Final = key.identity
        self.counts: Final = Counter[str]()
        limits = RoutingLimits(
            engines=options.max_engines,
            topics=options.max_topics,
            links=options.max_peers,
            banned=DirectoryLimits().max_known,
        )
        self.table: Final = RoutingTable(self.own, limits)
        self.engines: Final = Engines(
            worker.node, self.own, options.max_engines, self._engine_ended
        )
        most = options.max_correspondents
        # What one node sends can use a part of the links alone.
        share = max(_LEAST_SHARE, most // 4)
        self.links: Final = Correspondences(worker.node, most, share, self.counts)
        self._node: Final = worker.node
        self.milliseconds: Final = milliseconds
        self._other_threads: Final = OtherThreads(worker.node.loop)
        # One less, so that what another node sends at once begins no later than it may.
        self.started = milliseconds() - 1
        self._clock: Final = ClockFollower(self)
        windows = ReplayWindows(self.started, limit=max(share, 2 * most), share=share)
        self.verifiers: Final = verifiers
        self.directory: Final = directory
        self.standing: Final = Standing(self, directory)
        self.peers: Final = Peers(
            worker, key, options, self.table, self.verifiers, self, milliseconds
        )
        self.sealing_keys: Final = sealing
        self.dialling: Final = Dialling(self, worker, options.dials)
        self.own_adverts: Final = OwnAdverts(self, key)
        self.heard_adverts: Final = HeardAdverts(self, self.dialling.way_to)
        self.greetings: Final = Greetings(self, options, milliseconds)
        self.outgoing: Final = Outgoing(self, key, options)
        self.incoming: Final = Incoming(self, windows, self.verifiers)
        self.awaited: Final = Awaited(self, options.max_parked)
        self.lookups: Final = LookupsPart(self, worker)
        self.add_part(self.lookups)

    # --- engines ------------------------------------------------------------------------------

    def add_engine(self, worker: Address, key: SigningKey | None) -> Engine:
        """Make a worker an engine; see `Engines.add`."""
        engine = self.engines.add(worker, key)
        self.table.add_engine(engine.identity, worker.value)
        self.links.add_engine(worker)
        self.links.end(engine.identity)  # it was elsewhere before
        self.awaited.found(engine.identity)
        self.greetings.tell((engine,))
        return engine

    def _engine_ended(self, engine: Engine) -> None:
        self.awaited.end(engine.identity)  # it would go out in the name of the node
        self.table.remove_engine(engine.identity)
        self.own_adverts.forget_engine(engine.identity)
        for part in self.parts:
            part.engine_ended(engine)
        self.links.remove_engine(engine.address)
        self.links.end(engine.identity)

    def own_of(self, sender: Address | None) -> Identity:
        """Return the identity that a worker sends by: its own, or that of the node."""
        engine = None if sender is None else self.engines.at(sender)
        return self.own if engine is None else engine.identity

    # --- out of the node ----------------------------------------------------------------------

    def resolve(self, message: Message) -> Message | Pending | None:
        """Resolve the first address of a message, of type 36; it is the rule of the node.

        Raises:
            UnreadableAddress: It is no destination, or one follows that the router alone writes.
            NotExposed: It is of a kind that this node does not serve.
            Unresolved: The router refuses it, or as many messages wait for it as may.
            EmptyRoute: It is this node, and no address follows.
        """
        to, sender = message[0][0], message[3]
        found = None if _is_from_outside(message) else self.links.find(sender, to[1])
        following = message[0][1:2]
        if found is not None and not (following and is_reserved(following[0])):
            return message.redirect(*found)
        try:
            target = parse_target(to[1].decode())
        except (IdentityError, UnicodeDecodeError) as error:
            raise UnreadableAddress(to, str(error)) from None
        if following and is_reserved(following[0]):
            raise UnreadableAddress(following[0], "the router alone writes it")
        if self._other_threads.is_another():
            return self._other_threads.pending()  # the rule is asked again on the loop
        target = self.standing.with_wishes(target)
        check_security(to, target)
        kind = DestinationKind.RELAY if _asks_for_relays(target) else target.destination.kind
        part = self.find_part(kind)
        return self._resolve(message, target) if part is None else part.resolve(message, target)

    def _resolve(self, message: Message, target: Target) -> Message | Pending | None:
        to, sender = message[0][0], message[3]
        identity = target.destination.identity
        match self.decide(target.destination, target.scope, self.own_of(sender)):
            case DeliverLocally(None):
                return message.redirect()
            case DeliverLocally(bytes(worker)):
                found = self.links.remember(identity, sender, to[1], Address(0, worker))
                return message.redirect(*found)
            case ToPeer(node, None):
                return self.awaited.park(node, message, target)
            case ToPeer(node):
                for used in {identity, node}:
                    self.directory.lookup(used)
                route = self.route_to(target, sender, to[1])
                if _is_from_outside(message) and target.rprefs is None and target.tprefs is None:
                    # Where it is carried, a carriage tells it from an answer.
                    route = route[0], Carriage(target.destination.kind).address, *route[1:]
                return message.redirect(*route)
            case LookUp(wanted):
                return self.awaited.park(wanted.identity, message, target)
            case ViaRelay() if DestinationKind.RELAY in self._part_of_kind:
                return self.part(DestinationKind.RELAY).resolve(message, target)
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise NotExposed(to)

    def route_to(
        self, target: Target, sender: Address | None, value: bytes, carriage: Carriage | None = None
    ) -> tuple[Address, ...]:
        """Return what replaces an address: that of the link, and what is said to the router.

        It is remembered until `Correspondences.forget` of the identity, unless the message may not
        leave a domain.

        Args:
            target: What the address says.
            sender: The worker that sends.
            value: The value of the address.
            carriage: How the message is carried; by default over the link to its node.
        """
        destination = target.destination
        _, link = self.links.get((self.own_of(sender), destination.identity))
        if carriage is None and (target.rprefs is not None or target.tprefs is not None):
            carriage = Carriage(destination.kind, (), target.rprefs, target.tprefs)
        route = (link,) if carriage is None else (link, carriage.address)
        if destination.kind is DestinationKind.ENGINE:
            route = *route, ENGINE
        if target.scope.domain is not None:
            return route  # the members of the domain may be others for the next message
        return self.links.remember(destination.identity, sender, value, *route)

    def decide(
        self,
        destination: Destination,
        scope: RoutingScope = SCOPE_ANY,
        source: Identity | None = None,
    ) -> RoutingDecision:
        """Decide about a message of this node, by the table and by the directory.

        Args:
            destination: Its destination.
            scope: How far it may go.
            source: The identity that it is of; that of the node by default.
        """
        source = source or self.own
        self._prefer_linked(destination)
        decision = self.table.decide(destination, source, ONWARD, scope)
        looked_up = 0
        # Of an engine, its node, the relay of that, and domains; each is looked up once.
        while isinstance(decision, LookUp) and looked_up < len(DestinationKind):
            if not self.heard_adverts.use(decision.destination):
                break
            decision = self.table.decide(destination, source, ONWARD, scope)
            looked_up += 1
        if isinstance(decision, Refuse) and decision.reason is RefusalReason.LOOP:
            # Its relay has no link, and is reached over another one itself, by what is known.
            route = self.table.route(destination)
            node = route.node if isinstance(route, AtNode) else destination.identity
            return LookUp(Destination(DestinationKind.NODE, node))
        return decision

    def _prefer_linked(self, destination: Destination) -> None:
        """Reach a node by a relay with a link, if it is reached by one without."""
        route = self.table.route(destination)
        if isinstance(route, AtNode):
            destination = Destination(DestinationKind.NODE, route.node)
            route = self.table.route(destination)
        if isinstance(route, ViaNode) and route.relay not in self.peers.sessions:
            self.heard_adverts.use(destination)  # its advert may name another one

    def home(self, identity: Identity) -> Identity | None:
        """Return the node to give a message for an identity to."""
        destination = Destination(DestinationKind.ENGINE, identity)
        if self.table.route(destination) is None:
            destination = Destination(DestinationKind.NODE, identity)
        decision = self.decide(destination)
        return decision.node if isinstance(decision, ToPeer) else None

    def is_request(self, address: Address) -> bool:
        """Whether an address is that of a request of this node, which waits for its answer."""
        return self._node.parts.table.is_request(address)

    def loop_time(self) -> float:
        """Return the time of the loop, in seconds, which deadlines are of."""
        return self._node.loop.time()

    # --- other nodes --------------------------------------------------------------------------

    def session_opened(self, session: Session) -> None:
        """Greet the other node: it takes messages from then on."""
        if not self._clock.follow():  # which greets all
            self.greetings.greet(session)

    def say_alive(self) -> None:
        """Send all other nodes a sign of life."""
        if not self._clock.follow():
            self.greetings.tell()

    def session_closed(self, session: Session) -> None:
        """End the requests that went over a session, and have later messages wait for another."""
        self.dialling.node_lost(session)
        self.node_lost(session.node, "the link between the nodes has ended")

    def node_lost(self, node: Identity, detail: str) -> None:
        """End the requests to a node and to the engines at it: it does not go on with them."""
        for identity in self._identities_at(node):
            self.links.way_lost(identity, detail)
        for part in self.parts:
            part.node_lost(node)

    def received(self, session: Session, record: bytes) -> None:
        """Receive what another node has sent over its link."""
        # What was accepted before a start is refused as soon as the clock is right again.
        self._clock.follow()
        self.incoming.receive(session, record)

    def needs(self, node: Identity) -> bool:
        """Whether the link to a node is needed while no message goes over it."""
        if any(part.needs(node) for part in self.parts):
            return True
        return any(map(self.links.is_waiting, self._identities_at(node)))

    def _identities_at(self, node: Identity) -> list[Identity]:
        """Return a node, and the engines at it that there are links to."""
        return [node, *(each for each in self.links.identities() if self.is_at(each, node))]

    def receive_greeting(self, session: Session, record: bytes) -> None:
        """Receive a control record that may be a greeting."""
        before = self.greetings.started(session.node)
        greeting = self.greetings.receive(session, record)
        if greeting is None:
            return
        joined = not session.is_greeted
        if not joined and self.greetings.started(session.node) != before:
            joined = True  # the session goes on, and what was asked of the node before does not
            self.node_lost(session.node, "the node has been started anew")
        self.peers.greeted(session)
        # A session begins with the advert of its node, and so do new keys.
        began = any(each.kind is AdvertKind.NODE for each in greeting.adverts)
        for part in self.parts:
            if joined and session.is_greeted:
                part.node_joined(session.node)
            elif began and session.is_greeted:
                part.node_began(session.node)
        if joined:
            # What it tells later resumes what waits for that, as the directory changes by it.
            self.awaited.found_at(session.node)

    def is_at(self, identity: Identity, node: Identity) -> bool:
        """Whether an engine is known to be at a node."""
        route = self.table.route(Destination(DestinationKind.ENGINE, identity))
        return isinstance(route, AtNode) and route.node == node

    def close(self) -> None:
        """Refuse what waits, and end the watches of engines."""
        self.awaited.close()
        self.dialling.close()
        for part in self.parts:
            part.close()
        self.peers.close()
        self.engines.close()


def _is_from_outside(message: Message) -> bool:
    context = message[4]
    return context is not None and context.outside is not None


def _asks_for_relays(target: Target) -> bool:
    return target.exit or (target.tprefs is not None and target.tprefs.hops > 0)


_LEAST_SHARE: Final = 64
"""Least pairs of identities that one node may have, whatever the limit of links."""
