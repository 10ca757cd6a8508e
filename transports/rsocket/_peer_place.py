"""Whether a peer is on this machine, and of this user."""

from __future__ import annotations

import os
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...protocol.security import PeerIdentity
    from ._link import Link

__all__ = ["is_inside", "is_of_this_user", "is_sibling"]

_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::/64"))
"""The networks of this machine; the second is how the source of `::1` is written."""


def is_inside(identity: PeerIdentity) -> bool:
    """Whether a peer has connected from this machine: by a Unix socket, or from loopback.

    One behind a proxy has not, wherever the proxy is. A proxy that is none of
    `LinkOptions.proxies` cannot be told from a peer.
    """
    if identity.source in ("unix", f"uid={identity.user_id}"):
        return True
    try:
        source = ip_network(identity.source)
    except ValueError:
        return False
    return any(
        source.version == each.version and source.network_address in each for each in _LOOPBACK
    )


def is_of_this_user(identity: PeerIdentity) -> bool:
    """Whether a peer has connected by a Unix socket, and is not known to be of another user."""
    if identity.user_id is None:
        return identity.source == "unix"  # the system tells no users: the file's permissions count
    return identity.user_id == os.geteuid()


def is_sibling(link: Link) -> bool:
    """Whether a peer may be a broker without a rule: one of this user, at a socket for those."""
    return link.shared.siblings and is_of_this_user(link.identity)
