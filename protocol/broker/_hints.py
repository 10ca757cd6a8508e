"""The query of an ADDRESS: its tags, and the hints for the choice among destinations.

Section Handling Routing Flags: a unicast request may name a method (LBMethod) and a tag with a
value that keeps it on one route (StickyRouteKey). A shard request must name at least one tag
(ShardKey) and may name a method (ShardMethod). These stand in the metadata list of the
ADDRESS. Where the specification is silent, decisions 9, 12 and 13 of the architecture page:

- A named tag chooses among the destinations and is not asked of them, so it leaves the query.
  ServiceName and RouteId stay in it all the same. What is left must have a tag.
- A value names a tag by its literal key, if the request has such a tag; else as people write
  keys, by the short name or either of the long ones (`parse_key`).
- A ShardKey that names no tag is an error, a MUST of the section. A StickyRouteKey that does is
  passed over: it is a hint, like an unknown method. So are those that leave no tag to ask for.
- Of several LBMethod, ShardMethod or no-route entries the first counts.
- The reference dialect has no metadata list, so its hints stand among the tags (`_hints_of_tags`).
  ShardKey and ShardMethod leave the tags of a shard request, and StickyRouteKey those of a
  unicast request if it names one of them. LBMethod stays, as the Java reference asks it of
  destinations too. The key for extensions of a broker, 0x1F, carries any of them as words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Final, NamedTuple

from .._errors import AddressError
from ..options import fold
from ._address_frame import AddressFrame, RoutingType, locate_address
from ._dialect import Dialect
from ._errors import BadText, BrokerFrameError
from ._fields import lacks_more_flag
from ._keys import Key, WellKnownKey, extension_key, parse_key
from ._query import Query, tag_order
from ._tags import Metadata, TagList, normal_form, parse_metadata, parse_tags

__all__ = [
    "MAX_NO_ROUTE",
    "NO_ROUTE_KEY",
    "AddressQuery",
    "method_name",
    "query_of_address",
    "read_address",
    "written_method",
]

NO_ROUTE_KEY: Final = extension_key(WellKnownKey.BROKER_EXT, 1)
"""Metadata key of what to do without a route: `reject`, `wait`, or seconds such as `2.5`."""

MAX_NO_ROUTE: Final = 9_999_999.999
"""Longest wait for a route that a request can ask for, in seconds; a longer one is an error."""

_STAY: Final = frozenset({int(WellKnownKey.SERVICE_NAME), int(WellKnownKey.ROUTE_ID)})
_SHARD_KEY: Final = int(WellKnownKey.SHARD_KEY)
_SHARD_METHOD: Final = int(WellKnownKey.SHARD_METHOD)
_STICKY: Final = int(WellKnownKey.STICKY_ROUTE_KEY)
_LB_METHOD: Final = int(WellKnownKey.LB_METHOD)
_EXTENSION: Final = int(WellKnownKey.REFERENCE_BROKER_EXT)
_IN_TAGS: Final = frozenset({_SHARD_KEY, _SHARD_METHOD, _STICKY, _LB_METHOD, _EXTENSION})
"""Keys of tags that may be hints in the reference dialect."""
_CHOOSING: Final = {RoutingType.SHARD: _SHARD_KEY, RoutingType.UNICAST: _STICKY}
_KEYS_OF_WORDS: Final = {"@shard": _SHARD_KEY, "@sticky": _STICKY, "@no-route": NO_ROUTE_KEY}
_SECONDS: Final = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,3})?")


class AddressQuery(NamedTuple):
    """The content of an ADDRESS, or of an address of type 32, that decides its routing.

    Attributes:
        routing: Unicast, multicast or shard.
        encrypted: Whether the payload is encrypted.
        query: The tags a destination must carry.
        method: How to choose among several, in the form of `method_name`; empty for the
            broker's default.
        keys: The tags that choose: those that ShardKey names in a shard request, or
            StickyRouteKey in a unicast one. In the order they are named, and the values of
            one key sorted, so that requests with equal tags have equal keys.
        no_route: Time to wait for a route, in seconds: 0 for none, infinity for as long as the
            broker permits; `None` for the broker's default.
    """

    routing: RoutingType
    encrypted: bool
    query: Query
    method: str = ""
    keys: TagList = ()
    no_route: float | None = None


def method_name(text: str) -> str:
    """Return the normal form of a method's name: case, `-` and `_` do not matter."""
    return fold(text)


_WRITTEN: Final = {
    fold(name): name for name in ("round-robin", "least-outstanding", "peak-ewma", "bounded-ring")
}


