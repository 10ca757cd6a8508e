"""The names, routes and tag sets of a segment, which stand for themselves once and then as numbers.

They are of strangers, so each is made fit for the log first, and whatever goes wrong with that
is no business of who routes.

A hop refers to four of them, its *ends*: who sent it, who has it, the route and what it asks for.
They are looked up and packed once a segment for each pair of ends, and found by a key of
whoever records the hop.
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
"""Ends that are remembered so that they need not be looked up for each hop; then all are looked up
anew."""

_pack_ends: Final = Struct("<IIII").pack


class SegmentDictionary:
    """Gives numbers to names, routes and tag sets, each within one segment.

    Args:
        options: How many there may be.
        define: Called as soon as many are new: writes what `blocks` yields.
        failed: Called with what went wrong, if something did.

    Attributes:
        known: The ends that hops of this segment have had, by the key they were learnt with.
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
        """Return the ends of a hop as they are packed, and know them until the segment ends.

        What got no number, as there was no room, is not known: it is counted each time.

        Args:
            key: What to find them by in `known`.
            origin: Who sent it.
            dest: Who has it.
            route_id: The route that took it.
            asked: What it asks for.
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
        """Return a number for something new, once it is made fit for the log."""
        try:
            number = numbers.add(made(thing))
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._failed(error)
            return 0
        if numbers.waiting >= PIECE:
            # At once: with all that a block of hops needs, the loop would stand still.
            self._define()
        return number

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of what is new; each is done with when the next is taken."""
        for numbers in (self._names, self._routes, self._tagsets):
            yield from numbers.blocks()

    def forget(self) -> None:
        """Begin anew: another segment begins."""
        self.known.clear()
        for numbers in (self._names, self._routes, self._tagsets):
            numbers.forget()

    @property
    def refused(self) -> int:
        """How many times there was no room, since the start."""
        return self._names.refused + self._routes.refused + self._tagsets.refused


def _size_of_route(route: bytes) -> int:
    return len(route) + 1
