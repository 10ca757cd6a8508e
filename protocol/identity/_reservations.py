"""Reservations: what a relay passes on to a node that cannot be reached otherwise.

As in circuit relay v2 of libp2p, the node that wants to be reached reserves, over its own link, and
gets a signed voucher that it can show. A reservation ends at its time, with the link, or as its
messages or bytes are used up.

```
request = [65, duration, bytes, messages]               what is wanted; duration in seconds
voucher = [relay, node, until, bytes, messages]         kind "reservation", signed by the relay
answer  = [66, status, voucher envelope or null]
```

Times are Unix milliseconds, as a voucher has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from cbor2 import dumps

from ..options import Count, Range, Size, check_options
from ._checks import check_key, check_number
from ._errors import BadRecord
from ._identities import Identity
from ._keys import SigningKey, Verifiers
from ._record_reader import RecordReader
from ._relay_policy import RelayStatus
from ._signed import SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "MAX_RESERVATION",
    "MAX_RESERVATION_BYTES",
    "MAX_RESERVATION_DURATION",
    "MAX_RESERVATION_MESSAGES",
    "MAX_VOUCHER",
    "RESERVATION_ANSWER",
    "RESERVATION_REQUEST",
    "Reservation",
    "ReservationAnswer",
    "ReservationLimits",
    "ReservationRequest",
    "Reservations",
    "issue_voucher",
    "open_voucher",
    "parse_reservation",
    "parse_reservation_answer",
    "parse_reservation_request",
    "serialize_reservation",
    "serialize_reservation_answer",
    "serialize_reservation_request",
]

MAX_RESERVATION: Final = 128
"""Most bytes of a reservation as a record."""
MAX_VOUCHER: Final = 256
"""Most bytes of a voucher: a reservation in its envelope."""
MAX_RESERVATION_DURATION: Final = 86_400
"""Most seconds of a reservation. A request for more is no record."""
MAX_RESERVATION_BYTES: Final = 2**40
"""Most bytes that a reservation is for. A request for more is no record."""
MAX_RESERVATION_MESSAGES: Final = 2**32
"""Most messages that a reservation is for. A request for more is no record."""

RESERVATION_REQUEST: Final = 65
"""The number that a request begins with, as a control record."""
RESERVATION_ANSWER: Final = 66
"""The number that an answer begins with, as a control record."""

ReservedSeconds: TypeAlias = Annotated[int, Range(least=1, most=MAX_RESERVATION_DURATION)]


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """Limits of the reservations of a relay.

    Attributes:
        reservations: Reservations at a time. Beyond: a request is refused.
        duration: Time of a reservation, in seconds. A request for more gets this.
        size: Bytes that are relayed for one reservation, in bytes. A request for more gets this;
            beyond: messages are dropped and counted.
        messages: Messages that are relayed for one. Beyond: as with `size`.

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
class ReservationRequest:
    """The reservation that a node asks for.

    Attributes:
        duration: Its time, 1 to `MAX_RESERVATION_DURATION` seconds.
        size: The bytes that may be relayed, 1 to `MAX_RESERVATION_BYTES`.
        messages: The messages that may be relayed, 1 to `MAX_RESERVATION_MESSAGES`.

    Raises:
        BadRecord: One is out of its range.
    """

    duration: int
    size: int
    messages: int

    def __post_init__(self) -> None:
        check_number("the duration", self.duration, MAX_RESERVATION_DURATION, 1)
        check_number("the bytes", self.size, MAX_RESERVATION_BYTES, 1)
        check_number("the messages", self.messages, MAX_RESERVATION_MESSAGES, 1)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation, as the voucher has it.

    Attributes:
        relay: The relay.
        node: The node that has reserved.
        until: When it ends, in Unix milliseconds.
        size: The bytes that may be relayed.
        messages: The messages that may be relayed.

    Raises:
        BadRecord: An identity has no key, or a number is out of its range.
    """

    relay: Identity
    node: Identity
    until: int
    size: int
    messages: int

    def __post_init__(self) -> None:
        check_key("the relay", self.relay)
        check_key("the node", self.node)
        check_number("the end", self.until)
        check_number("the bytes", self.size, MAX_RESERVATION_BYTES, 1)
        check_number("the messages", self.messages, MAX_RESERVATION_MESSAGES, 1)


@dataclass(frozen=True, slots=True)
class ReservationAnswer:
    """The answer of a relay to a request.

    Attributes:
        status: `OK`, or why there is no reservation.
        voucher: The reservation in its envelope if it is `OK`, `None` otherwise.

    Raises:
        BadRecord: There is one and should be none, or the other way round.
    """

    status: RelayStatus
    voucher: bytes | None = None

    def __post_init__(self) -> None:
        if (self.status is RelayStatus.OK) is (self.voucher is None):
            raise BadRecord("a voucher comes with OK, and with nothing else")


def parse_reservation_request(data: bytes) -> ReservationRequest:
    """Read a request.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_RESERVATION)
    reader.enter("a request", 4)
    if reader.number("its kind") != RESERVATION_REQUEST:
        raise BadRecord("it is no request for a reservation")
    request = ReservationRequest(
        reader.number("the duration"), reader.number("the bytes"), reader.number("the messages")
    )
    reader.leave()
    reader.end()
    return request


