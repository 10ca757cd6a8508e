"""Links between two brokers: which of two stays, and what a refusal says."""

from __future__ import annotations

import pytest

from onward.protocol.cluster import LinkRefusal, LinkRefused, PeerInfo
from onward.protocol.cluster._links import PeerLink, preferred

SMALL, GREAT = bytes(16), bytes([1]) * 16


def link(other: bytes, *, dialled: bool) -> PeerLink:
    return PeerLink("link", PeerInfo(other, 1, 1), "tcp://x" if dialled else None, 0.0, 0.0)


@pytest.mark.parametrize("old_by_small", [True, False])
@pytest.mark.parametrize("new_by_small", [True, False])
def test_both_brokers_keep_the_same_link(*, old_by_small: bool, new_by_small: bool) -> None:
    at_small = preferred(
        link(GREAT, dialled=new_by_small), link(GREAT, dialled=old_by_small), SMALL
    )
    at_great = preferred(
        link(SMALL, dialled=not new_by_small), link(SMALL, dialled=not old_by_small), GREAT
    )
    assert at_small is at_great is (new_by_small or not old_by_small)


def test_the_link_to_another_implementation_stays() -> None:
    old = link(GREAT, dialled=True)
    new = PeerLink("new", PeerInfo(GREAT, 1, 1, version=""), None, 0.0, 0.0)
    assert not preferred(new, old, SMALL)


def test_a_refusal_names_the_broker_and_the_reason() -> None:
    refused = LinkRefused(LinkRefusal.TWIN, PeerInfo(GREAT, 1))
    assert str(refused) == (
        "broker 01010101-0101-0101-0101-010101010101: another broker with the same id has a link"
    )
    assert {each for each in LinkRefusal if each.is_mistake} == {
        LinkRefusal.OWN_ID,
        LinkRefusal.TWIN,
        LinkRefusal.VERSION,
        LinkRefusal.ZONE,
    }
