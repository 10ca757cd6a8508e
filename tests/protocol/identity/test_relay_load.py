"""What a relay spends on others stays within its limits."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    HoldingRefusal as Refusal,
    Identity,
    RateLimiter,
    RelayHoldings,
    RelayLoadLimits,
    RelayStatus,
    SigningKey,
)

NODES = [SigningKey(bytes((each,)) * 32).identity for each in range(1, 30)]
ONE, TWO, THREE = NODES[:3]
FULL = Refusal
OK, OVER = RelayStatus.OK, RelayStatus.RESOURCE_LIMIT_EXCEEDED


def test_a_source_may_send_so_many_at_once_and_in_each_second() -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=2, burst=3))
    assert [limiter.spend(ONE, 10.0) for _ in range(5)] == [OK, OK, OK, OVER, OVER]
    assert limiter.spend(TWO, 10.0) is OK
    assert limiter.spend(ONE, 10.4) is OVER
    assert [limiter.spend(ONE, 10.5) for _ in range(2)] == [OK, OVER]
    assert [limiter.spend(ONE, 99.0) for _ in range(4)] == [OK, OK, OK, OVER]
    assert limiter.refused == 5


def test_a_new_source_waits_until_one_may_send_as_one_that_never_sent() -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=1, burst=100, sources=2))
    for _ in range(100):
        limiter.spend(ONE, 0.0)
    assert limiter.spend(TWO, 1.0) is OK
    assert limiter.spend(THREE, 1.9) is OVER
    assert limiter.spend(THREE, 2.0) is OK
    assert limiter.spend(THREE, 2.0) is OK
    assert limiter.spend(TWO, 3.0) is OVER  # the second of these two is in the way
    assert limiter.spend(TWO, 4.0) is OK
    assert len(limiter) == 2
    assert limiter.spend(THREE, 4.0) is OVER
    assert limiter.spend(THREE, 100.0) is OK
    assert len(limiter) == 1


def test_sources_that_send_once_keep_no_other_one_out_for_longer_than_a_message() -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=1, burst=16, sources=20))
    for number in range(1000):
        new = Identity(bytes((1,)) + number.to_bytes(32, "big"))
        assert limiter.spend(new, number / 20) is OK
    assert limiter.spend(ONE, 50.0) is OK
    assert len(limiter) == 20


def test_few_sources_are_forgotten_at_once() -> None:
    limiter = RateLimiter()
    for node in NODES[1:]:
        limiter.spend(node, 0.0)
    limiter.spend(ONE, 1000.0)
    assert len(limiter) == len(NODES[1:]) - 16 + 1


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.1, 0.5, 3.0])), max_size=80))
def test_no_source_sends_more_than_its_rate(steps: list[tuple[int, float]]) -> None:
    limiter = RateLimiter(RelayLoadLimits(rate=2, burst=3, sources=4))
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
    # Each from another node.
    a, b, c, d, e, f = NODES[3:9]
    assert holdings.hold(ONE, 61, a) is FULL.NEXT_FULL
    assert holdings.hold(ONE, 60, a) is None
    assert holdings.hold(ONE, 1, b) is FULL.NEXT_FULL
    assert holdings.hold(TWO, 41, c) is FULL.FULL
    assert holdings.hold(TWO, 1, c) is holdings.hold(TWO, 39, d) is None
    assert holdings.hold(THREE, 0, e) is FULL.FULL
    assert holdings.held_for(TWO) == (2, 40)
    assert holdings.held_for(THREE) == (0, 0)
    holdings.release(ONE, 60, a)
    assert holdings.hold(TWO, 0, b) is FULL.NEXT_FULL
    assert holdings.hold(THREE, 60, f) is None
    assert (holdings.messages, holdings.size) == (3, 100)
    assert {each: count for each, count in holdings.refused.items() if count} == {
        FULL.NEXT_FULL: 3,
        FULL.FULL: 2,
    }
    holdings.release(TWO, 1, c)
    assert holdings.held_for(TWO) == (1, 39)


def hold_most(holdings: RelayHoldings, to: Identity, *origin: Identity) -> tuple[int, Refusal]:
    """Hold until it is refused; return how many were held, and the reason."""
    for number in range(10_000):
        refusal = holdings.hold(to, 1, *origin)
        if refusal is not None:
            return number, refusal
    raise AssertionError


def test_no_node_and_no_source_behind_one_fills_what_is_held() -> None:
    limits = RelayLoadLimits(held_messages=90, held_bytes=10_000, peer_messages=900)
    holdings = RelayHoldings(limits)
    to, flood, other = ONE, NODES[3], NODES[4]
    # One source behind a node has a third, all of that node half, and the rest is for others.
    assert hold_most(holdings, to, flood, NODES[5]) == (30, FULL.SOURCE_FULL)
    assert hold_most(holdings, to, flood, NODES[6]) == (10, FULL.SOURCE_FULL)
    assert hold_most(holdings, to, flood) == (5, FULL.PREVIOUS_FULL)
    assert hold_most(holdings, TWO, flood) == (0, FULL.PREVIOUS_FULL)
    assert hold_most(holdings, to, other) == (23, FULL.PREVIOUS_FULL)
    assert hold_most(holdings, to, NODES[7]) == (11, FULL.PREVIOUS_FULL)


def test_no_node_fills_what_is_held_for_another_one() -> None:
    limits = RelayLoadLimits(peer_messages=8, peer_bytes=1000)
    holdings = RelayHoldings(limits)
    flood, other = NODES[3], NODES[4]
    assert hold_most(holdings, ONE, flood) == (4, FULL.PREVIOUS_FULL)
    assert hold_most(holdings, TWO, flood) == (4, FULL.PREVIOUS_FULL)
    assert hold_most(holdings, ONE, other) == (2, FULL.PREVIOUS_FULL)
    # By bytes as well.
    assert holdings.hold(THREE, 600, flood) is None
    assert holdings.hold(THREE, 200, flood) is FULL.PREVIOUS_FULL
    assert holdings.hold(THREE, 200, other, flood) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 50),
            st.booleans(),
            st.integers(4, 6),
            st.sampled_from([None, 7, 8]),
        ),
        max_size=60,
    )
)
def test_what_is_held_is_within_the_limits(
    steps: list[tuple[int, int, bool, int, int | None]],
) -> None:
    limits = RelayLoadLimits(held_messages=5, held_bytes=90, peer_messages=3, peer_bytes=60)
    holdings = RelayHoldings(limits)
    held = list[tuple[Identity, int, Identity, Identity | None]]()
    for which, size, releases, number, behind in steps:
        previous, source = NODES[number], None if behind is None else NODES[behind]
        if releases and held:
            holdings.release(*held.pop(which % len(held)))
        elif holdings.hold(NODES[which], size, previous, source) is None:
            held.append((NODES[which], size, previous, source))
            of_previous = [each for _, each, other, _ in held if other == previous]
            assert len(of_previous) <= 3
            assert sum(of_previous) <= 90 - sum(each for _, each, *_ in held) + size
        assert holdings.messages == len(held) <= 5
        assert holdings.size == sum(each for _, each, *_ in held) <= 90
        for peer in range(4):
            sizes = [each for other, each, *_ in held if other == NODES[peer]]
            assert holdings.held_for(NODES[peer]) == (len(sizes), sum(sizes))
            assert len(sizes) <= 3
            assert sum(sizes) <= 60
    for each in held:
        holdings.release(*each)
    assert (holdings.messages, holdings.size) == (0, 0)
    assert not holdings._of_peer
    assert not holdings._all._of
