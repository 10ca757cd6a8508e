"""The state and the counters of a link."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...protocol import Address

__all__ = ["LinkState", "LinkStatistics"]


class LinkState(Enum):
    """The state of a link."""

    CONNECTING = "connecting"
    """A connection attempt is in progress; messages are kept."""

    UP = "up"
    """The peer's greeting has been received."""

    WAITING = "waiting"
    """The connection is lost and the next attempt is scheduled; messages are kept."""

    CLOSED = "closed"
    """The link has ended."""


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """The state of one link at one moment. The counts cover all its connections."""

    address: Address
    """The address of the link."""

    peer: str
    """The peer's name, as in an address: `host:port` for TCP."""

    state: LinkState
    """The state of the link."""

    sent: int
    """Messages written to the socket, heartbeats included."""

    received: int
    """Messages received, refused ones included."""

    refused: int
    """Messages received for an address that is not exposed."""

    heartbeats: int
    """Messages received with an empty onward route."""

    bytes_in: int
    """Bytes read."""

    bytes_out: int
    """Bytes written to the socket."""

    pending: int
    """Bytes that wait to be written to the socket."""

    queued: int
    """Messages that wait for a connection."""

    in_doubt: int
    """Messages that were or may have been lost with a connection: those written since the socket's
    write buffer was last empty. Messages that the peer's system received and the peer did not read
    are not known, and not counted."""

    held: int
    """Messages that wait for room in a local mailbox; above a limit the socket is not read."""

    connects: int
    """Connections on which the peer's greeting has been received."""

    failures: int
    """Consecutive failed connection attempts; 0 while the link is up."""

    reason: str
    """Why the last connection or attempt ended; empty if none has."""

    principal: str = ""
    """The name of the peer's principal; empty if the listener has no authentication."""

    names: tuple[str, ...] = ()
    """The names in the peer's verified certificate, each with its kind: `URI:…`, `DNS:…`, `IP:…`,
    `email:…`; `CN:…`, the common name, only if there are no others. Empty without a certificate."""
