"""The event loops things have to work on."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pytest
import uvloop

__all__ = ["LoopFactory", "on_both_loops", "on_each_loop", "run_on"]

T = TypeVar("T")
P = ParamSpec("P")

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


def on_both_loops(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function on asyncio's event loop and on uvloop, as two tests."""

    def run(*, loop_factory: LoopFactory, **fixtures: Any) -> None:
        run_on(loop_factory, test(**fixtures))  # type: ignore[call-arg]

    made = functools.update_wrapper(run, test)
    parameters = [
        *inspect.signature(test).parameters.values(),
        inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY),
    ]
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    marked: Callable[..., None] = on_each_loop(made)
    return marked
