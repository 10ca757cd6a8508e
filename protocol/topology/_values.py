"""What a value of a topology file has to be: functions that return it, or say what it is not.

Each takes what TOML has and raises `ValueError` with a text for people; `AddressError` and
`RouteTooLong` are such errors too.
"""

from __future__ import annotations

import re
from typing import Final, cast

from .._address import LOCAL, Address, Route, parse_route
from ..toml import (
    count,
    finite_number,
    flag,
    one_of,
    positive_seconds,
    seconds,
    shown,
    size,
    table,
    text,
    texts,
)

__all__ = [
    "address",
    "addresses",
    "count",
    "flag",
    "latency",
    "listener_address",
    "listeners",
    "local_address",
    "local_addresses",
    "name",
    "one_of",
    "positive_seconds",
    "probability",
    "route",
    "routes",
    "seconds",
    "seed",
    "shown",
    "size",
    "table",
    "text",
    "texts",
    "uri",
]


MAX_NAME: Final = 64
"""Most characters of the name of a node or a listener."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/]\S*|[A-Za-z][A-Za-z0-9+.-]*:///\S+")


def seed(value: object) -> int:
    """Return any whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{shown(value)} is not a whole number")


def probability(value: object) -> float:
    """Return a number from 0 to 1."""
    number = finite_number(value)
    if number is not None and 0 <= number <= 1:
        return number
    raise ValueError(f"{shown(value)} is not a number from 0 to 1")


def latency(value: object) -> tuple[float, float]:
    """Return the least and the most of a time; a single number is both."""
    given = value
    if isinstance(value, list):
        both = [finite_number(each) for each in cast("list[object]", value)]
        least, most = both if len(both) == 2 else (None, None)
    else:
        least = most = finite_number(value)
    if least is not None and most is not None and 0 <= least <= most:
        return least, most
    raise ValueError(f"{shown(given)} is not seconds, or [least, most] of seconds")


def name(value: object) -> str:
    """Return the name of a node or a listener."""
    written = text(value)
    if not _NAME.fullmatch(written):
        raise ValueError(f"the name {written!r} has other characters than A-Z a-z 0-9 _ -")
    if len(written) > MAX_NAME:
        raise ValueError(f"the name has {len(written)} characters; the limit is {MAX_NAME}")
    return written


def uri(value: object) -> str:
    """Return a URI; what follows the scheme is the transport's affair."""
    written = text(value)
    if not _URI.fullmatch(written):
        raise ValueError(f"{written!r} is not scheme://...")
    return written


def address(value: object) -> Address:
    """Return an address of any type."""
    return Address.parse(text(value))


def local_address(value: object) -> Address:
    """Return an address of a worker of this node."""
    made = address(value)
    if made.type != LOCAL:
        raise ValueError(f"{made} is not a local address")
    return made


def addresses(value: object) -> tuple[Address, ...]:
    """Return a list of addresses of any type."""
    return tuple(address(each) for each in texts(value))


def local_addresses(value: object) -> tuple[Address, ...]:
    """Return a list of addresses of workers of this node."""
    return tuple(local_address(each) for each in texts(value))


def route(value: object) -> Route:
    """Return a route of at least one address."""
    steps = parse_route(text(value))
    if not steps:
        raise ValueError("the route is empty")
    return steps


def routes(value: object) -> tuple[Route, ...]:
    """Return a list of at least one route."""
    made = tuple(route(each) for each in texts(value))
    if not made:
        raise ValueError("the list is empty")
    return made


def listener_address(listener: str) -> Address:
    """Return the address that a listener has by its name."""
    return Address(LOCAL, b"listener:" + listener.encode())


def listeners(value: object) -> tuple[Address, ...]:
    """Return a list of names of listeners, as the addresses that they have by them."""
    return tuple(listener_address(name(each)) for each in texts(value))
