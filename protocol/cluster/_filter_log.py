"""The route ids of a zone as it tells them to others: a filter, and the ids that joined since.

A filter cannot forget an id, so it is made anew at regular intervals, of all routes that there are.
That takes turns: its ids come in slices, while routes join and leave. What joins has a number, and
the filter has the number at which it was begun: it has all routes with numbers up to it, and the
ids with greater ones are kept and told one by one. A follower that is behind what is kept, or has
an older filter, gets the filter (`FilterFeed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ..broker import ID_SIZE
from ._limits import ClusterLimits
from ._route_filter import RouteFilter

__all__ = ["FILTER_ROUTE", "FilterLog", "FilterLogStatistics"]

FILTER_ROUTE: Final = "onward.cluster.filter"
"""The route by which a broker subscribes to the filter of another zone."""

_LEAST: Final = 1024
"""Ids for which a filter has room at least, and that may join before it is made anew early."""
_EARLY: Final = 10
"""The part of `filter_every` after which a filter is made anew that has become too small."""


@dataclass(frozen=True, slots=True)
class FilterLogStatistics:
    """The filter of a zone at one moment, where it is made.

    Attributes:
        filters: Number of filters that were made.
        size: Bytes of the last one.
        ids: Number of ids that are kept, as they joined since.
        forgotten: Number of ids that were dropped before they were in a filter.
    """

    filters: int
    size: int
    ids: int
    forgotten: int


class FilterLog:
    """The filter of a zone's route ids, and the ids that joined since it was begun.

    Args:
        home: 16 bytes: the id of the broker that tells it.
        instance: When that broker was started, in milliseconds since the Unix epoch.
        salt: Gives `FILTER_SALT_SIZE` random bytes.
        limits: `filter_every`, `filter_ids`, `filter_bytes` and `zone_gather`.

    Attributes:
        sequence: The number of the last id that has joined.
        number: Number of filters that were made; 0 before the first.
    """

    def __init__(
        self,
        home: bytes,
        instance: int,
        salt: Callable[[], bytes],
        limits: ClusterLimits | None = None,
    ) -> None:
        if len(home) != ID_SIZE or not 0 < instance < 1 << 63:
            raise ValueError("a log is that of a broker's id and instance")
        self.home: Final = home
        self.instance: Final = instance
        self.limits: Final = limits or ClusterLimits()
        self.sequence = 0
        self.number = 0
        self._salt = salt
        self._ids: list[bytes] = []
        # The filter, its number, and for how many ids it is large enough.
        self._data = b""
        self._filter_at = 0
        self._room = 0
        self._made_at = -inf
        # Of the filter that is being made: the number at which it was begun.
        self._building: RouteFilter | None = None
        self._begun_at = 0
        self._changed = True
        self._lost = False
        self._forgotten = 0

    # --- routes that join and leave ---------------------------------------------------------

    def joined(self, route_id: bytes) -> None:
        """Number the id of a route that is there, wherever in the zone it is."""
        self.sequence += 1
        self._ids.append(route_id)
        self._changed = True
        most = self.limits.filter_ids
        if len(self._ids) > most:
            # Half of them at once: a list is shortened as a whole.
            dropped = len(self._ids) - most // 2
            del self._ids[:dropped]
            self._forgotten += dropped
            self._lost = True
            if self._begun_at < self._first:
                self._building = None

    def left(self) -> None:
        """Receive the end of a route: the filter has to be made anew in its time."""
        self._changed = True

    @property
    def _first(self) -> int:
        """The number of the last id that is not kept."""
        return self.sequence - len(self._ids)

    # --- the filter -----------------------------------------------------------------------------

    @property
    def building(self) -> bool:
        """Whether a filter was begun and not finished; ids that were dropped end that."""
        return self._building is not None

    def get_timer(self) -> float:
        """Return when a filter is to be begun, or gone on with; `-inf` is now, `inf` never."""
        if self.building or self._lost or not self.number:
            return -inf
        if not self._changed:
            return inf
        every = self.limits.filter_every
        crowded = self.sequence - self._filter_at > self._room
        return self._made_at + (every / _EARLY if crowded else every)

    def begin(self, count: int) -> None:
        """Begin a filter, which is to be given the ids of all routes that there are.

        Args:
            count: Number of these routes.
        """
        # As many may join as leave it nearly as good as it was.
        self._room = max(_LEAST, count // 4)
        size = self.limits.filter_bytes
        self._building = RouteFilter.for_ids(count + self._room, self._salt(), size)
        self._begun_at = self.sequence
        self._changed = self._lost = False

    def add(self, ids: Iterable[bytes]) -> None:
        """Give the filter some of the ids.

        Raises:
            AssertionError: None was begun.
        """
        if self._building is None:
            raise AssertionError("unexpected ids: no filter was begun")
        self._building.add(ids)

    def finish(self, now: float) -> None:
        """Use the filter: it has been given all ids.

        Raises:
            AssertionError: None was begun.
        """
        if self._building is None:
            raise AssertionError("unexpected end: no filter was begun")
        self._data, self._building = self._building.serialize(), None
        del self._ids[: self._begun_at - self._first]
        self._filter_at = self._begun_at
        self._made_at = now
        self.number += 1

    # --- for followers ----------------------------------------------------------------------------

    def filter(self) -> tuple[int, int, bytes]:
        """Return the last filter: how many there were, the number that it has, and its bytes."""
        return self.number, self._filter_at, self._data

    def has_since(self, sequence: int) -> bool:
        """Whether all ids after a number are kept."""
        return sequence >= self._first

    def ids_after(self, sequence: int, most: int) -> Sequence[bytes]:
        """Return ids that follow a number for which `has_since` is true, at most so many."""
        start = sequence - self._first
        return self._ids[start : start + most]

    def statistics(self) -> FilterLogStatistics:
        """Return the figures of the filter at this moment."""
        return FilterLogStatistics(
            filters=self.number,
            size=len(self._data),
            ids=len(self._ids),
            forgotten=self._forgotten,
        )
