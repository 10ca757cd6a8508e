"""Tags of layers: each layer is opened once, and what cannot be opened uses up nothing."""

from __future__ import annotations

import hashlib

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    FreshnessRefusal as Refusal,
    LayerTag,
    LayerTags,
    SigningKey,
    layer_tag,
)

NOW = 1_800_000_000_000
PEER, OTHER = (SigningKey(bytes((each,)) * 32).identity for each in (1, 2))
ONE, TWO, THREE = (layer_tag(bytes((each,)) * 32) for each in (1, 2, 3))


def test_a_tag_is_of_the_ephemeral_key() -> None:
    assert layer_tag(bytes(32)) == hashlib.sha256(bytes(32)).digest()[:16]


def test_a_layer_is_opened_once() -> None:
    tags = LayerTags()
    assert tags.check(ONE, NOW + 1000, NOW) is None
    # A layer that could not be opened was not recorded, so the right one still can be.
    assert tags.check(ONE, NOW + 1000, NOW) is None
    assert tags.record(ONE, NOW + 1000, PEER, NOW) is None
    assert tags.check(ONE, NOW + 1000, NOW) is Refusal.REPEATED
    assert tags.record(ONE, NOW + 1000, OTHER, NOW) is Refusal.REPEATED
    assert tags.record(TWO, NOW + 1000, PEER, NOW) is None
    assert tags.refused[Refusal.REPEATED] == 2


def test_expiries_are_accepted_up_to_both_edges() -> None:
    tags = LayerTags()
    assert tags.record(ONE, NOW - MAX_SKEW - 1, PEER, NOW) is Refusal.EXPIRED
    assert tags.record(ONE, NOW + MAX_TTL + MAX_SKEW + 1, PEER, NOW) is Refusal.TOO_LONG
    assert tags.record(ONE, NOW - MAX_SKEW, PEER, NOW) is None
    assert tags.record(TWO, NOW + MAX_TTL + MAX_SKEW, PEER, NOW) is None


def test_a_tag_is_kept_until_its_layer_is_expired() -> None:
    tags = LayerTags()
    tags.record(ONE, NOW + 1000, PEER, NOW)
    tags.forget_expired(NOW + 1000 + MAX_SKEW)
    assert tags.check(ONE, NOW + 1000, NOW + 1000 + MAX_SKEW) is Refusal.REPEATED
    tags.forget_expired(NOW + 1001 + MAX_SKEW)
    assert len(tags) == 0
    assert tags.check(ONE, NOW + 1000, NOW + 1001 + MAX_SKEW) is Refusal.EXPIRED
    # The clock is set back.
    assert tags.check(ONE, NOW + 1000, NOW) is Refusal.FORGOTTEN


def test_few_tags_are_forgotten_at_once() -> None:
    tags = LayerTags()
    for each in range(300):
        tags.record(layer_tag(each.to_bytes(32)), NOW, PEER, NOW)
    tags.forget_expired(NOW + MAX_TTL)
    assert len(tags) == 44
    assert tags.record(ONE, NOW + MAX_TTL, PEER, NOW + MAX_TTL) is None
    assert len(tags) == 1


def test_a_full_table_refuses_and_forgets_nothing() -> None:
    tags = LayerTags(limit=2, share=2)
    tags.record(ONE, NOW + 1000, PEER, NOW)
    tags.record(TWO, NOW + 2000, PEER, NOW)
    assert tags.record(THREE, NOW + 3000, PEER, NOW) is Refusal.SHARE_FULL
    assert tags.record(THREE, NOW + 3000, OTHER, NOW) is Refusal.FULL
    assert tags.refused[Refusal.FULL] == tags.refused[Refusal.SHARE_FULL] == 1
    assert tags.record(ONE, NOW + 1000, OTHER, NOW) is Refusal.REPEATED
    later = NOW + 1001 + MAX_SKEW
    assert tags.record(THREE, later, OTHER, later) is None


