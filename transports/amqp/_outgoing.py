"""A link by which a client receives: a consumer of the dispatcher."""

from __future__ import annotations

from collections import deque
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
from ._deliveries import Delivery, Pointer
from ._engine import MAX_TEXT
from ._link_base import LinkHost, called_by_dispatcher
from ._messages import message_of, without_annotations
from ._port import refused
from ._proton import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, AmqpLink

__all__ = ["OutgoingLink"]

UNSETTLED: Final = 0
SETTLED: Final = 1
"""Modes of a sender: all deliveries are unsettled, or all are pre-settled; 2 leaves it open."""

OUTCOMES: Final = (ACCEPTED, REJECTED, RELEASED, MODIFIED)


class OutgoingLink:
    """A link by which a client receives. It is the `ConsumerEnd` of the dispatcher.

    A client that reads slowly has its credit taken back, so that further messages wait in the name,
    or go to another consumer. What was on its way by then waits here.

    Args:
        link: The link.
        host: Its connection.

    Attributes:
        host: As given.
    """

    def __init__(self, link: AmqpLink, host: LinkHost) -> None:
        self.host: Final = host
        self._link = link
        self._handle: ConsumerLink | None = None
        self._given = 0  # credit that the dispatcher has and has not used
        self._held = False
        self._over = False
        self._tag = 0
        self._waiting: deque[tuple[bytes, OutcomeCallback | None]] = deque()
        self._settled_bytes = 0  # of pre-settled messages that wait
        self._unsettled: dict[Pointer, tuple[Delivery, OutcomeCallback | None]] = {}

    def attach(self, handle: ConsumerLink) -> None:
        """Begin as a consumer."""
        self._handle = handle

    # --- the dispatcher -------------------------------------------------------------------------

    @called_by_dispatcher
    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        """Send a message, or let it wait until the client has read others."""
        self._given = max(0, self._given - 1)
        message = message_of(message)
        if self.host.options.strip in ("out", "both"):
            message = without_annotations(message)
        size, theirs = len(message), self._link.remote_max_message_size
        if self._over:
            self._return("link closed", told)
        elif size > self.host.options.max_message or size > (theirs or size):
            self._return("too large", told)
        elif not self._held and self._has_room(size):
            self._send(message, told)
        else:
            self._keep(message, told)

    def _return(self, reason: str, told: OutcomeCallback | None) -> None:
        """Give a message back that was certainly not handed over."""
        if told is None:
            self.host.drop(reason)
        else:
            told(RELEASED_STATE)

    def _has_room(self, size: int) -> bool:
        unsent = self.host.engine.unsent()
        return not unsent or unsent + size <= self.host.options.max_unsent

    def _keep(self, message: bytes, told: OutcomeCallback | None) -> None:
        """Keep a message until the client has read others, and take all credit back."""
        if told is None:
            if self._settled_bytes + len(message) > self.host.options.max_unsent:
                self.host.drop("not read")
                return
            self._settled_bytes += len(message)
        self._waiting.append((message, told))
        if not self._held:
            self._held = True
            self._take_back()

    def _take_back(self) -> None:
        if self._handle is not None:
            self._handle.drain()

    def _send(self, message: bytes, told: OutcomeCallback | None) -> None:
        self._tag += 1
        delivery = self.host.engine.binding.begin(self._link, b"%d" % self._tag)
        self._link.stream(message)
        self._link.advance()
        mode = self._link.remote_snd_settle_mode
        if mode == SETTLED or (told is None and mode != UNSETTLED):
            delivery.settle()
            if told is not None:
                told(ACCEPTED_STATE)
        else:
            self._unsettled[delivery.key] = delivery, told
        self.host.wake()

    @called_by_dispatcher
    def drained(self) -> None:
        """Report to the client that its credit is gone, if that is its wish."""
        self._given = 0
        if self._link.drain_mode and not self._over and not self._waiting:
            self._link.drained()
            self.host.wake()

    @called_by_dispatcher
    def end(self, reason: OnwardError) -> None:
        """Close the link with the reason of the dispatcher."""
        if self._over:
            return
        said = refused(reason)
        self._link.condition = self.host.engine.condition(said.condition, said.description)
        self._link.close()
        self._stop()
        self.host.wake()

    # --- the client -----------------------------------------------------------------------------

    def gone(self) -> None:
        """End the consumer after its link: the dispatcher knows that the rest is in doubt."""
        self._stop()
        self._link = self.host.engine.stray_link

    def _stop(self) -> None:
        if self._over:
            return
        self._over = True
        self._unsettled.clear()
        while self._waiting:
            self._return("link closed", self._waiting.popleft()[1])
        if self._handle is not None:
            self._handle.close()

    def resume(self) -> None:
        """Go on once the client has read of what was held back for it."""
        if self._held:
            self.flowed()

    def flowed(self) -> None:
        """Pass on the credit of the client, within the limits, and its wish to drain."""
        handle = self._handle
        if self._over or handle is None:
            return
        if self._held and not self._go_on():
            return
        room = self.host.options.max_unsettled - len(self._unsettled) - self._given
        more = min(self._link.credit - self._given, room)
        if more > 0:
            self._given += more
            handle.credit(more)
        if self._link.drain_mode and self._link.credit > 0:
            handle.drain()

    def _go_on(self) -> bool:
        """Send what waits; return whether that was all, so that credit is passed on again."""
        if self.host.engine.unsent() > self.host.options.max_unsent // 2:
            return False
        while self._waiting and self._has_room(len(self._waiting[0][0])):
            message, told = self._waiting.popleft()
            if told is None:
                self._settled_bytes -= len(message)
            self._send(message, told)
        self._held = bool(self._waiting)
        return not self._held

    def changed(self, delivery: Pointer) -> None:
        """Read what the client says of a delivery."""
        found = self._unsettled.get(delivery)
        if found is None:
            return
        sent, told = found
        state = sent.remote_state
        if state in OUTCOMES or sent.settled:
            # The outcome is read before Proton uses the delivery for another.
            outcome = _outcome(sent, state)
            del self._unsettled[delivery]
            sent.settle()
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