def written_method(name: str) -> str:
    """Return a method's name as people write it: `round-robin` for `roundrobin`.

    The names of other methods than the built-in ones are returned as they are.
    """
    return _WRITTEN.get(method_name(name), name)


def read_address(frame: bytes, dialect: Dialect) -> AddressQuery:
    """Return what a whole ADDRESS frame asks for.

    Raises:
        BrokerFrameError: The frame is broken, has no tags, or has hints that do not fit it:
            see `query_of_address`.
    """
    spans = locate_address(frame, dialect)
    metadata: Metadata = ()
    if spans.metadata != spans.tags:
        metadata, _ = parse_metadata(frame, spans.metadata, dialect)
    to_end = lacks_more_flag(frame, dialect)
    tags, _ = parse_tags(frame, spans.tags, dialect, to_end=to_end)
    return _ask(spans.routing, spans.encrypted, metadata, tags, dialect)


def query_of_address(
    address: AddressFrame, dialect: Dialect = Dialect.SPECIFICATION
) -> AddressQuery:
    """Return what an ADDRESS asks for.

    Raises:
        BrokerFrameError: It has no tags; it is a shard request without a ShardKey, with one
            that is not UTF-8 or names none of its tags, or with none besides those that
            choose; or its no-route entry, or a word of a 0x1F tag, cannot be read.
    """
    return _ask(address.routing, address.encrypted, address.metadata, address.tags, dialect)


def _ask(
    routing: RoutingType, encrypted: bool, metadata: Metadata, tags: TagList, dialect: Dialect
) -> AddressQuery:
    tags = normal_form(tags)
    if dialect is Dialect.REFERENCE and not _IN_TAGS.isdisjoint(key for key, _ in tags):
        metadata, tags = _hints_of_tags(routing, tags)
    if not tags:
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
    if not metadata:
        # Nearly all requests: no hints.
        if routing is RoutingType.SHARD:
            # Shard Routing: "The one or more instances of the metadata io.rsocket.routing.ShardKey
            # MUST be present."
            raise _no_shard_key()
        return AddressQuery(routing, encrypted, frozenset(tags))
    method, names = "", list[Key]()
    if routing is RoutingType.UNICAST:
        # Unicast Routing: "The client can supply the io.rsocket.routing.LBMethod metadata to
        # provide a hint to the broker which algorithm they would prefer."
        method = _method(metadata, _LB_METHOD)
        names = _sticky_names(metadata, tags)
    elif routing is RoutingType.SHARD:
        # Shard Routing: "Optionally, the client can supply the io.rsocket.routing.ShardMethod
        # metadata to provide the broker a hint of which algorithm the broker would like."
        method = _method(metadata, _SHARD_METHOD)
        names = _shard_names(metadata, tags)
    query, keys = divide(tags, names)
    if not query and routing is RoutingType.UNICAST:
        # All that is asked for would be what chooses: the hint is none, and passed over.
        query, keys = frozenset(tags), ()
    if not query:
        raise BrokerFrameError("tags", "an ADDRESS needs one besides those that choose")
    return AddressQuery(routing, encrypted, query, method, keys, _no_route(metadata))


def divide(tags: Iterable[tuple[Key, str | None]], names: Sequence[Key]) -> tuple[Query, TagList]:
    """Divide tags in normal form into those to ask for and those that choose."""
    if not names:
        return frozenset(tags), ()
    tags = tuple(tags)
    keys: list[tuple[Key, str | None]] = []
    for name in dict.fromkeys(names):
        keys += sorted((tag for tag in tags if tag[0] == name), key=tag_order)
    # Well-known Types, ShardKey: "Contains a key to a tag to shard the request on".
    leaving = frozenset(names) - _STAY
    return frozenset(tag for tag in tags if tag[0] not in leaving), tuple(keys)


# --- metadata entries -----------------------------------------------------------------------


def _values(metadata: Metadata, wanted: Key) -> list[bytes]:
    return [value or b"" for key, value in metadata if key == wanted]


