"""The leases of one connection in both directions (decision 16)."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from ...protocol.rsocket import MAX_REQUEST_N, ConnectionState, Frame, LeaseBudget

if TYPE_CHECKING:
    from ._connection import RSocketConnection

__all__ = ["Leases"]


class Leases:
    """The lease budgets of a connection with the L flag, and the timer of the next LEASE.

    The peer is granted `requests` at once and again after each `interval`. A LEASE should be valid
    for longer than that, so that the next arrives before it expires.

    Attributes:
        taken: Requests that the peer has granted.
        given: Requests that are granted to the peer.

    Args:
        connection: The connection.
        requests: Requests of each LEASE.
        valid: Seconds for which a LEASE is valid.
        interval: Seconds between two of them.
    """

    __slots__ = ("_connection", "_interval", "_millis", "_requests", "_timer", "given", "taken")

    def __init__(
        self, connection: RSocketConnection, requests: int, valid: float, interval: float
    ) -> None:
        self._connection: RSocketConnection | None = connection
        self._requests = requests
        self._millis = min(int(valid * 1000), MAX_REQUEST_N)
        self._interval = interval
        self._timer: TimerHandle | None = None
        self.taken = LeaseBudget()
        self.given = LeaseBudget()
        self._renew()

    def on_frame(self, frame: Frame) -> None:
        """Apply a LEASE of the peer."""
        # LEASE Frame: "The last received LEASE frame overrides all previous LEASE frame values."
        now = self._connection.now if self._connection is not None else 0.0
        # LEASE Frame: "Time (in milliseconds) for validity of LEASE from time of reception."
        ttl, requests = frame.time_to_live & 0x7FFFFFFF, frame.number_of_requests & 0x7FFFFFFF
        self.taken.grant(ttl / 1000, requests, now)

    def _renew(self) -> None:
        connection = self._connection
        if connection is None or connection.core.state is not ConnectionState.OPEN:
            return
        self.given.grant(self._millis / 1000, self._requests, connection.time())
        # LEASE Frame: "inform the Requester that it may send Requests for a period of time and how
        # many it may send during that duration."
        connection.core.send_lease(self._millis, self._requests)
        connection.flush_soon()
        self._timer = connection.call_later(self._interval, self._renew)

    def renew_no_more(self) -> None:
        """Grant no further lease; the last one stays valid for its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Stop renewing, and release the connection."""
        self._connection = None
        self.renew_no_more()
