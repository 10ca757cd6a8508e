"""Pipes over a simulated network: what is promised holds whatever the seed."""

from __future__ import annotations

import asyncio
import random

import pytest

from onward.actors.pipes import PipeReceiver, PipeSender
from onward.protocol.pipes import Ordering, PipeOptions, PipeReceiverOptions, Receiver
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.simulated.pipes import (
    BROKEN,
    Outcome,
    Sink,
    line,
    run,
    run_broken,
    violations,
)

RUNS = 300
BAD = Faults(latency=(0.001, 0.02), loss=0.3, duplicate=0.2, reorder=0.3, reorder_by=0.1)
KINDS = [(ordering, confirm) for ordering in Ordering for confirm in (True, False)]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, RUNS, 50))
def test_five_hops_deliver_in_order_and_once_or_report(first: int) -> None:
    found = {seed: violations(run(seed)) for seed in range(first, first + 50)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_receiver_that_is_broken_on_purpose_is_caught(kind: type[Receiver]) -> None:
    assert any(violations(run_broken(seed, kind)) for seed in range(10))


def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run(7) == run(7) != run(8)


async def one_hop(
    network: SimulatedNetwork, seed: int, ordering: Ordering, confirm: bool
) -> tuple[Outcome, list[tuple[int, int]]]:
    draw = random.Random(seed)
    outcome = Outcome()
    gaps: list[tuple[int, int]] = []
    first, last, hops = await line(network, "ab")
    await last.start(lambda: Sink(outcome), address="sink")
    receiver = PipeReceiver(
        PipeReceiverOptions(gap_timeout=30.0 if confirm else 1.0),
        on_gap=lambda gap: gaps.append((gap.first, gap.last)),
    )
    await last.start(lambda: receiver, address="pipe")
    options = PipeOptions(ordering, confirm, frame_messages=3, give_up=100.0, max_timeout=1.0)
    sender = PipeSender(
        [*hops, "pipe"],
        options,
        on_missed=lambda missed: outcome.missed.extend(
            int.from_bytes(each.payload) for each in missed.messages
        ),
    )
    await first.start(lambda: sender, address="pipe")
    for burst in range(12):
        for _ in range(draw.randint(1, 9)):
            first.send("pipe => sink", outcome.sent.to_bytes(4))
            outcome.sent += 1
        if burst == 6:
            network.partition({"a"}, {"b"})
        await asyncio.sleep(draw.uniform(0, 0.2))
        if burst == 8:
            network.heal()
    await asyncio.sleep(120)
    return outcome, gaps


@pytest.mark.parametrize(
    ("ordering", "confirm"), KINDS, ids=lambda value: getattr(value, "name", str(value))
)
def test_each_kind_of_pipe_keeps_its_promise_at_thirty_percent_loss(
    ordering: Ordering, confirm: bool
) -> None:
    for seed in range(8):
        outcome, gaps = simulate(
            lambda network: one_hop(network, seed, ordering, confirm),  # noqa: B023
            seed=seed,
            faults=BAD,
        )
        handed = outcome.handed
        sent = list(range(outcome.sent))
        passed = [number - 1 for first, last in gaps for number in range(first, last + 1)]
        assert handed
        if confirm and ordering is not Ordering.MONOTONIC:
            assert (handed if ordering is Ordering.STRICT else sorted(handed)) == sent
            assert not outcome.missed
            assert not gaps
        elif confirm:
            # The newest may overtake the others; then they are reported, at both ends.
            assert handed == sorted(set(handed))
            assert sorted(handed + outcome.missed) == sent
            assert sorted(passed) == sorted(outcome.missed)
        elif ordering is not Ordering.NONE:
            assert handed == sorted(set(handed))
            # All up to the last that came is handed on or reported.
            assert sorted(handed + passed) == sent[: max(handed) + 1]
        else:
            assert set(handed) < set(sent)