def _text(value: bytes) -> str | None:
    """Return the text of a metadata value, which is a byte string; `None` if it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _method(metadata: Metadata, key: Key) -> str:
    values = _values(metadata, key)
    # Unicast Routing: "This is optional and the broker does not need to use the hint."
    # A name that is not text is an unknown one, and thus selects the default.
    return method_name(_text(values[0]) or "") if values else ""


def _shard_names(metadata: Metadata, tags: TagList) -> list[Key]:
    names: list[Key] = []
    for value in _values(metadata, _SHARD_KEY):
        text = _text(value)
        if text is None:
            raise BadText("ShardKey")
        name = _named(text, tags)
        if name is None:
            # Shard Routing: "If the value in the io.rsocket.routing.ShardKey metadata is not to a
            # tag that is present, the request is invalid and MUST be rejected."
            raise BrokerFrameError("ShardKey", "it names no tag of the request")
        names.append(name)
    if not names:
        raise _no_shard_key()
    return names


def _no_shard_key() -> BrokerFrameError:
    return BrokerFrameError("ShardKey", "a shard request needs at least one")


def _sticky_names(metadata: Metadata, tags: TagList) -> list[Key]:
    # Well-known Types, StickyRouteKey: "Contains a key to a tag used to create a sticky route."
    texts = map(_text, _values(metadata, _STICKY))
    names = (_named(text, tags) for text in texts if text is not None)
    return [name for name in names if name is not None]


def _named(text: str, tags: TagList) -> Key | None:
    """Return the key of the tags that a text names; `None` if it names none of them."""
    present = {key for key, _ in tags}
    if text in present:
        return text
    try:
        key = parse_key(text)
    except AddressError:
        return None
    return key if key in present else None


# --- hints among the tags: the reference dialect --------------------------------------------


def _hints_of_tags(routing: RoutingType, tags: TagList) -> tuple[Metadata, TagList]:
    """Return the hints among the tags as metadata entries, and the tags that are to be asked for.

    Raises:
        BrokerFrameError: A word of a 0x1F tag cannot be read.
    """
    hints: list[tuple[Key, bytes]] = []
    rest: list[tuple[Key, str | None]] = []
    choosing = _CHOOSING.get(routing)
    for tag in tags:
        key, text = tag[0], tag[1] or ""
        if key == _EXTENSION and text.startswith("@"):
            hints += (_hint_of_word(routing, word) for word in text.split())
        elif key == _SHARD_METHOD and routing is RoutingType.SHARD:
            hints.append((key, text.encode()))
        elif key == choosing and (key == _SHARD_KEY or _names_any(text, tags)):
            hints += ((key, name.encode()) for name in _names_in(text, tags))
        else:
            # A destination of the Java reference carries the LBMethod it is found by.
            if key == _LB_METHOD:
                hints.append((key, text.encode()))
            rest.append(tag)
    return tuple(hints), tuple(rest)


def _hint_of_word(routing: RoutingType, word: str) -> tuple[Key, bytes]:
    """Return the metadata entry that a word of a 0x1F tag stands for.

    Raises:
        BrokerFrameError: There is no such word.
    """
    name, _, value = word.partition("=")
    if name == "@method":
        key: Key = _SHARD_METHOD if routing is RoutingType.SHARD else _LB_METHOD
    else:
        known = _KEYS_OF_WORDS.get(name)
        if known is None:
            raise BrokerFrameError("tag 0x1f", "neither @shard, @sticky, @method nor @no-route")
        key = known
    return key, value.encode()


def _names_in(text: str, tags: TagList) -> list[str]:
    """Return the names in the value of a tag: one, or several with spaces between.

    A map of tags, which the clients have, holds one value for each key.
    """
    return [text] if _named(text, tags) is not None else text.split() or [text]


def _names_any(text: str, tags: TagList) -> bool:
    return any(_named(name, tags) is not None for name in _names_in(text, tags))


# --- no route -------------------------------------------------------------------------------


def _no_route(metadata: Metadata) -> float | None:
    values = _values(metadata, NO_ROUTE_KEY)
    if not values:
        return None
    seconds = parse_no_route(_text(values[0]) or "")
    if seconds is None:
        raise BrokerFrameError("no-route", "neither 'reject' nor 'wait' nor seconds")
    return seconds


def parse_no_route(text: str) -> float | None:
    """Read how long to wait for a route, in seconds; `None` if it cannot be read."""
    if text == "reject":
        return 0.0
    if text == "wait":
        return inf
    return float(text) if _SECONDS.fullmatch(text) else None


def format_no_route(seconds: float) -> str:
    """Write how long to wait for a route: the inverse of `parse_no_route`.

    Fractions of a millisecond are rounded, but never down to no wait at all.

    Raises:
        ValueError: It is negative, not a number, or finite and over `MAX_NO_ROUTE`.
    """
    if seconds == 0:
        return "reject"
    if seconds == inf:
        return "wait"
    if not (isfinite(seconds) and 0 < seconds <= MAX_NO_ROUTE):
        raise ValueError(f"a wait of {seconds} seconds is not between 0 and {MAX_NO_ROUTE}")
    return f"{max(seconds, 0.001):.3f}".rstrip("0").rstrip(".")
