"""What a rehearsal came to, and whether that may be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MIN_FRAMES_EACH", "GateFailed", "ReplayTotals", "check_gates"]

MIN_FRAMES_EACH: Final = 100
"""Frames for each route that a tag set must have for its skew to count: of few it says nothing."""


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """A rehearsal as a whole. Frames are what was sampled, times its weight.

    Attributes:
        frames: How many were resolved.
        moved: How many would go to another route.
        lost: How many have a route and would have none.
        gained: How many have none and would have one.
        unknown: How many could not be resolved: their tag set is not in the lake, or is none.
        tagsets: Different tag sets.
        skew_old: The greatest skew of a tag set as it is: the most that one route gets, divided by
            what each would get if all got as much; 0 if none has `MIN_FRAMES_EACH` for each.
        skew_new: The same as it would be.
    """

    frames: int
    moved: int
    lost: int
    gained: int
    unknown: int
    tagsets: int
    skew_old: float
    skew_new: float

    @property
    def moved_ratio(self) -> float:
        """Which part of all frames moves."""
        return self.moved / self.frames if self.frames else 0.0


@dataclass(frozen=True, slots=True)
class GateFailed:
    """A limit that the change would exceed.

    Attributes:
        gate: `max_moved`, `fail_if_lost` or `max_skew`.
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
) -> list[GateFailed]:
    """Return the limits that the change would exceed.

    Args:
        totals: What the rehearsal came to.
        max_moved: Which part of all frames may move, as in 0.1.
        fail_if_lost: Whether no frame may lose its route.
        max_skew: How great the skew of a tag set may become.

    Raises:
        ValueError: A limit is negative or not a number.
    """
    for name, limit in (("max_moved", max_moved), ("max_skew", max_skew)):
        if limit is not None and not limit >= 0:
            raise ValueError(f"{name} must be 0 or more, not {limit}")
    failed: list[GateFailed] = []
    if max_moved is not None and totals.moved_ratio > max_moved:
        text = f"{totals.moved_ratio:.2%} of the frames would move, more than {max_moved:.2%}"
        failed.append(GateFailed("max_moved", text))
    if fail_if_lost and totals.lost:
        text = f"{totals.lost:,} frames would lose their route"
        failed.append(GateFailed("fail_if_lost", text))
    if max_skew is not None and totals.skew_new > max_skew:
        text = f"the skew would be {totals.skew_new:.2f}, more than {max_skew:.2f}"
        failed.append(GateFailed("max_skew", text))
    return failed
