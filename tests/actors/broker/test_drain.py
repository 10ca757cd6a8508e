"""The phases of a drain, without connections or a clock."""

from __future__ import annotations

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, DrainOptions
from onward.actors.broker._drain import DrainPhase, DrainSteps

GRACE, ENDING, CUT, OVER, UNDONE = DrainPhase
OPTIONS = DrainOptions(grace=5, spread=20, timeout=60)


@pytest.fixture
def steps() -> DrainSteps:
    return DrainSteps(OPTIONS, 100.0)


def test_it_goes_through_its_phases(steps: DrainSteps) -> None:
    assert steps.phase is GRACE
    assert steps.step(104.9, 3) is GRACE
    assert steps.step(105.0, 3) is ENDING
    assert [steps.progress(at) for at in (105.0, 110.0, 125.0, 200.0)] == [0.0, 0.25, 1.0, 1.0]
    assert steps.step(159.9, 3) is ENDING
    assert steps.step(160.0, 3) is CUT
    assert steps.step(160.0, 3) is OVER
    assert steps.step(999.0, 3) is OVER


def test_without_connections_it_is_over_at_once(steps: DrainSteps) -> None:
    # The sockets are closed before it is over: a connection may be accepted until then.
    assert [steps.step(100.0, 0), steps.step(100.0, 0)] == [ENDING, OVER]


def test_it_waits_for_a_connection_that_came_last(steps: DrainSteps) -> None:
    assert [steps.step(100.0, 0), steps.step(100.0, 1)] == [ENDING, ENDING]
    assert steps.step(101.0, 0) is OVER


def test_it_can_be_undone_until_the_sockets_are_closed(steps: DrainSteps) -> None:
    assert steps.undo()
    assert steps.step(999.0, 0) is UNDONE
    late = DrainSteps(OPTIONS, 100.0)
    late.step(105.0, 1)
    assert not late.undo()
    assert late.phase is ENDING


def test_a_second_drain_only_shortens_the_times(steps: DrainSteps) -> None:
    steps.hasten(DrainOptions(grace=100, spread=100, timeout=100), 101.0)
    assert steps.step(104.9, 3) is GRACE
    assert steps.step(105.0, 3) is ENDING
    steps.hasten(DrainOptions(grace=0, spread=10, timeout=15), 106.0)
    # The moments of the connections that have not begun to end are nearer, too.
    assert steps.progress(110.5) == 0.5
    assert steps.progress(116.0) == 1.0
    assert steps.step(120.9, 3) is ENDING
    assert steps.step(121.0, 3) is CUT


def test_a_shorter_spread_counts_from_its_begin(steps: DrainSteps) -> None:
    steps.hasten(DrainOptions(grace=1, spread=2, timeout=9), 100.0)
    assert steps.step(101.0, 3) is ENDING
    assert steps.progress(102.0) == 0.5


def test_at_once(steps: DrainSteps) -> None:
    steps.hasten(DrainOptions(timeout=0), 100.0)
    assert [steps.step(100.0, 3) for _ in range(3)] == [ENDING, CUT, OVER]


def test_the_times_fit_into_less() -> None:
    assert OPTIONS.within(25) == DrainOptions(5, 10, 25)
    assert OPTIONS.within(2) == DrainOptions(0.4, 0.8, 2)
    assert OPTIONS.within(1000) == OPTIONS
    with pytest.raises(ValueError, match="grace"):
        DrainOptions(grace=-1)


async def test_a_broker_without_connections_drains_at_once(node: Node) -> None:
    broker = await Broker.attach(node)
    assert not broker.draining
    with broker.events.subscribe() as events:
        assert await broker.drain()
        assert [event.kind async for event in events] == ["draining"]
    assert broker.draining
    assert not broker.undo_drain()
    assert broker.statistics().connections_left == 0
    assert await broker.drain()
