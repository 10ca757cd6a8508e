"""Events, and the control records about topics: one spelling, signed by the publisher."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    INSTANCE_SHIFT,
    MAX_CONTENT,
    MAX_EVENT_BODY,
    MAX_EVENT_ENVELOPE,
    MAX_EVENT_IDS,
    MAX_INSTANCE,
    MAX_NUMBER,
    RING_EVENTS,
    BadKey,
    BadRecord,
    Event,
    EventId,
    EventRecord,
    ResendEvents,
    ResultCode,
    SignedKind,
    SigningKey,
    SubscribeTopic,
    TopicProgress,
    TopicRecord,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
    Verifiers,
    derived_engine,
    first_number,
    instance_of,
    open_event,
    parse_event,
    parse_topic_record,
    serialize_event,
    serialize_topic_record,
    sign,
    sign_event,
)
from tests.support.records import check_kinds

KEY, OTHER_KEY = SigningKey(bytes(range(32))), SigningKey(bytes(32))
TOPIC, ME = OTHER_KEY.identity, KEY.identity
DERIVED = derived_engine(ME, b"engine")
EVENT = Event(TOPIC, ME, 7, b"body", (EventId(ME, 6),), (EventId(TOPIC, 9),))


def test_an_event_has_golden_bytes() -> None:
    assert serialize_event(EVENT) == cbor2.dumps(
        [TOPIC, ME, 7, [[ME, 6]], [[TOPIC, 9]], b"body"], canonical=True
    )
    assert parse_event(serialize_event(EVENT)) == EVENT


def test_an_event_that_is_cut_or_longer_is_refused() -> None:
    data = serialize_event(EVENT)
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_event(data[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_event(data + b"\x00")


def test_an_event_is_opened_if_its_publisher_has_signed_it() -> None:
    envelope = sign_event(EVENT, KEY)
    assert open_event(envelope, Verifiers()) == EVENT
    with pytest.raises(BadKey, match="it is not of the publisher of the event"):
        sign_event(EVENT, OTHER_KEY)
    forged = sign(SignedKind.EVENT, serialize_event(EVENT), OTHER_KEY)
    assert open_event(forged, Verifiers()) is None
    # Threat 2: a signature of another kind.
    advert = sign(SignedKind.TOPIC_ADVERT, serialize_event(EVENT), KEY)
    assert open_event(advert, Verifiers()) is None


def test_threat_1_an_event_with_a_changed_byte_is_not_opened() -> None:
    envelope = sign_event(EVENT, KEY)
    for at in range(len(envelope)):
        changed = bytearray(envelope)
        changed[at] ^= 1
        try:
            opened = open_event(bytes(changed), Verifiers())
        except BadRecord:
            continue
        assert opened is None


IDS = tuple(EventId(ME, MAX_NUMBER) for _ in range(MAX_EVENT_IDS))


def test_the_largest_event_fits_a_control_record() -> None:
    event = Event(TOPIC, ME, MAX_NUMBER, bytes(MAX_EVENT_BODY), IDS, IDS)
    envelope = sign_event(event, KEY)
    assert len(envelope) <= MAX_EVENT_ENVELOPE
    assert open_event(envelope, Verifiers()) == event
    largest = serialize_topic_record(EventRecord(bytes(MAX_EVENT_ENVELOPE)))
    assert len(largest) <= MAX_CONTENT


def test_an_event_has_limits() -> None:
    with pytest.raises(BadRecord, match="the body has 1046529 bytes, not 0 to 1046528"):
        Event(TOPIC, ME, 1, bytes(MAX_EVENT_BODY + 1))
    with pytest.raises(BadRecord, match="it depends on 17 events, over 16"):
        Event(TOPIC, ME, 1, b"", (*IDS, IDS[0]))
    with pytest.raises(BadRecord, match="it has seen 17 events, over 16"):
        Event(TOPIC, ME, 1, b"", (), (*IDS, IDS[0]))
    with pytest.raises(BadRecord, match="the number is -1"):
        Event(TOPIC, ME, -1, b"")
    with pytest.raises(BadRecord, match="the number of an event is -1"):
        Event(TOPIC, ME, 1, b"", (EventId(ME, -1),))
    for topic, publisher in ((DERIVED, ME), (TOPIC, DERIVED)):
        with pytest.raises(BadRecord, match="has no key"):
            Event(topic, publisher, 1, b"")
    with pytest.raises(BadRecord, match="the publisher of an event has no key"):
        Event(TOPIC, ME, 1, b"", (EventId(DERIVED, 1),))


def test_numbers_begin_with_the_instance() -> None:
    assert first_number(5) == 5 << INSTANCE_SHIFT
    assert instance_of(first_number(5)) == instance_of(first_number(6) - 1) == 5
    assert first_number(MAX_INSTANCE + 1) < MAX_NUMBER


RECORDS: list[tuple[TopicRecord, list[object]]] = [
    (SubscribeTopic(TOPIC, 1), [32, TOPIC, 1]),
    (TopicSubscribed(TOPIC, 1, ResultCode.OK, 9), [33, TOPIC, 1, 0, 9]),
    (UnsubscribeTopic(TOPIC, 2), [34, TOPIC, 2]),
    (TopicUnsubscribed(TOPIC, 2, ResultCode.NOT_SUBSCRIBED), [35, TOPIC, 2, 5]),
    (EventRecord(b"envelope"), [36, b"envelope"]),
    (TopicProgress(TOPIC, 3, 4), [37, TOPIC, 3, 4]),
    (ResendEvents(TOPIC, 3, RING_EVENTS), [38, TOPIC, 3, 256]),
]


@pytest.mark.parametrize(("record", "items"), RECORDS)
def test_a_record_about_topics_has_golden_bytes(record: TopicRecord, items: list[object]) -> None:
    data = serialize_topic_record(record)
    assert data == cbor2.dumps(items, canonical=True)
    assert parse_topic_record(data) == record
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_topic_record(data[:size])
    with pytest.raises(BadRecord, match="behind the end"):
        parse_topic_record(data + b"\x00")


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([31, TOPIC, 1], "there is no record 31 about topics"),
        ([39, TOPIC, 1], "there is no record 39 about topics"),
        ([32, TOPIC], "the record 32 has 2 items, not 3"),
        ([32, TOPIC, 1, 1], "the record 32 has 4 items, not 3"),
        ([32, DERIVED, 1], "the topic has no key"),
        ([33, TOPIC, 1, 12, 0], "the result is 12, over 11"),
        ([36, b""], f"the envelope has 0 bytes, not 1 to {MAX_EVENT_ENVELOPE}"),
        ([37, TOPIC, 5, 4], "the first event is 5, not 0 to 4"),
        ([38, TOPIC, 1, 0], "the count is 0, not 1 to 256"),
        ([38, TOPIC, 1, 257], "the count is 257, over 256"),
        ([38], "the record has 1 items, not 2 to 5"),
    ],
)
def test_another_record_is_refused(items: list[object], reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_topic_record(cbor2.dumps(items))
    assert raised.value.reason == reason


@pytest.mark.parametrize(("record", "items"), RECORDS)
def test_no_item_of_a_record_is_of_another_kind(record: TopicRecord, items: list[object]) -> None:
    data = serialize_topic_record(record)
    assert check_kinds(parse_topic_record, serialize_topic_record, data) > len(items)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    for head in (b"", *(bytes((0x80 + items, 0x18, number)) for items, number in SHAPES)):
        try:
            record = parse_topic_record(head + data)
        except BadRecord:
            continue
        assert serialize_topic_record(record) == head + data


SHAPES = [(3, 32), (5, 33), (3, 34), (4, 35), (2, 36), (4, 37), (4, 38)]
NUMBERS = st.integers(0, MAX_NUMBER)
ID_LISTS = st.lists(st.builds(EventId, st.just(ME), NUMBERS), max_size=3).map(tuple)


@given(st.builds(Event, st.just(TOPIC), st.just(ME), NUMBERS, st.binary(), ID_LISTS, ID_LISTS))
def test_any_event_is_read_as_it_was_written(event: Event) -> None:
    assert parse_event(serialize_event(event)) == event
