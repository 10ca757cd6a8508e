"""The reservations of a relay: what is reserved, and what of it is used up.

A reservation ends at its time, with the link, or as its messages or bytes are used up. What is
carried for the node is charged to it: each message to the node, and each answer to such a message,
once. A message is charged before it is passed on, so that what waits for a link uses up no more
than is reserved; what is dropped meanwhile is refunded.

Times are Unix milliseconds, as a voucher has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..options import Count, Range, Size, check_options
from ._identities import Identity
from ._relay_policy import RelayStatus
from ._reservations import (
    MAX_RESERVATION_BYTES,
    MAX_RESERVATION_DURATION,
    MAX_RESERVATION_MESSAGES,
    Reservation,
    ReservationRequest,
)

__all__ = ["ReservationCharge", "ReservationLimits", "Reservations"]

ReservedSeconds: TypeAlias = Annotated[int, Range(least=1, most=MAX_RESERVATION_DURATION)]


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """Limits of the reservations of a relay.

    Attributes:
        reservations: Reservations at a time. Beyond: a request is refused.
        duration: Time of a reservation, in seconds. A request for more gets this.
        size: Bytes that are relayed for one reservation, in bytes: those of messages to the node
            and of their answers. A request for more gets this; beyond: what comes is dropped and
            counted.
        messages: Messages and answers that are relayed for one. Beyond: as with `size`.

    Raises:
        ValueError: A value is out of its range.
    """

    reservations: Count = 128
    duration: ReservedSeconds = 3600
    size: Size = 64 * 1024 * 1024
    messages: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class ReservationCharge:
    """A message or answer that was charged to a reservation.

    Attributes:
        node: The node that has reserved.
        size: The bytes.
        number: The number of its reservation, of those of the relay.
    """

    node: Identity
    size: int
    number: int


@dataclass(slots=True)
class _Entry:
    reservation: Reservation
    number: int
    renew_at: int
    size: int
    messages: int


class Reservations:
    """The reservations of a relay.

    A node that asks again before half of its time has passed keeps the reservation that it has,
    with what it has used; afterwards it gets a new one.

    Args:
        relay: The identity of the relay.
        limits: The limits.

    Attributes:
        charged: The messages and answers that were charged, without those that were refunded.
        charged_size: Their bytes.
    """

    __slots__ = (
        "_entries",
        "_limits",
        "_number",
        "_relay",
        "charged",
        "charged_size",
    )

    def __init__(self, relay: Identity, limits: ReservationLimits | None = None) -> None:
        self._relay = relay
        self._limits = limits or ReservationLimits()
        self._entries: dict[Identity, _Entry] = {}
        self._number = 0
        self.charged = 0
        self.charged_size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def reserve(
        self, node: Identity, request: ReservationRequest, now: int
    ) -> Reservation | RelayStatus:
        """Return the reservation of a node that asks for one, or why it gets none.

        Args:
            node: The node, as its link has proven it; the policy allows it.
            request: What it asks for.
            now: The time, in Unix milliseconds.
        """
        entry = self._entry(node, now)
        if entry is not None and now < entry.renew_at:
            return entry.reservation
        if entry is None and len(self._entries) >= self._limits.reservations:
            self.end_expired(now)
            if len(self._entries) >= self._limits.reservations:
                return RelayStatus.RESERVATION_REFUSED
        duration = 1000 * min(request.duration, self._limits.duration)
        size = min(request.size, self._limits.size, MAX_RESERVATION_BYTES)
        messages = min(request.messages, self._limits.messages, MAX_RESERVATION_MESSAGES)
        reservation = Reservation(self._relay, node, now + duration, size, messages)
        self._number += 1
        renew_at = now + duration // 2
        self._entries[node] = _Entry(reservation, self._number, renew_at, size, messages)
        return reservation

    def is_reserved(self, node: Identity, now: int) -> bool:
        """Whether a node has a reservation, used up or not."""
        return self._entry(node, now) is not None

    def charge(self, node: Identity, size: int, now: int) -> ReservationCharge | RelayStatus:
        """Charge what is about to be relayed; return the charge, or why it is not to be relayed.

        Args:
            node: The node that has reserved: that of the message, or of the question of an answer.
            size: The bytes.
            now: The time, in Unix milliseconds.
        """
        entry = self._entry(node, now)
        if entry is None:
            return RelayStatus.NO_RESERVATION
        if not entry.messages or size > entry.size:
            return RelayStatus.RESOURCE_LIMIT_EXCEEDED
        entry.messages -= 1
        entry.size -= size
        self.charged += 1
        self.charged_size += size
        return ReservationCharge(node, size, entry.number)

    def refund(self, charge: ReservationCharge) -> None:
        """Give back what was charged for something that was certainly not carried; once for each.

        A reservation that was made since gets nothing of it.
        """
        self.charged -= 1
        self.charged_size -= charge.size
        entry = self._entries.get(charge.node)
        if entry is not None and entry.number == charge.number:
            entry.messages += 1
            entry.size += charge.size

    def end(self, node: Identity) -> None:
        """End the reservation of a node, as its link is lost or it is banned."""
        self._entries.pop(node, None)

    def _entry(self, node: Identity, now: int) -> _Entry | None:
        entry = self._entries.get(node)
        if entry is not None and entry.reservation.until <= now:
            del self._entries[node]
            return None
        return entry

    def end_expired(self, now: int) -> None:
        """Forget the reservations that are over."""
        for node in list(self._entries):
            self._entry(node, now)
