"""The credit of producers: each row of the matrix, and the window that is always whole."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import NOT_FOUND, RELEASED, CreditChange, ProducerWindows

W = 250


def give(credit: int, producer: int = 1) -> CreditChange:
    return CreditChange(producer, credit, drain=False)


DRAIN = CreditChange(1, 0, drain=True)


def test_a_producer_without_a_consumer_has_no_credit_until_one_comes() -> None:
    windows = ProducerWindows()
    assert windows.add(1, W) == []
    assert windows.set_paths(1) == [give(W)]
    assert windows.credit(1) == W
    assert windows.set_paths(2) == []
    assert windows.add(2, W) == [give(W, 2)]
    assert windows.paths == 2


def test_credit_comes_back_when_a_delivery_is_settled_or_was_pre_settled() -> None:
    windows = ProducerWindows()
    windows.set_paths(1)
    windows.add(1, W)
    assert windows.sent(1, settled=False) == []
    assert windows.credit(1) == W - 1
    assert windows.settled(1) == [give(1)]
    assert windows.sent(1, settled=True) == [give(1)]


def test_an_orphaned_producer_is_drained_and_gets_its_window_when_a_consumer_is_back() -> None:
    windows = ProducerWindows()
    windows.set_paths(1)
    windows.add(1, W)
    windows.sent(1, settled=False)
    windows.settled(1)
    assert windows.set_paths(0) == []
    assert windows.credit(1) == W  # credit that was given is not revoked
    windows.sent(1, settled=False)
    assert windows.unroutable(1, settled=False) == (RELEASED, [DRAIN])
    windows.sent(1, settled=False)
    assert windows.unroutable(1, settled=False) == (RELEASED, [])  # once is enough
    assert windows.drained(1) == []
    assert windows.credit(1) == 0
    assert windows.set_paths(1) == [give(W)]


def test_a_consumer_that_is_back_early_takes_the_drain_back() -> None:
    windows = ProducerWindows()
    windows.set_paths(1)
    windows.add(1, W)
    windows.set_paths(0)
    windows.sent(1, settled=False)
    windows.unroutable(1, settled=False)
    assert windows.set_paths(1) == [give(1)]
    assert windows.drained(1) == [give(W)]


@pytest.mark.parametrize("paths", [0, 1], ids=["no consumer", "no next hop"])
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "pre-settled"])
@pytest.mark.parametrize("unavailable", [False, True], ids=["provisioned", "unavailable"])
def test_a_message_that_can_go_nowhere(
    paths: int, anonymous: bool, settled: bool, unavailable: bool
) -> None:
    windows = ProducerWindows()
    windows.set_paths(1)
    windows.add(1, W, anonymous=anonymous)
    windows.set_paths(paths)
    before = windows.sent(1, settled=settled)
    outcome, changes = windows.unroutable(1, settled=settled, unavailable=unavailable)
    assert outcome == (None if settled else NOT_FOUND if unavailable else RELEASED)
    assert windows.dropped == settled
    if anonymous or paths:
        # The credit is returned, and there is no drain.
        assert [*(before or []), *changes] == [give(1)]
        assert windows.credit(1) == W
    else:
        assert [*(before or []), *changes] == [DRAIN]
        assert windows.credit(1) == W - 1


def test_an_anonymous_producer_and_the_gate_open_always_have_a_window() -> None:
    windows = ProducerWindows()
    assert windows.add(1, W, anonymous=True) == [give(W)]
    assert windows.set_paths(1) == []
    assert ProducerWindows(always=True).add(1, W) == [give(W)]


def test_a_message_beyond_the_credit_is_refused_and_counted() -> None:
    windows = ProducerWindows()
    windows.add(1, 1)
    assert windows.sent(1, settled=False) is None
    windows.set_paths(1)
    windows.sent(1, settled=False)
    assert windows.sent(1, settled=True) is None
    assert windows.refused == 2
    windows.remove(1)
    assert windows.settled(1) == []


def test_more_settlements_than_deliveries_are_a_fault_of_the_caller() -> None:
    windows = ProducerWindows()
    windows.add(1, 1)
    with pytest.raises(AssertionError, match="more settlements"):
        windows.settled(1)


def test_the_gate_credit_shares_what_consumers_give() -> None:
    windows = ProducerWindows(by_credit=True)
    assert windows.set_paths(1, 0) == []
    assert windows.add(1, W) == []
    assert windows.add(2, W) == []
    assert windows.set_paths(1, 7) == [give(4), give(3, 2)]
    assert windows.set_paths(1, 7) == []
    assert windows.remove(1) == [give(4, 2)]
    assert windows.add(3, W, anonymous=True) == [give(W, 3)]
    assert windows.remove(3) == []
    assert windows.set_paths(2, 1000) == [give(W - 7, 2)]


def test_the_gate_credit_gives_no_credit_twice() -> None:
    windows = ProducerWindows(by_credit=True)
    windows.set_paths(1, 1)
    assert windows.add(1, W) == [give(1)]
    # The message is under way to the consumer and uses its credit: none is left for the next one.
    assert windows.sent(1, settled=True) == []
    assert windows.set_paths(1, 0) == []
    assert windows.set_paths(1, 1) == [give(1)]


def test_another_window_and_gate_apply_to_the_producers_that_there_are() -> None:
    windows = ProducerWindows()
    windows.set_paths(1)
    windows.add(1, 10)
    windows.add(2, 10, anonymous=True)
    windows.sent(1, settled=False)
    assert windows.configure(4) == [give(-6), give(-6, 2)]
    assert (windows.credit(1), windows.credit(2), len(windows), 2 in windows) == (3, 4, 2, True)
    assert windows.configure(6) == [give(2), give(2, 2)]
    for _ in range(5):
        windows.sent(1, settled=False)
    assert windows.configure(3) == [give(-3, 2)]
    assert windows.settled(1) == []  # more are unsettled than the window has
    assert windows.configure(10, always=True) == [give(5), give(7, 2)]
    assert windows.configure(10, by_credit=True) == []


@given(random=st.randoms(use_true_random=False), by_credit=st.booleans())
def test_a_window_is_whole_whatever_happens(random: Random, by_credit: bool) -> None:
    windows = ProducerWindows(by_credit=by_credit)
    told, unsettled, draining = {1: 0, 2: 0}, {1: 0, 2: 0}, {1: False, 2: False}

    def handle(changes: list[CreditChange]) -> None:
        for change in changes:
            assert change.credit >= 0
            told[change.producer] += change.credit
            draining[change.producer] = change.drain

    allowed = 0
    handle(windows.add(1, 5))
    handle(windows.add(2, 5))
    for _ in range(60):
        producer = random.choice([1, 2])
        match random.randrange(5):
            case 0:
                allowed = random.randrange(12)
                handle(windows.set_paths(random.choice([0, 1]), allowed))
            case 1 if told[producer]:
                told[producer] -= 1
                settled = random.random() < 0.5
                handle(windows.sent(producer, settled=settled) or [])
                if not windows.paths:
                    handle(windows.unroutable(producer, settled=settled)[1])
                elif not settled:
                    unsettled[producer] += 1
            case 2 if unsettled[producer]:
                unsettled[producer] -= 1
                handle(windows.settled(producer))
            case 3 if draining[producer]:
                told[producer] = 0
                handle(windows.drained(producer))
            case _:
                assert told[producer] or windows.sent(producer, settled=False) is None
        for each in (1, 2):
            assert windows.credit(each) == told[each]
            assert told[each] + unsettled[each] <= 5
            if windows.paths and not by_credit:
                assert told[each] + unsettled[each] == 5
                assert not draining[each]
