"""Writing snapshots: in one go, or route by route and bitmap by bitmap as a database has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import cbor2
from pyroaring import BitMap

from ._ids import ID_SIZE, format_id
from ._shard import shard_hash
from ._snapshot_format import (
    BUILDER,
    ENTRY_SIZE,
    MAGIC,
    MAX_SNAPSHOT_ROUTES,
    POSTING_ENTRY,
    PREFIX,
    ROUTE_ENTRY,
    SNAPSHOT_HEADER_SIZE,
    SNAPSHOT_VERSION,
    TAG_SIZE,
    SnapshotError,
    SnapshotRoute,
    encode_route,
    posting_order,
    written_tags,
)
from ._tags import Tag

__all__ = ["SnapshotWriter", "portable_bitmap", "write_snapshot"]


class SnapshotWriter:
    """The bytes of a snapshot, as its routes and then its bitmaps come.

    What `route` and `posting` return belongs into the file from byte `SNAPSHOT_HEADER_SIZE` on, one
    after the other; after the last one comes the tail of `finish`, and its header at the start. The
    directories are kept until then: 32 bytes for each route and each bitmap.

    After an error the writer is of no more use, and neither is what it has returned.
    """

    def __init__(self) -> None:
        self._routes = bytearray()
        self._postings: list[bytes] = []
        self._at = SNAPSHOT_HEADER_SIZE
        self._route_bytes = 0
        self._pairs = 0
        self._last_route = b""
        self._last_tag: tuple[str, bool, str] | None = None

    def route(self, route_id: bytes, record: bytes) -> bytes:
        """Add the next route, in the order of the ids.

        Args:
            route_id: 16 bytes.
            record: The result of `encode_route`.

        Returns:
            What to write.

        Raises:
            SnapshotError: It is out of order or there twice, there are too many, or bitmaps have
                come already.
        """
        if self._last_tag is not None:
            raise SnapshotError("routes come before bitmaps")
        if len(route_id) != ID_SIZE:
            raise SnapshotError(f"a route id has {ID_SIZE} bytes")
        if route_id <= self._last_route:
            twice = "there twice" if route_id == self._last_route else "out of order"
            raise SnapshotError(f"route {format_id(route_id)} is {twice}")
        if len(self._routes) >= ENTRY_SIZE * MAX_SNAPSHOT_ROUTES:
            raise SnapshotError(f"more than {MAX_SNAPSHOT_ROUTES} routes")
        self._last_route = route_id
        self._routes += ROUTE_ENTRY.pack(route_id, self._at, len(record), crc32(record))
        self._at += len(record)
        self._route_bytes += len(record)
        return record

    def posting(self, tag: Tag, count: int, bitmap: bytes) -> bytes:
        """Add the next bitmap, in the order of `posting_order`.

        Args:
            tag: The tag; not one that `written_tags` leaves out.
            count: Number of routes that carry it.
            bitmap: Their numbers, as `portable_bitmap` writes them.

        Returns:
            What to write.

        Raises:
            SnapshotError: It is out of order or there twice.
        """
        order = posting_order(tag)
        if self._last_tag is not None and order <= self._last_tag:
            raise SnapshotError("a bitmap is there twice or out of order")
        self._last_tag = order
        written = cbor2.dumps(tag, canonical=True)
        record = TAG_SIZE.pack(len(written)) + written + bitmap
        entry = (shard_hash((tag,)), self._at, len(record), count, crc32(record), 0)
        self._postings.append(POSTING_ENTRY.pack(*entry))
        self._at += len(record)
        self._pairs += count
        return record

    def finish(self) -> tuple[bytes, bytes]:
        """Return the tail, which ends the file, and the header, which begins it."""
        # By hash first; then as they came.
        self._postings.sort(key=POSTING_ENTRY.unpack)
        postings = b"".join(self._postings)
        routes = bytes(self._routes)
        fields = {
            "v": SNAPSHOT_VERSION,
            "builder": BUILDER,
            "routes": len(routes) // ENTRY_SIZE,
            "bitmaps": len(self._postings),
            "postings": self._pairs,
            "route_bytes": self._route_bytes,
            "bitmap_bytes": self._at - SNAPSHOT_HEADER_SIZE - self._route_bytes,
            "routes_crc": crc32(routes),
            "bitmaps_crc": crc32(postings),
        }
        body = cbor2.dumps(fields, canonical=True)
        header = PREFIX.pack(MAGIC, len(body), crc32(body)) + body
        return routes + postings, header.ljust(SNAPSHOT_HEADER_SIZE, b"\0")


def portable_bitmap(numbers: BitMap) -> bytes:
    """Write the numbers of routes in the one form that the same numbers always have."""
    # How a bitmap came about shows in its containers. Made anew from sorted numbers it does not.
    made = BitMap(numbers.to_array())
    made.run_optimize()
    return made.serialize()


def write_snapshot(rows: Iterable[SnapshotRoute]) -> Iterator[bytes]:
    """Yield the bytes of a snapshot, of routes in any order.

    Raises:
        SnapshotError: A route cannot be written, or is there twice.
    """
    routes = sorted((row.settled() for row in rows), key=_id_of)
    writer = SnapshotWriter()
    postings: dict[Tag, BitMap] = {}
    chunks: list[bytes] = []
    for number, route in enumerate(routes):
        chunks.append(writer.route(route.route_id, encode_route(route)))
        for tag in written_tags(route):
            posting = postings.get(tag)
            if posting is None:
                postings[tag] = posting = BitMap()
            posting.add(number)
    for tag in sorted(postings, key=posting_order):
        numbers = postings[tag]
        chunks.append(writer.posting(tag, len(numbers), portable_bitmap(numbers)))
    tail, header = writer.finish()
    yield header
    yield from chunks
    yield tail


def _id_of(route: SnapshotRoute) -> bytes:
    return route.route_id
