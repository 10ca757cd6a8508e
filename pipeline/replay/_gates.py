"""The totals of a rehearsal, and the limits on a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol import counted

__all__ = ["MIN_SAMPLES_EACH", "GateFailed", "ReplayTotals", "check_gates"]

MIN_SAMPLES_EACH: Final = 100
"""Sampled frames for each route that a tag set must have for its skew to count. The skew of fewer
frames means nothing, whatever their weights."""


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """The totals of a rehearsal. Each sampled frame counts as many times as its weight.

    Attributes:
        frames: Frames that were resolved.
        moved: Frames that would go to another route.
        lost: Frames that have a route and would have none.
        gained: Frames that have no route and would have one.
        unknown: Frames that could not be resolved, not included in `frames`: their tag set is not
            in the lake, or not in the log, as it was too long or above the limit.
        tagsets: Different tag sets.
        skew_old: The greatest skew of a tag set in the current table: the most frames of a route,
            divided by the mean of its routes; 0 if no tag set has `MIN_SAMPLES_EACH` for each.
        skew_new: The same in the candidate table.
        nowhere: Frames without a route on either side.
        own: Requests of the broker's own services, which no table has; not included in `frames`.
        stale: Frames that were delivered on that day, and have no route in the current table.
        failed: Frames on which a plug-in failed: they went to any candidate, as at the broker.
        judged: Tag sets with a skew that counts.
    """

    frames: int
    moved: int
    lost: int
    gained: int
    unknown: int
    tagsets: int
    skew_old: float
    skew_new: float
    nowhere: int = 0
    own: int = 0
    stale: int = 0
    failed: int = 0
    judged: int = 0

    @property
    def moved_ratio(self) -> float:
        """The part of all frames that moves."""
        return self.moved / self.frames if self.frames else 0.0

    @property
    def stale_ratio(self) -> float:
        """The part of all frames that was delivered, and has no route in the current table."""
        return self.stale / self.frames if self.frames else 0.0

    @property
    def unknown_ratio(self) -> float:
        """The part of all frames, with those of `unknown`, that could not be resolved."""
        return self.unknown / (self.frames + self.unknown) if self.unknown else 0.0


@dataclass(frozen=True, slots=True)
class GateFailed:
    """A limit that the change would exceed.

    Attributes:
        gate: `max_moved`, `fail_if_lost`, `max_skew`, `max_unknown`, `max_stale`; or `frames`, if
            there was nothing to rehearse.
        reason: The effect of the change, in a sentence.
    """

    gate: str
    reason: str

    def __str__(self) -> str:
        return self.reason


def check_gates(
    totals: ReplayTotals,
    *,
    max_moved: float | None = None,
    fail_if_lost: bool = False,
    max_skew: float | None = None,
    max_unknown: float = 0.0,
    max_stale: float = 0.0,
) -> list[GateFailed]:
    """Return the limits that the change would exceed, and the reasons to distrust the rehearsal.

    A rehearsal of no frames, or with tables of another day or broker, would pass all limits. So
    the last two default to 0, and at least one frame must have a route.

    Args:
        totals: The totals of the rehearsal.
        max_moved: The part of all frames that may move, as in 0.1.
        fail_if_lost: Whether no frame may lose its route.
        max_skew: The greatest skew that a tag set may have.
        max_unknown: The part of the frames that may have a tag set missing in the lake or the log.
        max_stale: The part that may have been delivered and have no route in the current table.

    Raises:
        ValueError: A limit is negative or not a number.
    """
    limits = {
        "max_moved": max_moved,
        "max_skew": max_skew,
        "max_unknown": max_unknown,
        "max_stale": max_stale,
    }
    for name, limit in limits.items():
        if limit is not None and not limit >= 0:
            raise ValueError(f"{name} must be 0 or more, not {limit}")
    failed = _says_nothing(totals, max_unknown, max_stale)
    if max_moved is not None and totals.moved_ratio > max_moved:
        text = f"{totals.moved_ratio:.2%} of the frames would move, more than {max_moved:.2%}"
        failed.append(GateFailed("max_moved", text))
    if fail_if_lost and totals.lost:
        text = f"{_frames(totals.lost)} would have no route any more"
        failed.append(GateFailed("fail_if_lost", text))
    if max_skew is not None and totals.skew_new > max_skew:
        text = f"the skew would be {totals.skew_new:.2f}, more than {max_skew:.2f}"
        failed.append(GateFailed("max_skew", text))
    return failed


def _says_nothing(totals: ReplayTotals, max_unknown: float, max_stale: float) -> list[GateFailed]:
    failed: list[GateFailed] = []
    if not totals.frames:
        text = (
            "nothing was rehearsed: the lake has no sampled requests of that day and those brokers;"
            " see whether they were ingested, and the rate of --event-log-sample"
        )
        failed.append(GateFailed("frames", text))
    elif totals.nowhere == totals.frames:
        text = (
            f"nothing was rehearsed: none of {_frames(totals.frames)} has a route in either"
            " table; see whether they are of this broker"
        )
        failed.append(GateFailed("frames", text))
    if totals.unknown_ratio > max_unknown:
        text = (
            f"{_frames(totals.unknown)} ({totals.unknown_ratio:.2%}) could not be resolved,"
            f" more than {max_unknown:.2%}: the tags are not in the lake, or were too long or too"
            " many for the log; ingest what is missing, or allow for more by max_unknown"
        )
        failed.append(GateFailed("max_unknown", text))
    if totals.stale_ratio > max_stale:
        text = (
            f"{_frames(totals.stale)} ({totals.stale_ratio:.2%}) delivered, without a"
            f" route in the table as it is, more than {max_stale:.2%}: it is old or of another"
            " broker;"
            " save it anew (onward routes --save), or allow for more by max_stale"
        )
        failed.append(GateFailed("max_stale", text))
    return failed


def _frames(number: int) -> str:
    return counted(number, "frame", ",")
