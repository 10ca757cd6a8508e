"""Snapshots of a routing table: the layout of the file, what can be wrong with it, a route in it.

A snapshot is a table as a file: its routes and, for each tag, which of them carry it. It is made
to be mapped into memory: only the header and the two directories are read when it is opened. A
route or a bitmap is read, and checked, on its first use.

```
header        256 bytes: "ONWX", length u32, CRC-32 u32 of the CBOR, CBOR, zeros
routes        one CBOR list after the other, in the order of the route ids
bitmaps       length of the tag u16, the tag as CBOR, its routes as a portable roaring bitmap
directory of routes   32 bytes each: id 16, offset u64, length u32, CRC-32 u32
directory of bitmaps  32 bytes each: hash u64, offset u64, length u32, routes u32, CRC-32 u32, 0 u32
```

Numbers are little-endian. A route's number is its place in the order of the route ids, and the
bitmaps are of those. They are in the order of `posting_order`, their directory in that of the
hashes; a tag's hash is `shard_hash` of it. Each byte is under a checksum, or has to be zero. The
same routes make the same bytes, whatever made them and in whatever order they were given.

Every route carries a RouteId, and nearly always its own. That one is not written: it would be a
bitmap of one for each route, when the directory of routes finds it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from struct import Struct
from typing import Any, Final

import cbor2

from .._errors import ProtocolError
from ._fields import MAX_SERVICE_NAME_SIZE, MAX_TIMESTAMP
from ._ids import ID_SIZE, format_id
from ._keys import MAX_KEY_SIZE, Key, WellKnownKey, format_key, is_key_number
from ._query import tag_order
from ._tags import MAX_TAGS, MAX_VALUE_SIZE, Tag, TagList, normal_form, with_default_tags

__all__ = [
    "MAX_ROUTE_RECORD",
    "MAX_SNAPSHOT_ROUTES",
    "NO_BROKER",
    "SNAPSHOT_HEADER_SIZE",
    "SNAPSHOT_VERSION",
    "SnapshotCorrupt",
    "SnapshotError",
    "SnapshotNewer",
    "SnapshotRoute",
    "encode_route",
    "posting_order",
    "written_tags",
]

MAGIC: Final = b"ONWX"

SNAPSHOT_VERSION: Final = 1
"""The version of the format that is written, and the newest that is read."""

BUILDER: Final = 1
"""Which of our ways to make the bytes made them. Another one means: compare routes, not bytes."""

SNAPSHOT_HEADER_SIZE: Final = 256
"""Bytes of the header, and thus where the first route begins."""

MAX_SNAPSHOT_ROUTES: Final = 2**32 - 1
"""Most routes of a snapshot: a bitmap's numbers have 32 bits."""

MAX_ROUTE_RECORD: Final = 128 * 1024
"""Most bytes of one route: 258 tags of 127 bytes for key and value each are half of it."""

NO_BROKER: Final = bytes(ID_SIZE)
"""The broker id of a route that was written by hand: it has been at none."""

PREFIX: Final = Struct("<4sII")
ROUTE_ENTRY: Final = Struct("<16sQII")
POSTING_ENTRY: Final = Struct("<QQIIII")
TAG_SIZE: Final = Struct("<H")
ENTRY_SIZE: Final = 32

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_DEFAULTS: Final = 2


class SnapshotError(ProtocolError):
    """A snapshot cannot be read or written.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"bad snapshot: {self.reason}"


class SnapshotCorrupt(SnapshotError):
    """The bytes are damaged, cut off, or no snapshot.

    Attributes:
        offset: Where, in bytes from the start.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.args = (offset, reason)
        self.offset = offset

    def __str__(self) -> str:
        return f"bad snapshot, at byte {self.offset}: {self.reason}"


class SnapshotNewer(SnapshotError):
    """A newer Onward wrote it.

    Attributes:
        version: The version of its format.
    """

    def __init__(self, version: int) -> None:
        super().__init__(
            f"its format has version {version}, and this Onward reads up to {SNAPSHOT_VERSION}: "
            "read it with a newer one, or write it again with this one"
        )
        self.args = (version,)
        self.version = version


