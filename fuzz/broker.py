"""Send random and mutated bytes to the decoders of the broker's frames and queries.

Each input is read as a frame of any type and as an ADDRESS, in both dialects. A second input is
read as the text of a query. The invariant: a value, or `BrokerFrameError` (for a text:
`AddressError`) with a short printable text; no other error is raised. A value that was read is
written, and read again as the same. The fast readers of an ADDRESS (`locate_address`, and a reader
with a cache) agree with the full one on every input. The process does not grow.

    python fuzz/broker.py --count 10000000 --seed 1
"""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random

from _fuzzing import MAX_ERROR_TEXT, arguments_of, check_text_of, mutated, noise, run

from onward.protocol import AddressError
from onward.protocol.broker import (
    HEADER_SIZE,
    NO_ROUTE_KEY,
    AddressFrame,
    AddressQuery,
    BrokerFrame,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    FrameType,
    QueryReader,
    RouteAdd,
    RouteRemove,
    RouteSetup,
    RoutingType,
    format_address_query,
    format_query,
    locate_address,
    parse_address_query,
    parse_frame,
    parse_query,
    query_from_tags,
    query_of_address,
    shard_hash,
    tag_set,
    translate_address,
    unwrap_metadata,
)

ID, OTHER = bytes(range(16)), bytes(16)
NOW = 1_700_000_000_000
TAGS = ((1, "orders"), (6, "eu"), ("colour", "blue"))
METADATA = ((0x1E, b"roundrobin"), ("trace", b"\xff\x00"))
SHARDED = ((0x1B, b"colour"), (0x1B, b"region"), (0x1C, b"Jump"), (NO_ROUTE_KEY, b"2.5"))
STICKY = ((0x1D, b"io.rsocket.routing.Region"), (NO_ROUTE_KEY, b"wait"))
HINTS = frozenset({0x1B, 0x1C, 0x1D, 0x1F})

FRAMES: list[BrokerFrame] = [
    RouteSetup(ID, "orders"),
    RouteSetup(ID, "é" * 40, (*TAGS, ("last", None))),
    RouteAdd(OTHER, ID, NOW, "orders", ((2, "Id{00000000-0000-0000-0000-000000000022}"), *TAGS)),
    RouteRemove(OTHER, ID, NOW),
    BrokerInfo(OTHER, NOW, METADATA),
    AddressFrame(ID, RoutingType.UNICAST, TAGS[:1]),
    AddressFrame(ID, RoutingType.MULTICAST, TAGS, encrypted=True, metadata=METADATA),
    AddressFrame(ID, RoutingType.SHARD, ((0x7C0001, "x"), (0x19, "")), wrapped=bytes(30)),
    AddressFrame(ID, RoutingType.SHARD, TAGS, metadata=SHARDED),
    AddressFrame(ID, RoutingType.UNICAST, TAGS, metadata=STICKY, wrapped=b"x"),
]
SEEDS = [frame.serialize(Dialect.SPECIFICATION) for frame in FRAMES] + [
    AddressFrame(ID, RoutingType.UNICAST, TAGS).serialize(Dialect.REFERENCE),
    RouteSetup(ID, "orders", ((0x7F, "x"), (0x7C, ""), *TAGS)).serialize(Dialect.REFERENCE),
]
TEXTS = [
    b"service=orders region=eu",
    b"0x7c0001=x %73ervice=a%20b colour",
    b"route=Id{00000000-0000-0000-0000-0000000000FF} io.rsocket.routing.Zone=a=b",
    "größe=ß 0x19= k".encode(),
    b"@shard=user @method=Jump @no-route=2.5 service=orders user=42",
    b"@multicast @encrypted @no-route=wait %40k=v",
]

# Bytes at the limits of a list, a name or a header; a mutation puts some anywhere.
PIECES = (
    *map(bytes.fromhex, ("00", "01", "7f", "80", "81", "ff", "8000", "8080", "fc", "fc0001")),
    *map(bytes.fromhex, ("ff", "ffffff", "016b00", "016b0176", "016b8176", "0100", "c3", "eda080")),
    *map(bytes.fromhex, ("1400", "1480", "1460", "0400", "0800", "0c00", "1000", "0001", "7fff")),
    *(
        b" ",
        b"=",
        b"@",
        b"@sticky=k ",
        b"%",
        b"%zz",
        b"%00",
        b"0x",
        b"0x7f",
        b"service",
        b"Id{",
        b"}",
        b"x" * 130,
    ),
)


def written(frame: BrokerFrame, dialect: Dialect) -> BrokerFrame:
    """Return the frame as the dialect writes it: the reference has no null."""
    if dialect is Dialect.SPECIFICATION or isinstance(frame, RouteRemove):
        return frame
    if isinstance(frame, BrokerInfo):
        return replace(frame, metadata=tuple((key, value or b"") for key, value in frame.metadata))
    return replace(frame, tags=tuple((key, value or "") for key, value in frame.tags))


