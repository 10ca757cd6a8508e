"""The numbers of names, routes and tag sets in a segment, and their definitions.

The texts come from peers, so each is converted to valid UTF-8 first. An error of that must not
reach the routing.

A hop refers to four of them, its *ends*: sender, receiver, route and query. Ends are looked up and
packed once a segment, and found by a key that the caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from struct import Struct
from typing import Final, TypeVar

from ....protocol.eventlog import Asked, clip_name, names_block, routes_block, tagsets_block
from .._options import LogOptions
from ..recording._id_table import PIECE, IdTable
from ..recording._texts import MAX_ASKED, clean_asked, size_of, size_of_asked

__all__ = ["SegmentDictionary"]

T = TypeVar("T", str, bytes, Asked)

MAX_KNOWN: Final = 4096
"""Most ends in the cache; then it is cleared."""

_pack_ends: Final = Struct("<IIII").pack


class SegmentDictionary:
    """The numbers of names, routes and tag sets within one segment.

    Args:
        options: The limits.
        define: Called when many are new, to write the blocks from `blocks`.
        failed: Called with an exception.

    Attributes:
        known: The packed ends of hops in this segment, by their keys.
    """

    __slots__ = ("_define", "_failed", "_names", "_routes", "_tagsets", "known")

    def __init__(
        self,
        options: LogOptions,
        define: Callable[[], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._define: Final = define
        self._failed: Final = failed
        self._names: Final = IdTable[str](options.max_names, names_block, size_of)
        self._routes: Final = IdTable[bytes](options.max_routes, routes_block, _size_of_route)
        self._tagsets: Final = IdTable[Asked](options.max_tagsets, tagsets_block, size_of_asked)
        self.known: Final[dict[Hashable, bytes]] = {}

    def learn(
        self,
        key: Hashable,
        origin: str,
        dest: str,
        route_id: bytes | None = None,
        asked: Asked | None = None,
    ) -> bytes:
        """Pack the ends of a hop, and store them until the segment ends.

        Ends without a number for lack of room are not stored, and so are counted each time.

        Args:
            key: The key for `known`.
            origin: The name of the sender.
            dest: The name of the receiver.
            route_id: The route that took it.
            asked: The query.
        """
        refused = self.refused
        ends = _pack_ends(
            self.name(origin), self.name(dest), self.route(route_id), self.tagset(asked)
        )
        if self.refused == refused:
            if len(self.known) >= MAX_KNOWN:
                self.known.clear()
            self.known[key] = ends
        return ends

    def name(self, text: str) -> int:
        """Return the number of a name in this segment; 0 for none, or if there is no room."""
        number = self._names.get(text)
        if number is not None:
            return number
        if not text:
            return 0
        return self._number(self._names, text, clip_name)

    def route(self, route_id: bytes | None) -> int:
        """Return the number of a route in this segment; 0 for none, or if there is no room."""
        return 0 if route_id is None else self._number(self._routes, route_id, bytes)

    def tagset(self, asked: Asked | None) -> int:
        """Return the number of a tag set in this segment; 0 for none, or if there is no room."""
        if asked is None:
            return 0
        number = self._tagsets.get(asked)
        if number is not None:
            return number
        if size_of_asked(asked) > MAX_ASKED:
            self._tagsets.refused += 1
            return 0
        return self._number(self._tagsets, asked, clean_asked)

    def _number(self, numbers: IdTable[T], thing: T, made: Callable[[T], T]) -> int:
        """Return the number of a new entry, converted to valid UTF-8."""
        try:
            number = numbers.add(made(thing))
        except Exception as error:  # noqa: BLE001 - a defect must not stop the routing
            self._failed(error)
            return 0
        if numbers.waiting >= PIECE:
            # At once: all definitions of a block of hops together would block the loop.
            self._define()
        return number

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of new entries; taking the next one confirms the one before."""
        for numbers in (self._names, self._routes, self._tagsets):
            yield from numbers.blocks()

    def forget(self) -> None:
        """Clear the dictionary for another segment."""
        self.known.clear()
        for numbers in (self._names, self._routes, self._tagsets):
            numbers.forget()

    @property
    def refused(self) -> int:
        """Entries beyond a limit, since the start."""
        return self._names.refused + self._routes.refused + self._tagsets.refused


def _size_of_route(route: bytes) -> int:
    return len(route) + 1
