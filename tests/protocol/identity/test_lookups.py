"""Look-ups: which nodes are asked, when they end, and what a storm of them costs."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    AskNode,
    Identity,
    LookupEnd,
    LookupEvent,
    LookupFailure,
    LookupLimits,
    LookupOutcome,
    LookupTable,
    identity_of_key,
)
from onward.protocol.identity._lookups import _SLACK

STARTED, UNDER_WAY, MISSING, LOOKUPS = LookupOutcome
NOT_FOUND, TIMEOUT, NONE_ASKED = LookupFailure


def identity(number: int) -> Identity:
    return identity_of_key(number.to_bytes(32))


NODES = [identity(number) for number in range(1, 30)]
WANTED, OTHER = identity(101), identity(102)


def table(nodes: int = 0, **limits: float) -> LookupTable:
    """Return a table of which as many nodes can be asked."""
    made = LookupTable(LookupLimits(**limits))  # type: ignore[arg-type]
    for node in NODES[:nodes]:
        assert made.node_joined(node, 0.0) == []
    return made


def ask(wanted: Identity, *numbers: int) -> list[LookupEvent]:
    return [AskNode(wanted, NODES[number]) for number in numbers]


def end(wanted: Identity, reason: LookupFailure) -> list[LookupEvent]:
    return [LookupEnd(wanted, reason)]


def test_all_that_want_an_identity_wait_for_one_look_up() -> None:
    lookups = table(2)
    assert lookups.start(WANTED, 0.0) == (STARTED, ask(WANTED, 0, 1))
    assert lookups.start(WANTED, 1.0) == (UNDER_WAY, [])
    assert lookups.start(OTHER, 1.0) == (STARTED, ask(OTHER, 0, 1))
    assert lookups.is_awaited(WANTED, NODES[0])
    assert not lookups.is_awaited(WANTED, OTHER)
    assert lookups.found(WANTED)
    assert not lookups.found(WANTED)
    assert not lookups.is_awaited(WANTED, NODES[0])
    # It is known now, and looked up again if it is not any more.
    assert lookups.start(WANTED, 1.0) == (STARTED, ask(WANTED, 0, 1))
    figures = lookups.statistics()
    assert (figures.lookups, figures.asked, figures.found) == (2, 6, 1)
    assert dict(figures.outcomes) == {STARTED: 3, UNDER_WAY: 1, MISSING: 0, LOOKUPS: 0}


def test_what_no_node_knows_is_missing_for_a_while() -> None:
    lookups = table(2, missing_time=3.0)
    lookups.start(WANTED, 0.0)
    assert lookups.knows_nothing(WANTED, NODES[0], 0.1) == []
    assert lookups.knows_nothing(WANTED, NODES[0], 0.1) == []  # said twice
    assert lookups.knows_nothing(WANTED, NODES[5], 0.1) == []  # not asked
    assert lookups.knows_nothing(WANTED, NODES[1], 0.2) == end(WANTED, NOT_FOUND)
    assert lookups.knows_nothing(WANTED, NODES[1], 0.2) == []
    assert lookups.start(WANTED, 3.1) == (MISSING, [])
    assert lookups.statistics().missing == 1
    assert lookups.start(WANTED, 3.2) == (STARTED, ask(WANTED, 0, 1))
    assert lookups.statistics().missing == 0
    lookups.knows_nothing(WANTED, NODES[0], 3.2)
    assert lookups.knows_nothing(WANTED, NODES[1], 3.2) == end(WANTED, NOT_FOUND)
    # An advert that comes unasked makes it known.
    assert not lookups.found(WANTED)
    assert lookups.start(WANTED, 3.3)[0] is STARTED
    assert dict(lookups.statistics().ended) == {NOT_FOUND: 2, TIMEOUT: 0, NONE_ASKED: 0}


def test_a_node_that_joins_may_know_what_was_missing() -> None:
    lookups = table(1)
    lookups.start(WANTED, 0.0)
    lookups.knows_nothing(WANTED, NODES[0], 0.0)
    # Not at any time: a node can join again and again.
    assert lookups.node_joined(NODES[1], 0.9) == []
    assert lookups.start(WANTED, 0.9) == (MISSING, [])
    assert lookups.node_joined(NODES[1], 1.0) == []
    assert lookups.start(WANTED, 1.0)[0] is STARTED


def test_so_many_nodes_are_asked_at_a_time_those_first_that_were_asked_longest_ago() -> None:
    lookups = table(5, max_asked=2)
    assert lookups.start(WANTED, 0.0)[1] == ask(WANTED, 0, 1)
    assert lookups.start(OTHER, 0.0)[1] == ask(OTHER, 2, 3)
    assert lookups.knows_nothing(WANTED, NODES[1], 0.0) == ask(WANTED, 4)
    assert lookups.knows_nothing(WANTED, NODES[4], 0.0) == ask(WANTED, 2)
    assert lookups.knows_nothing(WANTED, NODES[2], 0.0) == ask(WANTED, 3)
    # The last one that is there has been asked.
    assert lookups.knows_nothing(WANTED, NODES[3], 0.0) == []
    assert lookups.knows_nothing(WANTED, NODES[0], 0.0) == end(WANTED, NOT_FOUND)


def test_a_node_is_not_asked_for_itself() -> None:
    lookups = table(2)
    assert lookups.start(NODES[0], 0.0)[1] == ask(NODES[0], 1)


def test_nodes_that_do_not_answer_are_not_waited_for() -> None:
    lookups = table(5, max_asked=2, patience=1.0, timeout=5.0)
    lookups.start(WANTED, 0.0)
    assert lookups.get_timer() == 1.0
    assert lookups.handle_timer(0.5) == []
    assert lookups.handle_timer(1.0) == ask(WANTED, 2, 3)
    assert lookups.knows_nothing(WANTED, NODES[0], 1.5) == []  # too late: it counts for nothing
    assert lookups.knows_nothing(WANTED, NODES[2], 1.5) == ask(WANTED, 4)
    assert lookups.handle_timer(2.0) == []  # one was asked later
    assert lookups.handle_timer(2.5) == []
    assert lookups.get_timer() == 5.0
    assert lookups.handle_timer(5.0) == end(WANTED, TIMEOUT)
    assert lookups.get_timer() is None
    assert lookups.start(WANTED, 5.0) == (MISSING, [])


def test_an_answer_that_comes_late_is_of_use() -> None:
    lookups = table(1, patience=1.0)
    lookups.start(WANTED, 0.0)
    assert lookups.handle_timer(1.0) == []
    assert lookups.found(WANTED)
    assert lookups.handle_timer(5.0) == []


def test_what_a_silent_node_may_know_is_not_said_to_be_nowhere() -> None:
    lookups = table(2, max_asked=1, patience=1.0)
    lookups.start(WANTED, 0.0)
    assert lookups.handle_timer(1.0) == ask(WANTED, 1)
    assert lookups.knows_nothing(WANTED, NODES[1], 1.0) == []
    assert lookups.handle_timer(5.0) == end(WANTED, TIMEOUT)


def test_without_a_node_to_ask_one_that_joins_is_asked() -> None:
    lookups = table()
    assert lookups.start(WANTED, 0.0) == (STARTED, [])
    assert lookups.start(OTHER, 1.0) == (STARTED, [])
    assert lookups.node_joined(NODES[0], 2.0) == [*ask(WANTED, 0), *ask(OTHER, 0)]
    assert lookups.knows_nothing(OTHER, NODES[0], 2.0) == end(OTHER, NOT_FOUND)
    assert lookups.node_lost(NODES[0], 2.0) == end(WANTED, NOT_FOUND)
    third = identity(103)
    assert lookups.start(third, 2.0) == (STARTED, [])
    assert lookups.handle_timer(7.0) == end(third, NONE_ASKED)
    # It is not missing: none has said that it knows nothing.
    assert lookups.start(third, 7.0) == (STARTED, [])


def test_a_node_that_is_lost_says_nothing_any_more() -> None:
    lookups = table(3, max_asked=1)
    lookups.start(WANTED, 0.0)
    assert lookups.node_lost(NODES[2], 0.0) == []
    assert lookups.node_lost(NODES[0], 0.0) == ask(WANTED, 1)
    assert lookups.node_lost(NODES[1], 0.0) == end(WANTED, NOT_FOUND)


def test_threat_8_a_storm_to_one_identity_is_one_look_up() -> None:
    lookups = table(20)
    events = [lookups.start(WANTED, number / 10_000)[1] for number in range(10_000)]
    assert [each for each in events if each] == [ask(WANTED, *range(8))]
    figures = lookups.statistics()
    assert (figures.lookups, figures.asked) == (1, 8)
    assert dict(figures.outcomes)[UNDER_WAY] == 9_999


def test_threat_8_a_storm_to_many_identities_has_limits() -> None:
    lookups = table(1, max_lookups=3, max_missing=2)
    wanted = [identity(200 + number) for number in range(6)]
    outcomes = [lookups.start(each, 0.0)[0] for each in wanted]
    assert outcomes == [STARTED] * 3 + [LOOKUPS] * 3
    for each in wanted[:3]:
        assert lookups.knows_nothing(each, NODES[0], 0.0) == end(each, NOT_FOUND)
    assert lookups.statistics().missing == 2
    # The oldest of those that are missing was let go.
    assert [lookups.start(each, 0.0)[0] for each in wanted[:3]] == [STARTED, MISSING, MISSING]


def test_times_of_look_ups_that_have_ended_are_swept() -> None:
    lookups = table(1)
    lookups.start(OTHER, 0.0)
    for _ in range(10 * _SLACK):
        lookups.start(WANTED, 0.0)
        lookups.found(WANTED)
        assert len(lookups._times) <= 2 * 2 + _SLACK + 2
    assert lookups.get_timer() == 1.0
    assert lookups.handle_timer(1.0) == []
    assert lookups.handle_timer(5.0) == end(OTHER, TIMEOUT)


@pytest.mark.parametrize("name", ["max_lookups", "max_asked", "max_missing"])
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        table(**{name: 0})
