"""Long work on the loop in slices, between which the loop does other things.

Such work is a generator: it yields after each slice, and returns its result. What it goes through
is taken in its first slice, so that nothing is counted twice or left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Slices", "in_slices", "whole"]

T = TypeVar("T")

Slices: TypeAlias = Generator[None, None, T]
"""Work in slices, with its result."""


def whole(slices: Slices[T]) -> T:
    """Run all of it at once, and return its result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_slices(slices: Slices[T]) -> T:
    """Run it slice by slice, and return its result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
