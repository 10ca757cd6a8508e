"""Messages on hold: those that no consumer took, until one does or their time is over.

A message is tried in *rounds*. In a round each target is asked at most once; when none is left, the
message waits for its next round, at first for a short time and then for twice as long each time. A
consumer that comes meanwhile is asked at once, as a part of the same round. A message goes to the
next step of what is provisioned for undeliverable messages when its rounds or its time are over, or
if there is no room for it. While a target has the message, it is not on hold: it is put back if the
target releases it, with the same rounds and time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

from ._delivery import Delivery
from ._delivery_limits import NodeTotals
from ._loads import Target
from ._semantics_parts import Retry

__all__ = ["HoldQueue"]

M = TypeVar("M")

_SPARE: Final = 64
"""Times of messages that have gone which may lie in the heap beyond as many as are held."""


class HoldQueue(Generic[M]):
    """The messages of a name that are on hold: a part of `Deliveries`.

    Args:
        retry: The bounds and times.
        totals: What all names of the node have together.
    """

    def __init__(self, retry: Retry, totals: NodeTotals | None = None) -> None:
        self._retry = retry
        self._totals = totals or NodeTotals()
        # In the order in which they came: that in which they are tried.
        self._held: dict[Delivery[M], None] = {}
        self._times: list[tuple[float, int, Delivery[M]]] = []
        self._numbers = count()
        self.size = 0
        """Bytes of the messages."""
        self.settled = 0
        """Number of those that are pre-settled."""
        self.expired = 0
        """Number of messages with their time or rounds over."""
        self.refused = 0
        """Number of messages for which there was no room or no time."""

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._held)

    def __iter__(self) -> Iterator[Delivery[M]]:
        """Iterate over the messages in the order in which they came."""
        return iter(self._held)

    def put(self, delivery: Delivery[M], now: float) -> bool:
        """Hold a message, for the first time or again; return whether there is room and time.

        Args:
            delivery: The message.
            now: The time, in seconds.
        """
        hold = self._retry.hold
        if delivery.hold_until is None:
            ends = (now + hold.age, delivery.until, delivery.deadline)
            delivery.hold_until = min(each for each in ends if each is not None)
        full = not delivery.promised and (
            len(self._held) >= hold.messages
            or self.size + delivery.size > hold.size
            or (delivery.settled and not self._has_settled_room(delivery))
        )
        if full or delivery.hold_until <= now:
            self.refused += 1
            return False
        self._held[delivery] = None
        self.size += delivery.size
        if delivery.settled:
            self._count_settled(delivery, 1)
        self._schedule(delivery, now)
        return True

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing is held."""
        while self._times and self._is_stale(self._times[0]):
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def due(self, now: float) -> tuple[list[Delivery[M]], list[Delivery[M]]]:
        """Return the messages of which a round begins, and those that have expired and have left.

        Args:
            now: The time, in seconds.
        """
        begun: list[Delivery[M]] = []
        expired: list[Delivery[M]] = []
        while (timer := self.get_timer()) is not None and timer <= now:
            delivery = heappop(self._times)[2]
            until = delivery.hold_until
            used_up = self._retry.rounds and delivery.rounds >= self._retry.rounds
            if used_up or (until is not None and until <= now):
                self.remove(delivery)
                self.expired += 1
                expired.append(delivery)
                continue
            delivery.rounds += 1
            delivery.since = now
            delivery.tried.clear()
            delivery.tries = 0
            self._schedule(delivery, now)
            begun.append(delivery)
        return begun, expired

    def joined(self, target: Target) -> list[Delivery[M]]:
        """Return the messages that a new target can be asked for at once, in order."""
        return [delivery for delivery in self._held if target not in delivery.tried]

    def remove(self, delivery: Delivery[M]) -> None:
        """Remove a message; do nothing if it is not on hold."""
        if delivery in self._held:
            del self._held[delivery]
            self.size -= delivery.size
            if delivery.settled:
                self._count_settled(delivery, -1)

    def became_settled(self, delivery: Delivery[M]) -> bool:
        """Count a message as pre-settled from now on, if it is on hold.

        Returns:
            Whether it may stay: without room for one more that is pre-settled it has been removed.
        """
        if delivery not in self._held:
            return True
        if self._has_settled_room(delivery):
            self._count_settled(delivery, 1)
            return True
        del self._held[delivery]
        self.size -= delivery.size
        self.refused += 1
        return False

    def clear(self) -> list[Delivery[M]]:
        """Remove and return all messages, as when the name is provisioned with another hold."""
        gone = list(self._held)
        for delivery in gone:
            self.remove(delivery)
        self._times.clear()
        return gone

    def _has_settled_room(self, delivery: Delivery[M]) -> bool:
        totals, size = self._totals, delivery.size
        return totals.has_settled_room(size) and totals.may_have_settled(size, delivery.share)

    def _count_settled(self, delivery: Delivery[M], sign: int) -> None:
        self.settled += sign
        self._totals.count_settled(delivery.size, delivery.share, sign)

    def _schedule(self, delivery: Delivery[M], now: float) -> None:
        # Beyond 64 doublings no time is left that is not the longest.
        wait = self._retry.first * float(2 ** min(delivery.rounds, 64))
        at = now + min(self._retry.longest, wait)
        until = delivery.hold_until
        delivery.next_round = at if until is None else min(at, until)
        if len(self._times) > 2 * len(self._held) + _SPARE:
            self._times = [each for each in self._times if not self._is_stale(each)]
            heapify(self._times)
        heappush(self._times, (delivery.next_round, next(self._numbers), delivery))

    def _is_stale(self, entry: tuple[float, int, Delivery[M]]) -> bool:
        return entry[2] not in self._held or entry[0] != entry[2].next_round
