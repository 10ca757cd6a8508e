from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, inf, nan
from random import Random as Generator

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    BALANCERS,
    Balancer,
    LeastOutstanding,
    PeakEwma,
    Random,
    RoundRobin,
    Weighted,
    method_name,
    peak_ewma,
)


@dataclass
class Route:
    route_id: bytes
    outstanding: int = 0
    latency: float = 0.0
    weight: float = 1.0


def routes(count: int) -> list[Route]:
    return [Route(number.to_bytes(16)) for number in range(count)]


def weighing(*weights: float) -> list[Route]:
    return [Route(number.to_bytes(16), weight=weight) for number, weight in enumerate(weights)]


def said(*numbers: float) -> Callable[[], float]:
    given: Iterator[float] = iter(numbers)
    return lambda: next(given)


def never() -> float:
    raise AssertionError("this method needs no random numbers")


RANDOM = st.floats(0, 1, exclude_max=True)
ROUTE = st.builds(
    Route,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 1000),
    st.one_of(st.just(0.0), st.floats(1e-6, 100)),
    st.floats(allow_nan=True),
)
ROUTES = st.lists(ROUTE, min_size=1, max_size=12, unique_by=lambda route: route.route_id)


@pytest.mark.parametrize("name", BALANCERS)
def test_names_are_in_normal_form(name: str) -> None:
    assert method_name(name) == name
    assert isinstance(BALANCERS[name](), Balancer)


@pytest.mark.parametrize("name", BALANCERS)
@given(st.lists(ROUTES, min_size=1, max_size=8), st.integers(0, 2**32))
def test_always_picks_one_of_those_there_are(
    name: str, rounds: list[list[Route]], seed: int
) -> None:
    balancer, random = BALANCERS[name](), Generator(seed).random
    for now, candidates in enumerate(rounds):
        for _ in range(3):
            assert 0 <= balancer.pick(candidates, float(now), random) < len(candidates)


def test_round_robin_takes_turns() -> None:
    balancer = RoundRobin()
    assert [balancer.pick(routes(3), 0.0, never) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert balancer.pick(routes(2), 0.0, never) == 1
    assert RoundRobin().pick(routes(2), 0.0, never) == 0


def test_random_is_as_likely_as_the_source() -> None:
    numbers = (0.0, 0.249, 0.25, 0.5, 0.999)
    balancer = Random()
    assert [balancer.pick(routes(4), 0.0, said(each)) for each in numbers] == [0, 0, 1, 2, 3]
    assert balancer.pick(routes(1), 0.0, said(0.999)) == 0


@given(ROUTES.filter(lambda given: len(given) > 1), RANDOM, RANDOM)
def test_never_the_worse_of_two(candidates: list[Route], one: float, other: float) -> None:
    count = len(candidates)
    first, second = int(one * count), int(other * (count - 1))
    second += second >= first
    assert first != second
    drawn = [candidates[first], candidates[second]]
    least = candidates[LeastOutstanding().pick(candidates, 0.0, said(one, other))]
    assert any(least is each for each in drawn)
    assert least.outstanding == min(each.outstanding for each in drawn)
    fastest = candidates[PeakEwma().pick(candidates, 0.0, said(one, other))]
    assert any(fastest is each for each in drawn)
    if all(each.latency for each in drawn):
        assert fastest.latency * (fastest.outstanding + 1) == min(
            each.latency * (each.outstanding + 1) for each in drawn
        )


@pytest.mark.parametrize("balancer", [LeastOutstanding(), PeakEwma()])
def test_every_pair_is_drawn_equally_often(balancer: Balancer) -> None:
    # Of three, of which each is better than those before it: 0 is never, 2 always the better.
    candidates = routes(3)
    for number, route in enumerate(candidates):
        route.outstanding, route.latency = 2 - number, 0.1
    grid = [number / 6 + 0.01 for number in range(6)]
    found = Counter(
        balancer.pick(candidates, 0.0, said(one, other)) for one in grid for other in grid
    )
    assert found == {1: 12, 2: 24}


def test_unknown_latency_is_tried_first() -> None:
    candidates = routes(2)
    candidates[0].latency = 0.001
    for one in (0.0, 0.9):
        assert PeakEwma().pick(candidates, 0.0, said(one, 0.0)) == 1


def test_unknown_latency_is_taken_to_be_the_others() -> None:
    candidates = routes(2)
    candidates[0].latency, candidates[1].outstanding = 0.001, 1
    for one in (0.0, 0.9):
        assert PeakEwma().pick(candidates, 0.0, said(one, 0.0)) == 0
    candidates[0].outstanding = 2
    for one in (0.0, 0.9):
        assert PeakEwma().pick(candidates, 0.0, said(one, 0.0)) == 1
    candidates[0].latency = 0.0
    for one in (0.0, 0.9):
        assert PeakEwma().pick(candidates, 0.0, said(one, 0.0)) == 1


def test_what_was_slow_once_is_tried_again() -> None:
    balancer, candidates = PeakEwma(decay=10.0), routes(2)
    candidates[0].latency, candidates[1].latency = 0.1, 5.0

    def pick(now: float) -> int:
        candidates[0].latency += 1e-9  # answers all the time
        return balancer.pick(candidates, now, said(0.0, 0.0))

    assert pick(0.0) == pick(30.0) == 0
    assert pick(45.0) == 1
    # A new measurement counts in full again; for ever later it still is known.
    candidates[1].latency = 4.0
    assert pick(46.0) == 0
    assert pick(1e9) == 1
    candidates[1].outstanding = 10**9
    assert pick(1e9) == 0


def test_remembers_only_who_is_there() -> None:
    balancer = PeakEwma()
    for start in range(0, 1000, 2):
        pair = [Route((start + each).to_bytes(16), latency=1.0) for each in range(2)]
        balancer.pick(pair, 0.0, said(0.0, 0.0))
        assert len(balancer._seen) <= 4


@pytest.mark.parametrize("decay", [0.0, -1.0, nan])
def test_a_decay_is_above_zero(decay: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        PeakEwma(decay)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any), st.integers(1, 3))
def test_shares_are_exact_over_a_cycle(weights: list[int], cycles: int) -> None:
    balancer, candidates = Weighted(), weighing(*weights)
    for _ in range(cycles):
        found = Counter(balancer.pick(candidates, 0.0, never) for _ in range(sum(weights)))
        assert [found[index] for index in range(len(weights))] == weights


