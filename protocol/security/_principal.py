"""The identity of a peer and its principal, among the other values of authentication."""

from __future__ import annotations

from typing import Final

from .._principal import PeerIdentity, Principal

__all__ = ["ANONYMOUS", "PeerIdentity", "Principal"]


ANONYMOUS: Final = Principal("anonymous", "anonymous")
"""The principal of a peer of a listener without authentication."""
