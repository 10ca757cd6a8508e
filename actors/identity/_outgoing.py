"""What the workers of a node send to identities elsewhere: signed, and given to a link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    LinkDown,
    MailboxFull,
    Message,
    NotExposed,
    OnwardError,
    PayloadTooBig,
    UnreadableAddress,
)
from ...protocol.identity import (
    HANDLE_SIZE,
    MAX_BODY,
    BadRecord,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Identity,
    P2PContent,
    P2PMessage,
    Protocol,
    RelayContent,
    Reliability,
    Security,
    SigningKey,
    Target,
    TransportPrefs,
    padded_size,
    serialize_p2p_message,
    short_text,
    sign_engine_message,
)
from ...protocol.ockam import encode_message
from .._errors import Unresolved
from ._carriage import ASKS, Carriage, answered_at, carriage_at, reply_at
from ._options import IdentityOptions
from .links._session import MAX_WAITING

if TYPE_CHECKING:
    from ._router import Router
    from .links._session import Failed

__all__ = ["ONWARD", "Outgoing", "Undelivered", "check_security", "not_to_wait", "record_of"]

ONWARD: Final = Protocol("onward", 1)
"""The protocol of a body that is a message as transports write it."""

Undelivered: TypeAlias = Callable[[Message, OnwardError], object]
"""Receives a message that cannot be delivered, and the reason."""


class Outgoing:
    """The messages out of a node.

    Args:
        router: The router.
        key: The key of the node.
        options: The options.
    """

    __slots__ = ("_key", "_options", "_router")

    def __init__(self, router: Router, key: SigningKey, options: IdentityOptions) -> None:
        self._router: Final = router
        self._key: Final = key
        self._options: Final = options

    def carry(
        self, own: Identity, to: Identity, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Carry a message to an identity elsewhere: over the link to its node, or by a part.

        Args:
            own: The identity that it is of: the node, or an engine of it.
            to: The identity that it is for.
            message: The message, as a transport has it: without the address of its link.
            undelivered: Receives it if it cannot be delivered.

        Returns:
            `None`, or what to wait for before the next message.
        """
        self._router.links.use((own, to))  # what is remembered of it asks for no link
        if self._router.table.is_banned(to):
            undelivered(message, LinkDown(short_text(to), "it is banned"))
            return None
        try:
            answer, carriage = reply_at(message[0]), carriage_at(message[0])
            reply_to = answered_at(message[0], own, to)
        except BadRecord as error:
            undelivered(message, UnreadableAddress(message[0][0], str(error)))
            return None
        if answer is not None:
            kind, token = answer
            part = self._router.find_part(kind)
            if part is None:
                undelivered(message, NotExposed(message[0][0]))
                return None
            rest = message._replace(onward_route=message[0][1:])
            return part.answer(token, rest, undelivered)
        if reply_to is not None:
            message = message._replace(onward_route=message[0][1:])
        elif carriage is not None:
            message = message._replace(onward_route=message[0][1:])
            kind = DestinationKind.RELAY if carriage.relays else carriage.kind
            part = self._router.find_part(kind)
            if part is not None:
                return part.carry(own, to, message, carriage, undelivered)
        return self._over_link(own, to, message, carriage, reply_to, undelivered)

    def _over_link(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage | None,
        reply_to: int | None,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        home = self._router.home(to)
        if own != self._router.own and self._router.engines.of(own) is None:
            home = None  # a domain that is served here sends answers alone
        if home is None:
            undelivered(message, LinkDown(short_text(to), "no way to it is known"))
            return None
        if carriage is not None and not self.may_go(home, carriage.tprefs):
            undelivered(message, not_to_wait(home))
            return None
        kind = DestinationKind.NODE if to == home else DestinationKind.ENGINE
        destination, written = Destination(kind, to), message
        if carriage is not None and carriage.topic is not None:
            destination = Destination(DestinationKind.TOPIC, carriage.topic)
        elif self._is_request(message):
            written = message._replace(return_route=(ASKS, *message[1]))
        try:
            expiry = self.expiry(message)
            envelope = self.envelope(own, destination, written, home, carriage, reply_to, expiry)
        except PayloadTooBig as error:
            undelivered(message, error)
            return None
        if reply_to is not None:
            self._router.dialling.answered(home)

        def failed(error: OnwardError) -> None:
            undelivered(message, error)

        return self.tell(home, EngineContent(envelope), failed, expiry)

    def may_go(self, node: Identity, tprefs: TransportPrefs | None) -> bool:
        """Whether a message with these wishes goes to a node now, or may wait for room."""
        if tprefs is None or tprefs.reliability is Reliability.RELIABLE:
            return True
        return self._router.peers.has_room(node)

    def _is_request(self, message: Message) -> bool:
        """Whether a message is a request of this node: its answer is to name its id."""
        back = message[1]
        # Two more addresses stand in front of it at the other end.
        is_short = 0 < len(back) < MAX_ROUTE_LENGTH - 1
        return is_short and self._router.is_request(back[-1])

    def envelope(
        self,
        own: Identity,
        to: Destination,
        message: Message,
        node: Identity | None,
        carriage: Carriage | None = None,
        reply_to: int | None = None,
        expiry: int | None = None,
    ) -> bytes:
        """Return a message of a worker as the signed message of an engine.

        Args:
            own: The identity that it is of: the node, or an engine of it.
            to: What it is for.
            message: The message, as a transport has it.
            node: The node that it is for, or that has the engine that it is for; `None` if a relay
                finds that.
            carriage: What it asks of its way.
            reply_to: The id of the message that it answers, if any.
            expiry: When it is of no use any more, in Unix milliseconds; `None` for that of the
                message.

        Raises:
            PayloadTooBig: It is over `MAX_BODY` bytes with its routes.
        """
        body = encode_message(message)
        if len(body) > MAX_BODY:
            raise PayloadTooBig(len(body), MAX_BODY)
        engine = self._router.engines.of(own)
        key, origin = self._key, None
        if engine is not None and engine.key is not None:
            key = engine.key
        elif engine is not None:
            origin = EngineOrigin(self._router.own, engine.address.value)
        signed = EngineMessage(
            own,
            to,
            self._router.greetings.take_id(node, own, to),
            ONWARD,
            body,
            reply_to=reply_to,
            expiry=self.expiry(message) if expiry is None else expiry,
            rprefs=None if carriage is None else carriage.rprefs,
            tprefs=None if carriage is None else carriage.tprefs,
            origin=origin,
        )
        return sign_engine_message(signed, key)

    def expiry(self, message: Message) -> int:
        """Return when a message is of no use any more, in Unix milliseconds."""
        context, seconds = message[4], self._options.message_time
        if context is not None and context.deadline is not None:
            seconds = min(seconds, max(0.0, context.deadline - self._router.loop_time()))
        return self._router.milliseconds() + int(seconds * 1000)

    def say(self, node: Identity, content: P2PContent) -> None:
        """Send a content to another node that nothing waits for, such as an answer.

        The other node may ask on and on, and take no answer: beyond `MAX_WAITING` frames to it that
        wait for room it is dropped, and counted.
        """
        session = self._router.peers.sessions.get(node)
        if session is None or len(session.waiting) >= MAX_WAITING:
            self._router.counts["answers that a node did not take"] += 1
            return
        self.tell(node, content, lambda _: None)

    def tell(
        self, node: Identity, content: P2PContent, failed: Failed, expiry: int | None = None
    ) -> Awaitable[None] | None:
        """Send a content to another node that there is a link to.

        Args:
            node: The node.
            content: The content.
            failed: Receives the reason if it is certainly not handed over.
            expiry: When it is of no use any more, in Unix milliseconds: if it waits for room until
                then it is dropped, and counted. `None` for never.

        Returns:
            `None`, or what to wait for before the next message, as many wait for room.
        """
        self._router.dialling.used(node, content)
        record = record_of(self._router.own, node, content, filled=self._options.padding)
        return self._router.peers.send(node, record, failed, expiry)


def not_to_wait(node: Identity) -> MailboxFull:
    """Return the error of a message that is not to wait for room at the link to a node."""
    return MailboxFull(short_text(node), "others wait for the link, and the message is not to wait")


def check_security(to: Address, target: Target) -> None:
    """Check that there is what a message asks for to hide its way.

    Raises:
        Unresolved: It asks for a mix network.
    """
    if target.tprefs is not None and target.tprefs.security is Security.MIXNET:
        raise Unresolved(to, "it asks for a mix network, and there is none")


def record_of(own: Identity, node: Identity, content: P2PContent, *, filled: bool = False) -> bytes:
    """Return the record of a message between nodes. With a handle and without it has one size.

    Args:
        own: This node.
        node: The other one.
        content: What it says.
        filled: Whether it is filled to `padded_size`.
    """
    pad = HANDLE_SIZE if isinstance(content, RelayContent) and content.handle is None else 0
    record = serialize_p2p_message(P2PMessage(own, node, content, pad))
    if filled:
        pad += padded_size(len(record)) - len(record)
        record = serialize_p2p_message(P2PMessage(own, node, content, pad))
    return record
