"""What nodes say to each other about topics: the control records 32 to 38; 39 to 47 are free.

```
subscribe    = [32, topic, request]
subscribed   = [33, topic, request, result, next]
unsubscribe  = [34, topic, request]
unsubscribed = [35, topic, request, result]
event        = [36, envelope]
progress     = [37, topic, first, next]        kept are the events from first on, before next
resend       = [38, topic, first, count]
```

They travel between the nodes of a link, which has proved both. So they have no signature; an event
has one, of its publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadRecord
from ._identities import Identity
from ._p2p_message import MAX_CONTENT
from ._record_reader import MAX_NUMBER, RecordReader
from ._results import ResultCode

__all__ = [
    "MAX_EVENT_ENVELOPE",
    "RING_EVENTS",
    "EventRecord",
    "ResendEvents",
    "SubscribeTopic",
    "TopicProgress",
    "TopicRecord",
    "TopicSubscribed",
    "TopicUnsubscribed",
    "UnsubscribeTopic",
    "parse_topic_record",
    "serialize_topic_record",
]

RING_EVENTS: Final = 256
"""Events of a topic that its publisher keeps to send them again, and the most that a subscriber
holds back behind one that is missing."""
MAX_EVENT_ENVELOPE: Final = MAX_CONTENT - 16
"""Most bytes of the envelope of an event."""


@dataclass(frozen=True, slots=True)
class SubscribeTopic:
    """A request of a node for the events of a topic.

    Attributes:
        topic: The topic.
        request: A number that the answer has, too.
    """

    topic: Identity
    request: int

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the request", self.request)


@dataclass(frozen=True, slots=True)
class TopicSubscribed:
    """The answer to `SubscribeTopic`.

    Attributes:
        topic: The topic.
        request: The number of the request.
        result: `OK`, or why there is no subscription.
        next: The number of the next event; 0 without a subscription.
    """

    topic: Identity
    request: int
    result: ResultCode
    next: int = 0

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the request", self.request)
        check_number("the next event", self.next)


@dataclass(frozen=True, slots=True)
class UnsubscribeTopic:
    """The end of a subscription of a node.

    Attributes:
        topic: The topic.
        request: A number that the answer has, too.
    """

    topic: Identity
    request: int

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the request", self.request)


@dataclass(frozen=True, slots=True)
class TopicUnsubscribed:
    """The answer to `UnsubscribeTopic`, and without a request the end by the publisher.

    Attributes:
        topic: The topic.
        request: The number of the request; 0 for the end of the topic.
        result: `OK`, or `NOT_SUBSCRIBED`; `UNKNOWN` if the topic is gone.
    """

    topic: Identity
    request: int
    result: ResultCode

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the request", self.request)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event on its way to a subscriber.

    Attributes:
        envelope: The event in its envelope, 1 to `MAX_EVENT_ENVELOPE` bytes.
    """

    envelope: bytes

    def __post_init__(self) -> None:
        check_size("the envelope", self.envelope, MAX_EVENT_ENVELOPE, 1)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """The events that a publisher keeps: an answer for those that it does not, and a sign of life.

    Attributes:
        topic: The topic.
        first: The number of the oldest event that is kept; `next` if there is none.
        next: The number of the next event.
    """

    topic: Identity
    first: int
    next: int

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the next event", self.next)
        check_number("the first event", self.first, self.next)


@dataclass(frozen=True, slots=True)
class ResendEvents:
    """A request for events that are missing.

    Attributes:
        topic: The topic.
        first: The number of the first one.
        count: How many, 1 to `RING_EVENTS`.
    """

    topic: Identity
    first: int
    count: int

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_number("the first event", self.first)
        check_number("the count", self.count, RING_EVENTS, 1)


TopicRecord: TypeAlias = (
    SubscribeTopic
    | TopicSubscribed
    | UnsubscribeTopic
    | TopicUnsubscribed
    | EventRecord
    | TopicProgress
    | ResendEvents
)
"""A control record about topics."""


def parse_topic_record(data: bytes) -> TopicRecord:
    """Read a control record about topics.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_CONTENT)
    count = reader.enter("the record", 2, 5)
    number = reader.number("the kind of the record")
    items, read = _READERS.get(number, (0, None))
    if read is None:
        raise BadRecord(f"there is no record {number} about topics")
    if count != items:
        raise BadRecord(f"the record has {count} items, not {items}")
    record = read(reader)
    reader.leave()
    reader.end()
    return record


def serialize_topic_record(record: TopicRecord) -> bytes:
    """Return the bytes of a control record about topics."""
    data: bytes = dumps(_items(record))
    return data


def _items(record: TopicRecord) -> tuple[object, ...]:
    match record:
        case SubscribeTopic(topic, request):
            return 32, topic, request
        case TopicSubscribed(topic, request, result, following):
            return 33, topic, request, int(result), following
        case UnsubscribeTopic(topic, request):
            return 34, topic, request
        case TopicUnsubscribed(topic, request, result):
            return 35, topic, request, int(result)
        case EventRecord(envelope):
            return 36, envelope
        case TopicProgress(topic, first, following):
            return 37, topic, first, following
        case _:
            return 38, record.topic, record.first, record.count


def _topic(reader: RecordReader) -> Identity:
    return reader.keyed("the topic")


def _request(reader: RecordReader) -> int:
    return reader.number("the request")


def _result(reader: RecordReader) -> ResultCode:
    return ResultCode(reader.number("the result", max(ResultCode)))


def _subscribed(reader: RecordReader) -> TopicRecord:
    topic, request, result = _topic(reader), _request(reader), _result(reader)
    return TopicSubscribed(topic, request, result, reader.number("the next event"))


def _progress(reader: RecordReader) -> TopicRecord:
    topic, first = _topic(reader), reader.number("the first event", MAX_NUMBER)
    return TopicProgress(topic, first, reader.number("the next event"))


def _resend(reader: RecordReader) -> TopicRecord:
    topic, first = _topic(reader), reader.number("the first event")
    return ResendEvents(topic, first, reader.number("the count", RING_EVENTS))


_READERS: Final[dict[int, tuple[int, Callable[[RecordReader], TopicRecord]]]] = {
    32: (3, lambda reader: SubscribeTopic(_topic(reader), _request(reader))),
    33: (5, _subscribed),
    34: (3, lambda reader: UnsubscribeTopic(_topic(reader), _request(reader))),
    35: (
        4,
        lambda reader: TopicUnsubscribed(_topic(reader), _request(reader), _result(reader)),
    ),
    36: (2, lambda reader: EventRecord(reader.binary("the envelope", MAX_EVENT_ENVELOPE, 1))),
    37: (4, _progress),
    38: (4, _resend),
}
"""For each number: the items of the record with it, and the reader of the others."""