def test_turns_are_spread_evenly() -> None:
    balancer, candidates = Weighted(), weighing(5, 1, 1)
    found = [balancer.pick(candidates, 0.0, never) for _ in range(7)]
    assert found == [0, 0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("weight", [0.0, -1.0, nan, -inf])
def test_what_weighs_nothing_gets_nothing(weight: float) -> None:
    balancer, candidates = Weighted(), weighing(weight, 2, 1)
    found = Counter(balancer.pick(candidates, 0.0, never) for _ in range(30))
    assert found == {1: 20, 2: 10}


def test_in_turn_where_all_weigh_nothing() -> None:
    balancer, candidates = Weighted(), weighing(0, nan, -1)
    assert [balancer.pick(candidates, 0.0, never) for _ in range(4)] == [0, 1, 2, 0]


def test_a_weight_without_end_is_a_great_one() -> None:
    balancer, candidates = Weighted(), weighing(inf, 1e300, 1)
    found = Counter(balancer.pick(candidates, 0.0, never) for _ in range(100))
    assert found == {0: 50, 1: 50}


def test_the_credit_of_who_has_left_is_forgotten() -> None:
    balancer = Weighted()
    for start in range(500):
        pair = [Route((start + each).to_bytes(16)) for each in range(2)]
        balancer.pick(pair, 0.0, never)
        assert len(balancer._credit) <= 2


@pytest.mark.parametrize(
    ("average", "sample", "elapsed", "decay", "result"),
    [
        (0.0, 0.2, 0.0, 10.0, 0.2),
        (0.1, 0.2, 0.0, 10.0, 0.2),
        (0.2, 0.1, 0.0, 10.0, 0.2),
        (0.2, 0.1, 10.0, 10.0, 0.1 + 0.1 * exp(-1)),
        (0.2, 0.1, 1e9, 10.0, 0.1),
        (0.2, 0.1, -5.0, 10.0, 0.2),
        (0.2, 0.1, 5.0, 0.0, 0.1),
        (0.2, 0.0, 5.0, 10.0, 0.2),
        (0.2, -1.0, 5.0, 10.0, 0.2),
    ],
)
def test_averages_latencies(
    average: float, sample: float, elapsed: float, decay: float, result: float
) -> None:
    assert peak_ewma(average, sample, elapsed, decay) == pytest.approx(result)


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0, 1e6), st.floats(1e-3, 1e3))
def test_an_average_is_between_what_it_is_made_of(
    average: float, sample: float, elapsed: float, decay: float
) -> None:
    found = peak_ewma(average, sample, elapsed, decay)
    assert found >= sample * (1 - 1e-9)
    assert found <= max(average, sample) * (1 + 1e-9)
