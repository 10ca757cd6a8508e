"""Messages on hold: bounds, rounds with back-off, each target once a round, expiry."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from onward.protocol.dispatch import ConsumerTarget, Held, HoldQueue

ONE, TWO = ConsumerTarget(1), ConsumerTarget(2)


def queue(rounds: int = 0, messages: int = 3, size: int = 100) -> HoldQueue[str]:
    return HoldQueue(messages=messages, size=size, age=60.0, rounds=rounds, first=1.0, longest=8.0)


def held(made: HoldQueue[str], text: str = "a", now: float = 0.0, size: int = 10) -> Held[str]:
    put = made.put(text, size, now)
    assert put is not None
    return put


def test_messages_bytes_and_age_are_bounded() -> None:
    made = queue()
    held(made)
    held(made, size=80)
    assert made.put("b", 11, 0.0) is None
    held(made, size=10)
    assert made.put("c", 0, 0.0) is None
    assert queue().put("d", 1, 5.0, until=5.0) is None
    figures = made.statistics()
    assert (figures.held, figures.size, figures.refused) == (3, 100, 2)


def test_rounds_begin_after_times_that_double() -> None:
    made = queue()
    message = held(made)
    times = list[float]()
    while (timer := made.get_timer()) is not None:
        begun, expired = made.due(timer)
        times.append(timer)
        assert begun + expired == [message]
    assert times == [1.0, 3.0, 7.0, 15.0, 23.0, 31.0, 39.0, 47.0, 55.0, 60.0]
    assert made.statistics().expired == 1
    assert made.statistics().held == 0


def test_a_number_of_rounds_ends_the_hold() -> None:
    made = queue(rounds=2)
    message = held(made)
    assert made.due(0.9) == ([], [])
    assert made.due(1.0) == ([message], [])
    assert made.due(3.0) == ([message], [])
    assert made.due(7.0) == ([], [message])
    assert not made.asked(message, ONE)


def test_the_time_of_a_message_ends_its_hold_before_its_age() -> None:
    made = queue()
    message = made.put("a", 1, 0.0, until=0.5)
    assert made.get_timer() == 0.5
    assert made.due(0.5) == ([], [message])


def test_each_target_is_asked_once_in_a_round() -> None:
    made = queue()
    message = held(made)
    assert made.target_joined(ONE) == [message]
    assert made.asked(message, ONE)
    assert not made.asked(message, ONE)
    assert made.target_joined(ONE) == []
    assert made.target_joined(TWO) == [message]
    made.due(1.0)
    assert made.asked(message, ONE)


def test_a_message_that_a_target_takes_leaves_and_can_be_put_back() -> None:
    made = queue(messages=1)
    message = held(made)
    made.due(1.0)
    made.asked(message, ONE)
    made.taken(message)
    made.taken(message)
    assert made.get_timer() is None
    assert made.statistics().delivered == 1
    assert made.put_back(message, 2.0)
    assert made.statistics().delivered == 0
    assert message.tried == {ONE}
    assert made.get_timer() == 4.0
    made.taken(message)
    other = held(made, "b", 3.0)
    assert not made.put_back(message, 4.0)
    made.taken(other)
    assert not made.put_back(other, 63.0)
    figures = made.statistics()
    assert (figures.refused, figures.expired, figures.held, figures.size) == (1, 1, 0, 0)


def test_all_are_returned_when_the_hold_ends() -> None:
    made = queue()
    messages = [held(made), held(made, "b")]
    assert made.clear() == messages
    assert made.get_timer() is None
    assert made.statistics().size == 0


def test_times_of_messages_that_have_gone_do_not_gather() -> None:
    made = queue()
    for _ in range(500):
        made.taken(held(made))
    assert len(made._times) < 100  # pyright: ignore[reportPrivateUsage]


@given(random=st.randoms(use_true_random=False))
def test_each_message_is_accounted_for(random: Random) -> None:
    made = queue(rounds=3)
    now, put, refused, taken = 0.0, 0, 0, list[Held[str]]()
    live: dict[Held[str], None] = {}
    ended = 0
    for _ in range(60):
        now += random.random() * 3
        match random.randrange(4):
            case 0:
                put += 1
                new = made.put("m", random.randrange(60), now)
                if new is None:
                    refused += 1
                else:
                    live[new] = None
            case 1:
                begun, expired = made.due(now)
                for each in begun:
                    assert each in live
                    assert not each.tried
                for each in expired:
                    del live[each]
                ended += len(expired)
            case 2 if live:
                each = random.choice(list(live))
                if made.asked(each, ONE):
                    made.taken(each)
                    del live[each]
                    taken.append(each)
            case _ if taken:
                each = taken.pop()
                if made.put_back(each, now):
                    live[each] = None
                else:
                    ended += 1
            case _:
                pass
        figures = made.statistics()
        assert figures.held == len(live) <= 3
        assert figures.size == sum(each.size for each in live) <= 100
        assert put == len(live) + refused + ended + len(taken)
