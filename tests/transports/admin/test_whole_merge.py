"""The figures of several processes as those of one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onward.actors.broker._tally import OUTCOMES
from onward.actors.broker.table._services import ServiceStatistics
from onward.actors.monitoring._surroundings import Surroundings, Traffic
from onward.protocol.eventlog import Outcome
from onward.protocol.metrics import BUCKETS, Durations
from onward.transports.admin._whole_merge import (
    overviews,
    problems,
    queries,
    services,
    statuses,
    summed,
    surroundings,
)

EMPTY = (0,) * (len(BUCKETS) + 1)


@pytest.mark.parametrize(
    ("values", "together"),
    [
        ([1, 2.5], 3.5),
        ([True, False], True),
        (["", "the disk is full"], "the disk is full"),
        (["", ""], ""),
        ([None, 3], 3),
        ([None, None], None),
        ([[1], [2]], [1, 2]),
        ([{"a": 1}, {"a": 2, "b": 3}], {"a": 3, "b": 3}),
        ([{"oldest_wait": 1.5}, {"oldest_wait": 0.5}], {"oldest_wait": 1.5}),
        ([{"not_after": 9.0}, {"not_after": 8.0}], {"not_after": 8.0}),
        ([{"reloads": 2}, {"reloads": 2}], {"reloads": 2}),
        (
            [[{"uri": "a", "n": 1}, {"uri": "b", "n": 2}], [{"uri": "a", "n": 4}]],
            [{"uri": "a", "n": 5}, {"uri": "b", "n": 2}],
        ),
    ],
)
def test_figures_together(values: list[Any], together: Any) -> None:
    assert summed(values) == together


def test_no_process_has_figures() -> None:
    assert statuses({}) == {}
    assert overviews({})["points"] == {}


def test_the_worst_problem_comes_first() -> None:
    warning = {"severity": "warning", "kind": "limit"}
    critical = {"severity": "critical", "kind": "certificate"}
    assert problems({0: [warning], 1: [warning, critical]}) == [
        {**critical, "process": 1},
        {**warning, "process": 0},
        {**warning, "process": 1},
    ]


def overview(**columns: list[Any]) -> dict[str, Any]:
    length = len(columns["at"])
    given = {
        name: columns.get(name, [0] * length)
        for name in ("at", "rate", "success", "p50", "p99", "lag", "connections", "waiting")
    }
    figures: Mapping[str, Any] = {"workers": 2, "messages": 5}
    return {
        "at": columns["at"][-1] if length else 0.0,
        "problems": [],
        "interval": 2.0,
        "points": given,
        "node": figures,
        "broker": {"routes": 1},
    }


def test_points_belong_together_from_the_last_one() -> None:
    long = overview(
        at=[1.0, 3.0, 5.0],
        rate=[1.0, 2.0, 30.0],
        success=[None, 1.0, 1.0],
        p99=[None, 0.5, 0.1],
        connections=[1, 1, 1],
    )
    short = overview(at=[5.1], rate=[10.0], success=[0.6], p99=[0.2], connections=[7])
    found = overviews({0: long, 1: short})
    points = found["points"]
    assert points["at"] == [1.0, 3.0, 5.1]
    assert points["rate"] == [1.0, 2.0, 40.0]
    assert points["success"] == [None, 1.0, pytest.approx(0.9)]
    assert points["p99"] == [None, 0.5, 0.2]
    assert points["connections"] == [1, 1, 8]
    assert found["node"] == {"workers": 4, "messages": 10}
    assert found["broker"] == {"routes": 2}


def service(name: str, destinations: int, elsewhere: int, **figures: Any) -> ServiceStatistics:
    ended: dict[Outcome, int] = {each: figures.get(word, 0) for each, word in OUTCOMES.items()}
    counts = Durations((figures.get("answered", 0), *EMPTY[1:]), 0.0)
    return ServiceStatistics(
        name, destinations, 0, 1, 10, figures.get("latency", 0.0), ended, counts, elsewhere
    )


def test_destinations_of_another_process_are_not_elsewhere() -> None:
    # Five at these processes, and three at other machines.
    parts = {
        0: [service("store", 2, 6, answered=4, latency=0.5), service("mail", 1, 0)],
        1: [service("store", 3, 5, answered=5)],
    }
    store, mail = services(parts)
    assert (store.service, store.destinations, store.elsewhere) == ("store", 5, 3)
    assert (store.in_progress, store.requests, store.latency) == (2, 20, 0.5)
    assert store.ended is not None
    assert store.ended[Outcome.DELIVER] == 9
    assert store.durations is not None
    assert store.durations.counts[0] == 9
    assert (mail.service, mail.destinations, mail.elsewhere) == ("mail", 1, 0)


def test_a_query_that_requests_wait_for_at_several_processes_is_one() -> None:
    rows = [
        {"query": "a", "requests": 1, "bytes": 10, "sources": 1, "oldest": 2.0, "process": 0},
        {"query": "b", "requests": 1, "bytes": 10, "sources": 1, "oldest": 2.0, "process": 0},
        {"query": "a", "requests": 2, "bytes": 5, "sources": 1, "oldest": 3.0, "process": 1},
    ]
    assert queries(rows) == [
        {"query": "a", "requests": 3, "bytes": 15, "sources": 2, "oldest": 3.0},
        {"query": "b", "requests": 1, "bytes": 10, "sources": 1, "oldest": 2.0},
    ]


def test_what_surrounds_several_processes() -> None:
    parts = [
        Surroundings("0", {"tcp": 1}, {"": Traffic(1, 5)}, {"a": Traffic(1, 1)}, [("x", "up")]),
        Surroundings("1", {"tcp": 2}, {"": Traffic(2, 6)}, {"b": Traffic(1, 2)}, [("x", "up")]),
    ]
    found = surroundings("all", parts)
    assert found.node == "all"
    assert found.listeners == {"tcp": 3}
    assert found.requesters == {"": Traffic(3, 11)}
    assert found.services == {"a": Traffic(1, 1), "b": Traffic(1, 2)}
    assert found.peers == [("x", "up")]
