"""What a relay spends on others stays within its limits."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    RateLimiter,
    RelayHoldings,
    RelayLoadLimits,
    RelayStatus,
    SigningKey,
)

NODES = [SigningKey(bytes((each,)) * 32).identity for each in range(1, 30)]
ONE, TWO, THREE = NODES[:3]
OK, OVER = RelayStatus.OK, RelayStatus.RESOURCE_LIMIT_EXCEEDED


def test_a_source_may_send_so_many_at_once_and_in_each_second() -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=2, burst=3))
    assert [limiter.spend(ONE, 10.0) for _ in range(5)] == [OK, OK, OK, OVER, OVER]
    assert limiter.spend(TWO, 10.0) is OK
    assert limiter.spend(ONE, 10.4) is OVER
    assert [limiter.spend(ONE, 10.5) for _ in range(2)] == [OK, OVER]
    assert [limiter.spend(ONE, 99.0) for _ in range(4)] == [OK, OK, OK, OVER]
    assert limiter.refused == 5


def test_a_new_source_waits_until_one_is_idle() -> None:
    limiter = RateLimiter(RelayLoadLimits(sources=2, idle=60.0))
    assert limiter.spend(ONE, 0.0) is limiter.spend(TWO, 1.0) is OK
    assert limiter.spend(THREE, 2.0) is OVER
    assert limiter.spend(ONE, 59.0) is OK
    assert limiter.spend(THREE, 60.9) is OVER
    assert limiter.spend(THREE, 61.0) is OK
    assert len(limiter) == 2
    assert limiter.spend(TWO, 61.0) is OVER


def test_a_source_that_is_idle_in_debt_is_not_forgotten() -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=1, burst=100, idle=1.0, sources=1))
    for _ in range(100):
        limiter.spend(ONE, 0.0)
    assert limiter.spend(TWO, 99.0) is OVER
    assert limiter.spend(TWO, 100.0) is OK


def test_few_sources_are_forgotten_at_once() -> None:
    limiter = RateLimiter()
    for node in NODES:
        limiter.spend(node, 0.0)
    limiter.spend(ONE, 1000.0)
    assert len(limiter) == len(NODES) - 16 + 1


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.1, 0.5, 3.0])), max_size=80))
def test_no_source_sends_more_than_its_rate(steps: list[tuple[int, float]]) -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=2, burst=3, sources=4, idle=1.0))
    now, sent = 0.0, list[tuple[int, float]]()
    for which, passed in steps:
        now += passed
        if limiter.spend(NODES[which], now) is OK:
            sent.append((which, now))
        assert len(limiter) <= 4
        for since in (at for each, at in sent if each == which):
            count = sum(each == which and at >= since for each, at in sent)
            assert count <= 3 + 2 * (now - since) + 1e-6


def test_messages_are_held_up_to_each_limit() -> None:
    holdings = RelayHoldings(
        RelayLoadLimits(held_messages=3, held_bytes=100, peer_messages=2, peer_bytes=60)
    )
    assert holdings.hold(ONE, 61) is OVER
    assert holdings.hold(ONE, 60) is OK
    assert holdings.hold(ONE, 1) is OVER
    assert holdings.hold(TWO, 41) is OVER
    assert holdings.hold(TWO, 1) is holdings.hold(TWO, 39) is OK
    assert holdings.hold(THREE, 0) is OVER
    assert holdings.held_for(TWO) == (2, 40)
    holdings.release(ONE, 60)
    assert holdings.hold(TWO, 0) is OVER
    assert holdings.hold(THREE, 60) is OK
    assert (holdings.messages, holdings.size, holdings.refused) == (3, 100, 5)
    holdings.release(TWO, 1)
    assert holdings.held_for(TWO) == (1, 39)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.booleans()), max_size=60))
def test_what_is_held_is_within_the_limits(steps: list[tuple[int, int, bool]]) -> None:
    limits = RelayLoadLimits(held_messages=5, held_bytes=90, peer_messages=3, peer_bytes=60)
    holdings, held = RelayHoldings(limits), list[tuple[int, int]]()
    for which, size, releases in steps:
        if releases and held:
            peer, released = held.pop(which % len(held))
            holdings.release(NODES[peer], released)
        elif holdings.hold(NODES[which], size) is OK:
            held.append((which, size))
        assert holdings.messages == len(held) <= 5
        assert holdings.size == sum(each for _, each in held) <= 90
        for peer in range(4):
            sizes = [each for other, each in held if other == peer]
            assert holdings.held_for(NODES[peer]) == (len(sizes), sum(sizes))
            assert len(sizes) <= 3
            assert sum(sizes) <= 60
