"""The filter of another zone's route ids: the receiver's state machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ._elements import Element, ElementKind
from ._errors import ClusterFrameError
from ._limits import ClusterLimits
from ._route_filter import RouteFilter

__all__ = ["FilterNews", "ZoneFilter", "ZoneFilterStatistics"]


@dataclass(frozen=True, slots=True)
class FilterNews:
    """The news that an element of the stream has brought.

    Attributes:
        ids: The ids of routes that have joined in the other zone.
        unnamed: Whether a filter is whole that may have ids that were not named: each own route
            has to be looked up in it.
    """

    ids: tuple[bytes, ...] = ()
    unnamed: bool = False


@dataclass(frozen=True, slots=True)
class ZoneFilterStatistics:
    """The filter of another zone at one moment.

    Attributes:
        filters: Number of filters that have come.
        size: Bytes of the last one.
        ids: Number of ids that have joined since it came.
        received_at: When it came, in seconds of the caller's clock; `None` before the first.
    """

    filters: int
    size: int
    ids: int
    received_at: float | None


class ZoneFilter:
    """The filter of another zone, as one broker of it tells it.

    Args:
        home: 16 bytes: the id of that broker.
        limits: `filter_bytes` is used.
    """

    def __init__(self, home: bytes, limits: ClusterLimits | None = None) -> None:
        self.home: Final = home
        self._most = (limits or ClusterLimits()).filter_bytes
        self._filter: RouteFilter | None = None
        # The instance and the number that the ids of this stream have reached; before the first
        # filter of the stream there is none.
        self._position: tuple[int, int] | None = None
        # Of a filter that is coming: its position, the size that it has to have, and its parts.
        self._coming_at = (0, 0)
        self._expected = 0
        self._coming = bytearray()
        self._filters = self._size = self._ids = 0
        self._received_at: float | None = None

    def may_have(self, route_id: bytes) -> bool:
        """Whether the zone may have a route: true for all that it has told of."""
        return self._filter is not None and self._filter.may_have(route_id)

    def lost(self) -> None:
        """Receive the end of the stream; what has come stays until another filter is whole."""
        self._position = None
        self._coming.clear()

    def receive(self, element: Element, now: float) -> FilterNews:
        """Receive an element.

        Args:
            element: The element.
            now: The time, in seconds of the caller's clock.

        Raises:
            ClusterFrameError: It is of another broker, of another kind, or may not come here. The
                stream has to be ended.
        """
        if element.home != self.home:
            raise ClusterFrameError("an element of another broker's filter")
        position = element.instance, element.sequence
        if element.kind is ElementKind.FILTER:
            return self._part(element, position, now)
        if element.kind is not ElementKind.IDS:
            raise ClusterFrameError(f"an element of {element.kind.name} in the stream of a filter")
        before = element.instance, element.sequence - len(element.frames)
        if self._filter is None or self._coming or before != self._position:
            raise ClusterFrameError("ids of routes that do not follow what came before")
        # The filter has room for more ids than it was made of.
        self._filter.add(element.frames)
        self._position = position
        self._ids += len(element.frames)
        return FilterNews(ids=tuple(element.frames))

    def _part(self, element: Element, position: tuple[int, int], now: float) -> FilterNews:
        (part,) = element.frames
        if not self._coming:
            self._expected = RouteFilter.check_head(part, self._most)
            self._coming_at = position
        elif position != self._coming_at:
            raise ClusterFrameError("a part of another filter than the part before")
        self._coming += part
        if len(self._coming) > self._expected:
            raise ClusterFrameError("a filter of route ids with more bytes than it says")
        if not element.last:
            return FilterNews()
        self._filter = RouteFilter.parse(bytes(self._coming), self._most)
        self._size = len(self._coming)
        self._coming.clear()
        named, self._position = self._position, position
        self._filters += 1
        self._ids, self._received_at = 0, now
        return FilterNews(unnamed=named is None or named < position)

    def statistics(self) -> ZoneFilterStatistics:
        """Return the figures of the filter at this moment."""
        return ZoneFilterStatistics(
            filters=self._filters,
            size=self._size,
            ids=self._ids,
            received_at=self._received_at,
        )
