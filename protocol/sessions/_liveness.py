"""The two ends of a session as state machines, without a clock: time is an argument.

Each method returns the actions to perform, in order. Between the calls the caller calls `tick` at
`wake_at`; a `tick` that comes too early does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, TypeAlias

from ._options import LivenessOptions
from ._states import SESSION, SessionInput, SessionState

__all__ = ["Acceptor", "Action", "Actions", "Opener"]


class Action(Enum):
    """An action that a state machine requests."""

    ATTEMPT = auto()
    """Find a route and send the handshake with the number `epoch`."""
    PING = auto()
    """Send the ping with the number `pings`."""
    UP = auto()
    """Report that the session is up; send the messages kept for it."""
    DOWN = auto()
    """Report that the session is down, with `cause`."""
    TELL = auto()
    """Send the frame that ends the session."""
    OVER = auto()
    """Report that the session is over, with `cause`. No other action follows."""


Actions: TypeAlias = tuple[Action, ...]
"""The actions to perform, in order."""

_NOTHING: Final[Actions] = ()
_S, _I = SessionState, SessionInput
_FURTHEST: Final = 32
"""Doublings of the wait for a retry; it has reached the longest long before."""


class _LivenessEnd:
    """The common part of both ends: the table, and closing.

    Attributes:
        state: The state of this end.
        epoch: Number of the latest handshake, from 1.
        cause: The reason why it is down or over, in a few words; empty before that.
        wake_at: Time of the next `tick`, in seconds of the caller's clock; `None` for none.
    """

    __slots__ = ("_told", "cause", "epoch", "options", "state", "wake_at")

    def __init__(self, options: LivenessOptions) -> None:
        self.options = options
        self.state = SessionState.ESTABLISHING
        self.epoch: int = 0
        self.cause = ""
        self.wake_at: float | None = None
        self._told = 0

    def _move(self, given: SessionInput, cause: str = "") -> bool:
        """Apply an input to the table; return whether it is legal in this state."""
        after = SESSION.get((self.state, given))
        if after is None:
            return False
        self.state = after
        self.cause = cause or self.cause
        if after is SessionState.CLOSED:
            self.wake_at = None
        return True

    def close(self, now: float, cause: str) -> Actions:
        """Close this end: send the close until it is confirmed, at most `close_attempts` times."""
        if not self._move(_I.CLOSE, cause):
            return _NOTHING
        if self.state is _S.CLOSED:
            return (Action.OVER,)
        self._told = 1
        self.wake_at = now + self.options.close_interval
        return (Action.TELL,)

    def acked(self) -> Actions:
        """Receive the confirmation of a close."""
        return (Action.OVER,) if self._move(_I.ACKED) else _NOTHING

    def told(self, cause: str) -> Actions:
        """Receive the close of the other end."""
        return (Action.OVER,) if self._move(_I.TOLD, cause) else _NOTHING

    def _due(self, now: float) -> bool:
        return self.wake_at is not None and now >= self.wake_at

    def _tell_again(self, now: float) -> Actions:
        if self._told >= self.options.close_attempts:
            return self.acked()
        self._told += 1
        self.wake_at = now + self.options.close_interval
        return (Action.TELL,)


class Opener(_LivenessEnd):
    """The end that opens the session, pings, and replaces its route.

    Args:
        options: Its times.
        random: Gives a number from 0 up to 1, for the jitter of waits.

    Attributes:
        pings: Number of the latest ping.
    """

    __slots__ = ("_failures", "_random", "_unanswered", "_up_at", "pings")

    def __init__(self, options: LivenessOptions, random: Callable[[], float]) -> None:
        super().__init__(options)
        self.pings = 0
        self._random = random
        self._failures = 0
        self._unanswered = 0
        self._up_at = 0.0

    def start(self, now: float) -> Actions:
        """Start the first handshake."""
        return self._attempt(now)

    def _attempt(self, now: float) -> Actions:
        self.epoch += 1
        self.wake_at = now + self.options.open_timeout
        return (Action.ATTEMPT,)

    def opened(self, now: float, epoch: int) -> Actions:
        """Receive the answer to a handshake; only an answer to the latest one counts."""
        if epoch != self.epoch or self.state is _S.UP or not self._move(_I.OPENED):
            return _NOTHING
        self._unanswered = 0
        self._up_at = now
        self.wake_at = now + self.options.ping_interval
        return (Action.UP,)

    def failed(self, now: float, epoch: int, cause: str) -> Actions:
        """Receive the failure of a handshake."""
        first = self.state is _S.ESTABLISHING
        if epoch != self.epoch or not self._move(_I.FAILED, cause):
            return _NOTHING
        self._failures += 1
        self._wait(now)
        return (Action.DOWN,) if first else _NOTHING

    def heard(self) -> None:
        """Receive an answer to a ping, or another sign of the other end."""
        self._unanswered = 0

    def lost(self, now: float, epoch: int, cause: str) -> Actions:
        """Receive the loss of the route of handshake `epoch`."""
        return self._go_down(now, _I.LOST, cause) if epoch == self.epoch else _NOTHING

    def tick(self, now: float) -> Actions:
        """Run the timer if it is due."""
        if not self._due(now):
            return _NOTHING
        if self.state is _S.UP:
            return self._ping(now)
        if self.state is _S.DOWN:
            self._move(_I.RETRY)
            return self._attempt(now)
        if self.state is _S.CLOSING:
            return self._tell_again(now)
        return self.failed(now, self.epoch, "no answer in time")

    def _ping(self, now: float) -> Actions:
        if self._unanswered >= self.options.max_unanswered:
            return self._go_down(now, _I.SILENT, f"{self._unanswered} pings went unanswered")
        self._unanswered += 1
        self.pings += 1
        self.wake_at = now + self.options.ping_interval
        return (Action.PING,)

    def _go_down(self, now: float, given: SessionInput, cause: str) -> Actions:
        if not self._move(given, cause):
            return _NOTHING
        # Only a route that lasted for a while was a success. Otherwise a route that is accepted
        # and lost at once, every time, would be tried without a pause.
        if now - self._up_at >= self.options.ping_interval:
            self._failures = 0
        else:
            self._failures += 1
        self._wait(now)
        return (Action.DOWN,)

    def _wait(self, now: float) -> None:
        options = self.options
        if self._failures == 0:
            # All sessions of a link go down together; they must not retry at the same time.
            self.wake_at = now + options.retry * options.jitter * self._random()
            return
        doubled = options.retry * 2.0 ** min(self._failures - 1, _FURTHEST)
        spread = 1 + options.jitter * (2 * self._random() - 1)
        self.wake_at = now + min(doubled, max(options.longest_retry, options.retry)) * spread


class Acceptor(_LivenessEnd):
    """The end that the first handshake creates.

    Args:
        options: Its times; `ping_interval` is the other end's.

    Attributes:
        forgotten: Whether it is over because the other end was silent for too long.
    """

    __slots__ = ("_heard_at", "forgotten")

    def __init__(self, options: LivenessOptions) -> None:
        super().__init__(options)
        self.forgotten = False
        self._heard_at = 0.0

    def opened(self, now: float, epoch: int) -> Actions | None:
        """Receive a handshake.

        Returns:
            The actions to perform; `None` if the handshake is older than one received before:
            it came too late, and its route must not be used.
        """
        if epoch < self.epoch or self.state in (_S.CLOSING, _S.CLOSED):
            return None
        self.epoch = epoch
        return self._came(now, _I.OPENED)

    def heard(self, now: float, epoch: int) -> Actions | None:
        """Receive a ping; return `None` if it is of an older handshake."""
        if epoch != self.epoch or self.state not in (_S.UP, _S.DOWN):
            return None
        return self._came(now, _I.HEARD)

    def _came(self, now: float, given: SessionInput) -> Actions:
        was_up = self.state is _S.UP
        if not self._move(given):
            raise AssertionError(f"unexpected {given} in {self.state}")
        self._heard_at = now
        self.wake_at = now + self.options.silence
        return _NOTHING if was_up else (Action.UP,)

    def lost(self, epoch: int, cause: str) -> Actions:
        """Receive the loss of the route that handshake `epoch` came by."""
        return self._go_down(_I.LOST, cause) if epoch == self.epoch else _NOTHING

    def tick(self, now: float) -> Actions:
        """Run the timer if it is due."""
        if not self._due(now):
            return _NOTHING
        if self.state is _S.UP:
            return self._go_down(_I.SILENT, "no ping came")
        if self.state is _S.CLOSING:
            return self._tell_again(now)
        self.forgotten = True
        self._move(_I.FORGET, "the other end was silent for too long")
        return (Action.OVER,)

    def _go_down(self, given: SessionInput, cause: str) -> Actions:
        if not self._move(given, cause):
            return _NOTHING
        self.wake_at = self._heard_at + max(self.options.forget_after, self.options.silence)
        return (Action.DOWN,)
