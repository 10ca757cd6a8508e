"""Leases of one connection: what the peer allows us, and what we allow the peer (decision 16)."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from ...protocol.rsocket import ConnectionState, Frame, LeaseBudget

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["Leases"]


class Leases:
    """Both budgets of a connection whose peer set the L flag, and the timer for the next LEASE.

    A peer gets `lease_requests` at once and again after each `lease_time`. A LEASE holds for
    longer than that, so that the next is there before it has run out.

    Attributes:
        taken: Requests the peer allows us.
        given: Requests we allow the peer.

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
        """Take a LEASE of the peer."""
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
        """Let go of the connection."""
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
