"""The records of reservations: what a relay passes on to a node that cannot be reached otherwise.

As in circuit relay v2 of libp2p, the node that wants to be reached reserves, over its own link, and
gets a signed voucher that it can show.

```
request = [65, duration, bytes, messages]               what is wanted; duration in seconds
voucher = [relay, node, until, bytes, messages]         kind "reservation", signed by the relay
answer  = [66, status, voucher envelope or null]
```

Times are Unix milliseconds, as a voucher has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cbor2 import dumps

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
    "ReservationRequest",
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
