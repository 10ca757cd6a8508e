"""What other nodes send over their links: read, verified, and given to what it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import Address, Message, OnwardError
from ...protocol.identity import (
    SCOPE_ANY,
    BadRecord,
    ControlContent,
    DeliverLocally,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    FanOut,
    Identity,
    RefusalReason,
    Refuse,
    ReplayWindows,
    Security,
    Verifiers,
    open_engine_message,
    parse_p2p_message,
)
from ...protocol.ockam import MessageDecoder
from ._carriage import ASKS, ENGINE, answer_address, is_reserved
from ._outgoing import ONWARD

if TYPE_CHECKING:
    from ._router import Router
    from .links._session import Session

__all__ = ["Incoming"]


class Incoming:
    """The messages into a node.

    Args:
        router: The router.
        windows: The ids that were seen.
        verifiers: Public keys that are ready to verify.
    """

    __slots__ = ("_decoder", "_router", "_verifiers", "_windows")

    def __init__(self, router: Router, windows: ReplayWindows, verifiers: Verifiers) -> None:
        self._router: Final = router
        self._windows: Final = windows
        self._verifiers: Final = verifiers
        self._decoder: Final = MessageDecoder()

    def clock_set(self, started: int, *, back: bool) -> None:
        """Accept what begins after a time alone, in Unix milliseconds, as the clock was set."""
        if back:
            self._windows.begin_anew(started)
        else:
            self._windows.start_again(started)

    def receive(self, session: Session, record: bytes) -> None:
        """Receive what another node has sent over its link."""
        router, counts = self._router, self._router.counts
        try:
            message = parse_p2p_message(record)
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        if message.src != session.node or message.dst != router.own:
            counts["messages between other nodes"] += 1
            return
        content = message.content
        router.dialling.used(session.node, content)
        if isinstance(content, EngineContent) and session.is_greeted:
            self._receive_engine(session.node, content.envelope)
            return
        if isinstance(content, EngineContent):
            counts["records before the greeting"] += 1
            return
        part = router.part_for(content)
        if part is None and isinstance(content, ControlContent):
            router.receive_greeting(session, content.record)
        elif part is None:
            counts["messages of a kind that is not served"] += 1
        elif not session.is_greeted:
            counts["records before the greeting"] += 1
        else:
            part.receive(session, content)

    def _receive_engine(self, node: Identity, envelope: bytes) -> None:
        counts = self._router.counts
        try:
            message = open_engine_message(envelope, self._verifiers)
        except BadRecord:
            counts["messages that cannot be read"] += 1
            return
        if message is None:
            counts["messages with a wrong signature"] += 1
            return
        origin = message.origin
        if origin is not None and origin.node != node:
            counts["messages of an engine that is at another node"] += 1
            return
        own = origin is not None or message.src == node
        if not own and not self._router.heard_adverts.says_to_be_at(message.src, node):
            # Believed of itself alone, by its advert. It may have been told while it was banned.
            counts["messages of an engine that has not said to be at the node"] += 1
            self._router.lookups.ask_at(node, message.src)
            return
        if not self.accept(message, node, envelope=envelope):
            self._router.lookups.say_if_not_here(node, message)
        elif message.src != node and not self._router.is_at(message.src, node):
            # Believed of itself: its identity is the digest of this node, or its advert says so.
            self._router.heard_adverts.learn(message.src, node)

    def accept(
        self,
        message: EngineMessage,
        node: Identity,
        reply: Callable[[], Address | None] = lambda: None,
        envelope: bytes = b"",
    ) -> bool:
        """Deliver the message of an engine elsewhere, which is verified; return whether it was.

        Args:
            message: The message.
            node: The node at the other end of the link by which it came.
            reply: Returns the address of the way of an answer, if it has one of its own. It is
                called once the message is accepted.
            envelope: The signed message.
        """
        counts = self._router.counts
        try:
            inner = self._decoder.decode(message.body)
        except OnwardError:
            counts["messages that cannot be read"] += 1
            return False
        reason = self._refusal(node, message, inner)
        if reason is not None:
            counts[reason] += 1
            return False
        part = self._router.find_part(message.dst.kind)
        if part is not None:
            part.receive_signed(message, inner, node, envelope)
            return True
        return self._deliver(message, inner, node, reply)

    def _deliver(
        self,
        message: EngineMessage,
        inner: Message,
        node: Identity,
        reply: Callable[[], Address | None],
    ) -> bool:
        engine = self._router.engines.of(message.dst.identity)
        onward, back = inner[0], inner[1]
        if engine is not None and onward[:1] == (ENGINE,):
            onward = engine.address, *onward[1:]
        if not onward:
            self._router.counts["messages without a route"] += 1
            return False
        pair, way = (message.dst.identity, message.src), reply()
        if back[:1] == (ASKS,):
            back = answer_address(*pair, message.id), *back[1:]
            if way is None:
                self._router.dialling.asked(node)
        if way is not None:
            back = way, *back
        link, _ = self._router.links.get(pair, node)
        link.receive(Message(onward, back, inner[2], inner[3], inner[4]))
        return True

    def _refusal(self, node: Identity, message: EngineMessage, inner: Message) -> str | None:
        """Return the reason to refuse a message with a right signature."""
        if message.protocol != ONWARD:
            return "messages of another protocol"
        router, src = self._router, message.src
        onward, back = inner[0], inner[1]
        if onward and is_reserved(onward[0]) and onward[0] != ENGINE:
            return "messages with an address of the router"
        if back[:1] == (ASKS,) and router.find_part(message.dst.kind) is None:
            back = back[1:]
        if back and is_reserved(back[0]):
            return "messages with an address of the router"
        scope = SCOPE_ANY if message.rprefs is None else message.rprefs.scope
        if message.origin is not None and router.table.is_banned(message.origin.node):
            # Over relays it comes by the link of another node.
            return f"messages that the router refuses: {RefusalReason.BANNED.value}"
        decision = router.table.decide(message.dst, src, message.protocol, scope, node)
        if isinstance(decision, Refuse):
            return f"messages that the router refuses: {decision.reason.value}"
        if not isinstance(decision, _TAKEN):
            return "messages of a kind that is not served"
        tprefs = message.tprefs
        if tprefs is not None and tprefs.security is Security.MIXNET:
            return "messages that ask for a mix network"
        if message.reply_to is not None and not self._has_sent(node, message):
            return "answers to messages that were not sent"
        expiry = 0 if message.expiry is None else message.expiry
        now = router.milliseconds()
        stale = self._windows.record(src, message.dst, message.id, expiry, node, now)
        return None if stale is None else f"messages that are not fresh: {stale.value}"

    def _has_sent(self, node: Identity, answer: EngineMessage) -> bool:
        """Whether the message that an answer names was sent to what answers, by what it is for."""
        kind = DestinationKind.NODE if answer.src == node else DestinationKind.ENGINE
        asked, number = Destination(kind, answer.src), answer.reply_to
        return number is not None and self._router.greetings.has_sent(
            node, answer.dst.identity, asked, number
        )


_TAKEN: Final = (DeliverLocally, FanOut)
"""The decisions by which a message of another node stays here."""
