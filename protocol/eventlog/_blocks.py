"""The blocks of a segment, written: `type u8 | length u32 | crc32 u32 | body`.

The check is over type, length and body, so that no bit of a block can change unseen. Numbers
are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final
from zlib import crc32

from ..broker import Tag, TagList
from ._cbor import clean, dumps
from ._errors import EventLogError
from ._records import FLOW, HOP, Asked, Flow, Hop, RouteEvent

__all__ = [
    "MAX_BLOCK",
    "MAX_NAME",
    "MAX_NAMES",
    "MAX_ROUTES",
    "MAX_TAGSETS",
    "ROUTE_SIZE",
    "block",
    "block_header",
    "clip_name",
    "events_block",
    "flows_block",
    "hops_block",
    "names_block",
    "routes_block",
    "tagsets_block",
]

BLOCK_HEADER: Final = Struct("<cII")

NAMES: Final = b"N"
ROUTES: Final = b"P"
TAGSETS: Final = b"T"
HOPS: Final = b"R"
FLOWS: Final = b"F"
EVENTS: Final = b"E"
FOOTER: Final = b"Z"

MAX_BLOCK: Final = 16 * 1024 * 1024
"""Most bytes of a block's body."""

MAX_NAMES: Final = 65_535
"""Most names in one segment."""

MAX_ROUTES: Final = 65_535
"""Most route ids in one segment."""

MAX_TAGSETS: Final = 65_535
"""Most tag sets in one segment."""

MAX_NAME: Final = 255
"""Most bytes of a name, as UTF-8."""

ROUTE_SIZE: Final = 16
"""Bytes of a route id."""

_CUT: Final = "…"
_CHECKED: Final = Struct("<cI")


def block_header(kind: bytes, body: bytes | bytearray | memoryview) -> bytes:
    """Return the nine bytes that stand before a body.

    Args:
        kind: The type, one byte: `N P T R F E` or `Z`.
        body: The body.

    Raises:
        EventLogError: It is over `MAX_BLOCK`.
    """
    if len(body) > MAX_BLOCK:
        raise EventLogError(f"a block of {len(body)} bytes is over the limit of {MAX_BLOCK}")
    size = len(body)
    return BLOCK_HEADER.pack(kind, size, crc32(body, crc32(_CHECKED.pack(kind, size))))


def block(kind: bytes, body: bytes | bytearray | memoryview) -> bytes:
    """Return a whole block: see `block_header`."""
    return b"".join((block_header(kind, body), body))


def names_body(names: Sequence[str]) -> bytes:
    """Return the body of `names_block`."""
    for name in names:
        if not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME:
            raise EventLogError(f"a name has 1 to {MAX_NAME} bytes, not as {name[:80]!r} has")
    return dumps([clean(name) for name in names])


def names_block(names: Sequence[str]) -> bytes:
    """Return the block that gives the next numbers to names.

    Raises:
        EventLogError: A name is empty or over `MAX_NAME` bytes: see `clip_name`.
    """
    return block(NAMES, names_body(names))


def clip_name(text: str) -> str:
    """Return a text as a name: what is too long ends with an ellipsis; empty stays empty.

    What UTF-8 cannot write becomes a question mark.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_NAME:
        return data.decode()
    return data[: MAX_NAME - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def routes_body(routes: Sequence[bytes]) -> bytes:
    """Return the body of `routes_block`."""
    for route in routes:
        if len(route) != ROUTE_SIZE:
            raise EventLogError(f"a route id has {ROUTE_SIZE} bytes, not {len(route)}")
    return dumps(list(routes))


def routes_block(routes: Sequence[bytes]) -> bytes:
    """Return the block that gives the next numbers to route ids.

    Raises:
        EventLogError: One is not 16 bytes.
    """
    return block(ROUTES, routes_body(routes))


def plain_tags(tags: TagList | Sequence[Tag]) -> list[list[str | int | None]]:
    """Return tags as lists, keys as plain numbers."""
    return [[int(key) if isinstance(key, int) else key, value] for key, value in tags]


def plain_asked(asked: Asked) -> list[object]:
    """Return a tag set as it stands in a block."""
    return [plain_tags(asked.tags), int(asked.routing), asked.method]


def tagsets_body(tagsets: Sequence[Asked]) -> bytes:
    """Return the body of `tagsets_block`."""
    return dumps([plain_asked(asked) for asked in tagsets])


def tagsets_block(tagsets: Sequence[Asked]) -> bytes:
    """Return the block that gives the next numbers to tag sets."""
    return block(TAGSETS, tagsets_body(tagsets))


def hops_block(hops: Sequence[Hop]) -> bytes:
    """Return the block of hops, in the order of their `seq`.

    Raises:
        EventLogError: A number does not fit its field.
    """
    try:
        body = b"".join(
            HOP.pack(
                hop.seq,
                hop.ts_us,
                hop.trace_id,
                hop.shard_hash,
                hop.kind,
                hop.outcome,
                hop.hop,
                hop.flags,
                hop.origin,
                hop.dest,
                hop.route,
                hop.tagset,
                hop.latency_us,
                hop.bytes,
                hop.weight,
            )
            for hop in hops
        )
    except error as reason:
        raise EventLogError(f"a number of a hop does not fit: {reason}") from None
    return block(HOPS, body)


def flows_block(flows: Sequence[Flow]) -> bytes:
    """Return the block of flows, in the order of their `seq`.

    Raises:
        EventLogError: A number does not fit its field.
    """
    try:
        body = b"".join(
            FLOW.pack(
                flow.seq,
                flow.window_us,
                flow.window_ms,
                flow.origin,
                flow.dest,
                flow.route,
                flow.tagset,
                flow.kind,
                flow.outcome,
                0,
                flow.frames,
                flow.bytes,
            )
            for flow in flows
        )
    except error as reason:
        raise EventLogError(f"a number of a flow does not fit: {reason}") from None
    return block(FLOWS, body)


def events_body(events: Sequence[RouteEvent]) -> bytes:
    """Return the body of `events_block`."""
    return dumps(
        [
            [
                event.seq,
                event.ts_us,
                int(event.name),
                event.route_id,
                event.node,
                plain_tags(event.tags),
                event.reason,
            ]
            for event in events
        ]
    )


def events_block(events: Sequence[RouteEvent]) -> bytes:
    """Return the block of route events, in the order of their `seq`."""
    return block(EVENTS, events_body(events))
