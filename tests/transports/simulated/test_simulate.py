from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from typing import NoReturn

import pytest

from onward.actors.testing import Deadlock
from onward.transports.simulated import (
    Event,
    Faults,
    SimulatedNetwork,
    SimulationOptions,
    simulate,
    simulate_many,
)
from tests.transports.simulated.stage import two_nodes
from tests.transports.simulated.test_network import FAULTS, everything

LOSSY = Faults(loss=0.2)


async def all_arrive(network: SimulatedNetwork) -> int:
    """Demand what a lossy network does not give."""
    _, _, link, near, far = await two_nodes(network)
    for _ in range(5):
        near.send([link, "far"], b"x")
    await asyncio.sleep(1)
    histories.append(network.history)
    assert len(far.messages) == 5, f"{len(far.messages)} of 5"
    return network.seed


histories: list[tuple[Event, ...]] = []


def test_it_returns_what_the_scenario_returns() -> None:
    assert simulate(all_arrive, seed=9) == 9
    assert simulate_many(all_arrive, seeds=range(3)) == [0, 1, 2]


def test_a_failing_run_is_repeated_by_its_note() -> None:
    with pytest.raises(AssertionError) as caught:
        simulate_many(all_arrive, seeds=range(1000), faults=LOSSY)
    failed = histories[-1]
    (note,) = caught.value.__notes__
    histories.clear()
    text, _, again = note.partition("; the same run again: ")
    assert text.startswith("the seed was ")
    with pytest.raises(AssertionError, match=str(caught.value).split("\n")[0]):
        eval(again)
    assert histories == [failed]


def test_the_note_says_what_else_was_not_as_usual() -> None:
    options = SimulationOptions(window=7)
    with pytest.raises(AssertionError) as caught:
        simulate(all_arrive, faults=Faults(loss=1), options=options, max_time=77.5)
    assert f", options={options!r}, max_time=77.5)" in caught.value.__notes__[0]


def test_a_wait_for_nothing() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        _, _, _, _, far = await two_nodes(network)
        await far.next(timeout=10)
        raise AssertionError

    with pytest.raises(TimeoutError, match="0 of 1 message came"):
        simulate(scenario)


def test_a_wait_without_an_end() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        await two_nodes(network)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="everything waits") as caught:
        simulate(scenario, seed=3)
    assert "seed=3" in caught.value.__notes__[0]


def test_a_run_that_goes_on_for_ever() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        _, _, link, near, _ = await two_nodes(network)
        near.every(10, lambda: near.send([link, "far"], b"tick"))
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="after 1,000 virtual seconds"):
        simulate(scenario, max_time=1000)


def test_nothing_depends_on_how_texts_are_hashed() -> None:
    # Nor on anything else that differs from process to process.
    code = """
from onward.transports.simulated import simulate
from tests.transports.simulated.test_network import FAULTS, everything
print(repr(simulate(everything, seed=5, faults=FAULTS)))
"""
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(printed[0]) > 10_000
    assert printed[0] == printed[1]


def test_nothing_asks_the_system_for_the_time_or_for_random_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("this cannot be repeated")

    for where in ("os.urandom", "time.time", "time.monotonic", "time.perf_counter", "uuid.uuid4"):
        monkeypatch.setattr(where, never)
    history, _, came, _ = simulate(everything, seed=5, faults=FAULTS)
    assert history
    assert came


def test_random_numbers_are_those_of_the_seed_and_go_on_as_before() -> None:
    async def drawn(_network: SimulatedNetwork) -> float:
        return random.random()

    random.seed(1)
    before = random.getstate()
    assert simulate(drawn, seed=4) == simulate(drawn, seed=4) != simulate(drawn, seed=5)
    assert random.getstate() == before
