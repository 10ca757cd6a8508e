"""The leases of one connection in both directions (decision 16)."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from ...protocol.rsocket import ConnectionState, Frame, LeaseBudget

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["Leases"]


class Leases:
    """The lease budgets of a connection with the L flag, and the timer of the next LEASE.

    The peer is granted `lease_requests` at once and again after each `lease_time`. A LEASE is valid
    for longer than that, so that the next arrives before it expires.

    Attributes:
        taken: Requests that the peer has granted.
        given: Requests that are granted to the peer.

    Args:
        link: The connection.
    """

    __slots__ = ("_link", "_timer", "given", "taken")

    def __init__(self, link: Link) -> None:
        self._link: Link | None = link
        self._timer: TimerHandle | None = None
        self.taken = LeaseBudget()
        self.given = LeaseBudget()
        self._renew()

    def on_frame(self, frame: Frame) -> None:
        """Apply a LEASE of the peer."""
        # LEASE Frame: "The last received LEASE frame overrides all previous LEASE frame values."
        now = self._link.now if self._link is not None else 0.0
        ttl, requests = frame.time_to_live & 0x7FFFFFFF, frame.number_of_requests & 0x7FFFFFFF
        self.taken.grant(ttl / 1000, requests, now)

    def _renew(self) -> None:
        link = self._link
        if link is None or link.core.state is not ConnectionState.OPEN:
            return
        options = link.options
        millis = min(int(options.lease_time * 1500), 0x7FFFFFFF)
        self.given.grant(millis / 1000, options.lease_requests, link.time())
        link.core.send_lease(millis, options.lease_requests)
        link.flush_soon()
        self._timer = link.node.loop.call_later(options.lease_time, self._renew)

    def end(self) -> None:
        """Stop renewing, and release the connection."""
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
