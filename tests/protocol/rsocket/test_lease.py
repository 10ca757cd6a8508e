"""Leases: what may be made under the newest of them, and nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onward.protocol.rsocket import MAX_REQUEST_N, LeaseBudget

SECONDS = st.floats(0, 1000, allow_nan=False).map(lambda value: round(value, 3))


def test_nothing_may_be_made_before_the_first_lease() -> None:
    budget = LeaseBudget()
    assert (budget.granted, budget.expires, budget.available(0)) == (0, 0, 0)
    assert not budget.take(0)
    assert not budget.take(-5)


def test_a_lease_is_used_up() -> None:
    budget = LeaseBudget()
    budget.grant(10, 2, now=100)
    assert [budget.take(100) for _ in range(3)] == [True, True, False]
    assert (budget.granted, budget.available(100)) == (2, 0)


def test_a_lease_ends_with_its_time() -> None:
    budget = LeaseBudget()
    budget.grant(10, 2, now=100)
    assert budget.expires == 110
    assert budget.available(109.999) == 2
    assert budget.available(110) == 0
    assert not budget.take(110)
    # Nothing was taken by asking too late.
    assert budget.take(109)


def test_a_new_lease_replaces_what_is_left() -> None:
    budget = LeaseBudget()
    budget.grant(10, 5, now=0)
    budget.grant(1, 2, now=5)
    assert (budget.available(5), budget.expires) == (2, 6)
    budget.grant(0, 2, now=5)
    assert budget.available(5) == 0
    budget.grant(5, 0, now=5)
    assert not budget.take(5)


@pytest.mark.parametrize(
    ("ttl", "requests", "text"),
    [
        (-1, 1, "seconds"),
        (math.nan, 1, "seconds"),
        (1, -1, "requests"),
        (1, MAX_REQUEST_N + 1, "0 to"),
    ],
)
def test_numbers_no_frame_can_say(ttl: float, requests: int, text: str) -> None:
    budget = LeaseBudget()
    budget.grant(10, 1, now=0)
    with pytest.raises(ValueError, match=text):
        budget.grant(ttl, requests, now=0)
    assert budget.available(0) == 1


@given(SECONDS, SECONDS, st.integers(0, 20), st.lists(SECONDS, max_size=30))
def test_no_more_are_made_than_allowed_and_none_too_late(
    ttl: float, now: float, requests: int, times: list[float]
) -> None:
    budget = LeaseBudget()
    budget.grant(ttl, requests, now)
    taken = [at for at in sorted(now + each for each in times) if budget.take(at)]
    in_time = sum(now + each < now + ttl for each in times)
    assert len(taken) == min(requests, in_time)
    assert all(at < now + ttl for at in taken)


class Leases(RuleBasedStateMachine):
    """A budget, and a list of the moments at which one more request may be made."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = LeaseBudget()
        self.now = 0.0
        self.model: list[float] = []  # one for each request left: when it lapses

    @rule(ttl=SECONDS, requests=st.integers(0, 5))
    def grant(self, ttl: float, requests: int) -> None:
        self.budget.grant(ttl, requests, self.now)
        self.model = [self.now + ttl] * requests

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        allowed = any(self.now < end for end in self.model)
        assert self.budget.take(self.now) is allowed
        if allowed:
            self.model.pop()

    @invariant()
    def the_same_is_left(self) -> None:
        assert self.budget.available(self.now) == sum(self.now < end for end in self.model)


TestLeases = Leases.TestCase