def test_a_source_behind_a_peer_leaves_room_for_others() -> None:
    tags = LayerTags(limit=100, share=8)
    flood, served = SigningKey(bytes((3,)) * 32).identity, SigningKey(bytes((4,)) * 32).identity
    found = [
        tags.record(layer_tag(each.to_bytes(32)), NOW + 1000, PEER, NOW, flood) for each in range(9)
    ]
    assert found == [None] * 4 + [Refusal.SOURCE_FULL] * 5
    assert tags.record(ONE, NOW + 1000, PEER, NOW, served) is None
    later = NOW + 1001 + MAX_SKEW
    tags.forget_expired(later)
    assert tags.record(TWO, later, PEER, later, flood) is None
    assert len(tags) == 1


def test_a_floor_refuses_what_expires_by_then() -> None:
    tags = LayerTags(floor=NOW + 1000)
    assert tags.record(ONE, NOW + 1000, PEER, NOW) is Refusal.FORGOTTEN
    assert tags.record(ONE, NOW + 1001, PEER, NOW) is None


LAYERS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 90_000), st.integers(0, 40_000)), max_size=60
)


@given(LAYERS)
def test_tags_are_a_set(layers: list[tuple[int, int, int]]) -> None:
    tags, now = LayerTags(limit=6), NOW
    opened: dict[LayerTag, int] = {}
    for which, ttl, passed in layers:
        now += passed
        tag = layer_tag(bytes((which,)) * 32)
        expiry = opened.get(tag, now + ttl)
        opened = {each: until for each, until in opened.items() if until >= now - MAX_SKEW}
        right = None
        if tag in opened:
            right = Refusal.REPEATED
        elif expiry < now - MAX_SKEW:
            right = Refusal.EXPIRED
        elif len(opened) == 6:
            right = Refusal.FULL
        else:
            opened[tag] = expiry
        assert tags.record(tag, expiry, PEER, now) is right
        assert len(tags) == len(opened)


def test_a_clock_that_is_set_back_refuses_no_other_layers() -> None:
    tags, back = LayerTags(), NOW - 3_600_000
    assert tags.record(ONE, NOW, PEER, NOW) is None
    assert tags.record(TWO, NOW + MAX_TTL, PEER, NOW + MAX_SKEW + 1) is None
    assert tags.check(THREE, back + 1000, back) is Refusal.FORGOTTEN
    tags.clock_set_back(back)
    assert tags.record(THREE, back + 1000, PEER, back) is None
    assert tags.record(TWO, NOW + MAX_TTL, PEER, NOW) is Refusal.REPEATED


def test_tags_of_a_time_to_come_are_in_no_share_and_are_remembered() -> None:
    tags, back = LayerTags(limit=2, share=2), NOW - 3_600_000
    four, five = layer_tag(b"four"), layer_tag(b"five")

    def recorded(*of: LayerTag, now: int) -> list[Refusal | None]:
        return [tags.record(tag, now, PEER, now) for tag in of]

    assert recorded(ONE, TWO, now=NOW) == [None] * 2
    assert recorded(THREE, now=back) == [Refusal.SHARE_FULL]
    tags.clock_set_back(back)
    assert recorded(THREE, four, five, now=back) == [None, None, Refusal.SHARE_FULL]
    # As many again, and no more.
    tags.clock_set_back(back - 3_600_000)
    assert recorded(five, now=back - 3_600_000) == [Refusal.SHARE_FULL]
    assert recorded(THREE, four, now=back) == [Refusal.REPEATED] * 2
    later = NOW + MAX_SKEW
    assert recorded(ONE, TWO, now=NOW) == [Refusal.REPEATED] * 2
    assert recorded(four, five, now=later) == [None] * 2
    assert len(tags) == 4
    tags.clock_set_back(back)
    assert recorded(THREE, now=back) == [Refusal.SHARE_FULL]
    assert recorded(THREE, now=later + 1) == [Refusal.SHARE_FULL]
    assert len(tags) == 2
    tags.clock_set_back(back)
    assert recorded(THREE, now=back) == [None]


def test_tags_that_may_expire_so_late_stay_in_the_share_of_their_peer() -> None:
    tags = LayerTags(limit=2, share=2)
    for tag in (ONE, TWO):
        assert tags.record(tag, NOW + MAX_TTL, PEER, NOW) is None
    tags.clock_set_back(NOW - MAX_SKEW)
    assert tags.record(THREE, NOW, PEER, NOW) is Refusal.SHARE_FULL
    tags.clock_set_back(NOW - MAX_SKEW - 1)
    assert tags.record(THREE, NOW, PEER, NOW) is None
