"""Requests and responses: their bytes, their limits, and what is refused."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    EQUIVOCATION_PENALTY,
    MAX_ADVERT_ENVELOPE,
    MAX_ADVERTS_SENT,
    MAX_CONTROL,
    MAX_DETAIL,
    MAX_ENGINE_NAME,
    RESULT_OK,
    SCOPE_ANY,
    SCOPE_LOCAL,
    TRUST_BANNED,
    TRUST_DEFAULT,
    TRUST_OWN,
    AdvertEnvelope,
    AdvertKind,
    AdvertRequest,
    AdvertResponse,
    BadRecord,
    ConnectionPrefs,
    ControlRecord,
    IdentityRecord,
    IdentityUpdated,
    LocalMetadata,
    LookupIdentityRequest,
    LookupIdentityResponse,
    RecordTooBig,
    Result,
    ResultCode,
    RoutingScope,
    ScopeKind,
    Security,
    SigningKey,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicSubRequest,
    TopicSubResponse,
    TopicUnsubRequest,
    TopicUnsubResponse,
    TransportPrefs,
    UpdateIdentityRequest,
    UpdateIdentityResponse,
    derived_engine,
    lowered_trust,
    parse_control,
    serialize_control,
)
from tests.support.records import check_kinds

TOPIC = SigningKey(bytes(range(32))).identity
NODE = SigningKey(bytes(32)).identity
ECHO = derived_engine(NODE, b"echo")
ADVERT = AdvertEnvelope(AdvertKind.NODE, b"signed")
LOCAL = LocalMetadata(
    TRUST_OWN, TransportPrefs(security=Security.ONION, hops=2), ConnectionPrefs.PERMANENT, b"echo"
)
DOMAIN = RoutingScope(ScopeKind.DOMAIN, NODE)
REFUSED = Result(ResultCode.NOT_OWNER, "no")

A, B, E = (f"5821{each.hex()}" for each in (TOPIC, NODE, ECHO))
ITEMS = "8201467369676e6564"
WRITTEN_LOCAL = "8418ff83000082010201446563686f"

VECTORS: list[tuple[ControlRecord, str]] = [
    (TopicCreateRequest(TOPIC, SCOPE_LOCAL), f"8400{A}8100f6"),
    (TopicCreateRequest(TOPIC, SCOPE_ANY, b"signed"), f"8400{A}8102467369676e6564"),
    (TopicCreateResponse(TOPIC, RESULT_OK), f"8301{A}8200f6"),
    (TopicDeleteRequest(TOPIC, DOMAIN), f"8302{A}8201{B}"),
    (TopicDeleteResponse(TOPIC, REFUSED), f"8303{A}8203626e6f"),
    (TopicSubRequest(TOPIC, SCOPE_ANY), f"8304{A}8102"),
    (TopicSubResponse(TOPIC, Result(ResultCode.ALREADY_SUBSCRIBED)), f"8305{A}8204f6"),
    (TopicUnsubRequest(TOPIC, SCOPE_ANY), f"8306{A}8102"),
    (TopicUnsubResponse(TOPIC, Result(ResultCode.OVERFLOW)), f"8307{A}820bf6"),
    (LookupIdentityRequest(ECHO), f"8208{E}"),
    (LookupIdentityResponse(ECHO, None), f"8309{E}f6"),
    (
        LookupIdentityResponse(NODE, IdentityRecord(NODE, ADVERT)),
        f"8309{B}83{ITEMS}841880f6f6f6f4",
    ),
    (
        LookupIdentityResponse(ECHO, IdentityRecord(ECHO, None, LOCAL, equivocated=True)),
        f"8309{E}83f6{WRITTEN_LOCAL}f5",
    ),
    (UpdateIdentityRequest(ECHO, LOCAL), f"840a{E}{WRITTEN_LOCAL}f6"),
    (UpdateIdentityRequest(NODE, LocalMetadata(0), ADVERT), f"840a{B}8400f6f6f6{ITEMS}"),
    (UpdateIdentityResponse(ECHO, Result(ResultCode.DENIED)), f"830b{E}820af6"),
    (IdentityUpdated(ECHO, None), f"830c{E}f6"),
    (IdentityUpdated(NODE, IdentityRecord(NODE)), f"830c{B}83f6841880f6f6f6f4"),
    (AdvertRequest(ECHO), f"820d{E}"),
    (AdvertResponse(ECHO, ()), f"830e{E}80"),
    (AdvertResponse(ECHO, (ADVERT, ADVERT)), f"830e{E}82{ITEMS}{ITEMS}"),
]


def test_a_code_is_shown_by_its_name() -> None:
    assert f"{ResultCode.EXISTS}, {ResultCode.OK!s}" == "EXISTS, OK"


@pytest.mark.parametrize(("control", "written"), VECTORS)
def test_a_request_or_response_has_these_bytes_and_is_refused_when_it_is_cut(
    control: ControlRecord, written: str
) -> None:
    data = bytes.fromhex(written)
    assert serialize_control(control) == data
    assert parse_control(data) == control
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_control(data[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_control(data + b"\x00")


def test_there_is_no_other_number_of_a_record() -> None:
    for number in (15, 24, 2**64 - 1):
        with pytest.raises(BadRecord, match=f"there is no record {number}"):
            parse_control(cbor2.dumps((number, TOPIC)))


NULLS = (TRUST_DEFAULT, None, None, None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((8,), "the record has 1 items, not 2 to 4"),
        ((8, ECHO, None), "the record 8 has 3 items, not 2"),
        ((0, TOPIC, (2,)), "the record 0 has 3 items, not 4"),
        ((4, ECHO, (2,)), "the topic has no key"),
        ((5, ECHO, (0, None)), "the topic has no key"),
        ((5, TOPIC, (12, None)), "there is no code 12 of results"),
        ((5, TOPIC, (0, "")), "the detail has 0 bytes, not 1 to 200"),
        ((5, TOPIC, (0, "a" * (MAX_DETAIL + 1))), "the detail has 201 bytes, not 1 to 200"),
        ((0, TOPIC, (2,), b""), f"the advert has 0 bytes, not 1 to {MAX_ADVERT_ENVELOPE}"),
        (
            (0, TOPIC, (2,), bytes(MAX_ADVERT_ENVELOPE + 1)),
            f"the advert has {MAX_ADVERT_ENVELOPE + 1} bytes, not 1 to {MAX_ADVERT_ENVELOPE}",
        ),
        ((9, ECHO, (None, (256, None, None, None), False)), "the trust is 256, over 255"),
        ((9, ECHO, (None, (0, None, 2, None), False)), "the connection is 2, over 1"),
        ((9, ECHO, (None, (0, None, 1, b""), False)), "the worker has 0 bytes, not 1 to 1024"),
        (
            (9, ECHO, (None, (0, None, 1, bytes(MAX_ENGINE_NAME + 1)), False)),
            "the worker has 1025 bytes, not 1 to 1024",
        ),
        (
            (9, ECHO, (None, NULLS, None)),
            "the mark of an equivocation is neither true nor false",
        ),
        ((9, ECHO, ((3, b""), NULLS, False)), "there is no kind 3 of adverts"),
        (
            (14, ECHO, ((1, b""),) * (MAX_ADVERTS_SENT + 1)),
            "the list of adverts has 5 items, not 0 to 4",
        ),
    ],
)
def test_what_is_over_a_limit_or_of_no_kind_is_refused(record: object, reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_control(cbor2.dumps(record))
    assert raised.value.reason == reason


def test_what_is_made_here_has_the_same_limits() -> None:
    with pytest.raises(BadRecord, match="the topic has no key"):
        TopicSubRequest(ECHO, SCOPE_ANY)
    with pytest.raises(BadRecord, match=f"the advert has 0 bytes, not 1 to {MAX_ADVERT_ENVELOPE}"):
        TopicCreateRequest(TOPIC, SCOPE_ANY, b"")
    with pytest.raises(BadRecord, match="the record is of another identity"):
        LookupIdentityResponse(TOPIC, IdentityRecord(NODE))
    with pytest.raises(BadRecord, match="the record is of another identity"):
        IdentityUpdated(TOPIC, IdentityRecord(NODE))
    with pytest.raises(BadRecord, match="the number of adverts is 5, not 0 to 4"):
        AdvertResponse(NODE, (ADVERT,) * 5)
    with pytest.raises(BadRecord, match="the trust is 256, not 0 to 255"):
        LocalMetadata(256)
    with pytest.raises(BadRecord, match="the worker has 0 bytes, not 1 to 1024"):
        LocalMetadata(worker=b"")
    with pytest.raises(BadRecord, match="the detail has 0 bytes, not 1 to 200"):
        Result(ResultCode.OK, "")


def test_the_greatest_records_fit() -> None:
    advert = AdvertEnvelope(AdvertKind.DOMAIN, bytes(MAX_ADVERT_ENVELOPE))
    local = LocalMetadata(TRUST_OWN, LOCAL.tprefs, LOCAL.connection, bytes(MAX_ENGINE_NAME))
    greatest: list[ControlRecord] = [
        AdvertResponse(NODE, (advert,) * MAX_ADVERTS_SENT),
        IdentityUpdated(NODE, IdentityRecord(NODE, advert, local)),
        UpdateIdentityRequest(NODE, local, advert),
        TopicCreateRequest(TOPIC, DOMAIN, bytes(MAX_ADVERT_ENVELOPE)),
        TopicSubResponse(TOPIC, Result(ResultCode.OVERFLOW, "é" * (MAX_DETAIL // 2))),
    ]
    for each in greatest:
        assert parse_control(serialize_control(each)) == each
    with pytest.raises(RecordTooBig):
        parse_control(bytes(MAX_CONTROL + 1))


def test_a_record_with_no_trust_is_banned() -> None:
    assert IdentityRecord(NODE, local=LocalMetadata(TRUST_BANNED)).is_banned
    assert not IdentityRecord(NODE, local=LocalMetadata(1)).is_banned


def test_an_equivocation_costs_trust_but_never_bans() -> None:
    assert lowered_trust(TRUST_DEFAULT) == TRUST_DEFAULT - EQUIVOCATION_PENALTY
    assert lowered_trust(EQUIVOCATION_PENALTY) == 1
    assert lowered_trust(1) == 1
    assert lowered_trust(TRUST_BANNED) == TRUST_BANNED
    assert lowered_trust(TRUST_OWN) == TRUST_OWN


def test_the_codes_of_results_have_their_numbers() -> None:
    assert [each.name for each in ResultCode] == [
        "OK",
        "EXISTS",
        "UNKNOWN",
        "NOT_OWNER",
        "ALREADY_SUBSCRIBED",
        "NOT_SUBSCRIBED",
        "SCOPE",
        "BAD_ADVERT",
        "REMOTE_FAILED",
        "TIMEOUT",
        "DENIED",
        "OVERFLOW",
    ]
    assert [int(each) for each in ResultCode] == list(range(12))


NULLABLE: dict[type[object], list[tuple[int, ...]]] = {
    TopicCreateRequest: [(3,)],
    LookupIdentityResponse: [(2,), (2, 0), (2, 1, 1), (2, 1, 2), (2, 1, 3)],
    IdentityUpdated: [(2,), (2, 0), (2, 1, 1), (2, 1, 2), (2, 1, 3)],
    UpdateIdentityRequest: [(2, 1), (2, 2), (2, 3), (3,)],
}
"""The places that may be null; of all others it is the detail of a result."""


@pytest.mark.parametrize(("control", "written"), VECTORS)
def test_no_item_of_a_request_or_response_is_of_another_kind(
    control: ControlRecord, written: str
) -> None:
    nullable = NULLABLE.get(type(control), [(2, 1)])
    assert check_kinds(parse_control, serialize_control, bytes.fromhex(written), *nullable)


@given(st.sampled_from(VECTORS), st.data())
def test_any_bytes_are_a_record_in_its_one_spelling_or_refused(
    vector: tuple[ControlRecord, str], draw: st.DataObject
) -> None:
    data = bytearray.fromhex(vector[1])
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        parsed = parse_control(bytes(data))
    except BadRecord:
        return
    assert serialize_control(parsed) == data
