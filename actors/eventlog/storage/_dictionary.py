"""The numbers of names, routes and tag sets in a segment, and their definitions.

A hop refers to four of them, its *ends*: sender, receiver, route and query. Ends are looked up and
packed once a segment, and found by a key that the caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from ....protocol.broker import Tag
from ....protocol.eventlog import MAX_NAMES, Asked, clip_name
from ....protocol.eventlog._blocks import (
    NAMES,
    ROUTES,
    TAGSETS,
    names_body,
    routes_body,
    tagsets_body,
)

__all__ = [
    "MAX_ASKED",
    "MAX_BYTES",
    "PIECE",
    "SegmentDictionary",
    "size_of",
    "size_of_asked",
    "size_of_tags",
]

MAX_ASKED: Final = 4096
"""Most bytes of a tag set in the log; requests with a larger one are counted without tags."""

PIECE: Final = 64 * 1024
"""Bytes of definitions that are written at once: some hundred microseconds of work."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of the definitions in a segment; what exceeds it gets no number."""

MAX_KNOWN: Final = 4096
"""Most ends in the cache; then it is cleared."""

ThingT = TypeVar("ThingT", bound=Hashable)

_PART: Final = 5
"""Most bytes of a CBOR header or a number."""

_pack_ends: Final = Struct("<IIII").pack


def size_of(text: str) -> int:
    """Return the bytes of a text in a block."""
    return _PART + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))


def size_of_tags(tags: Iterable[Tag]) -> int:
    """Return the most bytes of tags in a block."""
    size = _PART
    for key, value in tags:
        size += 2 * _PART
        if isinstance(key, str):
            size += size_of(key)
        if value is not None:
            size += size_of(value)
    return size


def size_of_asked(asked: Asked) -> int:
    """Return the most bytes of a query in a block."""
    return size_of_tags(asked.tags) + size_of(asked.method) + _PART


class _IdTable(Generic[ThingT]):
    """Numbers from 1 on in the order of first use."""

    __slots__ = ("body_of", "kind", "known", "new")

    def __init__(self, kind: bytes, body_of: Callable[[list[Any]], bytes]) -> None:
        self.kind: Final = kind
        self.body_of: Final = body_of
        self.known: Final[dict[ThingT, int]] = {}
        # Those that are not defined yet.
        self.new: list[ThingT] = []


class SegmentDictionary:
    """The numbers of names, routes and tag sets within one segment.

    Args:
        define: Called when many are new, to write the blocks from `take_new`.

    Attributes:
        known: The packed ends of hops in this segment, by their keys.
        left_out: Names, routes and tag sets without a number for lack of room, since the start.
    """

    __slots__ = (
        "_bytes",
        "_define",
        "_names",
        "_new_bytes",
        "_routes",
        "_tagsets",
        "known",
        "left_out",
    )

    def __init__(self, define: Callable[[], object]) -> None:
        self._define: Final = define
        self._names: Final = _IdTable[str](NAMES, names_body)
        self._routes: Final = _IdTable[bytes](ROUTES, routes_body)
        self._tagsets: Final = _IdTable[Asked](TAGSETS, tagsets_body)
        self.known: Final[dict[Hashable, bytes]] = {}
        self.left_out = 0
        self._bytes = self._new_bytes = 0

    def learn(
        self,
        key: Hashable,
        origin: str,
        dest: str,
        route_id: bytes | None = None,
        asked: Asked | None = None,
    ) -> bytes:
        """Pack the ends of a hop, and store them until the segment ends.

        Args:
            key: The key for `known`.
            origin: The name of the sender.
            dest: The name of the receiver.
            route_id: The route that took it.
            asked: The query.
        """
        ends = _pack_ends(
            self.name(origin), self.name(dest), self.route(route_id), self.tagset(asked)
        )
        if len(self.known) >= MAX_KNOWN:
            self.known.clear()
        self.known[key] = ends
        return ends

    def name(self, text: str) -> int:
        """Return the number of a name in this segment; 0 for none, or if there is no room."""
        number = self._names.known.get(text)
        if number is not None:
            return number
        clipped = clip_name(text)
        return self._number(self._names, clipped, size_of(clipped)) if text else 0

    def route(self, route_id: bytes | None) -> int:
        """Return the number of a route in this segment; 0 for none, or if there is no room."""
        return 0 if route_id is None else self._number(self._routes, route_id, len(route_id) + 1)

    def tagset(self, asked: Asked | None) -> int:
        """Return the number of a tag set in this segment; 0 for none, or if there is no room."""
        if asked is None:
            return 0
        return self._tagsets.known.get(asked) or self._number(
            self._tagsets, asked, size_of_asked(asked)
        )

    def _number(self, table: _IdTable[ThingT], thing: ThingT, size: int) -> int:
        number = table.known.get(thing)
        if number is not None:
            return number
        if len(table.known) >= MAX_NAMES or self._bytes + size > MAX_BYTES:
            self.left_out += 1
            return 0
        number = table.known[thing] = len(table.known) + 1
        table.new.append(thing)
        self._bytes += size
        self._new_bytes += size
        if self._new_bytes >= PIECE:
            # At once: all definitions of a block of hops together would block the loop.
            self._define()
        return number

    def take_new(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield type and body of the blocks that define new entries, each once."""
        self._new_bytes = 0
        for table in (self._names, self._routes, self._tagsets):
            if table.new:
                new, table.new = table.new, []
                yield table.kind, table.body_of(new)

    def forget(self) -> None:
        """Clear the dictionary for another segment."""
        self.known.clear()
        for table in (self._names, self._routes, self._tagsets):
            table.known.clear()
            table.new.clear()
        self._bytes = self._new_bytes = 0
