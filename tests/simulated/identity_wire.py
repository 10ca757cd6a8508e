"""What simulated nodes with identities say, as it is signed, taken, and passed on between them.

A request that goes over a link has one answer, by the engine that was asked, which names the id of
the request. A node takes each sealed layer once that comes to it, and answers once by each handle.
None of it shows in what is delivered, as others on the way refuse what is done twice; so it is
looked at where it happens.

A relay may well pass on what it has sent itself, or had in a layer that it has opened, if it comes
back to it. The next node refuses it, and to refuse it before would show which node has sent it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from onward.actors.identity._incoming import Incoming
from onward.actors.identity._outgoing import Outgoing
from onward.protocol.identity import (
    EngineMessage,
    Identity,
    Peeled,
    Peeler,
    ReplyContent,
    SigningKey,
    sign_engine_message,
)
from onward.protocol.ockam import decode_message
from tests.simulated.identity_ledger import Ledger, Sent

__all__ = ["Wire"]

_Key = tuple[Identity, Identity, int]
_RECENT: Final = 50


class Wire:
    """What the nodes of a run say, and whether it is as promised.

    Args:
        ledger: The messages, and where it is noted what is not as promised.

    Attributes:
        recent: The last messages of engines: the source, the destination, and the id of each.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.recent: Final[deque[_Key]] = deque(maxlen=_RECENT)
        self._ledger: Final = ledger
        self._signed: Final[dict[_Key, int | None]] = {}
        self._taken: Final[set[_Key]] = set()
        # Nodes forget what they have taken when they are started again, so by their lives.
        self._layers: Final[set[tuple[Peeler, bytes]]] = set()
        self._answered: Final[set[tuple[Outgoing, bytes]]] = set()

    @contextmanager
    def watched(self) -> Generator[None]:
        """Look at what nodes say while it is entered.

        What a node that lies says in place of something is not looked at, if it begins to lie
        before.
        """
        accept, tell, peel = Incoming.accept, Outgoing.tell, Peeler.peel

        def signed(message: EngineMessage, key: SigningKey) -> bytes:
            self._note_signed(message)
            return sign_engine_message(message, key)

        def accepted(incoming: Incoming, message: EngineMessage, *given: Any, **named: Any) -> bool:
            is_taken = accept(incoming, message, *given, **named)
            if is_taken:
                self._note_taken(message)
            return is_taken

        def told(out: Outgoing, node: Identity, content: Any, *given: Any, **named: Any) -> Any:
            if isinstance(content, ReplyContent):
                self._note_answer(out, content)
            return tell(out, node, content, *given, **named)

        def peeled(peeler: Peeler, envelope: bytes, *given: Any, **named: Any) -> Peeled:
            found = peel(peeler, envelope, *given, **named)
            if not found.outcome.is_drop:
                self._note_layer(peeler, envelope)
            return found

        with (
            mock.patch(f"{Outgoing.__module__}.sign_engine_message", signed),
            mock.patch.object(Incoming, "accept", accepted),
            mock.patch.object(Outgoing, "tell", told),
            mock.patch.object(Peeler, "peel", peeled),
        ):
            yield

    # --- messages of engines --------------------------------------------------------------------

    def _note_signed(self, message: EngineMessage) -> None:
        """Note a message that a node signs."""
        key = message.src, message.dst.identity, message.id
        sent, is_answer = self._content_of(message)
        if key in self._signed:
            self._ledger.complain(f"two messages of an engine have the id {message.id}")
        self._signed[key] = None if sent is None else sent.number
        self.recent.append(key)
        if message.reply_to is not None:
            asked = message.dst.identity, message.src, message.reply_to
            if asked not in self._taken:
                self._ledger.complain(f"an answer names {message.reply_to}, which was not asked")
            self._check(message, asked)
        elif sent is not None and is_answer and sent.asks and not sent.ends:
            # Over relays an answer is known by its handle, and is no message of an engine. What has
            # waited to be sent until its request had ended is sent as one that waits for no answer.
            self._ledger.complain(f"the answer to {sent.number} names no message")

    def _note_taken(self, message: EngineMessage) -> None:
        """Note a message that a node takes from another one."""
        self._taken.add((message.src, message.dst.identity, message.id))
        if message.reply_to is not None:
            self._ledger.counts["answers that name a message"] += 1
            self._check(message, (message.dst.identity, message.src, message.reply_to))

    def _check(self, message: EngineMessage, asked: _Key) -> None:
        """Check that an answer names a message of the engine that it is for to the one it is of."""
        complain, (sent, is_answer) = self._ledger.complain, self._content_of(message)
        if asked not in self._signed:
            complain(f"an answer names {asked[2]}, which was not sent to what answers")
        elif message.src in self._ledger.strange or sent is None:
            return
        elif not is_answer:
            complain(f"{sent.number} is no answer, and names {asked[2]}")
        elif self._signed[asked] != sent.number:
            complain(f"the answer to {sent.number} names the id of {self._signed[asked]}")

    def _content_of(self, message: EngineMessage) -> tuple[Sent | None, bool]:
        """Return what a message is in the ledger, if it is there, and whether it is the answer."""
        payload = decode_message(message.body).payload
        sent = self._ledger.find(payload)
        return sent, sent is not None and payload == sent.answer

    # --- what is for relays ---------------------------------------------------------------------

    def _note_layer(self, peeler: Peeler, envelope: bytes) -> None:
        """Note a sealed layer that a node opens, or passes on as it is."""
        self._ledger.counts["sealed layers taken"] += 1
        if (peeler, envelope) in self._layers:
            self._ledger.complain("a node has taken a sealed layer twice")
        self._layers.add((peeler, envelope))

    def _note_answer(self, out: Outgoing, content: ReplyContent) -> None:
        """Note an answer that a node gives to the link on its way back."""
        self._ledger.counts["answers by handles"] += 1
        if (out, content.handle) in self._answered:
            self._ledger.complain("a node has answered twice by a handle")
        self._answered.add((out, content.handle))
