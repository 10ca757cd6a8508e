"""The metadata of a client's requests and of the requests to its handlers.

Composite metadata are parsed by `protocol.rsocket`, which keeps an unknown well-known id as a
number. Defect 16 of the `rsocket` package (0.4.20): its parser raises on such an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import UUID

from ...actors.broker import Request, route_of
from ...actors.broker.local._service import as_bytes
from ...protocol import Route, format_route, route as make_route
from ...protocol.broker import (
    ID_SIZE,
    MAX_ROUTE_TEXT,
    MIME_ROUTE,
    NO_ROUTE_KEY,
    AddressFrame,
    BrokerFrameError,
    Dialect,
    RouteSetup,
    RoutingType,
    format_key,
    format_tag,
    multicast,
    null_last,
    parse_address_query,
    shard,
    unicast,
    unwrap_metadata,
    wrap_metadata,
)
from ...protocol.options import check_value
from ...protocol.rsocket import COMPOSITE_MIME, RSocketError, build_composite
from ._options import ClientOptions

__all__ = [
    "Destination",
    "Entries",
    "address_metadata",
    "request_of",
    "says_no_route",
    "setup_metadata",
]

Destination: TypeAlias = str | AddressFrame | Route
"""The destination of a request: an address of type 32 as text, a whole ADDRESS, or a route."""

Entries: TypeAlias = Sequence[tuple[str, bytes]]
"""More metadata entries of a request: MIME types and contents."""

ROUTING_MIME: Final = "message/x.rsocket.routing.v0"
_LONGEST_ROUTE: Final = 255
_REMEMBERED: Final = 256
"""Most parsed destinations that are cached."""


def says_no_route(destination: Destination) -> bool:
    """Return whether a destination has a time for the broker to wait for it (`@no-route`).

    Raises:
        AddressError: The text cannot be read.
    """
    if isinstance(destination, tuple):
        return False
    return any(key == NO_ROUTE_KEY for key, _ in _frame(destination).metadata)


def _frame(destination: object) -> AddressFrame:
    if isinstance(destination, AddressFrame):
        return destination
    if not isinstance(destination, str):
        name = type(destination).__name__
        raise TypeError(f"a destination must be a str, an AddressFrame or a Route, not {name}")
    return _read(destination)


def address_metadata(
    destination: Destination,
    origin: bytes,
    metadata: bytes | None,
    route: str,
    entries: Iterable[tuple[str, bytes]],
    options: ClientOptions,
) -> bytes:
    """Return the metadata of a request.

    Args:
        destination: The destination.
        origin: The route id of the requester, 16 bytes; for an ADDRESS that has none.
        metadata: The metadata that the ADDRESS wraps; `None`: those that it wraps already.
        route: The route name for the handlers; "" for none.
        entries: More entries.
        options: The dialect.

    Raises:
        AddressError: The text cannot be read.
        BrokerFrameError: A field is out of range, or the dialect does not support it.
        ValueError: The route name is no text, or over 255 bytes; a destination that is a route is
            empty or too long, or has metadata to wrap.
        PayloadNotBytes: The metadata or an entry are no `bytes`.
        TypeError: The destination is none of text, an ADDRESS and a route.
    """
    named = _named(destination, metadata) if isinstance(destination, tuple) else None
    entries = [(mime, as_bytes(content, "an entry")) for mime, content in entries]
    if type(route) is not str:
        check_value("route", route, str)
    if route:
        name = route.encode()
        if len(name) > _LONGEST_ROUTE:
            raise ValueError(f"a route has at most {_LONGEST_ROUTE} bytes, not {len(name)}")
        # Routing Metadata Extension: "Unsigned 8-bit integer of Tag Length in bytes."
        entries = [(ROUTING_MIME, bytes((len(name),)) + name), *entries]
    if named is not None:
        return build_composite([(MIME_ROUTE, named), *entries])
    frame = _frame(destination)
    if frame.origin_route_id == bytes(ID_SIZE):
        frame = replace(frame, origin_route_id=origin)
    if metadata is not None:
        # Wrapping and Unwrapping Metadata in an ADDRESS: "The origin can wrap the existing metadata
        # into an ADDRESS frame, and then un-wrap the metadata at the destination."
        frame = replace(frame, wrapped=as_bytes(metadata, "metadata"))
    if frame.wrapped and options.dialect is Dialect.REFERENCE:
        raise BrokerFrameError("wrapped metadata", "not in the reference dialect")
    return wrap_metadata(frame, COMPOSITE_MIME, mime=options.mime.encode(), entries=entries)


def _named(destination: Route, metadata: bytes | None) -> bytes:
    """Return a route as text, for the entry of metadata that names it."""
    if metadata is not None:
        raise ValueError("metadata= goes with tags; a route takes entries=")
    text = format_route(make_route(destination)).encode()
    if not 0 < len(text) <= MAX_ROUTE_TEXT:
        raise ValueError(f"a route has 1 to {MAX_ROUTE_TEXT} bytes as text, not {len(text)}")
    return text


@lru_cache(_REMEMBERED)
def _read(text: str) -> AddressFrame:
    """Return an ADDRESS by its text form."""
    query = parse_address_query(text)
    chosen = [tag for tag in query.keys if tag not in query.query]
    all_tags = (*sorted(query.query, key=format_tag), *chosen)
    tags = {format_key(key): value for key, value in all_tags}
    names = [format_key(key) for key, _ in query.keys]
    if query.routing is RoutingType.MULTICAST:
        frame = multicast(tags=tags, no_route=query.no_route, encrypted=query.encrypted)
    elif query.routing is RoutingType.SHARD:
        frame = shard(
            tags=tags,
            by=names,
            method=query.method,
            no_route=query.no_route,
            encrypted=query.encrypted,
        )
    else:
        frame = unicast(
            tags=tags,
            sticky=names,
            method=query.method,
            no_route=query.no_route,
            encrypted=query.encrypted,
        )
    # A mapping has each key once, but a query may have two values of one key.
    return replace(frame, tags=null_last(all_tags))


def setup_metadata(setup: RouteSetup, options: ClientOptions) -> bytes:
    """Return the metadata of the SETUP of a destination.

    Raises:
        BrokerFrameError: A field is out of range.
    """
    # ROUTE_SETUP: "Route setup frames are sent from a routable destination to a broker when it
    # wants to make a service available for routing."
    return build_composite([(options.mime, setup.serialize(options.dialect))])


def request_of(data: bytes, metadata: bytes | None) -> Request:
    """Return a request of the broker as it is given to handlers.

    Metadata that cannot be parsed count as none, as the request was routed here already.
    """
    try:
        found = unwrap_metadata(metadata or b"", COMPOSITE_MIME)
    except (BrokerFrameError, RSocketError):
        return Request(data)
    address, entries = found.address, found.entries
    if address is None:
        return Request(data, entries=entries, route=route_of(entries))
    return Request(
        data,
        found.wrapped or None,
        entries,
        UUID(bytes=address.origin_route_id),
        address.tags,
        address.encrypted,
        route_of(entries),
    )