def serialize_reservation_request(request: ReservationRequest) -> bytes:
    """Write a request."""
    return dumps((RESERVATION_REQUEST, request.duration, request.size, request.messages))


def parse_reservation(data: bytes) -> Reservation:
    """Read a reservation.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_RESERVATION)
    reader.enter("a reservation", 5)
    reservation = Reservation(
        reader.identity("the relay"),
        reader.identity("the node"),
        reader.number("the end"),
        reader.number("the bytes"),
        reader.number("the messages"),
    )
    reader.leave()
    reader.end()
    return reservation


def serialize_reservation(reservation: Reservation) -> bytes:
    """Write a reservation."""
    return dumps(
        (
            reservation.relay,
            reservation.node,
            reservation.until,
            reservation.size,
            reservation.messages,
        )
    )


def parse_reservation_answer(data: bytes) -> ReservationAnswer:
    """Read the answer of a relay.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_RESERVATION + MAX_VOUCHER)
    reader.enter("an answer", 3)
    if reader.number("its kind") != RESERVATION_ANSWER:
        raise BadRecord("it is no answer about a reservation")
    number = reader.number("the status")
    try:
        status = RelayStatus(number)
    except ValueError:
        raise BadRecord(f"there is no status {number}") from None
    voucher = None
    if not reader.is_null("the voucher"):
        voucher = reader.binary("the voucher", MAX_VOUCHER)
    reader.leave()
    reader.end()
    return ReservationAnswer(status, voucher)


def serialize_reservation_answer(answer: ReservationAnswer) -> bytes:
    """Write the answer of a relay."""
    return dumps((RESERVATION_ANSWER, int(answer.status), answer.voucher))


def issue_voucher(reservation: Reservation, key: SigningKey) -> bytes:
    """Return the voucher of a reservation, signed by the relay."""
    return sign(SignedKind.RESERVATION, serialize_reservation(reservation), key)


def open_voucher(envelope: bytes, verifiers: Verifiers, now: int) -> Reservation | None:
    """Return the reservation of a voucher; `None` if it is over or not signed by its relay.

    Args:
        envelope: The voucher.
        verifiers: Public keys that are ready to verify.
        now: The time, in Unix milliseconds.

    Raises:
        BadRecord: It is no voucher.
    """
    signed = parse_signed(envelope, MAX_VOUCHER)
    reservation = parse_reservation(signed.payload)
    if reservation.until <= now:
        return None
    if not is_signed_by(reservation.relay, SignedKind.RESERVATION, signed, verifiers):
        return None
    return reservation


@dataclass(slots=True)
class _Entry:
    reservation: Reservation
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
        answered: The requests and messages, by their status.
    """

    __slots__ = ("_entries", "_limits", "_relay", "answered")

    def __init__(self, relay: Identity, limits: ReservationLimits | None = None) -> None:
        self._relay = relay
        self._limits = limits or ReservationLimits()
        self._entries: dict[Identity, _Entry] = {}
        self.answered = dict.fromkeys(RelayStatus, 0)

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
            self.answered[RelayStatus.OK] += 1
            return entry.reservation
        if entry is None and len(self._entries) >= self._limits.reservations:
            self._end_expired(now)
            if len(self._entries) >= self._limits.reservations:
                return self._counted(RelayStatus.RESERVATION_REFUSED)
        duration = 1000 * min(request.duration, self._limits.duration)
        size = min(request.size, self._limits.size, MAX_RESERVATION_BYTES)
        messages = min(request.messages, self._limits.messages, MAX_RESERVATION_MESSAGES)
        reservation = Reservation(self._relay, node, now + duration, size, messages)
        self._entries[node] = _Entry(reservation, now + duration // 2, size, messages)
        self.answered[RelayStatus.OK] += 1
        return reservation

    def is_reserved(self, node: Identity, now: int) -> bool:
        """Whether a node has a reservation, used up or not."""
        return self._entry(node, now) is not None

    def spend(self, node: Identity, size: int, now: int) -> RelayStatus:
        """Count a message that is relayed to a node; return `OK`, or why it is not to be.

        Args:
            node: The next node.
            size: The bytes of the message.
            now: The time, in Unix milliseconds.
        """
        entry = self._entry(node, now)
        if entry is None:
            return self._counted(RelayStatus.NO_RESERVATION)
        if not entry.messages or size > entry.size:
            return self._counted(RelayStatus.RESOURCE_LIMIT_EXCEEDED)
        entry.messages -= 1
        entry.size -= size
        return self._counted(RelayStatus.OK)

    def end(self, node: Identity) -> None:
        """End the reservation of a node, as its link is lost or it is banned."""
        self._entries.pop(node, None)

    def _entry(self, node: Identity, now: int) -> _Entry | None:
        entry = self._entries.get(node)
        if entry is not None and entry.reservation.until <= now:
            del self._entries[node]
            return None
        return entry

    def _end_expired(self, now: int) -> None:
        for node in list(self._entries):
            self._entry(node, now)

    def _counted(self, status: RelayStatus) -> RelayStatus:
        self.answered[status] += 1
        return status
