"""Leases of one connection of a client, both ways (RSocket, section "Lease Semantics")."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.rsocket import ConnectionState, Frame, LeaseBudget

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["ClientLeases"]


class ClientLeases:
    """The lease budgets of both sides; unlimited if the options have no leases.

    Args:
        link: The connection.
    """

    __slots__ = ("_link", "_on", "_ours", "_renewal", "_theirs")

    def __init__(self, link: ClientLink) -> None:
        self._link = link
        self._on = link.options.leases
        self._theirs = LeaseBudget()
        self._ours = LeaseBudget()
        self._renewal: asyncio.TimerHandle | None = None

    def on_frame(self, frame: Frame, now: float) -> None:
        """Apply a LEASE of the broker."""
        ttl = (frame.time_to_live & 0x7FFFFFFF) / 1000
        self._theirs.grant(ttl, frame.number_of_requests & 0x7FFFFFFF, now)

    @property
    def available(self) -> bool:
        """Whether the broker's lease allows a request now."""
        # Lease Semantics: "The Requester MUST NOT send more than Number of Requests specified in
        # the LEASE frame within the Time-To-Live value in the LEASE."
        return not self._on or self._theirs.available(self._link.loop.time()) > 0

    def use(self) -> None:
        """Count a request that was sent."""
        if self._on:
            self._theirs.take(self._link.loop.time())

    def take(self, now: float) -> bool:
        """Count a request of the broker; return whether its lease allows it.

        Defect 10 of the `rsocket` package (0.4.20): it serves requests without a lease.
        """
        return not self._on or self._ours.take(now)

    def grant(self) -> None:
        """Send the broker a LEASE, and renew it at half of its time."""
        link = self._link
        requests, time = link.options.lease_requests, link.options.lease_time
        if requests is None or link.core.state is not ConnectionState.OPEN:
            return
        self._ours.grant(time, requests, link.loop.time())
        link.core.send_lease(round(time * 1000), requests)
        self._renewal = link.loop.call_later(time / 2, self.grant)
        link.flush_soon()

    def stop(self) -> None:
        """Grant no more."""
        if self._renewal is not None:
            self._renewal.cancel()
