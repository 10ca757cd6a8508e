"""The records about domains: one spelling, bounded paths, signed requests to join."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_BODY,
    MAX_CONTENT,
    MAX_DOMAIN_PATH,
    MAX_JOIN_AUTH,
    MAX_JOIN_ENVELOPE,
    MAX_NUMBER,
    BadKey,
    BadRecord,
    DomainJoined,
    DomainJoining,
    DomainRecord,
    DomainRefusal,
    DomainRequest,
    DomainResponse,
    JoinRequest,
    JoinResponse,
    Protocol,
    ResultCode,
    SignedKind,
    SigningKey,
    Verifiers,
    derived_engine,
    open_join_request,
    open_join_response,
    parse_domain_record,
    serialize_domain_record,
    sign,
    sign_join_request,
    sign_join_response,
)
from tests.support.records import check_kinds

KEYS = [SigningKey(bytes((number,)) * 32) for number in range(12)]
A, B, C, DOMAIN = (key.identity for key in KEYS[:4])
PATH = tuple(key.identity for key in KEYS[4:])
DERIVED = derived_engine(A, b"engine")
WORDS = Protocol("words", 1)
OK = ResultCode.OK

RECORDS: list[tuple[DomainRecord, list[object]]] = [
    (
        DomainRequest(A, DOMAIN, 5, (A, B), 99, WORDS, b"ask"),
        [48, A, DOMAIN, 5, [A, B], 99, ["words", 1], b"ask"],
    ),
    (
        DomainResponse(DOMAIN, C, A, 5, (B, A), OK, WORDS, b"answer"),
        [49, DOMAIN, C, A, 5, [B, A], 0, ["words", 1], b"answer"],
    ),
    (DomainRefusal(A, 5, ResultCode.OVERFLOW), [50, A, 5, 11]),
    (DomainJoining(b"request"), [51, b"request"]),
    (DomainJoined(b"response"), [52, b"response"]),
]


@pytest.mark.parametrize(("record", "items"), RECORDS)
def test_a_record_about_domains_has_golden_bytes(record: DomainRecord, items: list[object]) -> None:
    data = serialize_domain_record(record)
    assert data == cbor2.dumps(items, canonical=True)
    assert parse_domain_record(data) == record
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_domain_record(data[:size])
    with pytest.raises(BadRecord, match="behind the end"):
        parse_domain_record(data + b"\x00")


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([47, A, 5, 0], "there is no record 47 about domains"),
        ([53, A, 5, 0], "there is no record 53 about domains"),
        ([50, A, 5], "the record 50 has 3 items, not 4"),
        ([50, DERIVED, 5, 0], "the source has no key"),
        ([50, A, 5, 12], "the result is 12, over 11"),
        ([48, A, DOMAIN, 5, [], 99, ["w", 1], b""], "the path has 0 items, not 1 to 8"),
        ([48, A, DOMAIN, 5, [A, *PATH], 99, ["w", 1], b""], "the path has 9 items, not 1 to 8"),
        ([48, A, DOMAIN, 5, [A, B, A], 99, ["w", 1], b""], "a node is twice in the path"),
        ([48, A, DOMAIN, 5, [B], 99, ["w", 1], b""], "the path does not begin at the source"),
        (
            [49, DOMAIN, C, A, 5, [A, B], 0, ["w", 1], b""],
            "the path does not end at the destination",
        ),
        ([51, b""], f"the envelope has 0 bytes, not 1 to {MAX_JOIN_ENVELOPE}"),
    ],
)
def test_another_record_is_refused(items: list[object], reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_domain_record(cbor2.dumps(items))
    assert raised.value.reason == reason


def test_records_that_are_made_here_have_the_same_limits() -> None:
    with pytest.raises(BadRecord, match="the path has 0 nodes, not 1 to 8"):
        DomainRequest(A, DOMAIN, 5, (), 99, WORDS, b"")
    with pytest.raises(BadRecord, match="the path has 9 nodes, not 1 to 8"):
        DomainRequest(A, DOMAIN, 5, (A, *PATH), 99, WORDS, b"")
    with pytest.raises(BadRecord, match="a node of the path has no key"):
        DomainRequest(A, DOMAIN, 5, (A, DERIVED), 99, WORDS, b"")
    with pytest.raises(BadRecord, match="the body has"):
        DomainResponse(DOMAIN, C, A, 5, (A,), OK, WORDS, bytes(MAX_BODY + 1))


def test_the_largest_request_fits_a_message_between_nodes() -> None:
    assert len(PATH) == MAX_DOMAIN_PATH
    protocol = Protocol("x" * 32, MAX_NUMBER)
    request = DomainRequest(
        PATH[0], DOMAIN, MAX_NUMBER, PATH, MAX_NUMBER, protocol, bytes(MAX_BODY)
    )
    data = serialize_domain_record(request)
    assert len(data) <= MAX_CONTENT
    assert parse_domain_record(data) == request


@pytest.mark.parametrize("auth", [None, b"", bytes(MAX_JOIN_AUTH)])
def test_a_request_to_join_is_opened_if_its_node_has_signed_it(auth: bytes | None) -> None:
    request = JoinRequest(A, DOMAIN, auth, MAX_NUMBER)
    envelope = sign_join_request(request, KEYS[0])
    assert open_join_request(DomainJoining(envelope).envelope, Verifiers()) == request
    with pytest.raises(BadKey):
        sign_join_request(request, KEYS[1])
    payload = cbor2.dumps((A, DOMAIN, auth, MAX_NUMBER))
    forged = sign(SignedKind.JOIN_REQUEST, payload, KEYS[1])
    assert open_join_request(forged, Verifiers()) is None


@pytest.mark.parametrize("epoch", [None, 0, MAX_NUMBER])
def test_an_answer_to_it_is_opened_if_its_approver_has_signed_it(epoch: int | None) -> None:
    response = JoinResponse(DOMAIN, A, DOMAIN, 9, epoch, ResultCode.DENIED)
    envelope = sign_join_response(response, KEYS[3])
    assert open_join_response(DomainJoined(envelope).envelope, Verifiers()) == response
    with pytest.raises(BadKey):
        sign_join_response(response, KEYS[1])
    payload = cbor2.dumps((DOMAIN, A, DOMAIN, 9, epoch, 10))
    assert open_join_response(sign(SignedKind.JOIN_RESPONSE, payload, KEYS[1]), Verifiers()) is None
    # Threat 2: a request is no answer.
    request = sign_join_request(JoinRequest(A, DOMAIN, None, 9), KEYS[0])
    with pytest.raises(BadRecord):
        open_join_response(request, Verifiers())
    with pytest.raises(BadRecord):
        open_join_request(envelope, Verifiers())


def test_a_request_to_join_has_limits() -> None:
    with pytest.raises(BadRecord, match="what it shows has 4097 bytes"):
        JoinRequest(A, DOMAIN, bytes(MAX_JOIN_AUTH + 1), 9)
    with pytest.raises(BadRecord, match="the requestor has no key"):
        JoinRequest(DERIVED, DOMAIN, None, 9)
    with pytest.raises(BadRecord, match="the epoch is -1"):
        JoinResponse(A, B, DOMAIN, 9, -1, OK)


@pytest.mark.parametrize(("record", "items"), RECORDS)
def test_no_item_of_a_record_is_of_another_kind(record: DomainRecord, items: list[object]) -> None:
    data = serialize_domain_record(record)
    assert check_kinds(parse_domain_record, serialize_domain_record, data) > len(items)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    for head in (b"", *(bytes((0x80 + items, 0x18, number)) for items, number in SHAPES)):
        try:
            record = parse_domain_record(head + data)
        except BadRecord:
            continue
        assert serialize_domain_record(record) == head + data


SHAPES = [(8, 48), (9, 49), (4, 50), (2, 51), (2, 52)]
