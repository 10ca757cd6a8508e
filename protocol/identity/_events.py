"""The events of topics: what the publisher of a topic signs, and how events are numbered.

```
event = [topic, publisher, number, [id…] deps, [id…] seen, body]      id = [publisher, number]
```

The number of an event is one more than that of the event before. A publisher begins at the time of
its start in Unix milliseconds, times 2^20: its *instance*. So its numbers never come again, without
a disk, and a subscriber can tell events that it missed from a publisher that has started anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadKey, BadRecord
from ._identities import Identity
from ._keys import SigningKey, Verifiers
from ._record_reader import MAX_RECORD, RecordReader
from ._signed import SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "INSTANCE_SHIFT",
    "MAX_EVENT_BODY",
    "MAX_EVENT_IDS",
    "MAX_INSTANCE",
    "Event",
    "EventId",
    "first_number",
    "instance_of",
    "open_event",
    "parse_event",
    "serialize_event",
    "sign_event",
]

MAX_EVENT_BODY: Final = MAX_RECORD - 2048
"""Most bytes of the body of an event: with all that is around it, it fits a control record."""
MAX_EVENT_IDS: Final = 16
"""Most events that one event depends on, and most that it says to have seen."""
INSTANCE_SHIFT: Final = 20
"""Bits of the number of an event below its instance."""
MAX_INSTANCE: Final = 2 ** (64 - INSTANCE_SHIFT) - 2
"""Greatest instance of a publisher: a time in Unix milliseconds."""


class EventId(NamedTuple):
    """The identity of an event of a topic.

    Attributes:
        publisher: Its publisher.
        number: Its number.
    """

    publisher: Identity
    number: int


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a topic.

    Attributes:
        topic: The topic.
        publisher: The publisher, which has a key and signs.
        number: Its number.
        body: At most `MAX_EVENT_BODY` bytes: the envelope of the message of an engine.
        deps: Events that come before it, at most `MAX_EVENT_IDS`.
        seen: Events of other publishers that its publisher has seen, at most `MAX_EVENT_IDS`.

    Raises:
        BadRecord: A value is over its limit, or an identity has no key.
    """

    topic: Identity
    publisher: Identity
    number: int
    body: bytes
    deps: tuple[EventId, ...] = ()
    seen: tuple[EventId, ...] = ()

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        check_key("the publisher", self.publisher)
        check_number("the number", self.number)
        check_size("the body", self.body, MAX_EVENT_BODY)
        for what, ids in (("depends on", self.deps), ("has seen", self.seen)):
            if len(ids) > MAX_EVENT_IDS:
                raise BadRecord(f"it {what} {len(ids)} events, over {MAX_EVENT_IDS}")
            for each in ids:
                check_key("the publisher of an event", each.publisher)
                check_number("the number of an event", each.number)


def first_number(instance: int) -> int:
    """Return the number of the first event of an instance."""
    return instance << INSTANCE_SHIFT


def instance_of(number: int) -> int:
    """Return the instance that an event with this number is of."""
    return number >> INSTANCE_SHIFT


def parse_event(data: bytes) -> Event:
    """Read an event.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data)
    reader.enter("the event", 6)
    topic = reader.keyed("the topic")
    publisher = reader.keyed("the publisher")
    number = reader.number("the number")
    deps = _read_ids(reader, "the events that it depends on")
    seen = _read_ids(reader, "the events that it has seen")
    body = reader.binary("the body", MAX_EVENT_BODY)
    reader.leave()
    reader.end()
    return Event(topic, publisher, number, body, deps, seen)


def serialize_event(event: Event) -> bytes:
    """Return the bytes of an event."""
    record: bytes = dumps(
        (
            event.topic,
            event.publisher,
            event.number,
            tuple(tuple(each) for each in event.deps),
            tuple(tuple(each) for each in event.seen),
            event.body,
        )
    )
    return record


def sign_event(event: Event, key: SigningKey) -> bytes:
    """Return the envelope of an event.

    Raises:
        BadKey: The key is not of its publisher.
    """
    if key.identity != event.publisher:
        raise BadKey("it is not of the publisher of the event")
    return sign(SignedKind.EVENT, serialize_event(event), key)


def open_event(envelope: bytes, verifiers: Verifiers) -> Event | None:
    """Read the envelope of an event; `None` if its publisher has not signed it.

    Raises:
        BadRecord: It is no envelope of an event.
    """
    signed = parse_signed(envelope)
    event = parse_event(signed.payload)
    good = is_signed_by(event.publisher, SignedKind.EVENT, signed, verifiers)
    return event if good else None


def _read_ids(reader: RecordReader, what: str) -> tuple[EventId, ...]:
    ids: list[EventId] = []
    for _ in range(reader.enter(what, 0, MAX_EVENT_IDS)):
        reader.enter("the id of an event", 2)
        publisher = reader.keyed("the publisher of an event")
        ids.append(EventId(publisher, reader.number("the number of an event")))
        reader.leave()
    reader.leave()
    return tuple(ids)
