"""What a rehearsal came to, and whether that may be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol import counted

__all__ = ["MIN_SAMPLES_EACH", "GateFailed", "ReplayTotals", "check_gates"]

MIN_SAMPLES_EACH: Final = 100
"""Sampled frames for each route that a tag set must have for its skew to count: of few it says
nothing, however many each stands for."""


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """A rehearsal as a whole. Frames are what was sampled, times its weight.

    Attributes:
        frames: How many were resolved.
        moved: How many would go to another route.
        lost: How many have a route and would have none.
        gained: How many have none and would have one.
        unknown: How many could not be resolved, and are not among `frames`: their tag set is not
            in the lake, or the log has none, as it was too long or one too many.
        tagsets: Different tag sets.
        skew_old: The greatest skew of a tag set as it is: the most that one route gets, divided by
            what each would get if all got as much; 0 if none has `MIN_SAMPLES_EACH` for each.
        skew_new: The same as it would be.
        nowhere: How many have no route on either side.
        own: How many ask for the broker's own services, which no table has; not among `frames`.
        stale: How many were delivered on that day, and have no route in the table as it is.
        failed: On how many a plug-in failed: they went to any candidate, as at the broker.
        judged: Of how many tag sets the skew counts.
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
        """Which part of all frames moves."""
        return self.moved / self.frames if self.frames else 0.0

    @property
    def stale_ratio(self) -> float:
        """Which part of all frames was delivered, and has no route in the table as it is."""
        return self.stale / self.frames if self.frames else 0.0

    @property
    def unknown_ratio(self) -> float:
        """Which part of what should be resolved could not be."""
        return self.unknown / (self.frames + self.unknown) if self.unknown else 0.0


@dataclass(frozen=True, slots=True)
class GateFailed:
    """A limit that the change would exceed.

    Attributes:
        gate: `max_moved`, `fail_if_lost`, `max_skew`, `max_unknown`, `max_stale`; or `frames`, if
            there was nothing to rehearse with.
        reason: What would happen, in a sentence.
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
    """Return the limits that the change would exceed, and why the rehearsal says nothing if so.

    A rehearsal of nothing, or with tables of another day or broker, would pass all limits. So the
    last two hold unless they are raised, and there has to be a frame that has a route.

    Args:
        totals: What the rehearsal came to.
        max_moved: Which part of all frames may move, as in 0.1.
        fail_if_lost: Whether no frame may lose its route.
        max_skew: How great the skew of a tag set may become.
        max_unknown: Which part of the frames may have a tag set that the lake does not know, or
            that the log does not have.
        max_stale: Which part may have been delivered and have no route in the table as it is.

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
