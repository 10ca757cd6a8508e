"""One circuit at a node: two sides that are tied together, without I/O."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from ._circuit_codec import parse_circuit_frame, serialize_circuit_frame
from ._circuit_frames import (
    MAX_CREDIT,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
)
from ._circuit_limits import CircuitLimits
from ._circuit_states import (
    CIRCUIT_PAIR,
    CircuitCondition,
    CircuitSide,
    PairInput,
    PairState,
)

_UP, _DOWN = CircuitSide.UPSTREAM, CircuitSide.DOWNSTREAM

PairSends: TypeAlias = list[tuple[CircuitSide, bytes]]
"""The frames that a pair has to send, each with the side to which it goes."""


class CreditExceeded(Exception):
    """There is no credit for what a side has sent."""


class CircuitPair:
    """One circuit at a node.

    Attributes:
        state: Its state.
        peers: The names of its two sides.
        hurried: Whether its deadline has become earlier since the caller last looked.
    """

    __slots__ = (
        "_answer_by",
        "_answered",
        "_consumer",
        "_credit",
        "_detached",
        "_heard",
        "_limits",
        "_open",
        "hurried",
        "peers",
        "state",
    )

    def __init__(
        self, producer: bool, peers: dict[CircuitSide, Hashable], limits: CircuitLimits, now: float
    ) -> None:
        self.state = PairState.ATTACHING
        self.peers = peers
        self.hurried = False
        self._limits = limits
        self._consumer = _DOWN if producer else _UP
        self._credit = 0
        self._open: bytes | None = None
        self._answered = False
        self._detached: CircuitSide | None = None
        self._answer_by = now + limits.answer_timeout
        self._heard = {_UP: now, _DOWN: now}

    @property
    def deadline(self) -> float:
        """The time at which it is lost if nothing comes."""
        if self.state is PairState.ATTACHED:
            return min(self._heard.values()) + self._limits.circuit_idle
        return self._answer_by

    @property
    def overdue(self) -> CircuitCondition:
        """The condition if the deadline has passed."""
        attached = self.state is PairState.ATTACHED
        return CircuitCondition.IDLE if attached else CircuitCondition.ANSWER_TIMEOUT

    def receive(self, side: CircuitSide, data: bytes, now: float) -> PairSends:
        """Check a frame and pass it on."""
        frame = parse_circuit_frame(data)
        if side is self._detached:
            raise unexpected(frame, "behind a detach")
        match frame:
            case CircuitAttach():
                raise unexpected(frame, "in a circuit")
            case CircuitAttached() | CircuitRefused():
                self._take_answer(side, frame)
            case CircuitDetach():
                self._take_detach(side, frame, now)
            case CircuitAlive():
                pass
            case _:
                self._take_traffic(side, frame)
        self._heard[side] = now
        return [(side.other, data)]

    def lose(
        self, sides: tuple[CircuitSide, ...], condition: CircuitCondition, description: str
    ) -> PairSends:
        """End it, and tell some sides."""
        attaching = self.state is PairState.ATTACHING
        self._step(PairInput.LOSE)
        lost = CircuitDetach(DetachKind.LOST, condition, description)
        refused = CircuitRefused(condition, description)
        return [
            (side, serialize_circuit_frame(refused if attaching and side is _UP else lost))
            for side in sides
        ]

    def _step(self, given: PairInput) -> None:
        self.state = CIRCUIT_PAIR[self.state, given]

    def _take_answer(self, side: CircuitSide, frame: CircuitAttached | CircuitRefused) -> None:
        if side is _UP or self._answered:
            raise unexpected(frame, "without an attach")
        self._answered = True
        attached = isinstance(frame, CircuitAttached)
        self._step(PairInput.ATTACHED if attached else PairInput.REFUSED)

    def _take_detach(self, side: CircuitSide, frame: CircuitDetach, now: float) -> None:
        if frame.how is DetachKind.LOST:
            self._step(PairInput.LOSE)
        elif self._detached is not None:
            self._step(PairInput.ANSWER)
        elif side is _DOWN and not self._answered:
            raise unexpected(frame, "in place of an answer")
        else:
            self._step(PairInput.DETACH)
            self._detached = side
            self._answer_by = now + self._limits.answer_timeout
            self.hurried = True

    def _take_traffic(
        self,
        side: CircuitSide,
        frame: CircuitFlow | CircuitDrained | CircuitTransfer | CircuitDisposition,
    ) -> None:
        if not self._answered:
            raise unexpected(frame, "before the circuit is attached")
        if isinstance(frame, CircuitDisposition):
            return
        if isinstance(frame, CircuitFlow) is not (side is self._consumer):
            raise unexpected(frame, "from the wrong end")
        match frame:
            case CircuitFlow(credit):
                self._credit += credit
                if self._credit > MAX_CREDIT:
                    raise CreditExceeded
            case CircuitDrained(credit):
                self._use(credit)
            case _:
                if self._open is None:
                    self._use(1)
                elif self._open != frame.tag:
                    raise CircuitFrameError("a delivery begins within another")
                self._open = frame.tag if frame.more else None

    def _use(self, credit: int) -> None:
        if credit > self._credit:
            raise CreditExceeded
        self._credit -= credit


def unexpected(frame: CircuitFrame, where: str) -> CircuitFrameError:
    """Return the error of a frame that may not come there."""
    kind = type(frame).__name__.removeprefix("Circuit").upper()
    return CircuitFrameError(f"{kind} {where}")
