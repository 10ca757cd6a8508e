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
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from ._circuit_codec import serialize_circuit_frame
from ._circuit_frames import CircuitAttach, CircuitFrameError, CircuitRefused
from ._circuit_limits import CircuitLimits
from ._circuit_pair import CircuitPair, CreditExceeded, PairSends
from ._circuit_shares import CircuitPool, CircuitShares
from ._circuit_states import CircuitCondition, CircuitSide, PairState
from ._errors import LaterVersion
from ._transit import DIGEST_SIZE, MAX_PATH

__all__ = ["CircuitOpened", "CircuitSend", "CircuitStatistics", "Circuits"]

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


class Circuits:
    """All circuits of a node. Each has a number, and two peers: what stands at its sides.

    After each call the caller sends what it returns. A circuit that is over is forgotten.

    Args:
        own: The digest of this node in the path of an attach, 4 bytes.
        limits: The limits.
    """

    def __init__(self, own: bytes, limits: CircuitLimits | None = None) -> None:
        self._own = own
        self._limits = limits or CircuitLimits()
        self._pairs: dict[int, CircuitPair] = {}
        self._by_peer: dict[Hashable, dict[int, None]] = {}
        self._shares = CircuitShares(self._limits)
        self._timers: list[tuple[float, int]] = []
        self._last = 0
        self._ended: Counter[PairState] = Counter()
        self._refused: Counter[CircuitCondition] = Counter()
        self._lost: Counter[CircuitCondition] = Counter()
        self._ignored = 0
        self._later = 0

    def open(
        self,
        attach: CircuitAttach,
        upstream: Hashable,
        downstream: Hashable | None,
        now: float,
        *,
        neighbour: bool = False,
        pool: CircuitPool | None = None,
    ) -> CircuitOpened | CircuitRefused:
        """Tie the sides of a new circuit, or return the refusal that has to be sent back.

        Args:
            attach: What has come.
            upstream: The peer from which it has come.
            downstream: The peer to which it goes on; `None` if there is no container of the name.
            now: The time, in seconds.
            neighbour: Whether it has come from a neighbour, which has a share of its own.
            pool: The circuits of which the source has a share; by default those of the peer to
                which it goes on.
        """
        refused = self._refusal(attach.path, upstream, downstream)
        if refused is None and downstream is not None:
            pool = pool or CircuitPool(downstream, self._limits.max_peer_circuits)
            source = upstream if neighbour else None
            if not self._shares.take(self._last + 1, pool, source, attach):
                refused = CircuitCondition.SHARE_FULL
        if refused is not None or downstream is None:
            condition = refused or CircuitCondition.NO_ROUTE
            self._refused[condition] += 1
            return CircuitRefused(condition)
        self._last += 1
        pair = CircuitPair(attach.producer, {_UP: upstream, _DOWN: downstream}, self._limits, now)
        self._pairs[self._last] = pair
        for peer in pair.peers.values():
            self._by_peer.setdefault(peer, {})[self._last] = None
        heappush(self._timers, (pair.deadline, self._last))
        onward = replace(attach, path=attach.path + self._own)
        return CircuitOpened(self._last, serialize_circuit_frame(onward))

    def _refusal(
        self, path: bytes, upstream: Hashable, downstream: Hashable | None
    ) -> CircuitCondition | None:
        passed = {path[at : at + DIGEST_SIZE] for at in range(0, len(path), DIGEST_SIZE)}
        if self._own in passed or len(path) >= DIGEST_SIZE * MAX_PATH:
            return CircuitCondition.ROUTE_LOOP
        if len(self._pairs) >= self._limits.max_circuits:
            return CircuitCondition.CIRCUITS_FULL
        most = self._limits.max_peer_circuits
        if any(len(self._by_peer.get(peer, ())) >= most for peer in (upstream, downstream)):
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
        except CreditExceeded:
            return self._lose(number, (_UP, _DOWN), CircuitCondition.CREDIT_EXCEEDED)
        return self._settle(number, sends)

    def link_lost(self, peer: Hashable) -> tuple[CircuitSend, ...]:
        """End all circuits of a peer that is gone; the sides that are left are told."""
        made: list[CircuitSend] = []
        for number in tuple(self._by_peer.get(peer, ())):
            left = [side for side, name in self._pairs[number].peers.items() if name != peer]
            made += self._lose(number, tuple(left), CircuitCondition.ROUTE_LOST)
        return tuple(made)

    def side_lost(
        self, number: int, side: CircuitSide, condition: CircuitCondition
    ) -> tuple[CircuitSend, ...]:
        """End a circuit of which a side is gone, or takes no more frames.

        The other side is told, and one that is too slow as well.
        """
        if number not in self._pairs:
            return ()
        slow = condition is CircuitCondition.TOO_SLOW
        return self._lose(number, (_UP, _DOWN) if slow else (side.other,), condition)

    def close(self) -> tuple[CircuitSend, ...]:
        """End all circuits; both sides of each are told."""
        made: list[CircuitSend] = []
        for number in tuple(self._pairs):
            made += self._lose(number, (_UP, _DOWN), CircuitCondition.ROUTE_LOST)
        return tuple(made)

    def of_peer(self, peer: Hashable) -> tuple[int, ...]:
        """Return the numbers of the circuits of a peer."""
        return tuple(self._by_peer.get(peer, ()))

    def __len__(self) -> int:
        """Return the number of circuits that are not over."""
        return len(self._pairs)

    def __contains__(self, number: object) -> bool:
        """Whether there is a circuit of a number, which is not over."""
        return number in self._pairs

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

    def peers(self, number: int) -> tuple[Hashable, Hashable]:
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

    def _settle(self, number: int, sends: PairSends) -> tuple[CircuitSend, ...]:
        pair = self._pairs[number]
        if pair.state in _OVER:
            self._ended[pair.state] += 1
            del self._pairs[number]
            self._shares.give_back(number)
            for peer in set(pair.peers.values()):
                del self._by_peer[peer][number]
                if not self._by_peer[peer]:
                    del self._by_peer[peer]
        elif pair.hurried:
            pair.hurried = False
            heappush(self._timers, (pair.deadline, number))
        return tuple(CircuitSend(number, side, data) for side, data in sends)


_OVER: Final = frozenset({PairState.REFUSED, PairState.DETACHED, PairState.LOST})
