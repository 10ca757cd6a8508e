"""A link by which a client sends: a producer of the dispatcher."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...actors.dispatch import ProducerLink
from ...protocol import OnwardError
from ...protocol.dispatch import (
    RELEASED as RELEASED_STATE,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
)
from ._deliveries import Delivery, Pointer
from ._link_base import LinkHost, called_by_dispatcher
from ._messages import BadMessage, read_head, without_annotations
from ._port import Refused, refused
from ._proton import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, AmqpLink

__all__ = ["IncomingLink"]

TOO_LARGE: Final = "amqp:link:message-size-exceeded"


class IncomingLink:
    """A link by which a client sends. It is the `ProducerEnd` of the dispatcher.

    Args:
        link: The link.
        host: Its connection.

    Attributes:
        host: As given.
    """

    def __init__(self, link: AmqpLink, host: LinkHost) -> None:
        self.host: Final = host
        self._link = link
        self._handle: ProducerLink | None = None
        self._anonymous = False
        self._credit = 0
        self._draining = False
        self._over = False
        self._parts = bytearray()
        self._rejected: Rejected | None = None  # what is told of the message that ends the link
        self._number = 0
        self._unsettled: dict[int, Delivery] = {}
        self._numbers: dict[Pointer, int] = {}

    def attach(self, handle: ProducerLink, *, anonymous: bool) -> None:
        """Begin as a producer, which has a name for each message if it is anonymous."""
        self._handle = handle
        self._anonymous = anonymous

    # --- the dispatcher -------------------------------------------------------------------------

    @called_by_dispatcher
    def credit(self, messages: int) -> None:
        """Give the client credit."""
        if not self._over:
            self._credit += messages
            self._draining = False
            self._link.flow(messages)
            self.host.wake()

    @called_by_dispatcher
    def drain(self) -> None:
        """Ask the client to use its credit now, or to give it back."""
        if not self._over:
            self._draining = True
            self._link.drain(0)
            self.host.wake()

    @called_by_dispatcher
    def end(self, reason: OnwardError) -> None:
        """Close the link with the reason of the dispatcher."""
        self._end(refused(reason))

    def _end(self, reason: Refused) -> None:
        """Close the link with a reason. What comes until the client has done so is ignored."""
        if self._over:
            return
        self._forget_parts()
        self._over = True
        self._link.condition = self.host.engine.condition(reason.condition, reason.description)
        self._link.close()
        if self._handle is not None:
            self._handle.close()
        self.host.wake()

    # --- the client -----------------------------------------------------------------------------

    def gone(self) -> None:
        """End the producer after its link. A message that has come in part is no message."""
        self._unsettled.clear()
        self._numbers.clear()
        if self._parts:
            self.host.drop("cut short")
        self._forget_parts()
        if not self._over and self._handle is not None:
            self._handle.close()
        self._over = True
        self._link = self.host.engine.stray_link

    def resume(self) -> None:
        """Go on once the client has read what was held back for it; here nothing is."""

    def flowed(self) -> None:
        """See how much credit the client has given back."""
        gone = self._link.drained()
        if self._link.credit <= 0:
            self._draining = False
        if gone > 0:
            self._credit = max(0, self._credit - gone)
            if self._handle is not None:
                self._handle.drained(gone)

    def changed(self, delivery: Pointer) -> None:
        """Read what has come of deliveries, or see that the client has settled one."""
        number = self._numbers.get(delivery)
        if number is not None and (sent := self._unsettled[number]).settled:
            # AMQP 1.0, part 2, section 2.6.12: once the sender has settled a delivery, its state
            # is of no interest to it.
            del self._unsettled[number], self._numbers[delivery]
            sent.settle()
        current = self.host.engine.binding.current
        while (found := current(self._link)) is not None and self._read(found):
            pass

    def _read(self, delivery: Delivery) -> bool:
        """Read what there is of a delivery; return whether it has ended."""
        if delivery.partial and not (delivery.readable or delivery.aborted):
            return False
        aborted = delivery.aborted
        read = self.host.engine.binding.read
        while not aborted and (part := read(self._link)):
            self._gather(part)
        if delivery.partial and not aborted:
            return False
        message = bytes(self._parts)
        self._forget_parts()
        self._link.advance()
        if self._over:
            self._ignore(delivery)
            delivery.settle()
            return True
        self._credit -= 1
        if self._credit < 0:
            # AMQP 1.0, part 2, section 2.8.17: "The peer sent more message transfers than
            # currently allowed on the link."
            self._ignore(delivery)
            delivery.settle()
            self._end(Refused("amqp:link:transfer-limit-exceeded"))
        elif aborted:
            # AMQP 1.0, part 2, section 2.7.5: "Aborted messages SHOULD be discarded by the
            # recipient", and they are settled.
            self.host.drop("aborted")
            delivery.settle()
            self._give_back()
        else:
            self._take(delivery, message)
        return True

    def _ignore(self, delivery: Delivery) -> None:
        """Set the outcome of a message that is not dispatched as the link ends.

        Without a state, a sender could take the settlement for success.
        """
        rejected, self._rejected = self._rejected, None
        if delivery.aborted:
            return
        if not delivery.settled:
            self._state(delivery, rejected or RELEASED_STATE)
        elif rejected is None:  # One that is too large is counted already.
            self.host.drop("link closed")

    def _gather(self, part: bytes) -> None:
        if self._over:
            return
        self._parts += part
        self.host.gathered += len(part)
        if len(self._parts) > self.host.options.max_message:
            self.host.drop("too large")
            self._rejected = Rejected(TOO_LARGE)
            self._end(Refused(TOO_LARGE))
        elif self.host.gathered > self.host.options.max_gathered:
            self.host.engine.close(
                "amqp:resource-limit-exceeded", "too much of unfinished messages"
            )

    def _forget_parts(self) -> None:
        self.host.gathered -= len(self._parts)
        self._parts.clear()

    def _take(self, delivery: Delivery, message: bytes) -> None:
        """Dispatch a message, or reject it."""
        settled = delivery.settled
        try:
            head = read_head(message)
            if self.host.options.strip in ("in", "both"):
                message = without_annotations(message)
        except BadMessage as error:
            self._reject(delivery, settled, "amqp:decode-error", str(error))
            return
        if self._anonymous and not head.to:
            self._reject(delivery, settled, "amqp:precondition-failed", "a message without a name")
            return
        told = None
        if settled:
            delivery.settle()
        else:
            self._number += 1
            self._unsettled[self._number] = delivery
            self._numbers[delivery.key] = self._number
            told = partial(self._told, self._number)
        if self._handle is not None:
            name = head.to if self._anonymous else None
            self._handle.send(name, message, head.ttl, told)

    def _reject(self, delivery: Delivery, settled: bool, condition: str, text: str) -> None:
        if settled:
            self.host.drop(condition)
        else:
            self._state(delivery, Rejected(condition, text))
        delivery.settle()
        self._give_back()

    def _give_back(self) -> None:
        """Give the client the credit of one message, for what the dispatcher has not seen."""
        if not self._draining:
            self._credit += 1
            self._link.flow(1)
        elif self._handle is not None:
            self._handle.drained(1)

    @called_by_dispatcher
    def _told(self, number: int, state: DeliveryState) -> None:
        """Send the client the state of a delivery."""
        delivery = self._unsettled.get(number)
        if delivery is None:
            return
        self._state(delivery, state)
        if not isinstance(state, Received):
            del self._unsettled[number], self._numbers[delivery.key]
            delivery.settle()
        self.host.wake()

    def _state(self, delivery: Delivery, state: DeliveryState) -> None:
        match state:
            case Accepted():
                delivery.update(ACCEPTED)
            case Rejected(condition, description):
                if condition:
                    delivery.local.condition = self.host.engine.condition(condition, description)
                delivery.update(REJECTED)
            case Modified(failed, undeliverable_here):
                delivery.local.failed = failed
                delivery.local.undeliverable = undeliverable_here
                delivery.update(MODIFIED)
            case Received():
                delivery.update(RECEIVED)
            case _:
                delivery.update(RELEASED)
