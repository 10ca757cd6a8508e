"""The presence of one peer broker, without a clock: when its routes are hidden, used and removed.

Each method returns the actions to perform, in order. Between the calls the caller calls `tick` at
`wake_at`; a `tick` that comes too early does nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final, TypeAlias

from ._limits import ClusterLimits
from ._presence_states import PRESENCE, PresenceInput, PresenceState

__all__ = ["Presence", "PresenceAction", "PresenceActions"]

_S, _I = PresenceState, PresenceInput


class PresenceAction(Enum):
    """An action that the presence of a peer broker requests."""

    SUSPEND = auto()
    """Hide its routes, and end what is under way by its link."""
    REVEAL = auto()
    """Use its routes again."""
    DROP = auto()
    """Remove its routes, and begin with a subscription that knows nothing."""


PresenceActions: TypeAlias = tuple[PresenceAction, ...]
"""The actions to perform, in order."""

_NOTHING: Final[PresenceActions] = ()


class Presence:
    """The presence of one peer broker.

    Args:
        limits: Its times.
        now: The time, in seconds of the caller's clock.

    Attributes:
        state: The state.
        since: Time at which it came into this state, in seconds of the caller's clock.
        cause: The reason why it was lost the last time, in a few words; empty before that.
        wake_at: Time of the next `tick`; `None` for none.
    """

    __slots__ = ("_hold", "_linked_at", "_losses", "cause", "limits", "since", "state", "wake_at")

    def __init__(self, limits: ClusterLimits, now: float) -> None:
        self.limits = limits
        self.state = PresenceState.CONNECTING
        self.since = now
        self.cause = ""
        self.wake_at: float | None = None
        # The latest losses, and how long the link has to hold before its routes are used.
        self._losses = deque[float](maxlen=limits.flap_losses)
        self._hold = 0.0
        self._linked_at = now

    @property
    def linked(self) -> bool:
        """Whether it has a link."""
        return self.state in (_S.JOINING, _S.UP, _S.RETURNING, _S.UNSTEADY)

    @property
    def hidden(self) -> bool:
        """Whether its routes are hidden."""
        return self.state in (_S.SUSPENDED, _S.RETURNING, _S.UNSTEADY)

    def _move(self, given: PresenceInput, now: float) -> bool:
        after = PRESENCE.get((self.state, given))
        if after is None:
            return False
        self.state, self.since = after, now
        self.wake_at = None
        return True

    def linked_up(self, now: float) -> PresenceActions:
        """Receive a link on which both brokers know each other; subscribe on it.

        A link that replaces another one is no news: the subscription goes on from its position.
        """
        if self._move(_I.LINKED, now):
            self._linked_at = now
        return _NOTHING

    def caught_up(self, now: float) -> PresenceActions:
        """Receive the news that the copy of its routes is whole."""
        steady_at = self._linked_at + self._hold
        hidden = self.hidden
        if not self._move(_I.EARLY if now < steady_at else _I.IN_STEP, now):
            return _NOTHING
        if self.state is _S.UNSTEADY:
            self.wake_at = steady_at
            return _NOTHING
        return (PresenceAction.REVEAL,) if hidden else _NOTHING

    def lost(self, now: float, cause: str, *, replaced: bool = False) -> PresenceActions:
        """Receive the loss of the link.

        Args:
            now: The time.
            cause: The reason, in a few words.
            replaced: Whether another link takes its place, so that it does not count as a loss.
        """
        hidden = self.hidden
        if not self._move(_I.LOST, now):
            return _NOTHING
        self.cause = cause
        self.wake_at = now + self.limits.peer_hold
        if not replaced:
            self._count_loss(now)
        return _NOTHING if hidden else (PresenceAction.SUSPEND,)

    def _count_loss(self, now: float) -> None:
        limits = self.limits
        self._losses.append(now)
        first = self._losses[0]
        if len(self._losses) < limits.flap_losses or now - first > limits.flap_window:
            self._hold = 0.0
        else:
            longer = max(limits.flap_hold, 2 * self._hold)
            self._hold = min(longer, max(limits.longest_flap_hold, limits.flap_hold))

    def wrong(self, now: float, cause: str) -> PresenceActions:
        """Receive the news that it has sent a bad frame; close its link."""
        if not self._move(_I.WRONG, now):
            return _NOTHING
        self.cause = cause
        self.wake_at = now + self.limits.pause
        return PresenceAction.SUSPEND, PresenceAction.DROP

    def tick(self, now: float) -> PresenceActions:
        """Run the timer if it is due."""
        if self.wake_at is None or now < self.wake_at:
            return _NOTHING
        if self._move(_I.HELD, now):
            return (PresenceAction.DROP,)
        if self._move(_I.STEADY, now):
            return (PresenceAction.REVEAL,)
        self._move(_I.RESUMED, now)
        return _NOTHING
