"""The bytes of requests and responses: a union by number.

```
control = [number, …]       the tables at the end have the number of each kind, and its items
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from cbor2 import dumps

from ._advert_envelopes import MAX_ADVERT_ENVELOPE, advert_envelope_items, read_advert_envelope
from ._errors import BadRecord
from ._identities import Identity
from ._identity_records import (
    IdentityRecord,
    local_items,
    read_local,
    read_record,
    record_items,
)
from ._preferences import RoutingScope, read_scope, scope_items
from ._record_reader import RecordReader
from ._requests import (
    MAX_ADVERTS_SENT,
    AdvertRequest,
    AdvertResponse,
    ControlRecord,
    IdentityUpdated,
    LookupIdentityRequest,
    LookupIdentityResponse,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicSubRequest,
    TopicSubResponse,
    TopicUnsubRequest,
    TopicUnsubResponse,
    UpdateIdentityRequest,
    UpdateIdentityResponse,
)
from ._results import Result, read_result, result_items

__all__ = ["MAX_CONTROL", "parse_control", "serialize_control"]

MAX_CONTROL: Final = MAX_ADVERTS_SENT * MAX_ADVERT_ENVELOPE + 1024
"""Most bytes of a request or a response."""


def parse_control(data: bytes) -> ControlRecord:
    """Read a request, a response or a notice.

    Raises:
        BadRecord: It is none, or of no kind that there is.
    """
    reader = RecordReader(data, MAX_CONTROL)
    count = reader.enter("the record", 2, 4)
    number = reader.number("the number of the record")
    if number >= len(_READERS):
        raise BadRecord(f"there is no record {number}")
    items, read = _READERS[number]
    if count != items:
        raise BadRecord(f"the record {number} has {count} items, not {items}")
    control = read(reader)
    reader.leave()
    reader.end()
    return control


def serialize_control(control: ControlRecord) -> bytes:
    """Return the bytes of a request, a response or a notice."""
    return dumps((_NUMBERS[type(control)], *_items(control)))


def _items(control: ControlRecord) -> tuple[object, ...]:
    match control:
        case TopicCreateRequest(topic, scope, advert):
            return topic, scope_items(scope), advert
        case (
            TopicDeleteRequest(topic, scope)
            | TopicSubRequest(topic, scope)
            | TopicUnsubRequest(topic, scope)
        ):
            return topic, scope_items(scope)
        case (
            TopicCreateResponse(topic, result)
            | TopicDeleteResponse(topic, result)
            | TopicSubResponse(topic, result)
            | TopicUnsubResponse(topic, result)
            | UpdateIdentityResponse(topic, result)
        ):
            return topic, result_items(result)
        case LookupIdentityRequest(identity) | AdvertRequest(identity):
            return (identity,)
        case LookupIdentityResponse(identity, record) | IdentityUpdated(identity, record):
            return identity, None if record is None else record_items(record)
        case UpdateIdentityRequest(identity, local, put):
            items = None if put is None else advert_envelope_items(put)
            return identity, local_items(local), items
        case AdvertResponse(identity, adverts):
            return identity, tuple(advert_envelope_items(each) for each in adverts)
        case _:  # pragma: no cover
            assert_never(control)


def _read_create(reader: RecordReader) -> TopicCreateRequest:
    topic = reader.keyed("the topic")
    scope = read_scope(reader, "the scope")
    advert = None
    if not reader.is_null("the advert"):
        advert = reader.binary("the advert", MAX_ADVERT_ENVELOPE, 1)
    return TopicCreateRequest(topic, scope, advert)


def _read_topic(reader: RecordReader) -> tuple[Identity, RoutingScope]:
    return reader.keyed("the topic"), read_scope(reader, "the scope")


def _read_topic_result(reader: RecordReader) -> tuple[Identity, Result]:
    return reader.keyed("the topic"), read_result(reader)


def _read_known(reader: RecordReader) -> tuple[Identity, IdentityRecord | None]:
    identity = reader.identity("the identity")
    if reader.is_null("the record"):
        return identity, None
    return identity, read_record(reader, identity)


def _read_update(reader: RecordReader) -> UpdateIdentityRequest:
    identity = reader.identity("the identity")
    local = read_local(reader)
    advert = None if reader.is_null("the advert") else read_advert_envelope(reader)
    return UpdateIdentityRequest(identity, local, advert)


def _read_adverts(reader: RecordReader) -> AdvertResponse:
    identity = reader.identity("the identity")
    count = reader.enter("the list of adverts", 0, MAX_ADVERTS_SENT)
    adverts = tuple(read_advert_envelope(reader) for _ in range(count))
    reader.leave()
    return AdvertResponse(identity, adverts)


_READERS: Final[tuple[tuple[int, Callable[[RecordReader], ControlRecord]], ...]] = (
    (4, _read_create),
    (3, lambda reader: TopicCreateResponse(*_read_topic_result(reader))),
    (3, lambda reader: TopicDeleteRequest(*_read_topic(reader))),
    (3, lambda reader: TopicDeleteResponse(*_read_topic_result(reader))),
    (3, lambda reader: TopicSubRequest(*_read_topic(reader))),
    (3, lambda reader: TopicSubResponse(*_read_topic_result(reader))),
    (3, lambda reader: TopicUnsubRequest(*_read_topic(reader))),
    (3, lambda reader: TopicUnsubResponse(*_read_topic_result(reader))),
    (2, lambda reader: LookupIdentityRequest(reader.identity("the identity"))),
    (3, lambda reader: LookupIdentityResponse(*_read_known(reader))),
    (4, _read_update),
    (
        3,
        lambda reader: UpdateIdentityResponse(reader.identity("the identity"), read_result(reader)),
    ),
    (3, lambda reader: IdentityUpdated(*_read_known(reader))),
    (2, lambda reader: AdvertRequest(reader.identity("the identity"))),
    (3, _read_adverts),
)
"""For each number the items of the record, and how those after the number are read."""
_NUMBERS: Final[dict[type[ControlRecord], int]] = {
    TopicCreateRequest: 0,
    TopicCreateResponse: 1,
    TopicDeleteRequest: 2,
    TopicDeleteResponse: 3,
    TopicSubRequest: 4,
    TopicSubResponse: 5,
    TopicUnsubRequest: 6,
    TopicUnsubResponse: 7,
    LookupIdentityRequest: 8,
    LookupIdentityResponse: 9,
    UpdateIdentityRequest: 10,
    UpdateIdentityResponse: 11,
    IdentityUpdated: 12,
    AdvertRequest: 13,
    AdvertResponse: 14,
}
