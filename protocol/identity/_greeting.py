"""What two nodes tell each other first: since when they run, their clocks, and their engines.

```
greeting = [64, started, now, [[kind, advert envelope]*]]
```

A node that was started again has forgotten which ids it has seen, so for a while it accepts those
alone that have a time more than `MAX_SKEW` after its start, and at most `MAX_SKEW` from now. The
others are told of its start and its clock, and begin their ids between the two.

A counter of ids begins with what was told in the first greeting of a session, and the clock of its
sender is not asked. The node tells no two sessions the same time. So a sender that is started again
has a new session and a later time, however soon that is, and however long a greeting is under way:
no two counters begin with the same time, unless the clock of the receiver is set back by over a
second in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cbor2 import dumps

from ._advert_envelopes import AdvertEnvelope, advert_envelope_items, read_advert_envelope
from ._errors import BadRecord
from ._freshness import MAX_SKEW
from ._message_ids import MAX_START
from ._record_reader import RecordReader

__all__ = [
    "MAX_GREETED",
    "TOLD_APART",
    "Greeting",
    "first_id_time",
    "parse_greeting",
    "serialize_greeting",
    "told_time",
]

MAX_GREETED: Final = 64
"""Most adverts of a greeting. A node with more engines sends further greetings."""

TOLD_APART: Final = 2
"""Least time between what two sessions are told, in milliseconds."""

_KIND: Final = 64
_MARGIN: Final = 1000
_MAX_TIME: Final = MAX_START // 2
"""Latest time of a greeting: an id can be made of each time that follows from it."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first record of a session, and each that tells of further engines.

    Attributes:
        started: When the node was started, in Unix milliseconds.
        now: The time there, in Unix milliseconds; about, as that of each session is another one.
        adverts: Adverts of the node and of its engines, at most `MAX_GREETED`.
    """

    started: int
    now: int
    adverts: tuple[AdvertEnvelope, ...] = ()


def parse_greeting(data: bytes) -> Greeting:
    """Read a greeting; the adverts in it are not verified.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data)
    reader.enter("a greeting", 4)
    if reader.number("its kind") != _KIND:
        raise BadRecord("it is no greeting")
    started = reader.number("the start", _MAX_TIME)
    now = reader.number("the time", _MAX_TIME)
    count = reader.enter("the list of adverts", 0, MAX_GREETED)
    adverts = tuple(read_advert_envelope(reader) for _ in range(count))
    reader.leave()
    reader.leave()
    reader.end()
    return Greeting(started, now, adverts)


def serialize_greeting(greeting: Greeting) -> bytes:
    """Return the bytes of a greeting."""
    adverts = tuple(map(advert_envelope_items, greeting.adverts))
    return dumps((_KIND, greeting.started, greeting.now, adverts))


def first_id_time(started: int, now: int) -> int:
    """Return the time that the ids for a node begin with.

    It rises with the time that was told: those of two times that are `TOLD_APART` from each other
    differ. It stays below the latest that is accepted by half the time since the start, or by a
    second, for a clock that is set back, and for times that are told ahead of the clock.

    Args:
        started: When the node was started, in Unix milliseconds.
        now: The time there, as it was told, in Unix milliseconds.
    """
    elapsed = max(1, now - started)
    return started + MAX_SKEW + elapsed - min(elapsed // 2, _MARGIN)


def told_time(started: int, now: int, before: int) -> int:
    """Return the time to tell in the first greeting of a session: later than each before.

    Where ids that begin so would be refused, as the clock is set back, or as hundreds of sessions
    begin in the same moment, it is the time there is.

    Args:
        started: When this node was started, in Unix milliseconds.
        now: The time, in Unix milliseconds.
        before: What was told last; 0 for nothing.
    """
    told = max(now, before + TOLD_APART)
    return told if first_id_time(started, told) <= now + MAX_SKEW else now
