"""Accepted connections of links while their peer is authenticated, after all handshakes.

Only a header with credentials is read before the decision; see `protocol/ockam/_credentials.py`.
A peer without one is decided on by what the transport has verified. The peer is not read meanwhile,
so nothing of it reaches the node before the decision. What a peer that has left has sent is handled
after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from ...protocol._principal import PeerIdentity, Principal
from ...protocol.ockam import CREDENTIALS, BadHeader, read_header, write_header
from ._lost_transport import LostTransport
from ._pending import PendingConnection

if TYPE_CHECKING:
    from ...actors.security import Authentication
    from ...protocol.security import Credentials

__all__ = ["CHECK", "GRACE", "AuthenticatedPeer", "AuthenticatingConnection"]

GRACE: Final = 30.0
"""Seconds from the expiry of credentials to the end of the connection."""

LINGER: Final = 2.0
"""Seconds for which the refusal of credentials may wait to be written."""

_REFUSED: Final = "not authenticated"

_ENDS: Final = ("sockname", "peername")

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
    """A connection that waits for the credentials of its peer, and for the decision on it.

    A peer with credentials gets a header as the answer; one without is closed without a word if it
    is refused. The first bytes have to come, with the whole header, within the time for a decision.

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
        self._shown = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        super().connection_made(transport)
        if self._outcome:
            self.transport.abort()  # aborted before it was connected
            return
        wait = self._authentication.options.timeout
        self._timer = asyncio.get_running_loop().call_later(wait, self._refuse, "timeout")

    def data_received(self, data: bytes) -> None:
        """Begin the decision once the peer has begun with its wire, or its header is whole."""
        super().data_received(data)
        if self._task is not None or self._outcome:
            return
        came = self.take()
        credentials: Credentials | None = None
        if came[0] == CREDENTIALS:
            # With the first authentication, as a node without one needs neither.
            from ...protocol.security import BadCredentials, parse_credentials

            try:
                found = read_header(came)
                if found is None:
                    self._came.append(came)
                    return
                self._shown = True
                content, size = found
                credentials, came = parse_credentials(content), came[size:]
            except (BadHeader, BadCredentials):
                self._shown = True
                self._refuse("bad credentials")
                return
        if came:
            self._came.append(came)
        self._decide(credentials)

    def _decide(self, credentials: Credentials | None) -> None:
        self._stop_timer()
        self.transport.pause_reading()
        deciding = self._authentication.authenticate(credentials, self._identity)
        self._task = asyncio.get_running_loop().create_task(deciding)
        self._task.add_done_callback(self._decided)

    def _decided(self, task: asyncio.Task[Principal]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._over or self._outcome:
            return  # it is closed already
        if task.cancelled():
            self._refuse("cancelled")
            return
        if error is not None:
            # Of NotAuthenticated, which a node loads with its first authentication.
            cause = getattr(error, "cause", type(error).__name__)
            self._refuse(cause)
            return
        self._done("")
        if self._shown:
            self.transport.write(write_header(b""))
        successor = self._make(AuthenticatedPeer.of(self._identity, task.result()))
        transport = self.transport
        if not transport.is_closing():
            transport.resume_reading()  # first: the successor may pause it
        self.hand_over(successor)
        if isinstance(transport, LostTransport):
            transport.close()

    def _refuse(self, cause: str) -> None:
        """Close the connection; the text is the same for each cause."""
        self.detail = f"{self._identity.peer} is not authenticated: {cause}"
        if not self._shown:
            self.abort(_REFUSED)
            return
        self._outcome = self._outcome or _REFUSED
        self.transport.write(write_header(_REFUSED.encode()))
        self.transport.close()
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(LINGER, self.transport.abort)

    def abort(self, outcome: str) -> None:
        """Close the connection at once, unless it is closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for the decision, if this side has not ended it; or notify the listener."""
        if self._task is not None and not self._over and not self._outcome:
            # The decision has its limit of time; the connection counts for its source until then.
            extra = {name: self.transport.get_extra_info(name) for name in _ENDS}
            loop = asyncio.get_running_loop()
            self._transport = LostTransport(self, loop, exc, extra)
            return
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()
        self._done("the peer closed the connection")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _done(self, outcome: str) -> None:
        self._stop_timer()
        if not self._over:
            self._over = True
            self._on_done(self, self._outcome or outcome)
