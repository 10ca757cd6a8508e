"""What a link is doing and has done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...protocol import Address

__all__ = ["LinkState", "LinkStatistics"]


class LinkState(Enum):
    """What a link is doing."""

    CONNECTING = "connecting"
    """An attempt is under way; messages are kept."""

    UP = "up"
    """The peer has greeted us."""

    WAITING = "waiting"
    """The connection is lost and the next attempt is due later; messages are kept."""

    CLOSED = "closed"
    """It is over."""


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One link at one moment. The counts are for all its connections together."""

    address: Address
    """The address of its worker."""

    peer: str
    """The other end, as in an address: `host:port` for TCP."""

    state: LinkState
    """What it is doing."""

    sent: int
    """Messages given to the socket, heartbeats included."""

    received: int
    """Messages that came, those refused included."""

    refused: int
    """Messages that came for an address that is not exposed."""

    heartbeats: int
    """Messages with an empty onward route that came."""

    bytes_in: int
    """Bytes read."""

    bytes_out: int
    """Bytes given to the socket."""

    pending: int
    """Bytes waiting for the socket."""

    queued: int
    """Messages waiting for a connection."""

    in_doubt: int
    """Messages of those sent that were lost with a connection, or perhaps were: given to the
    socket since it was last seen with nothing to write. What the peer's system had received
    and the peer had not read is not known and not counted."""

    held: int
    """Messages waiting for room in a local mailbox; while there are any, nothing is read."""

    connects: int
    """Connections so far on which the peer has greeted us."""

    failures: int
    """Attempts to connect that failed in a row; 0 when it is up."""

    reason: str
    """Why the last connection or attempt ended; empty if none has."""

    names: tuple[str, ...] = ()
    """The names in the peer's certificate, if there is one that was verified, each with its kind:
    `URI:…`, `DNS:…`, `IP:…` and `email:…`; `CN:…`, the common name, only if it has no others."""
