"""The numbers of names, routes and tag sets in a segment, and their definitions.

The texts come from peers, so each is converted to valid UTF-8 first. An error of that must not
reach the routing.

A hop refers to four of them, its *ends*: sender, receiver, route and query. Ends are looked up and
packed once a segment, and found by a key that the caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from struct import Struct
from typing import Final, Generic, TypeVar

from ....protocol.broker import Tag, TagList
from ....protocol.eventlog import Asked, clip_name, names_block, routes_block, tagsets_block
from .._options import LogOptions

__all__ = [
    "MAX_ASKED",
    "MAX_BYTES",
    "PIECE",
    "IdTable",
    "SegmentDictionary",
    "clean",
    "clean_asked",
    "clean_tags",
    "size_of",
    "size_of_asked",
    "size_of_tags",
]

MAX_ASKED: Final = 4096
"""Most bytes of a tag set in the log; requests with a larger one are counted without tags."""

PartT = TypeVar("PartT")
ThingT = TypeVar("ThingT", bound=Hashable)
EntryT = TypeVar("EntryT", str, bytes, Asked)

_PART: Final = 5
"""Most bytes of a CBOR header or a number."""


def clean(text: str, most: int) -> str:
    """Return a text as valid UTF-8 of at most a number of bytes."""
    if len(text) <= most and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    return data[:most].decode("utf-8", "ignore")


def clean_tags(tags: TagList) -> TagList:
    """Return tags as valid UTF-8; other characters become question marks."""
    try:
        for key, value in tags:
            if isinstance(key, str):
                key.encode()
            if value is not None:
                value.encode()
    except UnicodeEncodeError:
        return tuple((_written(key), _written(value)) for key, value in tags)
    return tags


def clean_asked(asked: Asked) -> Asked:
    """Return a query as valid UTF-8."""
    tags, method = clean_tags(asked.tags), _written(asked.method)
    if tags is asked.tags and method == asked.method:
        return asked
    return Asked(tags, asked.routing, method)


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


def _written(part: PartT) -> PartT | str:
    return part.encode("utf-8", "replace").decode() if isinstance(part, str) else part


PIECE: Final = 64 * 1024
"""Bytes after which a block of definitions ends: it takes some hundred microseconds to make."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of the names, of the routes and of the tag sets of one segment; further ones get no
number."""


class IdTable(Generic[ThingT]):
    """Numbers from 1 on in the order of first use; 0 beyond a limit.

    Args:
        limit: Most entries in one segment.
        write: Makes the block that defines some of them.
        size: Returns the most bytes that an entry takes in a block.

    Attributes:
        refused: Entries beyond the limit, since the start.
        waiting: Bytes of entries that are not defined yet.
    """

    __slots__ = (
        "_bytes",
        "_known",
        "_limit",
        "_new",
        "_size",
        "_write",
        "get",
        "refused",
        "waiting",
    )

    def __init__(
        self, limit: int, write: Callable[[list[ThingT]], bytes], size: Callable[[ThingT], int]
    ) -> None:
        self._limit: Final = limit
        self._write: Final = write
        self._size: Final = size
        self._known: dict[ThingT, int] = {}
        self._new: list[ThingT] = []
        self._bytes = 0
        self.get: Callable[[ThingT], int | None] = self._known.get
        self.refused = 0
        self.waiting = 0

    def __len__(self) -> int:
        """Return the number of entries in this segment."""
        return len(self._known)

    def add(self, thing: ThingT) -> int:
        """Return the number of an entry, a new one if it has none."""
        number = self._known.get(thing)
        if number is not None:
            return number
        size = self._size(thing)
        if len(self._known) >= self._limit or self._bytes + size > MAX_BYTES:
            self.refused += 1
            return 0
        number = self._known[thing] = len(self._known) + 1
        self._new.append(thing)
        self._bytes += size
        self.waiting += size
        return number

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of new entries; taking the next one confirms the one before.

        A block that is not confirmed is yielded again by the next call.
        """
        while self._new:
            size = count = 0
            for thing in self._new:
                size += self._size(thing)
                count += 1
                if size >= PIECE:
                    break
            yield self._write(self._new[:count])
            del self._new[:count]
            self.waiting -= size

    def forget(self) -> None:
        """Clear the table for another segment."""
        self._known.clear()
        self._new.clear()
        self._bytes = self.waiting = 0


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

    def _number(
        self, numbers: IdTable[EntryT], thing: EntryT, made: Callable[[EntryT], EntryT]
    ) -> int:
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
