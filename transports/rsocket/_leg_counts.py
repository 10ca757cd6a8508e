"""The counts of the requests that are forwarded over a peer link, as both ends count them."""

from __future__ import annotations

from uuid import UUID

__all__ = ["LegCounts"]


class LegCounts:
    """The legs of requests over one peer link, for the event log; an `instruments.Linked`.

    A leg is a request, or one copy of a multicast, on its way from one broker to another. Both
    ends count it, in the order of the connection, so that the counts of a link that ends in peace
    are equal.

    Attributes:
        taken: Legs that this broker has sent.
        arrived: Legs that it has read.
        dropped: Always 0: a leg that is counted was written to the connection.
        queued: Always 0.
        over: Whether the link has ended.
    """

    __slots__ = ("_ends", "arrived", "dropped", "over", "queued", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.arrived = 0
        self.dropped = 0
        self.queued = 0
        self.over = False
        self._ends = ("", "")

    def join(self, own: bytes, other: bytes) -> None:
        """Set the brokers, by their ids."""
        self._ends = (str(UUID(bytes=own)), str(UUID(bytes=other)))

    @property
    def ends(self) -> tuple[str, str]:
        """The ids of this broker and of the other."""
        return self._ends

    @property
    def ways(self) -> tuple[str, str]:
        """The names of the two directions, out and in: the same at both ends."""
        own, other = self._ends
        return f"broker {own}>{other}", f"broker {other}>{own}"
