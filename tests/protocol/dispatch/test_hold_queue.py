"""Messages on hold: bounds, rounds with back-off, each target once a round, expiry."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ConsumerTarget,
    Delivery,
    DeliveryLimits,
    Hold,
    HoldQueue,
    NodeTotals,
    Retry,
)

ONE, TWO = ConsumerTarget(1), ConsumerTarget(2)


def queue(rounds: int = 0, messages: int = 3, size: int = 100) -> HoldQueue[str]:
    hold = Hold(messages=messages, size=size, age=60.0)
    return HoldQueue(Retry(rounds=rounds, first=1.0, longest=8.0, hold=hold))


def message(size: int = 10, until: float | None = None) -> Delivery[str]:
    return Delivery("m", size, "in", ("a", b"instance", b"12345678"), until=until)


def held(made: HoldQueue[str], now: float = 0.0, size: int = 10) -> Delivery[str]:
    put = message(size)
    assert made.put(put, now)
    return put


def test_messages_bytes_and_age_are_bounded() -> None:
    made = queue()
    held(made)
    held(made, size=80)
    assert not made.put(message(11), 0.0)
    held(made, size=10)
    assert not made.put(message(0), 0.0)
    assert not queue().put(message(1, until=5.0), 5.0)
    assert (len(made), made.size, made.refused) == (3, 100, 2)


def test_what_its_producer_settles_has_no_more_room_than_what_comes_settled() -> None:
    totals = NodeTotals(DeliveryLimits(max_settled_size=25))
    made = HoldQueue[str](Retry(hold=Hold(messages=9, size=900, age=60.0)), totals)
    first, second, third = (held(made) for _ in range(3))
    assert [made.became_settled(each) for each in (first, second)] == [True, True]
    assert not made.became_settled(third)
    assert (len(made), made.size, made.refused, totals.settled_size) == (2, 20, 1, 20)
    assert made.became_settled(third)  # it is not on hold any more


def test_rounds_begin_after_times_that_double() -> None:
    made = queue()
    one = held(made)
    times = list[float]()
    while (timer := made.get_timer()) is not None:
        begun, expired = made.due(timer)
        times.append(timer)
        assert begun + expired == [one]
    assert times == [1.0, 3.0, 7.0, 15.0, 23.0, 31.0, 39.0, 47.0, 55.0, 60.0]
    assert (made.expired, len(made)) == (1, 0)


def test_a_number_of_rounds_ends_the_hold() -> None:
    made = queue(rounds=2)
    one = held(made)
    assert made.due(0.9) == ([], [])
    assert made.due(1.0) == ([one], [])
    assert made.due(3.0) == ([one], [])
    assert made.due(7.0) == ([], [one])
    made.remove(one)


def test_the_time_of_a_message_ends_its_hold_before_its_age() -> None:
    made = queue()
    one = message(1, until=0.5)
    assert made.put(one, 0.0)
    assert made.get_timer() == 0.5
    assert made.due(0.5) == ([], [one])


def test_each_target_is_asked_once_in_a_round() -> None:
    made = queue()
    one = held(made)
    assert made.joined(ONE) == [one]
    one.tried.add(ONE)
    one.tries = 1
    assert made.joined(ONE) == []
    assert made.joined(TWO) == [one]
    made.due(1.0)
    assert made.joined(ONE) == [one]
    assert (one.tries, one.since, one.rounds) == (0, 1.0, 1)


def test_a_message_that_is_put_back_has_its_rounds_and_its_time() -> None:
    made = queue(messages=1)
    one = held(made)
    made.due(1.0)
    made.remove(one)
    assert made.get_timer() is None
    assert made.put(one, 2.0)
    assert made.get_timer() == 4.0
    made.remove(one)
    other = held(made, 3.0)
    assert not made.put(one, 4.0)
    made.remove(other)
    assert not made.put(one, 60.0)
    assert (made.refused, made.expired, len(made), made.size) == (2, 0, 0, 0)


def test_all_are_returned_when_the_hold_ends() -> None:
    made = queue()
    messages = [held(made), held(made)]
    assert made.clear() == messages
    assert made.get_timer() is None
    assert made.size == 0


def test_times_of_messages_that_have_gone_do_not_gather() -> None:
    made = queue()
    for _ in range(500):
        made.remove(held(made))
    assert len(made._times) < 100  # pyright: ignore[reportPrivateUsage]


@given(random=st.randoms(use_true_random=False))
def test_each_message_is_accounted_for(random: Random) -> None:
    made = queue(rounds=3)
    now, put, refused, taken = 0.0, 0, 0, list[Delivery[str]]()
    live: dict[Delivery[str], None] = {}
    for _ in range(60):
        now += random.random() * 3
        match random.randrange(4):
            case 0:
                put += 1
                new = message(random.randrange(60))
                if made.put(new, now):
                    live[new] = None
                else:
                    refused += 1
            case 1:
                begun, expired = made.due(now)
                for each in begun:
                    assert each in live
                    assert not each.tried
                for each in expired:
                    del live[each]
            case 2 if live:
                each = random.choice(list(live))
                each.tried.add(ONE)
                made.remove(each)
                del live[each]
                taken.append(each)
            case _ if taken:
                each = taken.pop()
                if made.put(each, now):
                    live[each] = None
                else:
                    refused += 1
            case _:
                pass
        assert len(made) == len(live) <= 3
        assert made.size == sum(each.size for each in live) <= 100
        assert made.refused == refused
        assert put == len(live) + refused + made.expired + len(taken)
