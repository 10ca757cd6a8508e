"""Whether the node at the other end of a link is a neighbour.

Both ends send a hello each second, with the nodes that they have heard on the link. A node is a
neighbour when it says that it has heard this one: then frames arrive in both directions. It is lost
after three hellos that are missed, or at once when the link is lost.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ._network_limits import NetworkLimits

__all__ = ["HELLO", "HelloInput", "HelloState", "LinkHello"]


class HelloState(Enum):
    """A link, by what is heard on it."""

    SILENT = auto()
    """Nothing is heard."""
    HEARD = auto()
    """A node is heard that has not heard this one."""
    NEIGHBOUR = auto()
    """A node is heard that has heard this one."""


class HelloInput(Enum):
    """An input of the hellos on a link."""

    HEARS_US = auto()
    """A hello of a node that has heard this one."""
    HEARS_NOT = auto()
    """A hello of a node that has not."""
    MISSED = auto()
    """So many hellos are missed that the node is lost."""


HELLO: Final[dict[tuple[HelloState, HelloInput], HelloState]] = {
    (HelloState.SILENT, HelloInput.HEARS_US): HelloState.NEIGHBOUR,
    (HelloState.SILENT, HelloInput.HEARS_NOT): HelloState.HEARD,
    (HelloState.HEARD, HelloInput.HEARS_US): HelloState.NEIGHBOUR,
    (HelloState.HEARD, HelloInput.HEARS_NOT): HelloState.HEARD,
    (HelloState.HEARD, HelloInput.MISSED): HelloState.SILENT,
    (HelloState.NEIGHBOUR, HelloInput.HEARS_US): HelloState.NEIGHBOUR,
    # The other end has lost this node, or was started again.
    (HelloState.NEIGHBOUR, HelloInput.HEARS_NOT): HelloState.HEARD,
    (HelloState.NEIGHBOUR, HelloInput.MISSED): HelloState.SILENT,
}
"""The state after an input; where there is none, nothing changes."""


class LinkHello:
    """The hellos on one link.

    Args:
        limits: The times.
        now: The time, in seconds of the caller's clock.

    Attributes:
        state: The state.
        send_at: Time of the next hello of this node. A change of the state makes it at once.
        missed_at: Time at which the other node is lost; `None` if none is heard.
    """

    __slots__ = ("_excused", "_limits", "missed_at", "send_at", "state")

    def __init__(self, limits: NetworkLimits, now: float) -> None:
        self._limits = limits
        self.state = HelloState.SILENT
        self.send_at = now
        self.missed_at: float | None = None
        self._excused = False

    def heard(self, hears_us: bool, now: float) -> None:
        """Handle a hello of the other node, by whether it has heard this one."""
        self.missed_at = now + self._limits.missed_hellos * self._limits.hello
        self._excused = False
        self._move(HelloInput.HEARS_US if hears_us else HelloInput.HEARS_NOT, now)

    def sent(self, now: float) -> None:
        """Set the time of the next hello, as one is sent."""
        self.send_at = now + self._limits.hello

    def missed(self, now: float) -> bool:
        """Return whether the other node is lost just now."""
        if self.missed_at is None or now < self.missed_at:
            return False
        # This node has been held up, and hellos may wait unread: there is time to read them.
        if now - self.missed_at >= self._limits.hello and not self._excused:
            self.missed_at, self._excused = now + self._limits.hello, True
            return False
        self.missed_at = None
        self._move(HelloInput.MISSED, now)
        return True

    def _move(self, given: HelloInput, now: float) -> None:
        after = HELLO[self.state, given]
        if after is not self.state:
            self.state, self.send_at = after, now
