"""Messages for one consumer that are under way while a shorter path comes up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onward.protocol.dispatch import (
    RELEASED,
    ConsumerTarget,
    Delivery,
    DeliveryLimits,
    Dropped,
    DropReason,
    Hand,
    NameState,
    NodeTotals,
    Paths,
    RoutingPattern,
    Semantics,
    SendOn,
    Told,
    join_links,
    node_digest,
)
from onward.protocol.dispatch._recent_paths import RecentPaths

State = NameState[str]
LINE = "abcdef"
PATTERNS = [RoutingPattern.BALANCED, RoutingPattern.CLOSEST, RoutingPattern.DIRECT]


def paths(own: str, *more: str) -> Paths:
    """Make the paths of a line of six nodes with more links, each of its two letters."""
    states: dict[str, dict[str, int]] = {node: {} for node in LINE}
    for one, other in (*pairwise(LINE), *more):
        states[one][other] = states[other][one] = 1
    return Paths(join_links(states), own)


def node(own: str, pattern: RoutingPattern, consumers: str = "f") -> State:
    """Make the state of a name at a node of the line, as nodes with consumers are known."""
    totals = NodeTotals(DeliveryLimits(path_overlap=2.0))
    state = State(own, Semantics(pattern=pattern), lambda: b"a token.", totals)
    state.set_paths(paths(own), str, 0.0)
    state.set_nodes({each: 1 for each in consumers if each != own}, 0.0)
    if own in consumers:
        assert state.add_consumer(1, 9, 0.0) is None
    state.events()
    return state


def message(passed: str, *, settled: bool = True) -> Delivery[str]:
    """Make a message that has passed some nodes, from the first of them."""
    made = Delivery("m", 10, "link", (passed[0], b"instance", b"number.."), settled=settled)
    made.path = tuple(map(node_digest, passed))
    return made


def bound(state: State, made: Delivery[str], now: float) -> object:
    """Bind a message; return the link that it goes to, its consumer, or why it was dropped."""
    state.bind(made, now)
    for event in state.events():
        if isinstance(event, SendOn):
            return event.link
        if isinstance(event, Hand):
            return event.consumer
        if isinstance(event, Dropped):
            return event.reason
        if isinstance(event, Told):
            return event.outcome
    return None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_message_on_the_longer_path_is_not_too_far_for_a_while(pattern: RoutingPattern) -> None:
    state = node("f", pattern)
    state.set_paths(paths("f", "af"), str, 10.0)
    assert not state.is_near(5)  # it goes the full way, which knows of the paths before
    assert bound(state, message("abcde"), 11.0) == 1
    assert bound(state, message("abcde"), 12.0) is DropReason.TOO_FAR
    assert bound(state, message("abcde", settled=False), 12.0) == RELEASED
    assert bound(state, message("abcde"), 11.0) is DropReason.TOO_FAR  # that was is forgotten


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_message_goes_on_along_the_longer_path_for_a_while(
    pattern: RoutingPattern, settled: bool
) -> None:
    state = node("c", pattern)
    assert bound(state, message("ab"), 5.0) == "d"
    state.set_paths(paths("c", "af"), str, 10.0)
    assert bound(state, message("ab", settled=settled), 11.0) == "d"
    assert bound(state, message("bd"), 11.0) is DropReason.NO_CONSUMER  # from where it would go
    late = message("ab", settled=settled)
    assert bound(state, late, 12.0) == (DropReason.NO_CONSUMER if settled else RELEASED)


def test_the_path_before_is_that_of_the_nodes_that_have_consumers_now() -> None:
    state = node("c", RoutingPattern.BALANCED, "ef")
    state.set_paths(paths("c", "af"), str, 10.0)
    state.set_nodes({"f": 1}, 10.5)
    assert bound(state, message("ab"), 11.0) == "d"
    state.set_nodes({}, 10.5)
    assert bound(state, message("ab"), 11.0) is DropReason.NO_CONSUMER
    # It has entered at e, and the path before to f does not pass here.
    state.set_nodes({"f": 1}, 10.5)
    assert bound(state, message("ed"), 11.0) is DropReason.NO_CONSUMER


def test_what_a_consumer_here_has_released_does_not_go_along_the_path_before() -> None:
    state = node("c", RoutingPattern.BALANCED, "cf")
    state.set_paths(paths("c", "af"), str, 10.0)
    made = message("ab", settled=False)
    assert bound(state, made, 11.0) == 1
    state.disposition(b"a token.", RELEASED, ConsumerTarget(1), 11.0)
    assert [each.outcome for each in state.events() if isinstance(each, Told)] == [RELEASED]


def test_four_changes_are_remembered_for_their_time() -> None:
    recent = RecentPaths()
    assert (recent.radius, recent.greatest_radius(0.0), recent.before(0.0)) == (0, 0, ())
    made = [paths("a", "a" + other) for other in "bcdefb"]
    for at, each in enumerate(made):
        recent.change(each, at, 10.0)
        recent.change(each, at + 0.5, 10.0)  # they have not changed
    assert recent.before(5.0) == (made[4], made[3], made[2], made[1])
    assert recent.before(13.0) == (made[4], made[3])
    assert recent.before(15.0) == ()
    assert (recent.radius, recent.greatest_radius(15.0)) == (5, 5)
