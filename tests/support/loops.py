"""The event loops things have to work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

import pytest
import uvloop

__all__ = ["LoopFactory", "loops_of", "on_both_loops", "on_each_loop", "run_on"]

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

on_both_loops = pytest.mark.real_time(
    {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
)
"""Runs a coroutine function on asyncio's event loop and on uvloop, as two tests."""


def loops_of(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Return the real loops of a test: those of its mark, or asyncio's."""
    for mark in item.iter_markers("real_time"):
        if mark.args:
            loops: Mapping[str, LoopFactory] = mark.args[0]
            return loops
    return {"asyncio": asyncio.new_event_loop}


def run_on(loop_factory: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop of a kind."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
