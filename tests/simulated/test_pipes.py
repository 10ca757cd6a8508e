"""Pipes over a simulated network: what is promised holds whatever the seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

import pytest

from onward.actors.pipes import PipeReceiver, PipeSender
from onward.protocol.pipes import Ordering, PipeOptions, PipeReceiverOptions
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.simulated.broken_pipes import BROKEN, ConfirmsWhatItHolds, KnowsNoEpochs, catches
from tests.simulated.pipes import Sink, checked_run, line, run
from tests.support.counts import UNMEASURED, runs, times

AT_ONCE = 15
RARELY_CAUGHT = (KnowsNoEpochs, ConfirmsWhatItHolds)
"""Those that a hundred runs or more may hide."""

BAD = Faults(latency=(0.001, 0.02), loss=0.3, duplicate=0.2, reorder=0.3, reorder_by=0.1)
KINDS = [(ordering, confirm) for ordering in Ordering for confirm in (True, False)]


@pytest.mark.slow
@pytest.mark.parametrize("first", runs(30, 300, AT_ONCE))
def test_five_hops_deliver_in_order_and_once_or_report(first: int) -> None:
    found = {seed: checked_run(seed)[2] for seed in range(first, first + AT_ONCE)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=each.__name__,
            marks=[pytest.mark.exhaustive] if each in RARELY_CAUGHT else [],
        )
        for number, each in enumerate(BROKEN)
    ],
)
def test_a_pipe_that_is_broken_on_purpose_is_caught(number: int) -> None:
    assert any(catches(BROKEN[number], seed) for seed in range(300))


def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run(7) == run(7) != run(8)


@dataclass
class Delivery:
    """What came of messages over one hop: sent, handed on, reported to either end."""

    sent: int = 0
    handed: list[int] = field(default_factory=list[int])
    missed: list[int] = field(default_factory=list[int])
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


async def one_hop(
    network: SimulatedNetwork, seed: int, ordering: Ordering, confirm: bool, *, cut: bool = True
) -> Delivery:
    draw = random.Random(seed)
    found = Delivery()
    first, last, hops = await line(network, "ab")
    await last.start(lambda: Sink(found.handed), address="sink")
    receiver = PipeReceiver(
        PipeReceiverOptions(gap_timeout=30.0 if confirm else 1.0),
        on_gap=lambda gap: found.gaps.append((gap.first, gap.last)),
    )
    await last.start(lambda: receiver, address="pipe")
    options = PipeOptions(ordering, confirm, frame_messages=3, give_up=100.0, max_timeout=1.0)
    sender = PipeSender(
        [*hops, "pipe"],
        options,
        on_missed=lambda missed: found.missed.extend(
            int.from_bytes(each.payload) for each in missed.messages
        ),
    )
    await first.start(lambda: sender, address="pipe")
    for burst in range(12):
        for _ in range(draw.randint(1, 9)):
            first.send("pipe => sink", found.sent.to_bytes(4))
            found.sent += 1
        if cut and burst == 6:
            network.partition({"a"}, {"b"})
        await asyncio.sleep(draw.uniform(0, 0.2))
        if burst == 8:
            network.heal()
    await asyncio.sleep(120)
    return found


@pytest.mark.parametrize(
    ("ordering", "confirm"), KINDS, ids=lambda value: getattr(value, "name", str(value))
)
def test_each_kind_of_pipe_at_thirty_percent_loss(ordering: Ordering, confirm: bool) -> None:
    for seed in range(times(3, 8)):
        found = simulate(
            lambda network: one_hop(network, seed, ordering, confirm),  # noqa: B023
            seed=seed,
            faults=BAD,
        )
        handed, gaps = found.handed, found.gaps
        sent = list(range(found.sent))
        passed = [number - 1 for first, last in gaps for number in range(first, last + 1)]
        assert handed
        if confirm and ordering is not Ordering.MONOTONIC:
            assert (handed if ordering is Ordering.STRICT else sorted(handed)) == sent
            assert not found.missed
            assert not gaps
        elif confirm:
            # The newest may overtake the others; then they are reported, at both ends.
            assert handed == sorted(set(handed))
            assert sorted(handed + found.missed) == sent
            assert sorted(passed) == sorted(found.missed)
        elif ordering is not Ordering.NONE:
            assert handed == sorted(set(handed))
            # All up to the last that came is handed on or reported.
            assert sorted(handed + passed) == sent[: max(handed) + 1]
        else:
            assert set(handed) < set(sent)


@pytest.mark.parametrize("ordering", Ordering, ids=lambda ordering: ordering.name)
def test_an_unconfirmed_pipe_loses_what_the_network_loses_and_no_more(ordering: Ordering) -> None:
    faults = replace(BAD, reorder=0.0)
    sent = came = 0
    for seed in range(20):
        found = simulate(
            lambda network: one_hop(network, seed, ordering, False, cut=False),  # noqa: B023
            seed=seed,
            faults=faults,
        )
        sent += found.sent
        came += len(set(found.handed))
    # Of a frame's two copies one may come: a little less than the loss. It is 30 % of frames
    # of up to three messages, of which there are some 400: 0.05 is over twice the deviation.
    lost = 1 - came / sent
    assert BAD.loss * (1 - BAD.duplicate * (1 - BAD.loss)) == pytest.approx(lost, abs=0.05)
