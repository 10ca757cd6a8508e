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

from dataclasses import dataclass
from typing import Final, TypeAlias

from ._checks import check_key, check_number, check_size
from ._identities import Identity
from ._p2p_message import MAX_CONTENT
from ._record_table import RESULT_CODE, RecordTable, binary, keyed, number
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
    return _TABLE.parse(data)


def serialize_topic_record(record: TopicRecord) -> bytes:
    """Return the bytes of a control record about topics."""
    return _TABLE.serialize(record)


_TOPIC, _REQUEST = keyed("the topic"), number("the request")
_FIRST, _NEXT = number("the first event"), number("the next event")
_TABLE: Final = RecordTable[TopicRecord](
    "topics",
    MAX_CONTENT,
    {
        32: (SubscribeTopic, (_TOPIC, _REQUEST)),
        33: (TopicSubscribed, (_TOPIC, _REQUEST, RESULT_CODE, _NEXT)),
        34: (UnsubscribeTopic, (_TOPIC, _REQUEST)),
        35: (TopicUnsubscribed, (_TOPIC, _REQUEST, RESULT_CODE)),
        36: (EventRecord, (binary("the envelope", MAX_EVENT_ENVELOPE, 1),)),
        37: (TopicProgress, (_TOPIC, _FIRST, _NEXT)),
        38: (ResendEvents, (_TOPIC, _FIRST, number("the count", RING_EVENTS))),
    },
)
