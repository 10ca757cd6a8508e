"""Runs of a scenario on a simulated network, exactly repeatable by their seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from ...actors.testing import run_virtual
from ._faults import NO_FAULTS, Faults, SimulationOptions
from ._network import SimulatedNetwork

__all__ = ["MAX_SIMULATED_TIME", "Scenario", "simulate", "simulate_many"]

T = TypeVar("T")

Scenario: TypeAlias = Callable[[SimulatedNetwork], Coroutine[Any, Any, T]]
"""A coroutine function of a network."""

MAX_SIMULATED_TIME: Final = 100_000.0
"""The default limit on the virtual seconds of a simulated run, which then raises `Deadlock`."""

_OPTIONS: Final = SimulationOptions()


def simulate(
    scenario: Scenario[T],
    *,
    seed: int = 0,
    faults: Faults = NO_FAULTS,
    options: SimulationOptions = _OPTIONS,
    max_time: float = MAX_SIMULATED_TIME,
) -> T:
    """Run a scenario on a new network and a new virtual loop; then stop all nodes.

    The random numbers of the module `random` are those of the seed too until it returns, as brokers
    and workers may draw theirs there.

    Args:
        scenario: The scenario.
        seed: The seed of all random numbers; draw your own from `random.Random(seed)`.
        faults: The faults between nodes.
        options: The limits and times of the network.
        max_time: The limit on the run, in virtual seconds.

    Returns:
        The result of the scenario.

    Raises:
        Deadlock: The scenario waits for something that cannot happen, or beyond `max_time`.
        BaseException: The scenario raised it; a note has the call that repeats the run.
    """

    async def run() -> T:
        async with SimulatedNetwork(seed, faults=faults, options=options) as network:
            return await scenario(network)

    before = random.getstate()
    random.seed(seed)
    try:
        return run_virtual(run(), max_time=max_time)
    except BaseException as error:
        name = getattr(scenario, "__qualname__", repr(scenario))
        changed = "" if options == _OPTIONS else f", options={options!r}"
        changed += "" if max_time == MAX_SIMULATED_TIME else f", max_time={max_time!r}"
        again = f"simulate({name}, seed={seed!r}, faults={faults!r}{changed})"
        error.add_note(f"the seed was {seed!r}; the same run again: {again}")
        raise
    finally:
        random.setstate(before)


def simulate_many(
    scenario: Scenario[T],
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults = NO_FAULTS,
    options: SimulationOptions = _OPTIONS,
    max_time: float = MAX_SIMULATED_TIME,
) -> list[T]:
    """Run a scenario with one seed after another, up to the first failure.

    Args:
        scenario: The scenario.
        seeds: The seeds.
        faults: The faults between nodes.
        options: The limits and times of each network.
        max_time: The limit on each run, in virtual seconds.

    Returns:
        The results of the runs.

    Raises:
        BaseException: A run raised it; see `simulate`.
    """
    return [
        simulate(scenario, seed=seed, faults=faults, options=options, max_time=max_time)
        for seed in seeds
    ]
