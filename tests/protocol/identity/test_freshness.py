"""Expiries at their edges, and shares of peers."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    FreshnessRefusal,
    PeerShares,
    SigningKey,
    expiry_refusal,
)

NOW = 1_800_000_000_000
ONE, TWO = (SigningKey(bytes((each,)) * 32).identity for each in (1, 2))


@pytest.mark.parametrize(
    ("ahead", "refusal"),
    [
        (-MAX_SKEW - 1, FreshnessRefusal.EXPIRED),
        (-MAX_SKEW, None),
        (0, None),
        (MAX_TTL, None),
        (MAX_TTL + MAX_SKEW, None),
        (MAX_TTL + MAX_SKEW + 1, FreshnessRefusal.TOO_LONG),
    ],
)
def test_an_expiry_is_accepted_up_to_both_edges(
    ahead: int, refusal: FreshnessRefusal | None
) -> None:
    assert expiry_refusal(NOW + ahead, NOW) is refusal


def test_a_peer_has_its_share_and_all_have_a_limit() -> None:
    shares = PeerShares(limit=3, share=2)
    for peer in (ONE, ONE, TWO):
        assert shares.refusal(peer) is None
        shares.add(peer)
    assert shares.refusal(ONE) is FreshnessRefusal.SHARE_FULL
    assert shares.refusal(TWO) is FreshnessRefusal.FULL
    shares.remove(ONE)
    assert shares.refusal(ONE) is None
    assert (shares.used, shares.used_by(ONE), shares.used_by(TWO)) == (2, 1, 1)
    shares.remove(ONE)
    shares.remove(TWO)
    assert (shares.used, shares.used_by(ONE), shares.used_by(TWO)) == (0, 0, 0)


def test_a_source_behind_a_peer_leaves_some_of_its_share_to_others() -> None:
    shares = PeerShares(limit=100, share=10)
    peer, flood, other, another = (SigningKey(bytes((each,)) * 32).identity for each in range(1, 5))
    taken = 0
    while shares.refusal(peer, flood) is None:
        shares.add(peer, flood)
        taken += 1
    assert taken == 5
    assert shares.refusal(peer, flood) is FreshnessRefusal.SOURCE_FULL
    for _ in range(2):
        assert shares.refusal(peer, other) is None
        shares.add(peer, other)
    # The peer itself may use all of its share, and another peer has its own.
    for _ in range(3):
        assert shares.refusal(peer) is None
        shares.add(peer)
    assert shares.refusal(peer) is shares.refusal(peer, another) is FreshnessRefusal.SHARE_FULL
    assert shares.refusal(another, flood) is None
    for source in (flood,) * 5 + (other,) * 2 + (None,) * 3:
        shares.remove(peer, source)
    assert shares.used == 0
    assert not shares._of_peer
    assert not shares._of_source
