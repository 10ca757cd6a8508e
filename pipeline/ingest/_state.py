"""The state of a lake: the progress of every broker's log, the closed days, and the late events.

Each batch ends by a commit: one file with the state as of that batch. The newest commit is valid.
Files of later batches are not read, and are removed before the next run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

__all__ = [
    "KEPT_RANGES",
    "KEPT_SKIPPED",
    "SILENT_AFTER",
    "BrokerState",
    "LakeState",
    "Ranges",
    "Skipped",
    "add_range",
    "microseconds",
]

KEPT_RANGES: Final = 1_000
"""The newest ranges of a broker, kept in the state. Older epochs are folded into a sum; the table
`segments` is read if one of their segments arrives."""

KEPT_SKIPPED: Final = 1_000
"""The newest skipped segments of a broker, which are examined again."""

SILENT_AFTER: Final = timedelta(days=1)
"""A log that ends this long before another broker's does not keep days open."""

Ranges = tuple[tuple[int, int, int], ...]
"""Epoch, first and last number, sorted; numbers are missing between two ranges of one epoch."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(when: datetime) -> int:
    """Return a time as microseconds since the Unix epoch."""
    since = when - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def add_range(ranges: Ranges, epoch: int, first: int, last: int) -> Ranges:
    """Return the ranges with one more, which overlaps none; adjacent ranges are joined."""
    return _joined((*ranges, (epoch, first, last)))


def _joined(ranges: Ranges) -> Ranges:
    made: list[tuple[int, int, int]] = []
    for each in sorted(ranges):
        if made and made[-1][0] == each[0] and made[-1][2] + 1 == each[1]:
            made[-1] = (each[0], made[-1][1], each[2])
        else:
            made.append(each)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A segment that could not be read.

    Attributes:
        name: The file's name.
        epoch: Its epoch.
        first: Its first number.
        last: Its last number; the first one if unknown.
        size: The file's size when it was read, in bytes.
        modified: The file's time of modification when it was read, in nanoseconds.
    """

    name: str
    epoch: int
    first: int
    last: int
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The progress of one broker's log in the lake.

    Attributes:
        log_id: The log's identity.
        sealed_through: When its newest segment was sealed, in microseconds.
        segment: That segment's file name.
        ranges: The numbers that the lake has.
        segments: The number of segments.
        events: The number of hops, flows and route events.
        skipped: Segments that could not be read, sorted.
        folded: The last epoch that was folded; -1 if `ranges` has all.
        folded_first: The first number of the first folded epoch.
        folded_last: The sum of the last numbers of the folded epochs.
    """

    log_id: str
    sealed_through: int
    segment: str
    ranges: Ranges = ()
    segments: int = 0
    events: int = 0
    skipped: tuple[Skipped, ...] = ()
    folded: int = -1
    folded_first: int = 0
    folded_last: int = 0

    @property
    def last(self) -> tuple[int, int]:
        """The last epoch, and its last number."""
        return (self.ranges[-1][0], self.ranges[-1][2]) if self.ranges else (0, 0)

    @property
    def missing(self) -> int:
        """The number of event numbers that are missing in the lake.

        Numbers before the first segment are not counted: they were deleted before the lake was
        begun. Nor are unknown numbers at the end of an epoch; a skipped segment there without a
        known last number counts as one.
        """
        first, ends = self._ends()
        return self.folded_last + sum(ends.values()) - (first - 1) - self.events

    def _ends(self) -> tuple[int, dict[int, int]]:
        """Return the first number, and the last one of each epoch not folded, in order."""
        skipped = ((each.epoch, each.first, each.last) for each in self.skipped)
        known = sorted(each for each in (*self.ranges, *skipped) if each[0] > self.folded)
        ends: dict[int, int] = {}
        for epoch, _, last in known:
            ends[epoch] = max(last, ends.get(epoch, 0))
        if self.folded >= 0:
            return self.folded_first, ends
        return (known[0][1] if known else 1), ends

    def fold(self) -> BrokerState:
        """Return the state with at most `KEPT_RANGES` ranges, but all of its last epoch."""
        if len(self.ranges) <= KEPT_RANGES:
            return self
        through = min(self.ranges[-KEPT_RANGES - 1][0], self.ranges[-1][0] - 1)
        first, ends = self._ends()
        return replace(
            self,
            ranges=tuple(each for each in self.ranges if each[0] > through),
            folded=max(through, self.folded),
            folded_first=first,
            folded_last=self.folded_last
            + sum(last for epoch, last in ends.items() if epoch <= through),
        )

    def unfold(self, ranges: Iterable[tuple[int, int, int]]) -> BrokerState:
        """Return the state with its folded epochs restored from the ranges of all segments."""
        every: Ranges = (*(each for each in ranges if each[0] <= self.folded), *self.ranges)
        return replace(self, ranges=_joined(every), folded=-1, folded_first=0, folded_last=0)

    def with_skipped(self, skipped: Skipped) -> BrokerState:
        """Return the state with a segment added to, or replaced in, the skipped ones."""
        others = self.without_skipped(skipped.name).skipped
        kept = sorted((*others, skipped), key=lambda each: each.name)[-KEPT_SKIPPED:]
        return replace(self, skipped=tuple(kept))

    def without_skipped(self, name: str) -> BrokerState:
        """Return the state with a segment removed from the skipped ones."""
        return replace(self, skipped=tuple(each for each in self.skipped if each.name != name))

    def has(self, epoch: int, first: int, last: int) -> bool:
        """Whether the lake has all these numbers."""
        return any(e == epoch and a <= first and last <= b for e, a, b in self.ranges)

    def overlaps(self, epoch: int, first: int, last: int) -> bool:
        """Whether the lake has some of these numbers."""
        return any(e == epoch and a <= last and first <= b for e, a, b in self.ranges)

    def plain(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {
            "log": self.log_id,
            "sealed_through": self.sealed_through,
            "segment": self.segment,
            "ranges": [list(each) for each in self.ranges],
            "segments": self.segments,
            "events": self.events,
            "skipped": [list(astuple(each)) for each in self.skipped],
            "folded": [self.folded, self.folded_first, self.folded_last],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> BrokerState:
        """Return a state from a JSON object."""
        return cls(
            plain["log"],
            plain["sealed_through"],
            plain["segment"],
            tuple((a, b, c) for a, b, c in plain["ranges"]),
            plain["segments"],
            plain["events"],
            tuple(Skipped(*each) for each in plain.get("skipped", ())),
            *plain.get("folded", (-1, 0, 0)),
        )


@dataclass(frozen=True, slots=True)
class LakeState:
    """The state of a lake as of a batch.

    Attributes:
        batch: The last batch; -1 before the first.
        brokers: The state of each broker, by name.
        closed: The last closed day: all live brokers had sealed all of it.
        late: For each day with late events: their number, and the last batch with any.
        segments: The paths of the segments of the last batch, sorted.
        dropped: For each dropped day the number of events that arrived afterwards.
    """

    batch: int = -1
    brokers: Mapping[str, BrokerState] = field(default_factory=dict[str, BrokerState])
    closed: date | None = None
    late: Mapping[date, tuple[int, int]] = field(default_factory=dict[date, tuple[int, int]])
    segments: tuple[str, ...] = ()
    dropped: Mapping[date, int] = field(default_factory=dict[date, int])

    def plain(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {
            "batch": self.batch,
            "brokers": {name: broker.plain() for name, broker in self.brokers.items()},
            "closed": None if self.closed is None else self.closed.isoformat(),
            "late": {day.isoformat(): list(entry) for day, entry in self.late.items()},
            "segments": list(self.segments),
            "dropped": {day.isoformat(): count for day, count in self.dropped.items()},
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> LakeState:
        """Return a state from a JSON object."""
        closed = plain["closed"]
        return cls(
            plain["batch"],
            {name: BrokerState.of(broker) for name, broker in plain["brokers"].items()},
            None if closed is None else date.fromisoformat(closed),
            {date.fromisoformat(day): (a, b) for day, (a, b) in plain["late"].items()},
            tuple(plain["segments"]),
            {date.fromisoformat(day): n for day, n in plain.get("dropped", {}).items()},
        )

    def closed_by(self, now: datetime) -> date | None:
        """Return the last day that all live brokers have sealed; a closed day stays closed.

        A segment with a time in the future closes no day before that time.
        """
        if not self.brokers:
            return self.closed
        ends = [min(broker.sealed_through, microseconds(now)) for broker in self.brokers.values()]
        silent = max(ends) - SILENT_AFTER // timedelta(microseconds=1)
        through = max(0, min(end for end in ends if end >= silent))
        day = (_EPOCH + timedelta(microseconds=through)).date() - timedelta(days=1)
        return day if self.closed is None else max(day, self.closed)

    def with_late(self, days: Mapping[date, int]) -> Mapping[date, tuple[int, int]]:
        """Return `late` with the events that the batch of this state adds."""
        late = dict(self.late)
        for day, count in days.items():
            late[day] = (late.get(day, (0, 0))[0] + count, self.batch)
        return late

    def with_dropped(self, days: Mapping[date, int]) -> Mapping[date, int]:
        """Return `dropped` with the events that the batch of this state adds."""
        return {day: self.dropped.get(day, 0) + days.get(day, 0) for day in {*self.dropped, *days}}

    def after(
        self,
        *,
        brokers: Mapping[str, BrokerState],
        segments: Sequence[str],
        now: datetime,
    ) -> LakeState:
        """Return the state after the next batch."""
        state = replace(
            self, batch=self.batch + 1, brokers=dict(brokers), segments=tuple(sorted(segments))
        )
        return replace(state, closed=state.closed_by(now))
