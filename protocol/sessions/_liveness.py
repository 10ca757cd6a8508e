"""The two ends of a session as state machines. They read no clock: each call says what time it is.

Each method returns what is to be done, in order. Between the calls the machine wants to be woken
at `wake_at`, with `tick`; a `tick` that comes too early does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, TypeAlias

from ._options import LivenessOptions
from ._states import SESSION, SessionInput, SessionState

__all__ = ["Acceptor", "Action", "Actions", "Opener"]


class Action(Enum):
    """What a machine wants done."""

    ATTEMPT = auto()
    """Find a way and do the handshake, with the number `epoch`."""
    PING = auto()
    """Send the ping with the number `pings`."""
    UP = auto()
    """Say that messages go through; send what was kept."""
    DOWN = auto()
    """Say that none go through any more; `cause` says why."""
    TELL = auto()
    """Tell the other end that the session is over."""
    OVER = auto()
    """Say that the session is over; `cause` says why. Nothing else will be wanted."""


Actions: TypeAlias = tuple[Action, ...]
"""What is to be done, in order."""

_NOTHING: Final[Actions] = ()
_S, _I = SessionState, SessionInput
_FURTHEST: Final = 32
"""Doublings of the wait for a retry; it has reached the longest long before."""


class _End:
    """What both ends have in common: the table, and closing.

    Attributes:
        state: Where it is.
        epoch: Number of the latest handshake, from 1.
        cause: Why it went down or is over, in a few words; empty as long as it has not.
        wake_at: When to call `tick`, in seconds of the caller's clock; `None`: not at all.
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
        """Take an input; false if it came too late to mean anything."""
        after = SESSION.get((self.state, given))
        if after is None:
            return False
        self.state = after
        self.cause = cause or self.cause
        if after is SessionState.CLOSED:
            self.wake_at = None
        return True

    def close(self, now: float, cause: str) -> Actions:
        """Close this end: the other one is told until it confirms or was told often enough."""
        if not self._move(_I.CLOSE, cause):
            return _NOTHING
        if self.state is _S.CLOSED:
            return (Action.OVER,)
        self._told = 1
        self.wake_at = now + self.options.close_interval
        return (Action.TELL,)

    def acked(self) -> Actions:
        """Take the other end's confirmation of a close."""
        return (Action.OVER,) if self._move(_I.ACKED) else _NOTHING

    def told(self, cause: str) -> Actions:
        """Take the other end's word that the session is over."""
        return (Action.OVER,) if self._move(_I.TOLD, cause) else _NOTHING

    def _due(self, now: float) -> bool:
        return self.wake_at is not None and now >= self.wake_at

    def _tell_again(self, now: float) -> Actions:
        if self._told >= self.options.close_attempts:
            return self.acked()
        self._told += 1
        self.wake_at = now + self.options.close_interval
        return (Action.TELL,)


class Opener(_End):
    """The end that asks for the session, pings, and replaces the way.

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
        """Begin."""
        return self._attempt(now)

    def _attempt(self, now: float) -> Actions:
        self.epoch += 1
        self.wake_at = now + self.options.open_timeout
        return (Action.ATTEMPT,)

    def opened(self, now: float, epoch: int) -> Actions:
        """Take the answer to a handshake; one to another than the latest is too late."""
        if epoch != self.epoch or self.state is _S.UP or not self._move(_I.OPENED):
            return _NOTHING
        self._unanswered = 0
        self._up_at = now
        self.wake_at = now + self.options.ping_interval
        return (Action.UP,)

    def failed(self, now: float, epoch: int, cause: str) -> Actions:
        """Take the failure of a handshake."""
        first = self.state is _S.ESTABLISHING
        if epoch != self.epoch or not self._move(_I.FAILED, cause):
            return _NOTHING
        self._failures += 1
        self._wait(now)
        return (Action.DOWN,) if first else _NOTHING

    def heard(self) -> None:
        """Take an answer to a ping, or any other sign of the other end."""
        self._unanswered = 0

    def lost(self, now: float, epoch: int, cause: str) -> Actions:
        """Take the loss of the way that handshake `epoch` was made by."""
        return self._go_down(now, _I.LOST, cause) if epoch == self.epoch else _NOTHING

    def tick(self, now: float) -> Actions:
        """Do what is due."""
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
        # Only a way that held for a while was a success. Else one that is always taken and
        # always lost at once would be tried without any pause.
        if now - self._up_at >= self.options.ping_interval:
            self._failures = 0
        else:
            self._failures += 1
        self._wait(now)
        return (Action.DOWN,)

    def _wait(self, now: float) -> None:
        options = self.options
        if self._failures == 0:
            # All sessions of a link go down together; they are not to come back as one.
            self.wake_at = now + options.retry * options.jitter * self._random()
            return
        doubled = options.retry * 2.0 ** min(self._failures - 1, _FURTHEST)
        spread = 1 + options.jitter * (2 * self._random() - 1)
        self.wake_at = now + min(doubled, max(options.longest_retry, options.retry)) * spread


class Acceptor(_End):
    """The end that a handshake made.

    Args:
        options: Its times; `ping_interval` is the other end's.

    Attributes:
        forgotten: Whether it is over because nothing came for too long.
    """

    __slots__ = ("_heard_at", "forgotten")

    def __init__(self, options: LivenessOptions) -> None:
        super().__init__(options)
        self.forgotten = False
        self._heard_at = 0.0

    def opened(self, now: float, epoch: int) -> Actions | None:
        """Take a handshake.

        Returns:
            What to do; `None` if the handshake is older than one taken before: it came
            too late, and its way must not be used.
        """
        if epoch < self.epoch or self.state in (_S.CLOSING, _S.CLOSED):
            return None
        self.epoch = epoch
        return self._came(now, _I.OPENED)

    def heard(self, now: float, epoch: int) -> Actions | None:
        """Take a ping; `None` if it is of an older handshake."""
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
        """Take the loss of the way that handshake `epoch` came by."""
        return self._go_down(_I.LOST, cause) if epoch == self.epoch else _NOTHING

    def tick(self, now: float) -> Actions:
        """Do what is due."""
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
