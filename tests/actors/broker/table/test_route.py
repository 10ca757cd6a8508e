"""What is counted for a destination."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.actors.broker import BrokerRoute, Destination, Exchange
from onward.actors.broker.table._route import weight_of
from onward.protocol import address

DESTINATION = Destination(UUID(int=1), "a", (), address("to"), link=True, peer="p")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def route(clock: Clock, decay: float = 10.0) -> BrokerRoute:
    return BrokerRoute(DESTINATION, 0.0, clock, decay=decay)


def test_a_slow_answer_counts_at_once_and_a_fast_one_in_time() -> None:
    clock = Clock()
    measured = route(clock)
    assert measured.latency == 0.0
    measured.ended(0.1)
    assert measured.latency == 0.1
    measured.ended(0.5)
    assert measured.latency == 0.5
    measured.ended(0.1)
    assert measured.latency == 0.5  # no time has passed
    clock.now += 10
    measured.ended(0.1)
    assert measured.latency == pytest.approx(0.1 + 0.4 / 2.71828, rel=1e-3)
    clock.now += 1000
    measured.ended(0.1)
    assert measured.latency == pytest.approx(0.1)


def test_answers_between_two_looks_count_as_one() -> None:
    clock = Clock()
    measured = route(clock)
    for seconds in (0.2, 0.4, 0.3):
        measured.ended(seconds)
    assert measured.latency == 0.4
    clock.now += 1000
    measured.ended(0.1)
    measured.ended(0.3)
    assert measured.latency == pytest.approx(0.2)


def test_what_says_nothing_of_the_destination_does_not_count() -> None:
    measured = route(Clock())
    measured.ended(0.0)
    measured.ended(-1.0)
    assert measured.latency == 0.0


def test_a_request_counts_when_it_is_sent_and_when_it_ends() -> None:
    counted = route(Clock())
    exchange = Exchange()
    assert counted.choose(None) == counted.choose(exchange) == address("to")
    assert (counted.requests, counted.outstanding) == (2, 1)
    assert exchange.route is counted
    row = counted.row()
    assert (row.requests, row.outstanding, row.latency, row.peer) == (2, 1, 0.0, "p")
    counted.ended(0.5)
    assert (counted.requests, counted.outstanding, counted.latency) == (2, 0, 0.5)


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        (None, 1.0),
        ("2", 2.0),
        ("0", 0.0),
        ("0.25", 0.25),
        ("", 1.0),
        ("-1", 1.0),
        ("nan", 1.0),
        ("inf", 1.0),
        ("1e9", 1.0),
        ("٣", 1.0),
        ("9999999999", 1.0),
    ],
)
def test_the_weight_that_a_tag_says(text: str | None, weight: float) -> None:
    assert weight_of(text) == weight
