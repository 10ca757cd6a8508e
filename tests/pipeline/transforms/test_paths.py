"""Ways of messages that the random traffic has not, or not for sure."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onward.pipeline.transforms import MAX_PATH, MAX_PATHS, MAX_PLACES, path_anomalies, paths
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms.rows import frame, hop
from tests.support.traffic import SECOND, START, Row, time_of

pytestmark = pytest.mark.spark

FORWARD, DELIVER, RETURN, DROP = Outcome.FORWARD, Outcome.DELIVER, Outcome.RETURN, Outcome.DROP


def chain(trace: int, dests: list[int], *ends: Outcome, log: str = "n") -> list[Row]:
    """Return hops one after the other that were all handed on but the last ones."""
    outcomes = [FORWARD] * (len(dests) - len(ends)) + list(ends)
    steps = enumerate(zip(dests, outcomes, strict=True))
    return [hop(trace, depth, dest, outcome, log=log) for depth, (dest, outcome) in steps]


TRACES: dict[str, tuple[list[Row], set[str]]] = {
    "there and back over the same workers is no loop": (
        chain(1, [1, 2, 3, 2, 1], DELIVER, FORWARD, RETURN),
        set(),
    ),
    "a worker three times is a loop, wherever it ended": (
        chain(1, [1, 2, 1, 2, 1], *[DELIVER] * 5),
        {"loop"},
    ),
    "handed on and never seen again is a black hole": (chain(1, [1, 2]), {"black_hole"}),
    "what became a dead letter is none": (chain(1, [1, 2, 0], DROP), set()),
    "a loop that nobody ended is both": (chain(1, [1, 2, 1]), {"loop", "black_hole"}),
    "one of several copies may go on": (
        [
            hop(1, 0, 1, FORWARD),
            hop(1, 1, 2, FORWARD),
            hop(1, 1, 3, DELIVER),
            hop(1, 2, 4, DELIVER),
        ],
        set(),
    ),
    "one worker that gets many copies is no loop": (
        [hop(1, 0, 1, FORWARD), *[hop(1, 1, 2, DELIVER)] * 5],
        set(),
    ),
    "what went round past the deepest depth is a loop and no black hole": (
        [hop(1, min(depth, 255), 1 + depth % 3, FORWARD) for depth in range(300)],
        {"loop"},
    ),
    "an answer by the same nodes, the asking one silent on the way out, is symmetric": (
        [
            hop(1, 0, 2, FORWARD, log="b"),
            hop(1, 1, 3, DELIVER, log="c"),
            hop(1, 2, 4, FORWARD, log="c"),
            hop(1, 3, 5, FORWARD, log="b"),
            hop(1, 4, 1, RETURN, log="a"),
        ],
        set(),
    ),
    "an answer that leaves a node out is not": (
        [
            hop(1, 0, 2, FORWARD, log="b"),
            hop(1, 1, 3, DELIVER, log="c"),
            hop(1, 2, 1, RETURN, log="a"),
        ],
        {"return_asymmetry"},
    ),
    "of more places than are looked at nothing is said to be lost": (
        [hop(1, 0, dest, FORWARD) for dest in range(1, MAX_PLACES + 9)],
        set(),
    ),
}


def test_what_is_wrong_is_told_and_nothing_else(spark: SparkSession) -> None:
    # One run for all: a trace each.
    rows: list[Row] = []
    for trace, (hops, _) in enumerate(TRACES.values()):
        rows += [(*each[:4], trace, *each[5:]) for each in hops]

    found = path_anomalies(frame(spark, "hops", rows)).collect()

    for trace, (title, (_, wrong)) in enumerate(TRACES.items()):
        assert {row["kind"] for row in found if row["trace_id"] == trace} == wrong, title
        assert all(len(row["path"]) <= MAX_PATH for row in found)


def test_a_path_takes_from_its_first_beginning_to_its_last_end(spark: SparkSession) -> None:
    rows = [
        hop(1, 0, 5, FORWARD, at=1, latency=10),
        hop(1, 1, 6, DELIVER, at=1.00002, latency=2),
        hop(2, 0, 5, FORWARD, at=9, latency=4, weight=50),
        hop(2, 1, 6, DELIVER, at=9.000001, latency=1, weight=50),
        # No message to a worker: it has no part in this.
        hop(2, 2, 7, DELIVER, kind=Kind.RESPONSE, tagset=3),
    ]
    read = paths(frame(spark, "hops", rows)).collect()

    assert [tuple(row) for row in read] == [([5, 6], 51, 5.0)]


def test_there_is_a_limit_to_paths(spark: SparkSession) -> None:
    hops = frame(spark, "hops", [])
    for top in (0, MAX_PATHS + 1):
        with pytest.raises(ValueError, match=f"from 1 to {MAX_PATHS}"):
            paths(hops, top)


def test_a_message_under_way_at_midnight_is_of_the_day_it_began_in(spark: SparkSession) -> None:
    rows = [
        # Midnight is 100 s after the start.
        hop(1, 0, 1, FORWARD, at=99.95),
        hop(1, 1, 2, DELIVER, at=100.05),
        hop(2, 0, 1, FORWARD, at=99.9),
        hop(3, 0, 3, DELIVER, at=100.2),
    ]
    hops = frame(spark, "hops", rows)
    start, midnight, end = (time_of(START + at * SECOND) for at in (0, 100, 500))

    before, after = (start, midnight), (midnight, end)
    assert {tuple(row.path) for row in paths(hops, between=before).collect()} == {(1, 2), (1,)}
    assert {tuple(row.path) for row in paths(hops, between=after).collect()} == {(3,)}
    wrong = path_anomalies(hops, between=before, known_until=end).collect()
    assert [(row.trace_id, row.kind) for row in wrong] == [(2, "black_hole")]
    assert path_anomalies(hops, between=after, known_until=end).count() == 0


def test_a_message_at_the_end_of_what_is_known_is_not_judged(spark: SparkSession) -> None:
    hops = frame(spark, "hops", [hop(1, 0, 1, FORWARD, at=5)])
    for seconds, lost in ((14, 0), (15, 1)):
        known = time_of(START + seconds * SECOND)
        assert path_anomalies(hops, known_until=known).count() == lost


def test_a_trace_id_that_is_used_for_ever_belongs_to_each_day(spark: SparkSession) -> None:
    hops = frame(spark, "hops", [hop(1, 0, 1, DELIVER, at=at) for at in (0, 100, 500)])
    days = [
        (time_of(START + begin * SECOND), time_of(START + (begin + 100) * SECOND))
        for begin in (0, 100)
    ]
    assert [paths(hops, between=day).count() for day in days] == [1, 1]


def test_temporary_addresses_of_a_node_are_one_place_and_no_loop(spark: SparkSession) -> None:
    names = {1: "near/relay", 2: f"near/0#{'ab' * 16}", 3: f"near/0#{'cd' * 16}", 4: "near/abcd"}
    seen = {1: 0, 2: 2, 3: 1, 4: 0}
    nodes: list[Row] = [(node, name, time_of(START + seen[node])) for node, name in names.items()]
    # Of two logs.
    nodes += nodes[1:3]
    rows = [*chain(7, [1, 4, 2], RETURN), *chain(8, [1, 4, 3], RETURN)]
    rows += chain(9, [2, 1, 3], RETURN)
    hops, known = frame(spark, "hops", rows), frame(spark, "dim_node", nodes)

    found = {tuple(row.path): row.traces for row in paths(hops, nodes=known).collect()}

    assert found == {(1, 4, 3): 2, (3, 1, 3): 1}
    assert path_anomalies(hops, nodes=known).filter("kind = 'loop'").count() == 0
