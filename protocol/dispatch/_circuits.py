"""The circuits of a node: each a pair of sides that are tied together.

> Each router in the chain holds pairs of link termini that are tied together. The router then
> simply exchanges all deliveries, delivery state changes, and link state changes between the two
> termini.

So a frame is read to check it, and its bytes are passed on as they came. The node keeps no delivery
and no unsettled map. What it counts is the credit: each part of it has passed here on its way to
the producer, so a transfer without credit is seen at the first node, and goes no further.

A side that breaks the protocol, a link that is lost, and a time that is over end the circuit in
both directions, and each end is told the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from heapq import heappop, heappush
from typing import Final, TypeAlias

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
    parse_circuit_frame,
    serialize_circuit_frame,
)
from ._circuit_limits import CircuitLimits
from ._circuit_states import CIRCUIT_PAIR, PairInput, PairState
from ._errors import LaterVersion
from ._transit import DIGEST_SIZE, MAX_PATH

__all__ = [
    "CircuitCondition",
    "CircuitOpened",
    "CircuitSend",
    "CircuitSide",
    "CircuitStatistics",
    "Circuits",
]


class CircuitCondition(StrEnum):
    """The reasons for which a node, or an end by itself, refuses or ends a circuit."""

    NO_ROUTE = "no-route"
    """There is no container of the name."""
    ROUTE_LOOP = "route-loop"
    """The attach has passed this node before, or too many nodes."""
    ROUTE_LOST = "route-lost"
    """A link, a node or an end of the circuit is gone."""
    CIRCUITS_FULL = "circuits-full"
    """The node has as many circuits as it may."""
    PEER_CIRCUITS_FULL = "peer-circuits-full"
    """A neighbour, client or container has as many circuits as it may."""
    ANSWER_TIMEOUT = "answer-timeout"
    """An attach, detach or close was not answered in time."""
    IDLE = "idle"
    """A side has sent nothing for too long."""
    CREDIT_EXCEEDED = "credit-exceeded"
    """A producer has used more credit than it was given, or was given more than there is."""
    UNSETTLED_EXCEEDED = "unsettled-exceeded"
    """A producer has more unsettled deliveries than the consumer bears."""
    BAD_FRAME = "bad-frame"
    """A frame that is none, or that may not come there."""


class CircuitSide(Enum):
    """A side of a circuit at a node."""

    UPSTREAM = "towards the end that has attached"
    DOWNSTREAM = "towards the end that accepts"

    @property
    def other(self) -> CircuitSide:
        """The other side."""
        return _DOWN if self is _UP else _UP


_UP, _DOWN = CircuitSide.UPSTREAM, CircuitSide.DOWNSTREAM


@dataclass(frozen=True, slots=True)
class CircuitSend:
    """A frame that has to be sent.

    Attributes:
        number: The number of the circuit at this node.
        side: The side to which it goes.
        data: The frame.
    """

    number: int
    side: CircuitSide
    data: bytes


@dataclass(frozen=True, slots=True)
class CircuitOpened:
    """A circuit that was opened at this node.

    Attributes:
        number: Its number at this node.
        attach: The attach, which has to be sent downstream.
    """

    number: int
    attach: bytes


@dataclass(frozen=True, slots=True)
class CircuitStatistics:
    """The circuits of a node at one moment.

    Attributes:
        open: Number of circuits by their state.
        ended: Number of circuits that are over, by their last state.
        refused: Number of attaches that this node has refused by itself, by the condition.
        lost: Number of circuits that this node has ended by itself, by the condition.
        ignored: Number of frames for a circuit that is over.
        later: Number of frames of a later version.
    """

    open: Mapping[PairState, int]
    ended: Mapping[PairState, int]
    refused: Mapping[CircuitCondition, int]
    lost: Mapping[CircuitCondition, int]
    ignored: int
    later: int


_Sends: TypeAlias = list[tuple[CircuitSide, bytes]]


class Circuits:
    """All circuits of a node. Each has a number, and two peers: the texts that name its sides.

    After each call the caller sends what it returns. A circuit that is over is forgotten.

    Args:
        own: The digest of this node in the path of an attach, 4 bytes.
        limits: The limits.
    """

    def __init__(self, own: bytes, limits: CircuitLimits | None = None) -> None:
        self._own = own
        self._limits = limits or CircuitLimits()
        self._pairs: dict[int, _Pair] = {}
        self._by_peer: dict[str, dict[int, None]] = {}
        self._timers: list[tuple[float, int]] = []
        self._last = 0
        self._ended: Counter[PairState] = Counter()
        self._refused: Counter[CircuitCondition] = Counter()
        self._lost: Counter[CircuitCondition] = Counter()
        self._ignored = 0
        self._later = 0

    def open(
        self, attach: CircuitAttach, upstream: str, downstream: str | None, now: float
    ) -> CircuitOpened | CircuitRefused:
        """Tie the sides of a new circuit, or return the refusal that has to be sent back.

        Args:
            attach: What has come.
            upstream: The peer from which it has come.
            downstream: The peer to which it goes on; `None` if there is no container of the name.
            now: The time, in seconds.
        """
        refused = self._refusal(attach.path, upstream, downstream)
        if refused is not None or downstream is None:
            condition = refused or CircuitCondition.NO_ROUTE
            self._refused[condition] += 1
            return CircuitRefused(condition)
        self._last += 1
        pair = _Pair(attach.producer, {_UP: upstream, _DOWN: downstream}, self._limits, now)
        self._pairs[self._last] = pair
        for peer in pair.peers.values():
            self._by_peer.setdefault(peer, {})[self._last] = None
        heappush(self._timers, (pair.deadline, self._last))
        onward = replace(attach, path=attach.path + self._own)
        return CircuitOpened(self._last, serialize_circuit_frame(onward))

    def _refusal(
        self, path: bytes, upstream: str, downstream: str | None
    ) -> CircuitCondition | None:
        passed = {path[at : at + DIGEST_SIZE] for at in range(0, len(path), DIGEST_SIZE)}
        if self._own in passed or len(path) >= DIGEST_SIZE * MAX_PATH:
            return CircuitCondition.ROUTE_LOOP
        if len(self._pairs) >= self._limits.max_circuits:
            return CircuitCondition.CIRCUITS_FULL
        most = self._limits.max_peer_circuits
        if any(len(self._by_peer.get(peer or "", ())) >= most for peer in (upstream, downstream)):
            return CircuitCondition.PEER_CIRCUITS_FULL
        return None

    def receive(
        self, number: int, side: CircuitSide, data: bytes, now: float
    ) -> tuple[CircuitSend, ...]:
        """Process a frame that has come from one side, and return what has to be sent."""
        pair = self._pairs.get(number)
        if pair is None:
            self._ignored += 1
            return ()
        try:
            sends = pair.receive(side, data, now)
        except LaterVersion:
            self._later += 1
            return ()
        except CircuitFrameError as error:
            return self._lose(number, (_UP, _DOWN), CircuitCondition.BAD_FRAME, error.reason)
        except _CreditExceeded:
            return self._lose(number, (_UP, _DOWN), CircuitCondition.CREDIT_EXCEEDED)
        return self._settle(number, sends)

    def link_lost(self, peer: str) -> tuple[CircuitSend, ...]:
        """End all circuits of a peer that is gone; the sides that are left are told."""
        made: list[CircuitSend] = []
        for number in tuple(self._by_peer.get(peer, ())):
            left = [side for side, name in self._pairs[number].peers.items() if name != peer]
            made += self._lose(number, tuple(left), CircuitCondition.ROUTE_LOST)
        return tuple(made)

    def get_timer(self) -> float | None:
        """Return the time at which `due` has to be called, or `None`."""
        while self._timers and self._timers[0][1] not in self._pairs:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def due(self, now: float) -> tuple[CircuitSend, ...]:
        """End the circuits with times that are over."""
        made: list[CircuitSend] = []
        while (timer := self.get_timer()) is not None and timer <= now:
            _, number = heappop(self._timers)
            pair = self._pairs[number]
            if pair.deadline > now:
                heappush(self._timers, (pair.deadline, number))
                continue
            made += self._lose(number, (_UP, _DOWN), pair.overdue)
        return tuple(made)

    def peers(self, number: int) -> tuple[str, str]:
        """Return the peers of a circuit, the upstream one first.

        Raises:
            KeyError: There is no such circuit, or it is over.
        """
        pair = self._pairs[number]
        return pair.peers[_UP], pair.peers[_DOWN]

    def statistics(self) -> CircuitStatistics:
        """Return counts."""
        return CircuitStatistics(
            open=dict(Counter(pair.state for pair in self._pairs.values())),
            ended=dict(self._ended),
            refused=dict(self._refused),
            lost=dict(self._lost),
            ignored=self._ignored,
            later=self._later,
        )

    def _lose(
        self,
        number: int,
        sides: tuple[CircuitSide, ...],
        condition: CircuitCondition,
        description: str = "",
    ) -> tuple[CircuitSend, ...]:
        self._lost[condition] += 1
        pair = self._pairs[number]
        return self._settle(number, pair.lose(sides, condition, description))

    def _settle(self, number: int, sends: _Sends) -> tuple[CircuitSend, ...]:
        pair = self._pairs[number]
        if pair.state in _OVER:
            self._ended[pair.state] += 1
            del self._pairs[number]
            for peer in set(pair.peers.values()):
                del self._by_peer[peer][number]
                if not self._by_peer[peer]:
                    del self._by_peer[peer]
        elif pair.hurried:
            pair.hurried = False
            heappush(self._timers, (pair.deadline, number))
        return tuple(CircuitSend(number, side, data) for side, data in sends)


_OVER: Final = frozenset({PairState.REFUSED, PairState.DETACHED, PairState.LOST})


class _CreditExceeded(Exception):
    """There is no credit for what a side has sent."""


class _Pair:
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
        self, producer: bool, peers: dict[CircuitSide, str], limits: CircuitLimits, now: float
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

    def receive(self, side: CircuitSide, data: bytes, now: float) -> _Sends:
        """Check a frame and pass it on."""
        frame = parse_circuit_frame(data)
        if side is self._detached:
            raise _unexpected(frame, "behind a detach")
        match frame:
            case CircuitAttach():
                raise _unexpected(frame, "in a circuit")
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
    ) -> _Sends:
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
            raise _unexpected(frame, "without an attach")
        self._answered = True
        attached = isinstance(frame, CircuitAttached)
        self._step(PairInput.ATTACHED if attached else PairInput.REFUSED)

    def _take_detach(self, side: CircuitSide, frame: CircuitDetach, now: float) -> None:
        if frame.how is DetachKind.LOST:
            self._step(PairInput.LOSE)
        elif self._detached is not None:
            self._step(PairInput.ANSWER)
        elif side is _DOWN and not self._answered:
            raise _unexpected(frame, "in place of an answer")
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
            raise _unexpected(frame, "before the circuit is attached")
        if isinstance(frame, CircuitDisposition):
            return
        if isinstance(frame, CircuitFlow) is not (side is self._consumer):
            raise _unexpected(frame, "from the wrong end")
        match frame:
            case CircuitFlow(credit):
                self._credit += credit
                if self._credit > MAX_CREDIT:
                    raise _CreditExceeded
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
            raise _CreditExceeded
        self._credit -= credit


def _unexpected(frame: CircuitFrame, where: str) -> CircuitFrameError:
    kind = type(frame).__name__.removeprefix("Circuit").upper()
    return CircuitFrameError(f"{kind} {where}")
