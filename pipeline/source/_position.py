"""Positions in a broker's log, and the check that the next segment follows.

A position is a file's name, and for each epoch the numbers that were read. Names sort, so deleting
read segments does not move a position. The numbers show which segments were deleted unread, and
which appeared before the position later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...protocol.eventlog import parse_segment_name
from .._errors import DuplicateBroker, SegmentDamaged, SegmentGap, SegmentLate
from ._listing import SegmentInfo, describe

__all__ = ["MAX_EPOCHS", "LogPosition", "check_behind", "check_kept"]

MAX_EPOCHS: Final = 1_000
"""The newest ranges of read numbers that a position keeps; older segments are not checked."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a broker's log.

    Attributes:
        broker: The log's name.
        log_id: The log's identity; empty until a segment could be read.
        segment: The last file that was read; empty before the first.
        epochs: Epoch, first and last number of each range that was read, in order.
        hole: Whether that file was damaged, so that the next number is unknown.
        again: Skipped segments that were read again since they changed: name, size, and time of
            modification in nanoseconds.
    """

    broker: str
    log_id: str = ""
    segment: str = ""
    epochs: tuple[tuple[int, int, int], ...] = ()
    hole: bool = False
    again: tuple[tuple[str, int, int], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the position as a JSON object."""
        return {
            "log": self.log_id,
            "segment": self.segment,
            "epochs": [list(epoch) for epoch in self.epochs],
            "hole": self.hole,
            "again": [list(each) for each in self.again],
        }

    @classmethod
    def of(cls, broker: str, plain: Mapping[str, Any]) -> LogPosition:
        """Return a position from a JSON object."""
        return cls(
            broker,
            plain["log"],
            plain["segment"],
            tuple((int(a), int(b), int(c)) for a, b, c in plain["epochs"]),
            bool(plain["hole"]),
            tuple((str(a), int(b), int(c)) for a, b, c in plain.get("again", ())),
        )

    def has(self, epoch: int, seq: int) -> bool:
        """Whether a number was read, or is older than the ranges that are kept."""
        if self.epochs and epoch < self.epochs[0][0]:
            return len(self.epochs) == MAX_EPOCHS
        return any(each == epoch and first <= seq <= last for each, first, last in self.epochs)

    def advance(self, info: SegmentInfo, *, log: Path, skip_gaps: bool = False) -> LogPosition:
        """Return the position after a segment, which must follow this one.

        Raises:
            SegmentGap: Events in between were deleted, and `skip_gaps` is off.
            DuplicateBroker: The segment is of another log.
            SegmentDamaged: It has events that were read before.
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
        # Events deleted before the first segment that was read are not missing.
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
        """Return the last epoch and number; before the first segment, values below all."""
        return (self.epochs[-1][0], self.epochs[-1][2]) if self.epochs else (-1, 0)

    def _with(self, info: SegmentInfo) -> tuple[tuple[int, int, int], ...]:
        # A damaged segment counts as read up to its first number, so that it is not late.
        last = info.first_seq if info.last_seq is None else info.last_seq
        epoch, behind = self._end()
        if epoch == info.epoch and info.first_seq == behind + 1:
            return (*self.epochs[:-1], (epoch, self.epochs[-1][1], last))
        return (*self.epochs, (info.epoch, info.first_seq, last))[-MAX_EPOCHS:]


def check_behind(log: Path, at: LogPosition, names: Sequence[str]) -> None:
    """Check that no unread segment has appeared before a position.

    Raises:
        SegmentLate: A segment has.
    """
    for name in names:
        if name >= at.segment:
            break
        if at.has(*parse_segment_name(name)):
            continue
        info = describe(log, at.broker, name)
        if info.last_seq is None or info.last_seq >= info.first_seq:
            raise SegmentLate(str(log / info.path), at.broker, at.segment)


def check_kept(at: LogPosition, names: Sequence[str]) -> None:
    """Check that the end of an epoch was not deleted unread, which numbers do not show.

    The oldest segments are deleted first. If the last one that was read exists, none after it is
    missing. If not, and the next one is of another epoch, the first may have had more segments.

    Raises:
        SegmentGap: Segments may be missing.
    """
    if not at.epochs or at.hole or any(name <= at.segment for name in names):
        return
    epoch, _, last = at.epochs[-1]
    if names and parse_segment_name(names[0])[0] != epoch:
        raise SegmentGap(at.broker, epoch, last + 1, None)
