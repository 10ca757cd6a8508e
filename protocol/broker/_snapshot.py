"""Reading snapshots: nothing is read before it is asked for, and all that is read is checked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, cast
from zlib import crc32

from pyroaring import BitMap

from .._errors import AddressError
from ._answers import Matches
from ._ids import format_id, parse_id
from ._keys import WellKnownKey
from ._query import Query
from ._shard import shard_hash
from ._snapshot_format import (
    ENTRY_SIZE,
    MAGIC,
    MAX_ROUTE_RECORD,
    MAX_SNAPSHOT_ROUTES,
    POSTING_ENTRY,
    PREFIX,
    ROUTE_ENTRY,
    SNAPSHOT_HEADER_SIZE,
    SNAPSHOT_VERSION,
    TAG_SIZE,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotNewer,
    SnapshotRoute,
    decode_cbor,
    decode_route,
    decode_tag,
    encode_route,
    written_tags,
)
from ._snapshot_text import parse_routes
from ._snapshot_writer import portable_bitmap, write_snapshot
from ._tags import Tag

__all__ = ["MAX_CACHED_BITMAPS", "MAX_CACHED_BITMAP_BYTES", "Snapshot", "read_snapshot"]

MAX_CACHED_BITMAPS: Final = 1024
"""Bitmaps that a `Snapshot` keeps once they have been read, by default; the one not asked for
longest is forgotten, and read again when it is."""

MAX_CACHED_BITMAP_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes that they have in the file, all together; one larger than that is not kept."""

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
NEAR: Final = 64
"""Entries on either side of where a hash should be in a directory that are looked at first."""

_HASH: Final = Struct("<Q")
_SIZES: Final = ("routes", "bitmaps", "postings", "route_bytes", "bitmap_bytes")
_SUMS: Final = ("routes_crc", "bitmaps_crc")


