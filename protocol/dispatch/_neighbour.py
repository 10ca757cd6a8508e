"""One link to a neighbour: what is known of its other end, and what is still to be told to it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ._hello import HelloState, LinkHello
from ._network_limits import NetworkLimits

__all__ = ["Neighbour"]


@dataclass(slots=True)
class Neighbour:
    """One link to a neighbour.

    Attributes:
        link: The link.
        cost: Its cost, as this node tells it.
        hello: The hellos on it.
        tokens: Frames that may come at once.
        filled_at: Time at which the tokens were counted.
        node: The name of the node at its other end; empty if it is not known.
        instance: The start of that node.
        untold: Nodes that are to be advertised on the link, in this order.
        flush_at: Earliest time of the next advertisement.
        compare_at: Earliest time at which all nodes are advertised again as the sums differ.
        compare_pause: Time until the next but one such time, in seconds.
        differed: Whether the sums differed at the last hello.
        warned: Whether a frame of a later version is reported.
    """

    link: Hashable
    cost: int
    hello: LinkHello
    tokens: float
    filled_at: float
    node: str = ""
    instance: int = 0
    untold: dict[str, None] = field(default_factory=dict[str, None])
    flush_at: float = 0.0
    compare_at: float = 0.0
    compare_pause: float = 0.0
    differed: bool = False
    warned: bool = False

    @property
    def joined(self) -> bool:
        """Whether the node at the other end is a neighbour."""
        return self.hello.state is HelloState.NEIGHBOUR

    def admits(self, limits: NetworkLimits, now: float) -> bool:
        """Return whether another frame is within the limits of a neighbour."""
        more = (now - self.filled_at) * limits.frame_rate
        self.tokens = min(self.tokens + more, float(limits.frame_burst)) - 1.0
        self.filled_at = now
        return self.tokens >= 0.0

    def sums_differ(self, differ: bool, limits: NetworkLimits, now: float) -> bool:
        """Return whether all nodes are to be advertised, as the sums have differed for a while.

        News that are under way make sums differ at one hello. The pause doubles each time: nodes
        with different limits never hold the same.
        """
        if not differ:
            self.differed, self.compare_pause = False, 0.0
            return False
        twice, self.differed = self.differed, True
        if not twice or now < self.compare_at:
            return False
        longer = max(2 * self.compare_pause, limits.advertise_in_flux)
        self.compare_pause = min(longer, limits.advertise)
        self.compare_at = now + self.compare_pause
        return True
