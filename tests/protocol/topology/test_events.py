"""What happens to a simulated network, in a topology file."""

from __future__ import annotations

import pytest

from onward.protocol.topology import EventKind, TopologyError, TopologyLimits, read_topology
from tests.protocol.topology.kinds import KINDS, plan_of, problems_of

NODES = """\
[nodes.a]
workers.echo = "echo"
[nodes.b]
listeners.main = "tcp://h:1"
[nodes.c]
[[links]]
from = "a"
to = "b"
"""
EVENTS = """\
[[simulation.events]]
at = 9
heal = "all"
[[simulation.events]]
cut = ["a", "b"]
[[simulation.events]]
at = 3
slow = [["a", "b"], "c"]
latency = [0.1, 2]
loss = 0.5
[[simulation.events]]
at = 3
heal = ["a", ["b"]]
[[simulation.events]]
at = 4
kill = "c"
[[simulation.events]]
at = 5.5
restart = "c"
[[simulation.requests]]
at = 7
from = "a"
route = "echo"
"""


def test_events_are_read_and_have_an_order() -> None:
    plan = plan_of(NODES + EVENTS).simulation
    assert [(event.at, str(event)) for event in plan.in_order()] == [
        (0, "cut a | b"),
        (3, "slow a, b | c"),
        (3, "heal a | b"),
        (4, "kill c"),
        (5.5, "restart c"),
        (9, "heal all"),
    ]
    assert [event.kind for event in plan.events[:2]] == [EventKind.HEAL, EventKind.CUT]
    slow = plan.events[2]
    assert (slow.sides, slow.faults.given()) == (
        (("a", "b"), ("c",)),
        {"latency": (0.1, 2.0), "loss": 0.5},
    )
    assert plan.events[4].node == "c"
    assert plan.events[0].place.line == 9
    (request,) = plan.requests
    assert (request.at, request.node) == (7, "a")
    assert str(request.place) == "t.toml:28: simulation.requests[0]"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("at = 1", "9: simulation.events[0]: it has to have one of cut, slow, heal, kill, restart"),
        (
            'kill = "c"\ncut = ["a", "b"]',
            "9: simulation.events[0]: it has to have one of cut, slow, heal, kill, restart",
        ),
        (
            'kill = "other"',
            "10: simulation.events[0].kill: no node 'other'; there are: a, b, c",
        ),
        ("kill = 1", "10: simulation.events[0].kill: 1 is not text"),
        (
            'cut = ["a", "other"]',
            "10: simulation.events[0].cut: no node 'other'; there are: a, b, c",
        ),
        (
            'cut = "a"',
            "10: simulation.events[0].cut: 'a' is not two sides, each a node or a list of nodes",
        ),
        (
            'cut = "all"',
            "10: simulation.events[0].cut: 'all' is not two sides, each a node or a list of nodes",
        ),
        ('cut = ["a", ["b", "a"]]', "10: simulation.events[0].cut: on both sides: a"),
        ('cut = ["a", []]', "10: simulation.events[0].cut: a side is empty"),
        (
            'slow = ["a", "b"]',
            (
                "9: simulation.events[0]: it has no faults: latency, loss, duplicate, reorder or "
                "reorder_by"
            ),
        ),
        (
            'slow = ["a", "b"]\nloss = 2',
            "11: simulation.events[0].loss: 2 is not a number from 0 to 1",
        ),
        (
            'cut = ["a", "b"]\nloss = 0.1',
            "11: simulation.events[0].loss: unknown key; there are: at, cut",
        ),
        (
            "at = -1\nheal = 'all'",
            "10: simulation.events[0].at: -1 is not a number of seconds, 0 or more",
        ),
        ('restart = "c"', "10: simulation.events[0].restart: 'c' has not been killed by then"),
        (
            'kill = "c"\n[[simulation.events]]\nat = 1\nkill = "c"',
            "13: simulation.events[1].kill: 'c' has been killed by then",
        ),
        (
            'kill = "b"\n[[simulation.events]]\nat = 1\nrestart = "b"',
            (
                "13: simulation.events[1].restart: a link of nodes is opened once: links[0] "
                "(line 6) does not come up again"
            ),
        ),
    ],
)
def test_what_is_wrong_with_an_event(event: str, told: str) -> None:
    (found,) = problems_of(f"{NODES}[[simulation.events]]\n{event}\n")
    assert found == told


def test_requests_of_a_simulation_are_checked_like_others() -> None:
    request = '[[simulation.requests]]\nfrom = "a"\nroute = "hceo"\n'
    (found,) = problems_of(NODES + request)
    told = "11: simulation.requests[0].route: node 'a' has no worker or link 'hceo'"
    assert found.startswith(told)
    (found,) = problems_of(NODES + '[[requests]]\nfrom = "a"\nroute = "echo"\nat = 1\n')
    assert found.startswith("12: requests[0].at: unknown key; ")


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            TopologyLimits(events=5),
            "simulation.events: 6 simulation.events are over the limit of 5",
        ),
        (
            TopologyLimits(requests=0),
            "simulation.requests: 1 simulation.requests are over the limit of 0",
        ),
    ],
)
def test_there_is_a_limit(limits: TopologyLimits, told: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_topology(NODES + EVENTS, "t.toml", kinds=KINDS, limits=limits)
    (problem,) = caught.value.problems
    assert str(problem).endswith(told)
