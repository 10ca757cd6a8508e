"""Timeouts of calls, which are checked as the times of options are."""

from __future__ import annotations

from math import inf

from ._check import check_value
from ._ranges import SecondsOrZero

__all__ = ["check_timeout"]


def check_timeout(timeout: float, name: str = "timeout") -> float:
    """Check a timeout, and return it.

    Args:
        timeout: The time, in seconds; 0 is not to wait.
        name: What the error calls it.

    Raises:
        ValueError: It is no finite number of at least 0.
    """
    if type(timeout) is float and 0.0 <= timeout < inf:  # nearly all are
        return timeout
    checked: float = check_value(name, timeout, SecondsOrZero)
    return checked
