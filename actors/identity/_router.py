"""The router of a node: messages to identities, out of the node and into it.

What a worker sends to an identity elsewhere goes over the link to that identity, as over a
transport; the router signs it, and finds the node to give it to. What comes from another node is
verified, and delivered by the link to the identity that has signed it. Topics, relays, domains and
the directory are parts of it: each serves its kind of destination and its records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...protocol import IDENTITY, Address, Message, NotExposed, UnreadableAddress, counted
from ...protocol.identity import (
    SCOPE_ANY,
    TRUST_BANNED,
    AdvertKind,
    AtNode,
    DeliverLocally,
    Destination,
    DestinationKind,
    DirectoryLimits,
    EngineAdvert,
    Identity,
    IdentityError,
    IdentityUpdated,
    LookUp,
    RefusalReason,
    Refuse,
    Reliability,
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
    read_advert,
)
from .._errors import Unresolved
from .._worker import Worker
from ..routing._pending import Pending
from ._carriage import ENGINE, Carriage, is_reserved
from ._clock import ClockWatch
from ._correspondences import Correspondences
from ._engines import Engine, Engines
from ._incoming import Incoming
from ._options import IdentityOptions
from ._other_threads import OtherThreads
from ._outgoing import ONWARD, Outgoing, check_security
from ._parking import Parking
from ._router_part import RouterParts
from .directory._heard_adverts import HeardAdverts
from .directory._lookups_part import LookupsPart
from .directory._own_adverts import OwnAdverts
from .directory._service import DirectoryService
from .links._dialling import Dialling
from .links._greetings import Greetings
from .links._peers import PeerEvents, Peers
from .links._session import Session

__all__ = ["Router"]

_logger: Final = logging.getLogger("onward.actors.identity")


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
        lookups: The look-ups of the node.
        dialling: The links that it opens for messages.
        own_adverts: The adverts of the node and its engines.
        heard_adverts: The adverts that other nodes tell, and the routes that follow from them.
        directory: What is known of identities. What it says is banned is banned here.
        outgoing: What goes out of the node.
        incoming: What comes into it.
        verifiers: Public keys that are ready to verify.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        started: When the node was started, or its clock set back, in Unix milliseconds.
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
        self._options: Final = options
        self.milliseconds: Final = milliseconds
        self._other_threads: Final = OtherThreads(worker.node.loop)
        # One less, so that what another node sends at once begins no later than it may.
        self.started = milliseconds() - 1
        self._clock: Final = ClockWatch(milliseconds, self.loop_time)
        windows = ReplayWindows(self.started, limit=max(share, 2 * most), share=share)
        self.verifiers: Final = verifiers
        self.directory: Final = directory
        directory.on_update.append(self._directory_updated)
        directory.on_lost.append(self._updates_lost)
        self._banned_there: Final = set(directory.directory.banned())
        for identity in self._banned_there:
            self.table.update(Destination(DestinationKind.NODE, identity), None, TRUST_BANNED)
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
        # The identities of which the directory says how messages to them are carried.
        self._wished: Final = set[Identity]()
        self._parked: Final = Parking(options.max_parked)
        self.lookups: Final = LookupsPart(self, worker)
        self.add_part(self.lookups)

    # --- engines ------------------------------------------------------------------------------

    def add_engine(self, worker: Address, key: SigningKey | None) -> Engine:
        """Make a worker an engine; see `Engines.add`."""
        engine = self.engines.add(worker, key)
        self.table.add_engine(engine.identity, worker.value)
        self.links.add_engine(worker)
        self.links.end(engine.identity)  # it was elsewhere before
        self.found(engine.identity)
        self.greetings.tell((engine,))
        return engine

    def _engine_ended(self, engine: Engine) -> None:
        self._parked.end(engine.identity)  # it would go out in the name of the node
        self.table.remove_engine(engine.identity)
        self.own_adverts.forget_engine(engine.identity)
        for part in self._parts:
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
        target = self.with_wishes(target)
        check_security(to, target)
        kind = DestinationKind.RELAY if _asks_for_relays(target) else target.destination.kind
        part = self.find_part(kind)
        return self._resolve(message, target) if part is None else part.resolve(message, target)

    def with_wishes(self, target: Target) -> Target:
        """Return a target with what the directory says of its carriage, if it says nothing.

        Behind a relay the destination says it.
        """
        if target.tprefs is None and target.destination.kind is not DestinationKind.RELAY:
            record = self.directory.peek(target.destination.identity)
            if record is not None and record.local.tprefs is not None:
                self._wished.add(record.identity)
                return replace(target, tprefs=record.local.tprefs)
        return target

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
                return self.park(node, message, target)
            case ToPeer(node):
                for used in {identity, node}:
                    self.directory.lookup(used)
                route = self.route_to(target, sender, to[1])
                if _is_from_outside(message) and target.rprefs is None and target.tprefs is None:
                    # Where it is carried, a carriage tells it from an answer.
                    route = route[0], Carriage(target.destination.kind).address, *route[1:]
                return message.redirect(*route)
            case LookUp(wanted):
                return self.park(wanted.identity, message, target)
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

    def park(self, identity: Identity, message: Message, target: Target) -> Pending:
        """Return what a message waits for, until more is known of an identity.

        Raises:
            Unresolved: As many wait for it as may, the message does not wait, or it is for another
                kind of identity than that one is known to be.
        """
        to = message[0][0]
        self._check_kind(to, identity, target.destination)
        if target.tprefs is not None and target.tprefs.reliability is Reliability.UNRELIABLE:
            raise Unresolved(to, "no way to it is known, and the message is not to wait")
        pending = self._parked.park(identity, self.own_of(message[3]))
        if pending is None:
            waiting = counted(self._options.max_parked, "message")
            raise Unresolved(to, f"{waiting} wait for it already")
        reason = self.want(identity)
        if reason is not None:
            raise Unresolved(to, reason)
        return pending

    def _check_kind(self, to: Address, identity: Identity, destination: Destination) -> None:
        """Check that an identity, if it is that of a destination, is not known as another kind.

        Raises:
            Unresolved: It is, so there is nothing to wait for.
        """
        if identity != destination.identity:
            return
        kind, record = None, self.directory.peek(identity)
        if identity == self.own:
            kind = DestinationKind.NODE
        elif self.engines.of(identity) is not None:
            kind = DestinationKind.ENGINE
        elif record is not None and record.advert is not None:
            kind = DestinationKind(record.advert.kind)
        asked = destination.kind
        if asked is DestinationKind.RELAY:
            asked = DestinationKind.NODE
        if kind is not None and kind is not asked:
            word = kind.name.lower()
            article = "an" if kind is DestinationKind.ENGINE else "a"
            raise Unresolved(to, f"it is {article} {word}: write {IDENTITY}#{word}:…")

    @property
    def parked(self) -> int:
        """The messages that wait until more is known of where they go."""
        return sum(map(self._parked.count, self._parked))

    def want(self, identity: Identity) -> str | None:
        """Dial a node that messages wait for, or look up an identity; return why not."""
        if self.dialling.is_dialable(identity):
            return self.dialling.dial(identity)
        return self.lookups.wanted(identity)

    def is_awaited(self, identity: Identity) -> bool:
        """Whether messages wait until more is known of an identity."""
        return identity in self._parked

    def want_parked(self) -> None:
        """Look up all that messages wait for, as there is one more node to ask."""
        for identity in self._parked:
            self.want(identity)

    def found(self, identity: Identity) -> None:
        """Resolve again what waits for an identity, as more is known of it."""
        self.lookups.found(identity)
        self._parked.resume(identity)

    def not_found(self, identity: Identity, reason: str) -> None:
        """Refuse what waits for an identity."""
        self._parked.refuse(identity, reason)

    def found_at(self, node: Identity) -> None:
        """Resolve again what waits for a node, and for engines at it."""
        for identity in list(self._parked):
            decision = self.decide(Destination(DestinationKind.ENGINE, identity))
            if identity == node or isinstance(decision, ToPeer):
                self.found(identity)

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
        if not self._follow_clock():  # which greets all
            self.greetings.greet(session)

    def say_alive(self) -> None:
        """Send all other nodes a sign of life."""
        if not self._follow_clock():
            self.greetings.tell()

    def _follow_clock(self) -> bool:
        """Sign all adverts anew and tell them if the clock was set; return whether it was.

        If it was set back, ids of messages to this node and what it has asked for are of a time to
        come. So this node and the others begin anew with each other, as if it was started again.
        """
        step = self._clock.take_step()
        if not step:
            return False
        _logger.warning(
            "the clock was set by %+.1f s: adverts are signed anew",
            step / 1000,
            extra={"event": "identity.clock_set"},
        )
        greeted = [each.node for each in self.peers.sessions.values() if each.is_greeted]
        if step < 0:
            self.started = self.milliseconds() - 1
            self.incoming.begin_anew(self.started)
            self.greetings.clock_set_back()
            for node in greeted:
                self._node_lost(node, "the clock of this node was set back")
        self.own_adverts.sign_anew()
        for session in tuple(self.peers.sessions.values()):
            self.greetings.greet(session)
        for part in self._parts:
            part.clock_set(back=step < 0)
        for node in greeted:
            if step > 0:
                # Its advert was of a time to come here, and others may not have it.
                self.lookups.ask_at(node, node)
                continue
            for part in self._parts:
                part.node_joined(node)
            self.found_at(node)
        return True

    def session_closed(self, session: Session) -> None:
        """End the requests that went over a session, and have later messages wait for another."""
        self.dialling.node_lost(session)
        self._node_lost(session.node, "the link between the nodes has ended")

    def _node_lost(self, node: Identity, detail: str) -> None:
        for identity in self._identities_at(node):
            self.links.way_lost(identity, detail)
        for part in self._parts:
            part.node_lost(node)

    def received(self, session: Session, record: bytes) -> None:
        """Receive what another node has sent over its link."""
        self.incoming.receive(session, record)

    def needs(self, node: Identity) -> bool:
        """Whether the link to a node is needed while no message goes over it."""
        if any(part.needs(node) for part in self._parts):
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
            self._node_lost(session.node, "the node has been started anew")
        self.peers.greeted(session)
        # A session begins with the advert of its node, and so do new keys.
        began = any(each.kind is AdvertKind.NODE for each in greeting.adverts)
        for part in self._parts:
            if joined and session.is_greeted:
                part.node_joined(session.node)
            elif began and session.is_greeted:
                part.node_began(session.node)
        if joined:
            # What it tells later resumes what waits for that, as the directory changes by it.
            self.found_at(session.node)

    def ban(self, identity: Identity) -> None:
        """Refuse all of an identity, and end its session and the requests to it."""
        kind = DestinationKind.NODE
        if isinstance(self.table.route(Destination(DestinationKind.ENGINE, identity)), AtNode):
            kind = DestinationKind.ENGINE
        # First the session: its end finds the engines at the node by the routes that are purged.
        self.peers.disconnect(identity, "it is banned")
        self.table.update(Destination(kind, identity), None, TRUST_BANNED)
        self.links.way_lost(identity, "the identity is banned")
        for part in self._parts:
            part.banned(identity)

    def unban(self, identity: Identity) -> None:
        """Accept messages of an identity again; a node has to join anew."""
        self.table.update(Destination(DestinationKind.NODE, identity), None)
        self.own_adverts.banned_no_longer(identity)
        self.found(identity)
        self.lookups.ask(identity)  # what was told of it meanwhile was refused

    def _directory_updated(self, update: IdentityUpdated) -> None:
        """Ban what has no trust any more, and no longer what has some again; follow adverts."""
        identity, banned = update.identity, self._banned_there
        if update.record is not None and update.record.is_banned:
            banned.add(identity)
            if not self.table.is_banned(identity):
                self.ban(identity)
        elif identity in banned:
            # One that was banned here alone stays so, whatever adverts of it are put.
            banned.remove(identity)
            if self.table.is_banned(identity):
                self.unban(identity)
        self.heard_adverts.follow(update)
        wishes = update.record is not None and update.record.local.tprefs is not None
        if wishes or identity in self._wished:
            self._wished.discard(identity)
            self.links.forget(identity)  # it is carried otherwise now
        if update.record is not None:
            self.dialling.advert_changed(identity)
            self.found(identity)

    def _updates_lost(self, _: int) -> None:
        """Look up all routes anew, and all that waits."""
        self.heard_adverts.follow_all()
        for identity in self.links.identities():
            self.links.forget(identity)
        for identity in list(self._parked):
            self.found(identity)

    def learn(self, engine: Identity, node: Identity) -> None:
        """Learn that an engine is at a node, which can have so many routes and no more.

        Requests to it at another node end: what answers is not there any more.
        """
        destination = Destination(DestinationKind.ENGINE, engine)
        before = self.table.route(destination)
        self.table.update(destination, AtNode(node))
        if isinstance(before, AtNode) and before.node != node:
            self.links.way_lost(engine, "the engine is at another node now")
        beyond = self.table.beyond(node, _MOST_AT_NODE)
        if beyond is not None:
            self.table.update(beyond, None)
            self.counts["engines that made room for others of their node"] += 1

    def is_at(self, identity: Identity, node: Identity) -> bool:
        """Whether an engine is known to be at a node."""
        route = self.table.route(Destination(DestinationKind.ENGINE, identity))
        return isinstance(route, AtNode) and route.node == node

    def says_to_be_at(self, engine: Identity, node: Identity) -> bool:
        """Whether an engine says itself that it is at a node."""
        if self.is_at(engine, node):
            return True
        record = self.directory.peek(engine)
        if record is None or record.advert is None:
            return False
        advert = read_advert(record.advert).advert
        return isinstance(advert, EngineAdvert) and advert.node == node

    def close(self) -> None:
        """Refuse what waits, and end the watches of engines."""
        self._parked.close()
        self.dialling.close()
        for part in self._parts:
            part.close()
        self.peers.close()
        self.engines.close()


def _is_from_outside(message: Message) -> bool:
    context = message[4]
    return context is not None and context.outside is not None


def _asks_for_relays(target: Target) -> bool:
    return target.exit or (target.tprefs is not None and target.tprefs.hops > 0)


_MOST_AT_NODE: Final = 16_384
"""Most engines that are remembered of one node. Beyond: its oldest is let go, and counted."""
_LEAST_SHARE: Final = 64
"""Least pairs of identities that one node may have, whatever the limit of links."""
