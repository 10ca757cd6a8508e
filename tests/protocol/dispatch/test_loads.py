"""The loads of the consumers and links of a name: what is bound, what is settled, and how fast."""

from __future__ import annotations

from onward.protocol.dispatch import ConsumerTarget, LinkTarget, Loads

ONE, AWAY = ConsumerTarget(1), LinkTarget("x")


def test_an_average_moves_by_an_eighth_and_a_loss_does_not_count() -> None:
    loads = Loads(by_time=True)
    loads.add_consumer(1, 250)
    for seconds in (1.0, None, 9.0):
        loads.bound(ONE)
        loads.settled(ONE, seconds)
    assert loads.loads[1].average == 2.0
    assert loads.load(ONE) == 0


def test_what_is_settled_twice_or_by_none_counts_for_nothing() -> None:
    loads = Loads(5)
    loads.settled(ONE)
    loads.settled(AWAY)
    loads.bound(ONE)  # it has gone
    assert (loads.load(ONE), loads.load(AWAY)) == (0, 0)
    loads.bound(AWAY)
    assert (loads.load(AWAY), loads.link_load("x").window) == (1, 5)
    loads.settled(AWAY)
    loads.settled(AWAY)
    assert loads.load(AWAY) == 0


def test_a_consumer_that_is_back_has_the_load_that_it_had() -> None:
    loads = Loads()
    loads.add_consumer(1, 5, 3)
    loads.add_consumer(2, 5)
    assert (loads.load(ONE), loads.consumers) == (3, (1, 2))
    loads.remove_consumer(1)
    loads.remove_consumer(1)
    assert (loads.load(ONE), loads.consumers) == (0, (2,))