@dataclass(frozen=True, slots=True)
class SnapshotRoute:
    """One route of a snapshot.

    Attributes:
        route_id: 16 bytes.
        service: Its service name, at most 255 bytes.
        tags: Its tags. The default tags are added where they are absent, as a table does.
        broker_id: 16 bytes: the broker it was connected to; zeros for none.
        timestamp: Time of the registration, in milliseconds since the Unix epoch.
        weight: Its share of the requests where a method goes by weight.
        expected: Whether it had not come when the table was saved: it was known from a table
            before that.
    """

    route_id: bytes
    service: str
    tags: TagList = ()
    broker_id: bytes = NO_BROKER
    timestamp: int = 0
    weight: float = 1.0
    expected: bool = False

    def settled(self) -> SnapshotRoute:
        """Return the route as a table would have it: all its tags, each once, in one order.

        Raises:
            SnapshotError: An id has not 16 bytes, or see `check`.
        """
        if len(self.route_id) != ID_SIZE or len(self.broker_id) != ID_SIZE:
            raise SnapshotError(f"route ids and broker ids have {ID_SIZE} bytes")
        tags = normal_form(with_default_tags(self.tags, self.service, self.route_id))
        made = SnapshotRoute(
            self.route_id,
            self.service,
            tuple(sorted(tags, key=tag_order)),
            self.broker_id,
            self.timestamp,
            _float(self.weight),
            self.expected,
        )
        made.check()
        return made

    def check(self) -> None:
        """Hold a route that is settled against the limits that it has on the wire.

        Raises:
            SnapshotError: The name is empty or too long, a number is out of its range, there are
                too many tags, or a key or value of one is too long.
        """
        named = f"route {format_id(self.route_id)}"
        if not 0 < _size(self.service) <= MAX_SERVICE_NAME_SIZE:
            limit = MAX_SERVICE_NAME_SIZE
            raise SnapshotError(f"{named}: its service name has not 1 to {limit} bytes")
        if not 0 <= self.timestamp <= MAX_TIMESTAMP:
            raise SnapshotError(f"{named}: its timestamp has not 63 bits")
        if not (isfinite(self.weight) and self.weight >= 0):
            raise SnapshotError(f"{named}: its weight is not a number of 0 or more")
        if len(self.tags) > MAX_TAGS + _DEFAULTS:
            raise SnapshotError(f"{named}: more than {MAX_TAGS} tags")
        for key, value in self.tags:
            if isinstance(key, str) and not 0 < _size(key) <= MAX_KEY_SIZE:
                raise SnapshotError(f"{named}: the key of a tag has 1 to {MAX_KEY_SIZE} bytes")
            # A service name may be longer than a value, and is a tag all the same.
            too_long = value is not None and _size(value) > MAX_VALUE_SIZE
            if too_long and (key, value) != (_SERVICE, self.service):
                what = f"the tag {format_key(key)!r}: a value has at most {MAX_VALUE_SIZE} bytes"
                raise SnapshotError(f"{named}: {what}")


def _size(text: str) -> int:
    """Return how many bytes a text has, also one that cannot be written as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _float(weight: float) -> float:
    try:
        return float(weight)
    except OverflowError:
        # An int that no float holds: it is out of its range as infinity is.
        return inf


def posting_order(tag: Tag) -> tuple[str, bool, str]:
    """Return what bitmaps are sorted by: the key's text, then null, then the value.

    Texts compare by code points, which is how their UTF-8 compares: a database sorts so too.
    """
    key, value = tag
    return format_key(key), value is not None, value or ""


def own_tag(route_id: bytes) -> Tag:
    """Return the tag that is not written: a route's own RouteId."""
    return _ROUTE_ID, format_id(route_id)


# --- one route as bytes ---------------------------------------------------------------------------


def written_tags(route: SnapshotRoute) -> TagList:
    """Return the tags of a settled route that are written, and have bitmaps."""
    own = own_tag(route.route_id)
    return tuple(tag for tag in route.tags if tag != own)


def encode_route(route: SnapshotRoute) -> bytes:
    """Write a settled route.

    Raises:
        SnapshotError: It is over `MAX_ROUTE_RECORD`, or a text is not to be written as UTF-8.
    """
    tags = written_tags(route)
    fields = (
        route.broker_id,
        route.service,
        tags,
        route.timestamp,
        route.weight,
        len(tags) < len(route.tags),
        # Only where it is so: most routes were there.
        *((True,) if route.expected else ()),
    )
    try:
        record = cbor2.dumps(fields, canonical=True)
    except UnicodeError:
        raise SnapshotError(f"route {format_id(route.route_id)}: a text is not UTF-8") from None
    if len(record) > MAX_ROUTE_RECORD:
        raise SnapshotError(
            f"route {format_id(route.route_id)}: {len(record)} bytes are over the limit of "
            f"{MAX_ROUTE_RECORD} bytes"
        )
    return record


def decode_route(route_id: bytes, record: bytes, offset: int) -> SnapshotRoute:
    """Read a route: the inverse of `encode_route`.

    Its numbers and texts are held against their limits; whether its tags are those of a settled
    route, and in their order, is seen by `Snapshot.check`.

    Raises:
        SnapshotCorrupt: It is none.
    """
    fields = decode_cbor(record, offset, "a route")
    match fields:
        case [
            bytes(broker_id),
            str(service),
            list(),
            int(timestamp),
            float(weight),
            bool(own),
            *more,
        ] if len(broker_id) == ID_SIZE and not isinstance(timestamp, bool) and more in ([], [True]):
            tags = _tags(fields[2], offset)
        case _:
            raise SnapshotCorrupt(offset, "a route has other fields")
    if own:
        tags = tuple(sorted((*tags, own_tag(route_id)), key=tag_order))
    route = SnapshotRoute(route_id, service, tags, broker_id, timestamp, weight, bool(more))
    try:
        route.check()
    except SnapshotError as error:
        raise SnapshotCorrupt(offset, error.reason) from None
    return route


def _tags(pairs: Any, offset: int) -> TagList:
    return tuple(decode_tag(pair, offset) for pair in pairs)


def decode_tag(pair: Any, offset: int) -> Tag:
    """Read a tag from what its CBOR says.

    Raises:
        SnapshotCorrupt: It is none.
    """
    match pair:
        case [str() | int() as key, str() | None as value] if _is_key(key):
            return key, value
        case _:
            raise SnapshotCorrupt(offset, "no tag")


def _is_key(key: Key) -> bool:
    if isinstance(key, str):
        return bool(key)
    return not isinstance(key, bool) and is_key_number(key)


def decode_cbor(data: bytes, offset: int, what: str) -> Any:
    """Return what CBOR says.

    Raises:
        SnapshotCorrupt: It cannot be read.
    """
    try:
        return cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, TypeError, RecursionError) as error:
        raise SnapshotCorrupt(offset, f"{what} cannot be read ({error})") from None
