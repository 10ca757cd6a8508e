"""One link to a neighbour: what is known of its other end, and what is still to be told to it."""

from __future__ import annotations

from collections.abc import Hashable

from ._hello import HelloState, LinkHello
from ._list_sync import Assembly
from ._network_limits import NetworkLimits
from ._throttle import Throttle

__all__ = ["Neighbour"]


class Neighbour:
    """One link to a neighbour.

    Args:
        link: The link.
        cost: Its cost, as this node tells it.
        expected: The name that its hellos must have; empty for any.
        limits: The limits.
        now: The time, in seconds of the caller's clock.

    Attributes:
        link: The link.
        cost: Its cost.
        expected: The name that its hellos must have; empty for any.
        hello: The hellos on it.
        node: The name of the node at its other end; empty if it is not known.
        instance: The start of that node.
        ended: The start of it before, with which it was a neighbour; 0: there is none.
        ended_until: Until when hellos of that start may still be under way, in seconds.
        untold: Nodes that are to be advertised on the link, in this order.
        flushes: The pause between advertisements on the link.
        assembly: The list of which it sends the parts.
        warned: Whether a frame of a later version is reported.
    """

    __slots__ = (
        "_answered",
        "_bytes",
        "_compare_at",
        "_compare_pause",
        "_differed",
        "_filled_at",
        "_limits",
        "_tokens",
        "assembly",
        "cost",
        "ended",
        "ended_until",
        "expected",
        "flushes",
        "hello",
        "instance",
        "link",
        "node",
        "untold",
        "warned",
    )

    def __init__(
        self, link: Hashable, cost: int, expected: str, limits: NetworkLimits, now: float
    ) -> None:
        self.link = link
        self.cost = cost
        self.expected = expected
        self.hello = LinkHello(limits, now)
        self.node = ""
        self.instance = 0
        self.ended = 0
        self.ended_until = 0.0
        self.untold: dict[str, None] = {}
        self.flushes = Throttle(limits.pause, limits.longest_pause)
        self.assembly: Assembly | None = None
        self.warned = False
        self._limits = limits
        self._tokens = float(limits.frame_burst)
        self._bytes = float(limits.answer_rate)
        self._filled_at = now
        # By what was answered: the number of it, and the time until which it is not sent again.
        self._answered: dict[Hashable, tuple[Hashable, float]] = {}
        self._compare_at = 0.0
        self._compare_pause = 0.0
        self._differed = False

    @property
    def joined(self) -> bool:
        """Whether the node at the other end is a neighbour."""
        return self.hello.state is HelloState.NEIGHBOUR

    def admits(self, now: float) -> bool:
        """Return whether another frame is within the limits of a neighbour."""
        limits, passed = self._limits, now - self._filled_at
        more, most = passed * limits.frame_rate, float(limits.frame_burst)
        self._tokens = min(self._tokens + more, most) - 1.0
        rate = float(limits.answer_rate)
        self._bytes = min(self._bytes + passed * rate, rate)
        self._filled_at = now
        return self._tokens >= 0.0

    # --- answers ------------------------------------------------------------------------------

    def may_ask(self, what: Hashable, state: Hashable, now: float) -> bool:
        """Return whether a request is to be answered.

        It is not if the neighbour has had as many bytes of answers as `answer_rate` allows, or the
        same answer within half of the time in which it waits for one.

        Args:
            what: What is asked for.
            state: Which state of it would be answered.
            now: The time, in seconds of the caller's clock.
        """
        before, until = self._answered.get(what, (None, now))
        if self._bytes <= 0.0 or (before == state and now < until):
            return False
        self._answered[what] = state, now + self._limits.ask_timeout / 2
        return True

    def answered(self, size: int) -> None:
        """Charge the bytes of an answer."""
        self._bytes -= size

    def forget_answers(self, now: float) -> None:
        """Forget the answers that may be sent again."""
        for what in [what for what, (_, until) in self._answered.items() if now >= until]:
            del self._answered[what]

    # --- sums ---------------------------------------------------------------------------------

    def sums_differ(self, differ: bool, now: float) -> bool:
        """Return whether all nodes are to be advertised, as the sums have differed for a while.

        News that are under way make sums differ at one hello. The pause doubles each time: nodes
        with different limits never hold the same.
        """
        if not differ:
            self._differed, self._compare_pause = False, 0.0
            return False
        twice, self._differed = self._differed, True
        if not twice or now < self._compare_at:
            return False
        longer = max(2 * self._compare_pause, self._limits.advertise_in_flux)
        self._compare_pause = min(longer, self._limits.advertise)
        self._compare_at = now + self._compare_pause
        return True
