"""How far a broker's log was read, and whether what comes next follows.

A position is a file's name, and for each epoch the numbers that were read. Names sort, so
that the deletion of what was read shifts nothing; the numbers tell what was deleted unread, and
what appeared behind the position, from what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...protocol.eventlog import parse_segment_name
from .._errors import DuplicateBroker, SegmentDamaged, SegmentGap, SegmentLate
from ._listing import SegmentInfo, describe

__all__ = ["MAX_EPOCHS", "Position", "check_behind", "check_kept"]

MAX_EPOCHS: Final = 1_000
"""Most entries of what was read that a position has, the newest; what is older is not checked."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a broker's log was read.

    Attributes:
        broker: The log's name.
        log_id: The log's identity; empty as long as no segment could be read.
        segment: The file that was read last; empty before the first.
        epochs: Epoch, first and last number of what was read without a gap, in order.
        hole: Whether the file was damaged, so that where the next begins is not known.
        again: Segments up to it that had been skipped and were read again, as they had changed:
            name, size, and when it was modified, in nanoseconds.
    """

    broker: str
    log_id: str = ""
    segment: str = ""
    epochs: tuple[tuple[int, int, int], ...] = ()
    hole: bool = False
    again: tuple[tuple[str, int, int], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "log": self.log_id,
            "segment": self.segment,
            "epochs": [list(epoch) for epoch in self.epochs],
            "hole": self.hole,
            "again": [list(each) for each in self.again],
        }

    @classmethod
    def of(cls, broker: str, plain: Mapping[str, Any]) -> Position:
        """Read it from JSON."""
        return cls(
            broker,
            plain["log"],
            plain["segment"],
            tuple((int(a), int(b), int(c)) for a, b, c in plain["epochs"]),
            bool(plain["hole"]),
            tuple((str(a), int(b), int(c)) for a, b, c in plain.get("again", ())),
        )

    def has(self, epoch: int, seq: int) -> bool:
        """Whether a number was read, or is older than what is known."""
        if self.epochs and epoch < self.epochs[0][0]:
            return len(self.epochs) == MAX_EPOCHS
        return any(each == epoch and first <= seq <= last for each, first, last in self.epochs)

    def advance(self, info: SegmentInfo, *, log: Path, skip_gaps: bool = False) -> Position:
        """Return the position behind a segment, which must follow.

        Raises:
            SegmentGap: Events between were deleted, and `skip_gaps` is off.
            DuplicateBroker: It is of another log.
            SegmentDamaged: It has events again that were read.
        """
        if self.log_id and info.log_id and info.log_id != self.log_id:
            raise DuplicateBroker(
                self.broker,
                f"the one of which {self.segment} was read (log id {self.log_id})",
                f"the one of {log / info.path} (log id {info.log_id})",
            )
        here, last = self._end()
        if info.epoch == here and info.first_seq <= last and info.last_seq is not None:
            if info.last_seq > last:
                raise SegmentDamaged(
                    str(log / info.path), f"events {info.first_seq} to {last} were read before"
                )
            return replace(self, segment=max(self.segment, info.name))
        expected = last + 1 if info.epoch == here else 1
        # Before the first segment there is nothing to miss: what was deleted was not ours to read.
        lost = info.first_seq - expected if self.epochs and not self.hole else 0
        if lost > 0 and not skip_gaps:
            raise SegmentGap(self.broker, info.epoch, expected, info.first_seq - 1)
        return replace(
            self,
            log_id=self.log_id or info.log_id,
            segment=info.name,
            epochs=self._with(info),
            hole=info.last_seq is None,
        )

    def _end(self) -> tuple[int, int]:
        """Epoch and last number; before the first segment, what none can have."""
        return (self.epochs[-1][0], self.epochs[-1][2]) if self.epochs else (-1, 0)

    def _with(self, info: SegmentInfo) -> tuple[tuple[int, int, int], ...]:
        # What is damaged counts as read up to its first number, so that it is not taken as late.
        last = info.first_seq if info.last_seq is None else info.last_seq
        epoch, behind = self._end()
        if epoch == info.epoch and info.first_seq == behind + 1:
            return (*self.epochs[:-1], (epoch, self.epochs[-1][1], last))
        return (*self.epochs, (info.epoch, info.first_seq, last))[-MAX_EPOCHS:]


def check_behind(log: Path, at: Position, names: Sequence[str]) -> None:
    """Check that no segment has appeared behind a position that was never read.

    Raises:
        SegmentLate: One has.
    """
    for name in names:
        if name >= at.segment:
            break
        if at.has(*parse_segment_name(name)):
            continue
        info = describe(log, at.broker, name)
        if info.last_seq is None or info.last_seq >= info.first_seq:
            raise SegmentLate(str(log / info.path), at.broker, at.segment)


def check_kept(at: Position, names: Sequence[str]) -> None:
    """Check that the end of an epoch was not deleted, where numbers do not tell.

    The oldest segments are deleted first. If the one that was read last is there, nothing behind it
    is missing. If not, and the next one is of another epoch, there may have been more of the first.

    Raises:
        SegmentGap: It cannot be told.
    """
    if not at.epochs or at.hole or any(name <= at.segment for name in names):
        return
    epoch, _, last = at.epochs[-1]
    if names and parse_segment_name(names[0])[0] != epoch:
        raise SegmentGap(at.broker, epoch, last + 1, None)
