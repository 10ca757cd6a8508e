"""Runs of a scenario on a simulated network, each repeated exactly by its seed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from ...actors.testing import run_virtual
from ._faults import NO_FAULTS, Faults, SimulationOptions
from ._network import SimulatedNetwork

__all__ = ["MAX_SIMULATED_TIME", "Scenario", "simulate", "simulate_many"]

T = TypeVar("T")

Scenario: TypeAlias = Callable[[SimulatedNetwork], Coroutine[Any, Any, T]]
"""What is to happen: a coroutine function of a network."""

MAX_SIMULATED_TIME: Final = 100_000.0
"""Longest that a simulated run takes unless it is told otherwise, in virtual seconds; then it
raises `Deadlock`."""

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

    Args:
        scenario: What is to happen.
        seed: Where all that is random comes from; draw your own from `random.Random(seed)`.
        faults: What goes wrong between nodes.
        options: How far the network may grow, and its times.
        max_time: Longest that it may take, in virtual seconds.

    Returns:
        What the scenario returns.

    Raises:
        Deadlock: It waits for what cannot happen, or for longer than it may.
        BaseException: What the scenario raises, with a note that says how to repeat the run.
    """

    async def run() -> T:
        async with SimulatedNetwork(seed, faults=faults, options=options) as network:
            return await scenario(network)

    try:
        return run_virtual(run(), max_time=max_time)
    except BaseException as error:
        name = getattr(scenario, "__qualname__", repr(scenario))
        changed = "" if options == _OPTIONS else f", options={options!r}"
        changed += "" if max_time == MAX_SIMULATED_TIME else f", max_time={max_time!r}"
        again = f"simulate({name}, seed={seed!r}, faults={faults!r}{changed})"
        error.add_note(f"the seed was {seed!r}; the same run again: {again}")
        raise


def simulate_many(
    scenario: Scenario[T],
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults = NO_FAULTS,
    options: SimulationOptions = _OPTIONS,
    max_time: float = MAX_SIMULATED_TIME,
) -> list[T]:
    """Run a scenario with one seed after the other, up to the first that fails.

    Args:
        scenario: What is to happen.
        seeds: The seeds.
        faults: What goes wrong between nodes.
        options: How far each network may grow, and its times.
        max_time: Longest that one run may take, in virtual seconds.

    Returns:
        What each run returned.

    Raises:
        BaseException: What a run raises; see `simulate`.
    """
    return [
        simulate(scenario, seed=seed, faults=faults, options=options, max_time=max_time)
        for seed in seeds
    ]
