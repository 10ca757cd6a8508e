"""An ADDRESS that one broker forwards to another: with more tags, and the brokers it has passed.

The first broker chooses the destination, and *pins* it: it adds the tag RouteId, so that the other
broker finds exactly that route. Its value is the canonical text of the id, which a broker of this
kind announces whatever spelling a destination has registered; for the Java broker, which compares
texts and announces nothing else, it is `Id{…}`. What it adds stands in front
of the lists. No byte behind it changes: not the order and the flags of the requester's own tags,
and not what the ADDRESS wraps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ._address_frame import AddressFrame, RoutingType, locate_address
from ._dialect import Dialect
from ._errors import BrokerFrameError
from ._fields import lacks_more_flag
from ._hints import query_of_address
from ._ids import ID_SIZE, format_id
from ._keys import WellKnownKey
from ._tags import (
    EMPTY_LIST,
    Metadata,
    Tag,
    normal_form,
    parse_metadata,
    parse_tags,
    serialize_metadata,
    serialize_tags,
)

__all__ = ["VIA_KEY", "address_for_java", "brokers_passed", "pin_address"]

VIA_KEY: Final = "onward.via"
"""The key, in the metadata of an ADDRESS, of the ids of the brokers that it has passed."""

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_LARGEST_KEY: Final = 0x7F
_LAST: Final = (int(WellKnownKey.NO_TAG), "")


def pin_address(frame: bytes, dialect: Dialect, tags: Iterable[Tag], broker_id: bytes) -> bytes:
    """Return an ADDRESS with more tags, and the broker that has passed it on.

    Args:
        frame: The whole frame.
        dialect: Its dialect. The reference dialect has no place for the broker's id.
        tags: The tags to add, none of them null; those that it has already are not added again.
        broker_id: The id of the broker that forwards it, 16 bytes.

    Raises:
        BrokerFrameError: The frame is broken, or would have too many tags; or a tag cannot be
            written in the dialect.
    """
    spans = locate_address(frame, dialect)
    own, _ = parse_tags(frame, spans.tags, dialect, to_end=lacks_more_flag(frame, dialect))
    present = frozenset(normal_form(own))
    # Forwarding the Request: "A broker forwarding a message MAY add additional metadata, and tags
    # to the envelope but it MUST not mutate the wrapped metadata, or data of the request."
    added = tuple(tag for tag in tags if present.isdisjoint(normal_form((tag,))))
    # Written with an empty tag behind them, which is left out: so each says that more follow.
    front = serialize_tags((*added, _LAST), dialect)[: -len(EMPTY_LIST)]
    passed = b""
    start = spans.metadata
    if dialect is Dialect.SPECIFICATION:
        entry = ((VIA_KEY, broker_id),)
        if frame[start : spans.tags] == EMPTY_LIST:
            passed, start = serialize_metadata(entry, dialect), spans.tags
        else:
            last = serialize_metadata((*entry, (_LAST[0], b"")), dialect)
            passed = last[: -len(EMPTY_LIST)]
    made = b"".join(
        (
            frame[: spans.metadata],
            passed,
            frame[start : spans.tags],
            front,
            frame[spans.tags :],
        )
    )
    locate_address(made, dialect)  # it may have too many entries now
    return made


def address_for_java(frame: bytes, dialect: Dialect, tags: Iterable[Tag], route_id: bytes) -> bytes:
    """Return an ADDRESS for the Java broker: unicast, to one of its routes, in its dialect.

    This broker has chosen the destination, also where the request is for several or for a shard.
    The Java broker has no place for hints, for tags without a value, and for wrapped metadata.

    Args:
        frame: The whole frame.
        dialect: Its dialect.
        tags: The tags to add, none of them null.
        route_id: The route, 16 bytes.

    Raises:
        BrokerFrameError: The frame is broken, or would have too many tags; or a tag cannot be
            written in that dialect.
    """
    asked = AddressFrame.parse(frame, dialect)
    query = query_of_address(asked, dialect).query | frozenset(normal_form(tags))
    told = (
        (key, value)
        for key, value in sorted(query, key=str)
        if key != _ROUTE_ID and value and (isinstance(key, str) or key <= _LARGEST_KEY)
    )
    # It compares texts, and writes an id like this.
    pin = (_ROUTE_ID, f"Id{{{format_id(route_id)}}}")
    made = AddressFrame(asked.origin_route_id, RoutingType.UNICAST, (*told, pin))
    return made.serialize(Dialect.REFERENCE)


def brokers_passed(frame: bytes, dialect: Dialect) -> tuple[bytes, ...]:
    """Return the ids of the brokers that an ADDRESS has passed, as far as it says so.

    Raises:
        BrokerFrameError: The frame is broken, or the ids are.
    """
    if dialect is Dialect.REFERENCE:
        return ()
    spans = locate_address(frame, dialect)
    metadata: Metadata = ()
    if frame[spans.metadata : spans.tags] != EMPTY_LIST:
        metadata, _ = parse_metadata(frame, spans.metadata, dialect)
    passed: list[bytes] = []
    for key, value in metadata:
        if key != VIA_KEY:
            continue
        if not value or len(value) % ID_SIZE:
            raise BrokerFrameError(VIA_KEY, f"not ids of {ID_SIZE} bytes")
        passed += [value[at : at + ID_SIZE] for at in range(0, len(value), ID_SIZE)]
    return tuple(passed)
