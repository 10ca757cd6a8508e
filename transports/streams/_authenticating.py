"""Accepted connections while their peer is authenticated by what the transport has verified.

Links of nodes are authenticated so, after the TLS handshake, as their protocol has no frame for
credentials. The peer is not read meanwhile, so nothing of it reaches the node before the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from ...protocol._principal import PeerIdentity, Principal
from ._pending import PendingConnection

if TYPE_CHECKING:
    from ...actors.security import Authentication

__all__ = ["CHECK", "GRACE", "AuthenticatedPeer", "AuthenticatingConnection"]

GRACE: Final = 30.0
"""Seconds from the expiry of credentials to the end of the connection."""

CHECK: Final = 600.0
"""The longest time in seconds until the clock is read again: it may have been set meanwhile."""


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer(PeerIdentity):
    """The identity of a peer, and the principal that authentication has made of it."""

    principal: Principal = field(kw_only=True)

    @classmethod
    def of(cls, identity: PeerIdentity, principal: Principal) -> AuthenticatedPeer:
        """Return an identity with its principal."""
        known = {each.name: getattr(identity, each.name) for each in fields(PeerIdentity)}
        return cls(**known, principal=principal)


class AuthenticatingConnection(PendingConnection):
    """A connection that waits for the decision on its peer, unread.

    Args:
        authentication: The methods, which also bound the time.
        identity: The peer.
        successor: Makes the protocol of the connection of an authenticated peer.
        on_done: Called once, before that, with the reason of a failure, or "".

    Attributes:
        detail: The text for the log if the peer is refused; peers see no cause.
    """

    def __init__(
        self,
        authentication: Authentication,
        identity: PeerIdentity,
        successor: Callable[[AuthenticatedPeer], asyncio.Protocol],
        on_done: Callable[[AuthenticatingConnection, str], None],
    ) -> None:
        super().__init__()
        self.detail = ""
        self._authentication = authentication
        self._identity = identity
        self._make = successor
        self._on_done = on_done
        self._outcome = ""
        self._task: asyncio.Task[Principal] | None = None
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the decision."""
        super().connection_made(transport)
        if self._outcome:
            self.transport.abort()  # aborted before it was connected
            return
        self.transport.pause_reading()
        deciding = self._authentication.authenticate(None, self._identity)
        self._task = asyncio.get_running_loop().create_task(deciding)
        self._task.add_done_callback(self._decided)

    def _decided(self, task: asyncio.Task[Principal]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._over or self._outcome or task.cancelled():
            return  # it is closed already
        if error is not None:
            # Of NotAuthenticated, which a node loads with its first authentication.
            cause = getattr(error, "cause", type(error).__name__)
            self.detail = f"{self._identity.peer} is not authenticated: {cause}"
            self.abort("not authenticated")
            return
        self._done("")
        successor = self._make(AuthenticatedPeer.of(self._identity, task.result()))
        if not self.transport.is_closing():
            self.transport.resume_reading()  # first: the successor may pause it
        self.hand_over(successor)

    def abort(self, outcome: str) -> None:
        """Close the connection at once, unless it is closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the listener, or the successor if there is one."""
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()
        self._done("the peer closed the connection")

    def _done(self, outcome: str) -> None:
        if not self._over:
            self._over = True
            self._on_done(self, self._outcome or outcome)
