"""Which peers are on this machine, and which are of this user."""

from __future__ import annotations

import os

import pytest

from onward.protocol.security import PeerIdentity
from onward.transports.rsocket._peer_place import is_inside, is_of_this_user
from onward.transports.streams._source import source_of


@pytest.mark.parametrize(
    ("identity", "inside"),
    [
        (PeerIdentity(source="127.0.0.1"), True),
        (PeerIdentity(source="127.8.9.1"), True),
        (PeerIdentity(source=source_of(("::1", 1, 0, 0))), True),
        (PeerIdentity(source=source_of(("::ffff:127.0.0.1", 1, 0, 0))), True),
        (PeerIdentity(source="unix"), True),
        (PeerIdentity(source="uid=0", user_id=0), True),
        (PeerIdentity(), False),
        (PeerIdentity(source="10.0.0.1"), False),
        (PeerIdentity(source=source_of(("2001:db8::1", 1, 0, 0))), False),
        # Behind a proxy.
        (PeerIdentity(source="127.0.0.1 #7"), False),
        (PeerIdentity(source="uid=0 #7", user_id=0), False),
        (PeerIdentity(source="uid=0"), False),
    ],
)
def test_whether_a_peer_is_inside(identity: PeerIdentity, inside: bool) -> None:
    assert is_inside(identity) == inside


@pytest.mark.parametrize(
    ("identity", "own"),
    [
        (PeerIdentity(source="uid=0", user_id=os.geteuid()), True),
        (PeerIdentity(source="uid=0", user_id=os.geteuid() + 1), False),
        (PeerIdentity(source="unix"), True),
        (PeerIdentity(source="127.0.0.1"), False),
        (PeerIdentity(), False),
    ],
)
def test_whether_a_peer_is_of_this_user(identity: PeerIdentity, own: bool) -> None:
    assert is_of_this_user(identity) == own
