"""The answers to messages over relays, at the relays and at the far end: by handles for one use."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ....protocol import Address, Message, OnwardError, PayloadTooBig
from ....protocol.identity import (
    HANDLE_SIZE,
    MAX_SKEW,
    NO_REPLY,
    REPLY_NONCE_SIZE,
    DestinationKind,
    HandleRefusal,
    HandleTable,
    Identity,
    MessageTooBig,
    Peeled,
    RelayContent,
    RelayStatus,
    ReplyContent,
    ReturnHandle,
)
from ....protocol.ockam import encode_message
from .._carriage import reply_address
from .._errors import NoWayBack
from ._queues import Going

if TYPE_CHECKING:
    from .._outgoing import Undelivered
    from .._router import Router
    from ._admission import RelayAdmission
    from ._queues import RelayQueues

__all__ = ["RelayReturns"]


class RelayReturns:
    """The ways of answers that a node keeps.

    Args:
        router: The router.
        admission: What the relay admits.
        queues: What is passed on.
        handles: The ways.

    Attributes:
        handles: The ways.
    """

    __slots__ = ("_admission", "_queues", "_router", "handles")

    def __init__(
        self,
        router: Router,
        admission: RelayAdmission,
        queues: RelayQueues,
        handles: HandleTable,
    ) -> None:
        self._router: Final = router
        self._admission: Final = admission
        self._queues: Final = queues
        self.handles: Final = handles

    def keep(
        self,
        peer: Identity,
        content: RelayContent,
        peeled: Peeled,
        user: Identity | None,
        *,
        reserved: Identity | None = None,
        opens: bytes = NO_REPLY,
        engines: tuple[Identity, ...] = (),
    ) -> bytes | None:
        """Keep the way of an answer; return the handle for it, or `None`.

        There is none without one of the node before, or if there is no room, which is counted.

        Args:
            peer: The node that the message came from.
            content: The message.
            peeled: What was in it.
            user: The node that it goes to; `None` if it is for this node.
            reserved: The node with the reservation that it is charged to.
            opens: What the answer is opened with here, if this node is an exit.
            engines: The identities that it is of and for, if this node is an exit.
        """
        if content.handle is None:
            return None
        handle = secrets.token_bytes(HANDLE_SIZE)
        source = None if peeled.source == peer else peeled.source
        entry = ReturnHandle(
            peer,
            content.handle,
            peeled.reply_key,
            peeled.expiry,
            user,
            source,
            reserved,
            opens,
            engines,
        )
        if self.handles.add(handle, entry, self._router.milliseconds()) is None:
            return handle
        self._router.counts["messages without a way for their answer, as there is no room"] += 1
        return None

    def way_back(self, peer: Identity, content: RelayContent, peeled: Peeled) -> Address:
        """Return the address of an answer to a message for this node.

        Without a handle it is one that leads nowhere: an answer over a link, past the relays, would
        show which node has asked.
        """
        handle = None
        if peeled.reply_key != NO_REPLY:
            handle = self.keep(peer, content, peeled, None)
        return reply_address(DestinationKind.RELAY, handle or b"")

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Seal an answer of a worker here, and send it back; see `RouterPart.answer`."""
        router = self._router
        nonce = secrets.token_bytes(REPLY_NONCE_SIZE)
        try:
            back = self.handles.answer(token, encode_message(message), nonce, router.milliseconds())
        except MessageTooBig as error:
            undelivered(message, PayloadTooBig(error.size, error.limit))
            return None
        if isinstance(back, HandleRefusal):
            undelivered(message, NoWayBack("the sender, over relays", _why(token, back)))
            return None

        def failed(error: OnwardError) -> None:
            undelivered(message, error)

        expiry = router.outgoing.expiry(message)
        return router.outgoing.tell(back.peer, back.content, failed, expiry)

    def pass_back(self, node: Identity, content: ReplyContent) -> None:
        """Pass an answer of another node back on its way."""
        now = self._router.milliseconds()
        nonce = secrets.token_bytes(REPLY_NONCE_SIZE)
        back = self.handles.pass_back(content.handle, node, content.reply, nonce, now)
        if isinstance(back, HandleRefusal):
            self._router.counts[f"answers over relays: {back.value}"] += 1
            return
        charge = self._admission.charge_answer(back.reserved, len(back.content.reply))
        if isinstance(charge, RelayStatus):
            return
        # It is held a moment, as its link may be made again.
        going = Going(back.content, now + MAX_SKEW, node, charge=charge)
        self._admission.is_ok(self._queues.send(back.peer, going))


def _why(token: bytes, refusal: HandleRefusal) -> str:
    """Return why a message of this node has no way back."""
    if not token:
        return "no answer was wanted, or a relay had no room for its way"
    if refusal is HandleRefusal.UNKNOWN:
        return "a message over relays has one answer: it was answered, or its time is over"
    return refusal.value
