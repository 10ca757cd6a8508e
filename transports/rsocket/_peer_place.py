"""Whether a peer is on this machine."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...protocol.security import PeerIdentity

__all__ = ["is_inside"]

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
