"""A link by which a client receives: a consumer of the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...actors.dispatch import ConsumerLink, OutcomeCallback
from ...protocol import OnwardError
from ...protocol.dispatch import (
    ACCEPTED as ACCEPTED_STATE,
    MODIFIED as MODIFIED_STATE,
    RECEIVED as RECEIVED_STATE,
    RELEASED as RELEASED_STATE,
    Modified,
    Outcome,
    Rejected,
)
from ._engine import MAX_TEXT, AmqpEngine
from ._messages import message_of, without_annotations
from ._options import AmqpOptions
from ._port import refused
from ._proton import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, AmqpLink, Delivery

__all__ = ["OutgoingLink"]

UNSETTLED: Final = 0
SETTLED: Final = 1
"""Modes of a sender: all deliveries are unsettled, or all are pre-settled; 2 leaves it open."""

OUTCOMES: Final = (ACCEPTED, REJECTED, RELEASED, MODIFIED)


class OutgoingLink:
    """A link by which a client receives. It is the `ConsumerEnd` of the dispatcher.

    Args:
        link: The link.
        engine: The engine of its connection.
        options: The limits.
        drop: Called with the reason when a message is dropped.

    Attributes:
        wake: Called when there is something to send.
        held: Whether credit is held back for bytes that the client has not read.
    """

    def __init__(
        self,
        link: AmqpLink,
        engine: AmqpEngine,
        options: AmqpOptions,
        drop: Callable[[str], object],
    ) -> None:
        self.wake: Callable[[], object] = lambda: None
        self._link = link
        self._engine = engine
        self._options = options
        self._drop = drop
        self._handle: ConsumerLink | None = None
        self._given = 0  # credit that the dispatcher has and has not used
        self._draining = False
        self.held = False
        self._over = False
        self._tag = 0
        self._unsettled: dict[Delivery, OutcomeCallback | None] = {}

    def attach(self, handle: ConsumerLink) -> None:
        """Begin as a consumer."""
        self._handle = handle

    # --- the dispatcher -------------------------------------------------------------------------

    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        """Send a message, or give it back at once."""
        self._given = max(0, self._given - 1)
        message = message_of(message)
        if self._options.strip in ("out", "both"):
            message = without_annotations(message)
        refused = self._refusal(len(message))
        if refused:
            if told is None:
                self._drop(refused)
            else:
                # It was certainly not handed over.
                told(RELEASED_STATE)
            return
        self._tag += 1
        delivery = self._link.delivery(str(self._tag))
        self._link.stream(message)
        self._link.advance()
        mode = self._link.remote_snd_settle_mode
        if mode == SETTLED or (told is None and mode != UNSETTLED):
            delivery.settle()
            if told is not None:
                told(ACCEPTED_STATE)
        else:
            self._unsettled[delivery] = told
        self.wake()

    def _refusal(self, size: int) -> str:
        """Return why a message cannot be sent; empty if it can."""
        if self._over:
            return "link closed"
        most = min(self._options.max_message, self._link.remote_max_message_size or size)
        if size > most:
            return "too large"
        if self._engine.unsent() + size > self._options.max_unsent:
            self.held = True
            return "not read"
        return ""

    def drained(self) -> None:
        """Report to the client that its credit is gone."""
        self._given = 0
        if self._draining and not self._over:
            self._draining = False
            self._link.drained()
            self.wake()

    def end(self, reason: OnwardError) -> None:
        """Close the link with the reason of the dispatcher."""
        if self._over:
            return
        said = refused(reason)
        self._link.condition = self._engine.condition(said.condition, said.description)
        self._link.close()
        self.gone()
        self.wake()

    # --- the client -----------------------------------------------------------------------------

    def gone(self) -> None:
        """End the consumer after its link: the dispatcher knows that the rest is in doubt."""
        if self._over:
            return
        self._over = True
        self._unsettled.clear()
        if self._handle is not None:
            self._handle.close()

    def flowed(self) -> None:
        """Pass on the credit of the client, within the limits, and its wish to drain."""
        handle = self._handle
        if self._over or handle is None:
            return
        if self.held and self._engine.unsent() > self._options.max_unsent // 2:
            return
        self.held = False
        room = self._options.max_unsettled - len(self._unsettled) - self._given
        more = min(self._link.credit - self._given, room)
        if more > 0:
            self._given += more
            handle.credit(more)
        if self._link.drain_mode and self._link.credit > 0 and not self._draining:
            self._draining = True
            handle.drain()

    def changed(self, delivery: Delivery) -> None:
        """Read what the client says of a delivery."""
        if delivery not in self._unsettled:
            return
        told, state = self._unsettled[delivery], delivery.remote_state
        if state in OUTCOMES or delivery.settled:
            # The outcome is read before Proton uses the delivery for another.
            outcome = _outcome(delivery, state)
            del self._unsettled[delivery]
            delivery.settle()
            if told is not None:
                told(outcome)
            self.flowed()
        elif state == RECEIVED and told is not None:
            told(RECEIVED_STATE)


def _outcome(delivery: Delivery, state: int) -> Outcome:
    """Return the outcome that a client tells."""
    if state == ACCEPTED:
        return ACCEPTED_STATE
    if state == RELEASED:
        return RELEASED_STATE
    if state == REJECTED:
        found = delivery.remote.condition
        if found is None:
            return Rejected()
        return Rejected((found.name or "")[:MAX_TEXT], (found.description or "")[:MAX_TEXT])
    if state == MODIFIED:
        return Modified(delivery.remote.failed, delivery.remote.undeliverable)
    # It is settled without an outcome, so that it is in doubt.
    return MODIFIED_STATE