class Snapshot:
    """A routing table that was written to a file.

    Not safe for use by several threads at once.

    Args:
        data: The whole file; a map of it into memory will do, and has to stay as long as this.
        max_bitmaps: See `MAX_CACHED_BITMAPS`.
        max_bitmap_bytes: See `MAX_CACHED_BITMAP_BYTES`.

    Raises:
        SnapshotCorrupt: It is damaged or no snapshot, as far as header and directories tell.
        SnapshotNewer: A newer Onward wrote it.

    Attributes:
        data: The whole file.
        directory: The directory of routes: for each number 32 bytes, the route id first.
        tag_directory: The directory of bitmaps: for each 32 bytes, where it is at byte 8 of them.
        bitmaps: Number of different tags that routes carry, their own RouteIds aside.
        postings: Number of tags of all routes together, their own RouteIds aside.
        builder: The version of the writer that made the bytes.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        max_bitmaps: int = MAX_CACHED_BITMAPS,
        max_bitmap_bytes: int = MAX_CACHED_BITMAP_BYTES,
    ) -> None:
        view = memoryview(data)
        fields = _read_header(view)
        self.data: Final = view
        self.bitmaps: Final[int] = fields["bitmaps"]
        self.postings: Final[int] = fields["postings"]
        self.builder: Final[int] = fields["builder"]
        self._count: Final[int] = fields["routes"]
        self._bitmaps_at: Final[int] = SNAPSHOT_HEADER_SIZE + fields["route_bytes"]
        self._data_end: Final[int] = self._bitmaps_at + fields["bitmap_bytes"]
        middle = self._data_end + ENTRY_SIZE * self._count
        self.directory: Final = view[self._data_end : middle]
        self.tag_directory: Final = view[middle:]
        # Where its entry is, the bitmap, and how many bytes it has in the file.
        self._kept: OrderedDict[Tag, tuple[int, BitMap, int]] = OrderedDict()
        self._kept_bytes = 0
        self._max_kept: Final = max_bitmaps
        self._max_bytes: Final = max_bitmap_bytes
        if crc32(self.directory) != fields["routes_crc"]:
            raise SnapshotCorrupt(self._data_end, "the directory of routes is damaged")
        if crc32(self.tag_directory) != fields["bitmaps_crc"]:
            raise SnapshotCorrupt(middle, "the directory of bitmaps is damaged")

    # --- routes -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many routes there are."""
        return self._count

    def route_id(self, number: int) -> bytes:
        """Return the id of the route with a number, 16 bytes.

        Raises:
            IndexError: There is no such number.
        """
        if not 0 <= number < self._count:
            raise IndexError(number)
        at = ENTRY_SIZE * number
        return bytes(self.directory[at : at + 16])

    def number(self, route_id: bytes) -> int | None:
        """Return the number of a route; `None` if it is not there."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self.route_id(middle) < route_id:
                low = middle + 1
            else:
                high = middle
        return low if low < self._count and self.route_id(low) == route_id else None

    def route(self, number: int) -> SnapshotRoute:
        """Return the route with a number.

        Raises:
            IndexError: There is no such number.
            SnapshotCorrupt: It is damaged.
        """
        route_id = self.route_id(number)
        _, offset, size, crc = ROUTE_ENTRY.unpack_from(self.directory, ENTRY_SIZE * number)
        if size > MAX_ROUTE_RECORD or offset < SNAPSHOT_HEADER_SIZE:
            raise SnapshotCorrupt(offset, "a route is somewhere else")
        record = self._record(offset, size, crc, self._bitmaps_at, "a route")
        return decode_route(route_id, record, offset)

    def routes(self) -> Iterator[SnapshotRoute]:
        """Yield all routes, in the order of their ids.

        Raises:
            SnapshotCorrupt: One is damaged.
        """
        for number in range(self._count):
            yield self.route(number)

    def _record(self, offset: int, size: int, crc: int, end: int, what: str) -> bytes:
        if offset + size > end:
            raise SnapshotCorrupt(offset, f"{what} is somewhere else")
        record = bytes(self.data[offset : offset + size])
        if crc32(record) != crc:
            raise SnapshotCorrupt(offset, f"{what} is damaged")
        return record

    # --- tags -------------------------------------------------------------------------------

    def resolve(self, query: Query) -> Matches:
        """Return the numbers of the routes that carry all tags of a query.

        As `TagIndex.resolve` does: a query without tags is answered with none. The result must not
        be changed.

        Raises:
            SnapshotCorrupt: A bitmap is damaged.
        """
        found: list[tuple[int, int, Tag, bytes | BitMap]] = []
        own: BitMap | None = None
        for tag in query:
            at, count, held = self._find(tag)
            if tag[0] == _ROUTE_ID:
                carriers = self._carriers(tag, at, held)
                own = carriers if own is None else own & carriers
            elif at is None:
                return BitMap()
            else:
                found.append((count, at, tag, held))
        # The smallest first; ties by where they are, which no two share.
        found.sort()
        matches = own
        for _, at, tag, held in found:
            if matches is not None and not matches:
                break
            bitmap = self._bitmap(tag, at, held)
            matches = bitmap if matches is None else matches & bitmap
        return BitMap() if matches is None else matches

    def carriers(self, tag: Tag) -> Matches:
        """Return the numbers of the routes that carry a tag.

        Raises:
            SnapshotCorrupt: The bitmap is damaged.
        """
        return self.resolve(frozenset((tag,)))

    def tags(self) -> Iterator[tuple[Tag, int, bytes]]:
        """Yield each tag that has a bitmap, how many carry it, and the bitmap's bytes.

        Raises:
            SnapshotCorrupt: One is damaged.
        """
        for at in range(self.bitmaps):
            yield self.tag(at)

    def tag(self, at: int) -> tuple[Tag, int, bytes]:
        """Return the tag of an entry of the directory, how many carry it, and its bitmap's bytes.

        Raises:
            IndexError: There is no such entry.
            SnapshotCorrupt: It is damaged.
        """
        if not 0 <= at < self.bitmaps:
            raise IndexError(at)
        _, offset, size, count, crc, _ = self._entry(at)
        tag, bitmap = self._posting(offset, size, crc)
        return tag, count, bitmap

    def _entry(self, at: int) -> tuple[int, int, int, int, int, int]:
        return POSTING_ENTRY.unpack_from(self.tag_directory, ENTRY_SIZE * at)

    def _find(self, tag: Tag) -> tuple[int | None, int, bytes | BitMap]:
        """Return where a tag's entry is, how many carry it, and its bitmap: read, or its bytes.

        `None` and 0 if no route carries it.
        """
        wanted = shard_hash((tag,))
        low = self._first(wanted)
        while low < self.bitmaps:
            hashed, offset, size, count, crc, _ = self._entry(low)
            if hashed != wanted:
                break
            # Two tags may have one hash.
            kept = self._kept.get(tag)
            if kept is not None:
                if kept[0] == low:
                    # Handed on: until it is used, another tag of the query may push it out.
                    return low, count, kept[1]
            else:
                there, written = self._posting(offset, size, crc)
                if there == tag:
                    return low, count, written
            low += 1
        return None, 0, b""

    def _first(self, wanted: int) -> int:
        """Return where hashes of this or more begin in the directory."""
        postings, hash_at = self.tag_directory, _HASH.unpack_from
        # Hashes are spread evenly: it is near where it would be if they were so exactly.
        guess, reach = wanted * self.bitmaps >> 64, NEAR
        low, high = max(0, guess - reach), min(self.bitmaps, guess + reach)
        while low > 0 and hash_at(postings, ENTRY_SIZE * (low - 1))[0] >= wanted:
            reach *= 4
            low = max(0, guess - reach)
        while high < self.bitmaps and hash_at(postings, ENTRY_SIZE * high)[0] < wanted:
            reach *= 4
            high = min(self.bitmaps, guess + reach)
        while low < high:
            middle = (low + high) // 2
            if hash_at(postings, ENTRY_SIZE * middle)[0] < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _posting(self, offset: int, size: int, crc: int) -> tuple[Tag, bytes]:
        if offset < self._bitmaps_at or size < TAG_SIZE.size:
            raise SnapshotCorrupt(offset, "a bitmap is somewhere else")
        record = self._record(offset, size, crc, self._data_end, "a bitmap")
        end = TAG_SIZE.size + TAG_SIZE.unpack_from(record)[0]
        tag = decode_tag(decode_cbor(record[TAG_SIZE.size : end], offset, "a tag"), offset)
        return tag, record[end:]

    def _bitmap(self, tag: Tag, at: int, held: bytes | BitMap) -> BitMap:
        """Return the bitmap of a tag that `_find` has found, and keep it."""
        kept = self._kept
        if isinstance(held, BitMap):
            if tag in kept:
                kept.move_to_end(tag)
            return held
        _, offset, _, count, _, _ = self._entry(at)
        bitmap = _numbers(held, offset)
        if len(bitmap) != count or not bitmap or bitmap.max() >= self._count:
            raise SnapshotCorrupt(offset, "a bitmap does not have the routes it should")
        if len(held) > self._max_bytes:
            return bitmap
        # Bytes of the file: about what it takes in memory, and what is known of it.
        kept[tag] = at, bitmap, len(held)
        self._kept_bytes += len(held)
        while len(kept) > self._max_kept or self._kept_bytes > self._max_bytes:
            _, (_, _, size) = kept.popitem(last=False)
            self._kept_bytes -= size
        return bitmap

    def _carriers(self, tag: Tag, at: int | None, held: bytes | BitMap) -> BitMap:
        """Return the routes with a RouteId: the one it identifies, and those with it as a tag."""
        found = BitMap() if at is None else self._bitmap(tag, at, held).copy()
        try:
            number = self.number(parse_id(tag[1] or ""))
        except AddressError:
            return found
        if number is not None and tag in self.route(number).tags:
            found.add(number)
        return found

    # --- the whole --------------------------------------------------------------------------

    def check(self) -> None:
        """Read everything, and compare the bitmaps with the tags of the routes.

        Raises:
            SnapshotCorrupt: Something is damaged, a route is not settled, or the bitmaps are of
                other routes.
        """
        for _ in self.checked():
            pass

    def checked(self) -> Iterator[SnapshotRoute]:
        """Yield all routes, as `routes` does, and see to all else as `check` does.

        Take none of them for good before the last has come: bitmaps are looked at after it.

        Raises:
            SnapshotCorrupt: As `check` does.
        """
        carried: dict[Tag, BitMap] = {}
        size = 0
        for number, route in enumerate(self.routes()):
            if route.settled() != route:
                named = format_id(route.route_id)
                at = ROUTE_ENTRY.unpack_from(self.directory, ENTRY_SIZE * number)[1]
                raise SnapshotCorrupt(at, f"route {named}: its tags are not as in a table")
            size += len(encode_route(route))
            for tag in written_tags(route):
                carried.setdefault(tag, BitMap()).add(number)
            yield route
        if size != self._bitmaps_at - SNAPSHOT_HEADER_SIZE:
            raise SnapshotCorrupt(SNAPSHOT_HEADER_SIZE, "there is something between the routes")
        for tag, _, written in self.tags():
            bitmap = carried.pop(tag, None)
            if bitmap is None or portable_bitmap(bitmap) != written:
                raise SnapshotCorrupt(self._bitmaps_at, "a bitmap is not of the routes")
        if carried:
            raise SnapshotCorrupt(self._bitmaps_at, "a bitmap is missing")


def read_snapshot(data: bytes | memoryview) -> Snapshot:
    """Read a snapshot, or routes as people write them: see `parse_routes`.

    A text of no route is no table: a file that was cut to nothing looks the same. A table of none
    is a text with a line that begins with `#`, or a snapshot.

    Raises:
        SnapshotError: It is neither, or damaged.
    """
    head = bytes(data[:64])
    if head.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise SnapshotError("it begins with a byte order mark: save it as UTF-8 without one")
    text = head.lstrip() or bytes(data).strip()[:1]
    if text.startswith(b"["):
        raise SnapshotError("it begins with '[': a table is a line of JSON for each route, no list")
    if not text:
        raise SnapshotCorrupt(
            0, "it is empty; a table without routes has a line that begins with '#', to say so"
        )
    if text.startswith((b"{", b"#")):
        return Snapshot(b"".join(write_snapshot(parse_routes(bytes(data)))))
    return Snapshot(data)


def _numbers(written: bytes, offset: int) -> BitMap:
    try:
        return BitMap.deserialize(written)
    except (ValueError, IndexError, MemoryError):
        raise SnapshotCorrupt(offset, "a bitmap cannot be read") from None


def _read_header(view: memoryview) -> dict[str, int]:
    """Read the header, and see that the file is as long as it says.

    Raises:
        SnapshotCorrupt: It is not.
        SnapshotNewer: A newer Onward wrote it.
    """
    if len(view) < SNAPSHOT_HEADER_SIZE:
        raise SnapshotCorrupt(len(view), "it is shorter than a header: no snapshot, or cut off")
    magic, size, crc = PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise SnapshotCorrupt(0, "it begins as no snapshot does")
    end = PREFIX.size + size
    body = bytes(view[PREFIX.size : end])
    if end > SNAPSHOT_HEADER_SIZE or crc32(body) != crc:
        raise SnapshotCorrupt(0, "the header is damaged")
    said = decode_cbor(body, 0, "the header")
    if not isinstance(said, dict):
        raise SnapshotCorrupt(0, "the header is none")
    fields = cast("dict[str, Any]", said)
    version = fields.get("v")
    if isinstance(version, int) and version > SNAPSHOT_VERSION:
        raise SnapshotNewer(version)
    for name in ("v", "builder", *_SIZES, *_SUMS):
        value = fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise SnapshotCorrupt(0, f"the header does not say {name!r}")
    if any(view[end:SNAPSHOT_HEADER_SIZE]):
        raise SnapshotCorrupt(end, "something is in the header's spare room")
    if fields["routes"] > MAX_SNAPSHOT_ROUTES:
        raise SnapshotCorrupt(0, f"more than {MAX_SNAPSHOT_ROUTES} routes")
    entries = ENTRY_SIZE * (fields["routes"] + fields["bitmaps"])
    total = SNAPSHOT_HEADER_SIZE + fields["route_bytes"] + fields["bitmap_bytes"] + entries
    if total != len(view):
        raise SnapshotCorrupt(len(view), f"it has {len(view)} bytes and should have {total}")
    return fields
