"""The records of reservations, and vouchers that only the relay can make."""

from __future__ import annotations

import contextlib

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_RESERVATION_BYTES,
    MAX_RESERVATION_DURATION,
    MAX_RESERVATION_MESSAGES,
    MAX_VOUCHER,
    RESERVATION_ANSWER,
    RESERVATION_REQUEST,
    BadRecord,
    ControlContent,
    RecordTooBig,
    RelayStatus,
    Reservation,
    ReservationAnswer,
    ReservationRequest,
    Reservations,
    SignedKind,
    SigningKey,
    Verifiers,
    derived_engine,
    issue_voucher,
    open_voucher,
    parse_reservation,
    parse_reservation_answer,
    parse_reservation_request,
    serialize_reservation,
    serialize_reservation_answer,
    serialize_reservation_request,
    sign,
)

NOW = 1_800_000_000_000
KEY, OTHER = (SigningKey(bytes((each,)) * 32) for each in (1, 2))
RELAY = KEY.identity
NODES = [SigningKey(bytes((each,)) * 32).identity for each in range(3, 8)]
NODE = NODES[0]
ENGINE = derived_engine(RELAY, b"engine")
ASKS = ReservationRequest(600, 1000, 10)
STATUS = RelayStatus


def reserved(found: Reservation | RelayStatus) -> Reservation:
    assert isinstance(found, Reservation)
    return found


def test_a_voucher_is_opened_until_it_is_over() -> None:
    reservation = reserved(Reservations(RELAY).reserve(NODE, ASKS, NOW))
    voucher = issue_voucher(reservation, KEY)
    assert len(voucher) <= MAX_VOUCHER
    assert open_voucher(voucher, Verifiers(), NOW) == reservation
    assert open_voucher(voucher, Verifiers(), reservation.until - 1) == reservation
    assert open_voucher(voucher, Verifiers(), reservation.until) is None


def test_a_voucher_is_signed_by_its_relay_as_such() -> None:
    reservation = Reservation(RELAY, NODE, NOW + 1, 1, 1)
    payload = serialize_reservation(reservation)
    for forged in (
        issue_voucher(reservation, OTHER),
        sign(SignedKind.EVENT, payload, KEY),
        sign(SignedKind.RESERVATION, payload, KEY, b"context"),
    ):
        assert open_voucher(forged, Verifiers(), NOW) is None
    voucher = issue_voucher(reservation, KEY)
    for at in range(len(voucher)):
        changed = voucher[:at] + bytes((voucher[at] ^ 1,)) + voucher[at + 1 :]
        try:
            assert open_voucher(changed, Verifiers(), NOW) is None
        except BadRecord:
            continue
    with pytest.raises(RecordTooBig):
        open_voucher(bytes(MAX_VOUCHER + 1), Verifiers(), NOW)


ANSWERS = [
    ReservationAnswer(STATUS.OK, b"voucher"),
    *[ReservationAnswer(each) for each in STATUS if each is not STATUS.OK],
]
LARGEST = Reservation(RELAY, NODE, 2**64 - 1, MAX_RESERVATION_BYTES, MAX_RESERVATION_MESSAGES)


def test_records_are_read_whole_and_refused_when_they_are_cut() -> None:
    request = ReservationRequest(
        MAX_RESERVATION_DURATION, MAX_RESERVATION_BYTES, MAX_RESERVATION_MESSAGES
    )
    data = serialize_reservation_request(request)
    assert parse_reservation_request(data) == request
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_reservation_request(data[:size])
    data = serialize_reservation(LARGEST)
    assert parse_reservation(data) == LARGEST
    assert len(issue_voucher(LARGEST, KEY)) <= MAX_VOUCHER
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_reservation(data[:size])
    for answer in ANSWERS:
        data = serialize_reservation_answer(answer)
        assert parse_reservation_answer(data) == answer
        for size in range(len(data)):
            with pytest.raises(BadRecord):
                parse_reservation_answer(data[:size])


def test_records_have_these_bytes() -> None:
    request = serialize_reservation_request(ReservationRequest(3600, 2**26, 2**16))
    assert request.hex() == "841841190e101a040000001a00010000"
    assert serialize_reservation_answer(ANSWERS[0]).hex() == "831842186447766f7563686572"
    assert serialize_reservation_answer(ANSWERS[-1]).hex() == "831842190191f6"
    for data, number in ((request, RESERVATION_REQUEST), (b"\x83\x18\x42", RESERVATION_ANSWER)):
        assert ControlContent(data).number == number


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((65, 0, 1, 1), "the duration is 0, not 1 to 86400"),
        ((65, 86401, 1, 1), "the duration is 86401, not 1 to 86400"),
        ((65, 1, 0, 1), "the bytes is 0, not 1 to 1099511627776"),
        ((65, 1, 1, 2**32 + 1), "the messages is 4294967297, not 1 to 4294967296"),
        ((RELAY, ENGINE, 1, 1, 1), "the node has no key"),
        ((ENGINE, NODE, 1, 1, 1), "the relay has no key"),
        ((RELAY, NODE, 1, 0, 1), "the bytes is 0, not 1 to 1099511627776"),
        ((64, 1, 1, 1), "it is no request for a reservation"),
        ((66, 1, 1, 1), "it is no request for a reservation"),
        ((65, 100, b"voucher"), "it is no answer about a reservation"),
        ((66, 99, None), "there is no status 99"),
        ((66, 100, None), "a voucher comes with OK, and with nothing else"),
        ((66, 204, b"voucher"), "a voucher comes with OK, and with nothing else"),
    ],
)
def test_another_record_is_refused(record: tuple[object, ...], reason: str) -> None:
    parsers = {
        3: parse_reservation_answer,
        4: parse_reservation_request,
        5: parse_reservation,
    }
    with pytest.raises(BadRecord) as raised:
        parsers[len(record)](cbor2.dumps(record))
    assert raised.value.reason == reason


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_in_its_spelling_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadRecord):
        assert serialize_reservation_request(parse_reservation_request(data)) == data
    with contextlib.suppress(BadRecord):
        assert serialize_reservation_answer(parse_reservation_answer(data)) == data
