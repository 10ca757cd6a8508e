"""Types of arguments that several commands have."""

from __future__ import annotations

import argparse
import math
from typing import TypeAlias

__all__ = ["Commands", "seconds"]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What a command adds its parser to."""


def seconds(text: str) -> float:
    """Read a duration in seconds, 0 or more.

    Raises:
        ArgumentTypeError: It is not one.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
