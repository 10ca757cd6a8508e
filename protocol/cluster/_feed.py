"""The stream of a broker's routes to one peer broker: the sender's state machine.

It has a few numbers, whatever the subscriber is slow to take. `next` is called when there is credit
for one element and either `get_timer` is due or the log has changed. So a subscriber without credit
costs nothing; when it is back, what it has missed is still in the log, or it gets a snapshot.

Changes are gathered, for `ClusterLimits.gather` seconds or until they fill an element, but not
before the subscriber has caught up with the number that the log had when it subscribed. Then a mark
says so at once. Others follow at regular intervals; each says the number of what was sent before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ._elements import ELEMENT_HEADER_SIZE, Position
from ._route_log import RouteLog

__all__ = ["RouteFeed", "RouteFeedStatistics"]


@dataclass(frozen=True, slots=True)
class RouteFeedStatistics:
    """A route feed at one moment.

    Attributes:
        sequence: The number that the subscriber has reached, apart from what is under way.
        behind: Number of changes that it has not been sent.
        snapshots: Number of snapshots that were begun.
        elements: Number of elements that were made.
        bytes: Bytes of these elements.
    """

    sequence: int
    behind: int
    snapshots: int
    elements: int
    bytes: int


class RouteFeed:
    """The elements that one subscriber is to be sent, one after the other.

    Args:
        log: The log to read.
        position: The position that the subscriber names.
        max_batch: Bytes of an element that it prefers, as its `PeerInfo` says; the limit of the
            log applies as well.
        compress: Whether elements are compressed.
    """

    __slots__ = (
        "_bytes",
        "_compress",
        "_elements",
        "_gather_until",
        "_in_step",
        "_log",
        "_mark_at",
        "_max_batch",
        "_sequence",
        "_snapshot",
        "_snapshots",
        "_target",
        "_written",
    )

    def __init__(
        self,
        log: RouteLog,
        position: Position,
        *,
        max_batch: int | None = None,
        compress: bool = True,
    ) -> None:
        limit = log.limits.max_batch
        self._log = log
        self._max_batch = limit if max_batch is None else min(max_batch, limit)
        self._compress = compress
        self._sequence = position.sequence
        # Of a snapshot under way: the number of the last route that was sent.
        self._snapshot: int | None = None
        # The number of the snapshot, or the one up to which the subscriber has to catch up.
        self._target = log.sequence
        self._in_step = False
        self._gather_until: float | None = None
        self._mark_at = -inf
        # What the log had written up to the number that the subscriber has reached.
        self._written = log.written
        self._snapshots = self._elements = self._bytes = 0
        if position.instance != log.instance or not log.has_since(position.sequence):
            self._begin_snapshot()

    def get_timer(self) -> float:
        """Return when `next` has to be called, also if the log does not change; `-inf` is now."""
        if not self._in_step:
            return -inf
        if self._sequence == self._log.sequence:
            return self._mark_at
        return -inf if self._gather_until is None else min(self._gather_until, self._mark_at)

    def next(self, now: float) -> bytes | None:
        """Return the next element; `None` if there is none before the time of `get_timer`.

        Args:
            now: The time, in seconds of the caller's clock.
        """
        made = self._next(now)
        if made is not None:
            self._elements += 1
            self._bytes += len(made)
        return made

    def _next(self, now: float) -> bytes | None:
        log = self._log
        if self._snapshot is None and not log.has_since(self._sequence):
            # The subscriber was slower than the log could bear.
            self._begin_snapshot()
        if self._snapshot is not None:
            return self._part(self._snapshot, now)
        if not self._in_step and self._sequence < self._target:
            return self._changes()
        if now >= self._mark_at:
            self._enter_step(now)
            return log.mark(self._sequence)
        if self._sequence == log.sequence:
            return None
        if self._gather_until is None:
            self._gather_until = now + log.limits.gather
        waiting = ELEMENT_HEADER_SIZE + log.written - self._written
        if now < self._gather_until and waiting < self._max_batch:
            return None
        return self._changes()

    def _begin_snapshot(self) -> None:
        self._snapshot, self._sequence = 0, 0
        self._target, self._written = self._log.sequence, self._log.written
        self._snapshots += 1
        self._in_step = False
        self._gather_until = None

    def _part(self, number: int, now: float) -> bytes:
        data, self._snapshot = self._log.part_after(
            number, self._target, max_batch=self._max_batch, compress=self._compress
        )
        if self._snapshot is None:
            self._sequence = self._target
            self._enter_step(now)
        return data

    def _changes(self) -> bytes:
        log = self._log
        data, self._sequence = log.changes_after(
            self._sequence, max_batch=self._max_batch, compress=self._compress
        )
        if self._sequence == log.sequence:
            self._gather_until = None
            self._written = log.written
        return data

    def _enter_step(self, now: float) -> None:
        self._in_step = True
        self._mark_at = now + self._log.limits.mark

    def statistics(self) -> RouteFeedStatistics:
        """Return the feed's figures at this moment."""
        return RouteFeedStatistics(
            sequence=self._sequence,
            behind=max(0, self._log.sequence - self._sequence),
            snapshots=self._snapshots,
            elements=self._elements,
            bytes=self._bytes,
        )
