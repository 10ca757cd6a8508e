"""The outcome of a delivery out of the outcomes of its copies: the whole matrix, and properties."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RELEASED,
    FanOut,
    Modified,
    Outcome,
    Rejected,
    Tally,
)

REJECTED = Rejected("amqp:not-allowed", "no")
KINDS: dict[str, Outcome] = {
    "acc": ACCEPTED,
    "rej": REJECTED,
    "mod": MODIFIED,
    "rel": RELEASED,
}

PAIRS = {
    "acc acc": "acc acc acc",
    "acc rej": "rej rej rej",
    "acc mod": "acc mod mod",
    "acc rel": "acc mod mod",
    "rej rej": "rej rej rej",
    "rej mod": "rej rej rej",
    "rej rel": "rej rej rej",
    "mod mod": "mod mod mod",
    "mod rel": "mod mod mod",
    "rel rel": "rel rel rel",
}
"""Of each two outcomes the one of the delivery: for any, for all, and for two acceptances."""


def ended(outcomes: Sequence[Outcome], accepts: int) -> Outcome:
    """Return the outcome of a delivery to consumers that tell these, and check it is told once."""
    fan_out = FanOut(len(outcomes), accepts=accepts)
    told = [each for each in map(fan_out.consumer_ended, outcomes) if each is not None]
    assert told == [fan_out.outcome]
    assert fan_out.open == 0
    return told[0]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("accepts", "column"), [(1, 0), (ALL, 1), (2, 2)])
@pytest.mark.parametrize("pair", PAIRS)
def test_two_outcomes_are_one(pair: str, accepts: int, column: int, order: int) -> None:
    outcomes = [KINDS[name] for name in pair.split()][::order]
    assert ended(outcomes, accepts) == KINDS[PAIRS[pair].split()[column]]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("accepts", [1, ALL])
def test_a_single_copy_has_the_outcome_of_the_delivery(name: str, accepts: int) -> None:
    assert ended([KINDS[name]], accepts) == KINDS[name]


@pytest.mark.parametrize("order", list(permutations(("acc", "rej", "rel"))))
def test_three_nodes_reject_with_one_that_rejects(order: tuple[str, ...]) -> None:
    fan_out = FanOut(0, links=3)
    for name in order:
        fan_out.link_ended(KINDS[name])
    assert fan_out.outcome == REJECTED


def test_any_waits_for_all_copies_unless_one_rejects() -> None:
    fan_out = FanOut(3)
    assert fan_out.consumer_ended(ACCEPTED) is None
    assert fan_out.consumer_ended(RELEASED) is None
    assert fan_out.consumer_ended(ACCEPTED) == ACCEPTED
    early = FanOut(3)
    assert early.consumer_ended(REJECTED) == REJECTED
    assert early.consumer_ended(ACCEPTED) is None
    assert early.outcome == REJECTED
    assert early.open == 1


def test_a_number_of_acceptances_decides_at_once() -> None:
    fan_out = FanOut(4, accepts=2)
    assert fan_out.consumer_ended(REJECTED) is None
    assert fan_out.consumer_ended(ACCEPTED) is None
    assert fan_out.consumer_ended(ACCEPTED) == ACCEPTED
    assert fan_out.consumer_ended(REJECTED) is None
    assert fan_out.tally == Tally(accepted=2, rejected=2)


def test_acceptances_out_of_reach_decide_at_once() -> None:
    fan_out = FanOut(3, accepts=3)
    assert fan_out.consumer_ended(ACCEPTED) is None
    assert fan_out.consumer_ended(REJECTED) == REJECTED


def test_a_link_may_stand_for_as_many_consumers_as_are_asked_for() -> None:
    fan_out = FanOut(1, links=1, accepts=3)
    assert fan_out.consumer_ended(REJECTED) is None
    assert fan_out.link_ended(ACCEPTED, Tally(accepted=3)) == ACCEPTED


def test_the_numbers_behind_a_link_count() -> None:
    all_of = FanOut(1, links=1, accepts=ALL)
    all_of.link_ended(ACCEPTED, Tally(accepted=2, released=1))
    assert all_of.consumer_ended(ACCEPTED) == MODIFIED
    empty = FanOut(0, links=1, accepts=ALL)
    assert empty.link_ended(ACCEPTED, Tally()) == ACCEPTED


def test_the_first_condition_is_told_and_that_of_modified_kept() -> None:
    first, second = Rejected("a"), Rejected("b")
    fan_out = FanOut(2)
    assert fan_out.consumer_ended(first) == first
    assert fan_out.consumer_ended(second) is None
    assert fan_out.outcome == first
    never = Modified(failed=False, undeliverable_here=True)
    assert ended([never, RELEASED], 1) == never
    assert FanOut(0, links=1).link_ended(ACCEPTED, Tally(rejected=1)) == Rejected()


@pytest.mark.parametrize(("consumers", "links", "accepts"), [(0, 0, 1), (-1, 2, 1), (1, 0, -1)])
def test_a_fan_out_without_copies_is_refused(consumers: int, links: int, accepts: int) -> None:
    with pytest.raises(ValueError, match="fan-out"):
        FanOut(consumers, links, accepts)


def test_more_outcomes_than_copies_are_a_fault_of_the_caller() -> None:
    fan_out = FanOut(1)
    fan_out.consumer_ended(ACCEPTED)
    with pytest.raises(AssertionError, match="more outcomes"):
        fan_out.consumer_ended(ACCEPTED)


@given(
    outcomes=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5),
    accepts=st.integers(0, 5),
)
def test_the_order_of_outcomes_changes_nothing(outcomes: list[str], accepts: int) -> None:
    ends = {type(ended([KINDS[each] for each in order], accepts)) for order in _orders(outcomes)}
    assert len(ends) == 1


def _orders(outcomes: list[str]) -> list[tuple[str, ...]]:
    return sorted(set(permutations(outcomes)))[:24]


@pytest.mark.parametrize("accepts", [1, 2, 3, ALL])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_an_early_outcome_is_that_of_every_continuation(copies: int, accepts: int) -> None:
    for outcomes in product(KINDS.values(), repeat=copies):
        last = ended(outcomes, accepts)
        for known in range(1, copies):
            fan_out = FanOut(copies, accepts=accepts)
            for each in outcomes[:known]:
                fan_out.consumer_ended(each)
            if fan_out.outcome is not None:
                assert type(fan_out.outcome) is type(last)
                continue
            # It is not late either: two continuations differ.
            ends = {
                type(ended((*outcomes[:known], *rest), accepts))
                for rest in product(KINDS.values(), repeat=copies - known)
            }
            assert len(ends) > 1


@pytest.mark.parametrize("name", KINDS)
def test_released_is_only_what_was_never_accepted(name: str) -> None:
    for accepts in (1, 2, 3, ALL):
        assert ended([ACCEPTED, KINDS[name]], accepts) != RELEASED
