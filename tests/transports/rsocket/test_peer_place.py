"""Which peers are on this machine."""

from __future__ import annotations

import pytest

from onward.protocol.security import PeerIdentity
from onward.transports.rsocket._peer_place import is_inside
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
