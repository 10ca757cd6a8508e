"""The identity of a peer: what its transport has verified, and the principal made of it.

`protocol.security` exports these. They are here as each link has an identity, and a node that has
no listener loads neither the rules nor the frames of the broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker import TagSet

__all__ = ["PeerIdentity", "Principal"]


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The identity of a peer as the transport of its connection has verified it.

    Attributes:
        listener: The URI of the listener.
        source: The source that limits are shared by: an address, the /64 network for IPv6, the user
            of a Unix socket.
        names: The names in the peer's verified certificate, each with its kind: `DNS:`, `URI:`.
        digest: The SHA-256 of the certificate in DER; empty without one.
        expires: The time at which the certificate expires, in seconds since 1970; `None` without
            one.
        user_id: The user id of the peer of a Unix socket; `None` for other sockets.
        peer: The name of the peer for logs: `host:port`, or the process and user of a Unix socket.
    """

    listener: str = ""
    source: str = ""
    names: tuple[str, ...] = ()
    digest: bytes = b""
    expires: float | None = None
    user_id: int | None = None
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity, by which rules decide. It never holds the credentials.

    Attributes:
        name: The name, unique within its method and issuer.
        method: The method of authentication: `certificate`, `unix`, `token`, `password`, `jwt`,
            `callout`, `anonymous`, or that of a plug-in.
        roles: The names of its roles.
        tags: The tags that the broker adds to its ROUTE_SETUP and to each ADDRESS. They make a
            tenant: it reaches only destinations with these tags.
        expires: The time at which the credentials expire, in seconds since 1970; `None`: never.
        issuer: The issuer of a JWT, or empty.
        entry: The digest of the token in a file of principals, by which its entry is found again
            after the file has changed, or that of the hash of a password; empty for other methods.
    """

    name: str
    method: str
    roles: frozenset[str] = frozenset()
    tags: TagSet = frozenset()
    expires: float | None = None
    issuer: str = ""
    entry: bytes = field(default=b"", repr=False, compare=False)

    def __str__(self) -> str:
        """Return the name and the method, for logs and statistics."""
        return f"{self.name} ({self.method})"

    def is_same(self, other: Principal) -> bool:
        """Whether another principal is the same identity, perhaps with other roles or tags."""
        return (self.name, self.method, self.issuer) == (other.name, other.method, other.issuer)
