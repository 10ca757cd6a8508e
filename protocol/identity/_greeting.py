"""What two nodes tell each other first: since when they run, their clocks, and their engines.

```
greeting = [64, started, now, [[kind, advert envelope]*]]
```

A node that was started again has forgotten which ids it has seen, so for a while it accepts those
alone that have a time more than `MAX_SKEW` after its start, and at most `MAX_SKEW` from now. The
others are told of its start and its clock, and begin their ids between the two.
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

__all__ = ["MAX_GREETED", "Greeting", "first_id_time", "parse_greeting", "serialize_greeting"]

MAX_GREETED: Final = 64
"""Most adverts of a greeting. A node with more engines sends further greetings."""

_KIND: Final = 64
_MARGIN: Final = 1000
_MAX_TIME: Final = MAX_START // 2
"""Latest time of a greeting: an id can be made of each time that follows from it."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first record of a session, and each that tells of further engines.

    Attributes:
        started: When the node was started, in Unix milliseconds.
        now: The time there, in Unix milliseconds.
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
    """Return the time that the ids for a node may begin with.

    It rises with the time there, so a sender that is started again begins above its ids of before.
    It stays below the latest that is accepted by half the time since the start, or by a second, for
    clocks that drift.

    Args:
        started: When the node was started, in Unix milliseconds.
        now: The time there, as far as it is known, in Unix milliseconds.
    """
    elapsed = max(1, now - started)
    return started + MAX_SKEW + elapsed - min(elapsed // 2, _MARGIN)
