"""The event loops things have to work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import pytest
import uvloop

__all__ = ["LoopFactory", "on_each_loop", "run_on"]

T = TypeVar("T")

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

on_each_loop = pytest.mark.parametrize(
    "loop_factory",
    [
        pytest.param(asyncio.new_event_loop, id="asyncio"),
        pytest.param(uvloop.new_event_loop, id="uvloop"),
    ],
)
"""Gives a test the parameter `loop_factory`, for `run_on`."""


def run_on(loop_factory: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop of a kind."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
