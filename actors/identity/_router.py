"""The router of a node: messages to identities, out of the node and into it.

What a worker sends to an identity elsewhere goes over the link to that identity, as over a
transport; the router signs it, and finds the node to give it to. What comes from another node is
verified here, and delivered by the link to the identity that has signed it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from ...protocol import (
    IDENTITY,
    Address,
    LinkDown,
    Message,
    NotExposed,
    OnwardError,
    PayloadTooBig,
    UnreadableAddress,
    counted,
)
from ...protocol.identity import (
    MAX_BODY,
    SCOPE_ANY,
    AtNode,
    BadRecord,
    ControlContent,
    DeliverLocally,
    Destination,
    DestinationKind,
    DirectoryLimits,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Identity,
    IdentityError,
    IdentityUpdated,
    LookUp,
    P2PMessage,
    Protocol,
    Refuse,
    ReplayWindows,
    RoutingDecision,
    RoutingLimits,
    RoutingTable,
    SigningKey,
    ToPeer,
    Verifiers,
    open_engine_message,
    parse_destination,
    parse_p2p_message,
    serialize_p2p_message,
    short_text,
    sign_engine_message,
)
from ...protocol.ockam import decode_message, encode_message
from .._errors import Unresolved
from .._worker import Worker
from ..routing._pending import Pending
from ._correspondences import Correspondences
from ._directory_service import DirectoryService
from ._engines import Engine, Engines
from ._greetings import Greetings
from ._options import IdentityOptions
from ._peers import PeerEvents, Peers
from ._session import Session

__all__ = ["ENGINE", "ONWARD", "Router"]

ONWARD: Final = Protocol("onward", 1)
"""The protocol of a body that is a message as transports write it."""

ENGINE: Final = Address(IDENTITY, b"self")
"""The address, in the onward route of such a message, of the engine that it is for. An answer has
none: its route begins as the return route of the question does."""


Undelivered = Callable[[Message, OnwardError], object]
"""Receives a message that cannot be delivered, and the reason."""


class Router(PeerEvents):
    """The router of a node. All of it on the node's loop, but for its rule.

    Args:
        worker: Its worker.
        key: The key of the node.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.

    Attributes:
        own: The identity of the node.
        engines: The engines of the node.
        table: What is here, and where the rest is.
        counts: What was refused or dropped, by its reason.
        peers: The links to other nodes.
        links: The links between identities of this node and others.
        greetings: What nodes tell each other first.
        directory: What is known of identities. What it says is banned is banned here.
        started: When the node was started, in Unix milliseconds.
    """

    def __init__(
        self,
        worker: Worker,
        key: SigningKey,
        options: IdentityOptions,
        milliseconds: Callable[[], int],
    ) -> None:
        self.own: Final = key.identity
        self.counts: Final = Counter[str]()
        limits = RoutingLimits(
            engines=options.max_engines, links=options.max_peers, banned=DirectoryLimits().max_known
        )
        self.table: Final = RoutingTable(self.own, limits)
        self.engines: Final = Engines(
            worker.node, self.own, options.max_engines, self._engine_ended
        )
        self.links: Final = Correspondences(worker.node, options.max_correspondents, self.counts)
        self._node: Final = worker.node
        self._key: Final = key
        self._options: Final = options
        self._milliseconds: Final = milliseconds
        self._thread: Final = threading.get_ident()
        # One less, so that what another node sends at once begins no later than it may.
        self.started: Final = milliseconds() - 1
        most = options.max_correspondents
        # What one node sends can use a part of the links alone.
        share = max(_LEAST_SHARE, most // 4)
        self._windows: Final = ReplayWindows(self.started, limit=max(share, 2 * most), share=share)
        self._verifiers: Final = Verifiers()
        self.directory: Final = DirectoryService(
            self._verifiers, milliseconds, worker.node.loop.call_soon
        )
        self.directory.on_update.append(self._directory_updated)
        self._banned_there: Final[set[Identity]] = set()
        self.peers: Final = Peers(worker, key, options, self.table, self._verifiers, self)
        self.greetings: Final = Greetings(self, key, options, milliseconds, self._verifiers)
        self._parked: Final[dict[Identity, Pending]] = {}
        self._lock: Final = threading.Lock()
        self._threads: Pending | None = None

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
        self.table.remove_engine(engine.identity)
        self.greetings.forget_advert(engine.identity)
        self.links.remove_engine(engine.address)
        self.links.end(engine.identity)

    # --- out of the node ----------------------------------------------------------------------

    def resolve(self, message: Message) -> Message | Pending | None:
        """Resolve the first address of a message, of type 36; it is the rule of the node.

        Raises:
            UnreadableAddress: It is no destination.
            NotExposed: It is of a kind that this node does not serve.
            Unresolved: As many messages wait for it as may.
        """
        to, sender = message[0][0], message[3]
        found = self.links.find(sender, to[1])
        if found is not None:
            return message.redirect(*found)
        try:
            destination = parse_destination(to[1].decode())
        except (IdentityError, UnicodeDecodeError) as error:
            raise UnreadableAddress(to, str(error)) from None
        if threading.get_ident() != self._thread:
            return self._of_threads()  # the tables are of the loop, where the rule is asked again
        identity, remember = destination.identity, self.links.remember
        match self._decision(destination):
            case DeliverLocally(None):
                return message.redirect()
            case DeliverLocally(bytes(worker)):
                return message.redirect(*remember(identity, sender, to[1], Address(0, worker)))
            case ToPeer():
                own = None if sender is None else self.engines.at(sender)
                pair = self.own if own is None else own.identity, identity
                _, address = self.links.get(pair)
                rest = (ENGINE,) if destination.kind is DestinationKind.ENGINE else ()
                return message.redirect(*remember(identity, sender, to[1], address, *rest))
            case LookUp():
                return self._park(identity, to)
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise NotExposed(to)

    def _of_threads(self) -> Pending:
        """Return what the messages of other threads wait for: the next turn of the loop."""
        with self._lock:
            pending = self._threads
            if pending is None:
                pending = self._threads = Pending()
                self._node.loop.call_soon_threadsafe(self._resume, pending)
        return pending

    def _resume(self, pending: Pending, looks: int = 100) -> None:
        """Resolve messages of other threads again, once one of them is kept.

        Before, their thread would ask again at once, and too often. One that is not kept after some
        looks may have been refused for the limits.
        """
        if not len(pending) and looks:
            self._node.loop.call_later(_LOOK_AGAIN, self._resume, pending, looks - 1)
            return
        with self._lock:
            self._threads = None
        pending.resume()

    def _decision(self, destination: Destination) -> RoutingDecision:
        return self.table.decide(destination, self.own, ONWARD, SCOPE_ANY)

    def _park(self, identity: Identity, to: Address) -> Pending:
        pending = self._parked.get(identity)
        if pending is None:
            # Those without a message are left behind by messages that have been given up.
            for each in [each for each, left in self._parked.items() if not len(left)]:
                del self._parked[each]
            pending = self._parked[identity] = Pending()
        elif len(pending) >= self._options.max_parked:
            raise Unresolved(to, f"{counted(len(pending), 'message')} wait for it already")
        return pending

    def found(self, identity: Identity) -> None:
        """Resolve again what waits for an identity, as more is known of it."""
        pending = self._parked.pop(identity, None)
        if pending is not None:
            pending.resume()

    def found_at(self, node: Identity) -> None:
        """Resolve again what waits for a node, and for engines at it."""
        for identity in list(self._parked):
            decision = self._decision(Destination(DestinationKind.ENGINE, identity))
            if identity == node or isinstance(decision, ToPeer):
                self.found(identity)

    def _home(self, identity: Identity) -> Identity | None:
        """Return the node to give a message for an identity to."""
        destination = Destination(DestinationKind.ENGINE, identity)
        if self.table.route(destination) is None:
            destination = Destination(DestinationKind.NODE, identity)
        decision = self._decision(destination)
        return decision.node if isinstance(decision, ToPeer) else None

    def carry(
        self, own: Identity, to: Identity, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Sign a message to an identity elsewhere, and give it to the link to its node.

        Args:
            own: The identity that it is of: the node, or an engine of it.
            to: The identity that it is for.
            message: The message, as a transport has it: without the address of its link.
            undelivered: Receives it if it cannot be delivered.

        Returns:
            `None`, or what to wait for before the next message.
        """
        home = self._home(to)
        if home is None:
            undelivered(message, LinkDown(short_text(to), "no way to it is known"))
            return None
        body = encode_message(message)
        if len(body) > MAX_BODY:
            undelivered(message, PayloadTooBig(len(body), MAX_BODY))
            return None
        kind = DestinationKind.NODE if to == home else DestinationKind.ENGINE
        envelope = self._signed(own, Destination(kind, to), home, body, self._expiry(message))
        record = serialize_p2p_message(P2PMessage(self.own, home, EngineContent(envelope)))
        return self.peers.send(home, record, lambda error: undelivered(message, error))

    def _signed(
        self, own: Identity, to: Destination, home: Identity, body: bytes, expiry: int
    ) -> bytes:
        key, origin = self._key, None
        engine = self.engines.of(own)
        if engine is not None and engine.key is not None:
            key = engine.key
        elif engine is not None:
            origin = EngineOrigin(self.own, engine.address.value)
        number = self.greetings.take_id(home, own, to)
        message = EngineMessage(own, to, number, ONWARD, body, expiry=expiry, origin=origin)
        return sign_engine_message(message, key)

    def _expiry(self, message: Message) -> int:
        context, seconds = message[4], self._options.message_time
        if context is not None and context.deadline is not None:
            seconds = min(seconds, max(0.0, context.deadline - self._node.loop.time()))
        return self._milliseconds() + int(seconds * 1000)

    # --- other nodes --------------------------------------------------------------------------

    def session_opened(self, session: Session) -> None:
        """Greet the other node: it takes messages from then on."""
        self.greetings.greet(session)

    def session_closed(self, session: Session) -> None:
        """End the requests that went over a session, and have later messages wait for another."""
        at = [each for each in self.links.identities() if self._is_at(each, session.node)]
        for identity in (session.node, *at):
            self.links.way_lost(identity, "the link between the nodes has ended")

    def ban(self, identity: Identity) -> None:
        """Refuse all of an identity, and end its session and the requests to it."""
        kind = DestinationKind.NODE
        if isinstance(self.table.route(Destination(DestinationKind.ENGINE, identity)), AtNode):
            kind = DestinationKind.ENGINE
        # First the session: its end finds the engines at the node by the routes that are purged.
        self.peers.disconnect(identity, "it is banned")
        self.table.update(Destination(kind, identity), None, trust=0)
        self.links.way_lost(identity, "the identity is banned")

    def unban(self, identity: Identity) -> None:
        """Accept messages of an identity again, once more is known of it."""
        self.table.update(Destination(DestinationKind.NODE, identity), None)

    def _directory_updated(self, update: IdentityUpdated) -> None:
        """Ban what has no trust any more, and no longer what has some again."""
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

    def learn(self, engine: Identity, node: Identity) -> None:
        """Learn that an engine is at a node, which can have so many routes and no more."""
        self.table.update(Destination(DestinationKind.ENGINE, engine), AtNode(node))
        beyond = self.table.beyond(node, _MOST_AT_NODE)
        if beyond is not None:
            self.table.update(beyond, None)
            self.greetings.forget(beyond.identity)
            self.counts["engines that made room for others of their node"] += 1

    def _is_at(self, identity: Identity, node: Identity) -> bool:
        route = self.table.route(Destination(DestinationKind.ENGINE, identity))
        return isinstance(route, AtNode) and route.node == node

    def received(self, session: Session, record: bytes) -> None:
        """Receive what another node has sent over its link."""
        node = session.node
        try:
            message = parse_p2p_message(record)
        except BadRecord:
            self.counts["records that cannot be read"] += 1
            return
        if message.src != node or message.dst != self.own:
            self.counts["messages between other nodes"] += 1
            return
        match message.content:
            case EngineContent(envelope):
                self._receive_engine(node, envelope)
            case ControlContent(control):
                if self.greetings.receive(session.node, control):
                    self.peers.greeted(session)
                    self.found_at(node)
            case _:
                self.counts["messages of a kind that is not served"] += 1

    def _receive_engine(self, node: Identity, envelope: bytes) -> None:
        try:
            message = open_engine_message(envelope, self._verifiers)
            if message is None:
                self.counts["messages with a wrong signature"] += 1
                return
            inner = decode_message(message.body)
        except OnwardError:
            self.counts["messages that cannot be read"] += 1
            return
        reason = self._refusal(node, message)
        if reason is not None:
            self.counts[reason] += 1
            return
        engine = self.engines.of(message.dst.identity)
        onward = inner[0]
        if engine is not None and onward[:1] == (ENGINE,):
            onward = engine.address, *onward[1:]
        if not onward:
            self.counts["messages without a route"] += 1
            return
        if message.origin is not None:
            # Believed of itself: its identity is the digest of this node.
            self.learn(message.src, node)
        link, _ = self.links.get((message.dst.identity, message.src))
        link.receive(inner._replace(onward_route=onward))

    def _refusal(self, node: Identity, message: EngineMessage) -> str | None:
        """Return the reason to refuse a message with a right signature."""
        if message.protocol != ONWARD:
            return "messages of another protocol"
        origin, src = message.origin, message.src
        if origin is not None and origin.node != node:
            return "messages of an engine that is at another node"
        if origin is None and src != node and not self._is_at(src, node):
            # Believed of itself alone, by its advert.
            return "messages of an engine that has not said to be at the node"
        scope = SCOPE_ANY if message.rprefs is None else message.rprefs.scope
        decision = self.table.decide(message.dst, message.src, message.protocol, scope, node)
        if isinstance(decision, Refuse):
            return f"messages that the router refuses: {decision.reason.value}"
        if not isinstance(decision, DeliverLocally):
            return "messages of a kind that is not served"
        expiry = 0 if message.expiry is None else message.expiry
        now = self._milliseconds()
        stale = self._windows.record(message.src, message.dst, message.id, expiry, node, now)
        return None if stale is None else f"messages that are not fresh: {stale.value}"

    def close(self) -> None:
        """Refuse what waits, and end the watches of engines."""
        for pending in self._parked.values():
            pending.refuse("the node ends")
        self._parked.clear()
        self.peers.close()
        self.engines.close()


_LOOK_AGAIN: Final = 0.001
"""Time until it is looked again whether a message of another thread is kept, in seconds."""
_MOST_AT_NODE: Final = 16_384
"""Most engines that are remembered of one node. Beyond: its oldest is let go, and counted."""
_LEAST_SHARE: Final = 64
"""Least pairs of identities that one node may have, whatever the limit of links."""
