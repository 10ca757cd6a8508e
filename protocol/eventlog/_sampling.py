"""The choice of sampled messages: all hops of a message or none, by its trace id alone."""

from __future__ import annotations

from math import isfinite
from typing import Final

from ._errors import EventLogError

__all__ = ["sampled", "threshold_of", "weight_of_rate"]

_MASK: Final = (1 << 64) - 1
_MAX_WEIGHT: Final = (1 << 32) - 1


def _checked(rate: float) -> float:
    if not (isfinite(rate) and 0 <= rate <= 1):
        raise EventLogError(f"a sampling rate of {rate} is not from 0 to 1")
    return rate


def threshold_of(rate: float) -> int:
    """Return what `sampled` compares with, for a rate from 0 to 1.

    Raises:
        EventLogError: It is no such rate.
    """
    return int(_checked(rate) * (1 << 64))


def sampled(trace_id: int, threshold: int) -> bool:
    """Whether a trace is sampled; nodes with the same rate agree.

    The id is mixed (the finalizer of SplitMix64), so that ids in sequence spread as well. What
    is sampled at a rate is sampled at every higher one.

    Args:
        trace_id: 64 bits; of longer ids the last ones.
        threshold: From `threshold_of`.
    """
    mixed = (trace_id + 0x9E3779B97F4A7C15) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31 < threshold


def weight_of_rate(rate: float) -> int:
    """Return how many hops one stands for that was sampled: 1 / rate, rounded; 1 for a rate of 0.

    Raises:
        EventLogError: It is no rate from 0 to 1.
    """
    if _checked(rate) == 0:
        return 1
    return max(1, min(_MAX_WEIGHT, round(1 / rate))) if rate * _MAX_WEIGHT > 1 else _MAX_WEIGHT