def read_slowly(data: bytes, dialect: Dialect) -> AddressQuery | BrokerFrameError:
    try:
        return query_of_address(AddressFrame.parse(data, dialect), dialect)
    except BrokerFrameError as error:
        return error


def check_address(reader: QueryReader, data: bytes, dialect: Dialect) -> AddressQuery | None:
    """Read an ADDRESS with the fast readers; return its query, `None` if it is not an ADDRESS."""
    slowly = read_slowly(data, dialect)
    try:
        found = reader.from_address(data, dialect)
    except BrokerFrameError as error:
        if repr(error) != repr(slowly):
            raise AssertionError(f"{error!r}, not {slowly!r}") from error
        return None
    if found != slowly:
        raise AssertionError(f"{found}, not {slowly}")
    return found


def check_frame(reader: QueryReader, data: bytes, dialect: Dialect) -> bool:
    """Read one input with all readers; return whether it is a frame."""
    # Most inputs are refused because of their type, so the fast readers are not tried.
    is_address = len(data) >= HEADER_SIZE and data[4] >> 2 == FrameType.ADDRESS
    asked = check_address(reader, data, dialect) if is_address else None
    try:
        frame = parse_frame(data, dialect)
    except BrokerFrameError as error:
        check_text_of(error)
        if asked:
            raise AssertionError(f"only the short ways read an ADDRESS: {error}") from error
        return False
    if parse_frame(frame.serialize(dialect), dialect) != written(frame, dialect):
        raise AssertionError("reading is not the inverse of writing")
    if isinstance(frame, AddressFrame):
        check_meaning(frame, asked, data, dialect)
    return True


def check_meaning(
    frame: AddressFrame, asked: AddressQuery | None, data: bytes, dialect: Dialect
) -> None:
    """Check that an ADDRESS asks for its tags, has a text, and translates to the other dialect."""
    if not data.endswith(frame.wrapped):
        raise AssertionError("the wrapped metadata is not what was sent")
    spans = locate_address(data, dialect)
    if query_from_tags(data[spans.tags : spans.wrapped], dialect) != tag_set(frame.tags):
        raise AssertionError("the short ways read something else")
    if asked is not None:
        if asked.routing is not frame.routing:
            raise AssertionError("the routing is not what was sent")
        tags, meant = tag_set(frame.tags), asked.query.union(asked.keys)
        # The reference dialect has its hints among the tags.
        hints = HINTS if dialect is Dialect.REFERENCE else frozenset[int]()
        if not meant <= tags or any(key not in hints for key, _ in tags - meant):
            raise AssertionError("a tag neither is asked for nor chooses")
        if parse_address_query(format_address_query(asked)) != asked:
            raise AssertionError("reading the text is not the inverse of writing it")
        shard_hash(asked.keys)
    other = Dialect.REFERENCE if dialect is Dialect.SPECIFICATION else Dialect.SPECIFICATION
    mime = "message/x.rsocket.forwarding"
    if other is Dialect.REFERENCE:
        mime = "message/x.rsocket.broker.frame.v0"
    try:
        found = unwrap_metadata(translate_address(data, dialect, other), mime)
    except BrokerFrameError as error:
        check_text_of(error)
        return
    if found.wrapped != frame.wrapped:
        raise AssertionError("the wrapped metadata has not come through")


def check_text(reader: QueryReader, data: bytes) -> bool:
    """Read one text; return whether it is a query."""
    try:
        asked = parse_address_query(data)
    except AddressError as error:
        if len(error.reason) > MAX_ERROR_TEXT:
            raise AssertionError("the error's text is long") from error
        return False
    if reader.from_text(data) != asked:
        raise AssertionError("what is remembered differs")
    if parse_address_query(format_address_query(asked)) != asked:
        raise AssertionError("reading is not the inverse of writing")
    if parse_query(format_query(asked.query)) != asked.query:
        raise AssertionError("reading the tags is not the inverse of writing them")
    return True


def made(random: Random) -> bytes:
    if random.random() < 0.05:
        return noise(random)
    return mutated(random, SEEDS, PIECES, changes=1)


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    reader = QueryReader()

    def check(_: Random, data: bytes) -> bool:
        both = [check_frame(reader, data, dialect) for dialect in Dialect]
        return any(both)

    held = [
        run("frames", options.count, options.seed, lambda random, _: made(random), check),
        run(
            "texts",
            options.count,
            options.seed,
            lambda random, _: mutated(random, TEXTS, PIECES, changes=1),
            lambda _, data: check_text(reader, data),
        ),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
