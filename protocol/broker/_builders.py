"""Functions that make an ADDRESS.

    unicast("orders", tags={"region": "eu"}, method="peak-ewma")
    shard("orders", tags={"user": "42"}, by="user")
    multicast("cache", no_route=0)

What these return can be written in the specification's dialect, and read back it asks for
what was said. The reference dialect has no place for anything but tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ._address_frame import AddressFrame, RoutingType
from ._dialect import Dialect
from ._errors import BrokerFrameError
from ._hints import NO_ROUTE_KEY, AddressQuery, format_no_route, query_of_address
from ._ids import ID_SIZE
from ._keys import Key, WellKnownKey, metadata_key, parse_key
from ._tags import MAX_VALUE_SIZE, Metadata, TagList, make_tags, null_last, serialize_metadata

__all__ = ["address_of_query", "multicast", "shard", "unicast"]

_Names = str | Sequence[str]
_NOBODY: Final = bytes(ID_SIZE)
_CHOOSING: Final = {
    RoutingType.SHARD: int(WellKnownKey.SHARD_KEY),
    RoutingType.UNICAST: int(WellKnownKey.STICKY_ROUTE_KEY),
}
_METHOD: Final = {
    RoutingType.SHARD: int(WellKnownKey.SHARD_METHOD),
    RoutingType.UNICAST: int(WellKnownKey.LB_METHOD),
}


def unicast(
    service: str | None = None,
    /,
    *,
    tags: Mapping[str, str | None] | None = None,
    method: str = "",
    sticky: _Names = (),
    no_route: float | None = None,
    encrypted: bool = False,
    origin: bytes | UUID = _NOBODY,
) -> AddressFrame:
    """Make an ADDRESS for one of the destinations that carry the tags.

    Args:
        service: The service name; `None` asks for the other tags only.
        tags: Other tags, with keys as `parse_key` reads them.
        method: How to choose, such as `least-outstanding`: a hint. Empty for the broker's
            default.
        sticky: Keys of tags: requests with equal values of them are routed to the same
            destination while it is registered. Destinations need not carry these tags.
        no_route: Time to wait for a destination, in seconds: 0 for none, infinity for as long
            as the broker permits; `None` for the broker's default.
        encrypted: Whether the payload is encrypted.
        origin: The route the request comes from, 16 bytes; zeros for one that has none.

    Raises:
        AddressError: A key cannot be read.
        BrokerFrameError: A tag, the method or the origin is out of range; `sticky` names a
            tag that is not there; or there is no tag besides those.
        ValueError: `no_route` is out of range.
    """
    hints = _hint(WellKnownKey.LB_METHOD, method)
    parts = tags, (WellKnownKey.STICKY_ROUTE_KEY, sticky), hints
    return _address(RoutingType.UNICAST, service, *parts, no_route, encrypted, origin)


def multicast(
    service: str | None = None,
    /,
    *,
    tags: Mapping[str, str | None] | None = None,
    no_route: float | None = None,
    encrypted: bool = False,
    origin: bytes | UUID = _NOBODY,
) -> AddressFrame:
    """Make an ADDRESS for all destinations that carry the tags; arguments as in `unicast`.

    Raises:
        AddressError: A key cannot be read.
        BrokerFrameError: A tag or the origin is out of range, or there are no tags.
        ValueError: `no_route` is out of range.
    """
    parts = tags, (WellKnownKey.SHARD_KEY, ()), ()
    return _address(RoutingType.MULTICAST, service, *parts, no_route, encrypted, origin)


def shard(
    service: str | None = None,
    /,
    *,
    tags: Mapping[str, str | None],
    by: _Names,
    method: str = "",
    no_route: float | None = None,
    encrypted: bool = False,
    origin: bytes | UUID = _NOBODY,
) -> AddressFrame:
    """Make an ADDRESS for the one destination that is responsible for some tags' values.

    Args:
        service: As in `unicast`.
        tags: As in `unicast`, with those that choose.
        by: Keys of the tags that choose, at least one. They are not asked of destinations.
        method: How to choose, such as `rendezvous`: a hint. Empty for the broker's default.
        no_route: As in `unicast`.
        encrypted: As in `unicast`.
        origin: As in `unicast`.

    Raises:
        AddressError: A key cannot be read.
        BrokerFrameError: As in `unicast`; `by` names a tag that is not there, or none.
        ValueError: `no_route` is out of range.
    """
    hints = _hint(WellKnownKey.SHARD_METHOD, method)
    parts = tags, (WellKnownKey.SHARD_KEY, by), hints
    return _address(RoutingType.SHARD, service, *parts, no_route, encrypted, origin)


def address_of_query(asked: AddressQuery, origin: bytes = _NOBODY) -> AddressFrame:
    """Make an ADDRESS that asks for what a query does: the inverse of `query_of_address`.

    A method with a name that is longer than a value may be is left out: no broker has it.

    Args:
        asked: The query.
        origin: The route the request comes from, 16 bytes; zeros for one that has none.

    Raises:
        ValueError: Its `no_route` is out of range.
    """
    names = dict.fromkeys(key for key, _ in asked.keys)
    metadata: Metadata = tuple(
        (_CHOOSING[asked.routing], metadata_key(name).encode()) for name in names
    )
    method = asked.method.encode()
    if 0 < len(method) <= MAX_VALUE_SIZE:
        metadata += ((_METHOD[asked.routing], method),)
    if asked.no_route is not None:
        metadata += ((NO_ROUTE_KEY, format_no_route(asked.no_route).encode()),)
    tags = null_last(tuple(sorted(asked.query.union(asked.keys), key=str)))
    return AddressFrame(origin, asked.routing, tags, asked.encrypted, metadata)


def _hint(key: Key, value: str) -> Metadata:
    try:
        return ((int(key), value.encode()),) if value else ()
    except UnicodeEncodeError:
        raise BrokerFrameError("method", "not UTF-8") from None


def _address(
    routing: RoutingType,
    service: str | None,
    tags: Mapping[str, str | None] | None,
    choosing: tuple[WellKnownKey, _Names],
    hints: Metadata,
    no_route: float | None,
    encrypted: bool,
    origin: bytes | UUID,
) -> AddressFrame:
    made: TagList = make_tags(tags or {})
    if service is not None:
        made = *make_tags({"service": service}), *made  # the null one stays last
    key, names = choosing
    named = [parse_key(name) for name in ((names,) if isinstance(names, str) else names)]
    for name in named:
        if not any(name == tag for tag, _ in made):
            raise BrokerFrameError(metadata_key(key), "it names no tag of the request")
    metadata: Metadata = tuple((int(key), metadata_key(name).encode()) for name in named)
    metadata += hints
    if no_route is not None:
        metadata += ((NO_ROUTE_KEY, format_no_route(no_route).encode()),)
    # A value is over its limit, or an empty list is asked for: said now, not on the wire.
    serialize_metadata(metadata, Dialect.SPECIFICATION, last=False)
    if isinstance(origin, UUID):
        origin = origin.bytes
    if len(origin) != ID_SIZE:
        raise BrokerFrameError("origin route id", f"{len(origin)} bytes, not {ID_SIZE}")
    address = AddressFrame(origin, routing, made, encrypted, metadata)
    query_of_address(address)
    return address
