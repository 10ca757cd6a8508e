"""The bytes of requests and responses: a union by number.

```
control = [number, …]       the table at the end has the number of each kind, and its items
```
"""

from __future__ import annotations

from typing import Final

from ._advert_envelopes import (
    MAX_ADVERT_ENVELOPE,
    AdvertEnvelope,
    advert_envelope_items,
    read_advert_envelope,
)
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
from ._record_table import Field, RecordTable, binary, keyed, or_null
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
from ._results import read_result, result_items

__all__ = ["MAX_CONTROL", "parse_control", "serialize_control"]

MAX_CONTROL: Final = MAX_ADVERTS_SENT * MAX_ADVERT_ENVELOPE + 1024
"""Most bytes of a request or a response."""


def parse_control(data: bytes) -> ControlRecord:
    """Read a request, a response or a notice.

    Raises:
        BadRecord: It is none, or of no kind that there is.
    """
    return _TABLE.parse(data)


def serialize_control(control: ControlRecord) -> bytes:
    """Return the bytes of a request, a response or a notice."""
    return _TABLE.serialize(control)


def _identity(reader: RecordReader) -> Identity:
    return reader.identity("the identity")


def _scope(reader: RecordReader) -> RoutingScope:
    return read_scope(reader, "the scope")


def _adverts(reader: RecordReader) -> tuple[AdvertEnvelope, ...]:
    count = reader.enter("the list of adverts", 0, MAX_ADVERTS_SENT)
    adverts = tuple(read_advert_envelope(reader) for _ in range(count))
    reader.leave()
    return adverts


def _adverts_items(adverts: tuple[AdvertEnvelope, ...]) -> tuple[object, ...]:
    return tuple(map(advert_envelope_items, adverts))


def _known(reader: RecordReader, identity: Identity) -> IdentityRecord | None:
    return None if reader.is_null("the record") else read_record(reader, identity)


def _known_items(record: IdentityRecord | None) -> tuple[object, ...] | None:
    return None if record is None else record_items(record)


_TOPIC, _IDENTITY = keyed("the topic"), Field(_identity)
_SCOPE, _RESULT = Field(_scope, scope_items), Field(read_result, result_items)
_PUT = or_null("the advert", Field(read_advert_envelope, advert_envelope_items))
_ADVERTS: Final = Field(_adverts, _adverts_items)
_KNOWN: Final = Field(_known, _known_items, of_first=True)
_TABLE: Final = RecordTable[ControlRecord](
    "requests",
    MAX_CONTROL,
    {
        0: (
            TopicCreateRequest,
            (_TOPIC, _SCOPE, or_null("the advert", binary("the advert", MAX_ADVERT_ENVELOPE, 1))),
        ),
        1: (TopicCreateResponse, (_TOPIC, _RESULT)),
        2: (TopicDeleteRequest, (_TOPIC, _SCOPE)),
        3: (TopicDeleteResponse, (_TOPIC, _RESULT)),
        4: (TopicSubRequest, (_TOPIC, _SCOPE)),
        5: (TopicSubResponse, (_TOPIC, _RESULT)),
        6: (TopicUnsubRequest, (_TOPIC, _SCOPE)),
        7: (TopicUnsubResponse, (_TOPIC, _RESULT)),
        8: (LookupIdentityRequest, (_IDENTITY,)),
        9: (LookupIdentityResponse, (_IDENTITY, _KNOWN)),
        10: (UpdateIdentityRequest, (_IDENTITY, Field(read_local, local_items), _PUT)),
        11: (UpdateIdentityResponse, (_IDENTITY, _RESULT)),
        12: (IdentityUpdated, (_IDENTITY, _KNOWN)),
        13: (AdvertRequest, (_IDENTITY,)),
        14: (AdvertResponse, (_IDENTITY, _ADVERTS)),
    },
)
