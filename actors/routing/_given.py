"""Addresses, routes and payloads as callers give them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeGuard, cast

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    AddressLike,
    PayloadTooBig,
    Route,
    RouteLike,
    address as address_of,
    check_bytes,
    route as route_of,
)
from ..runtime._policy import NodeLimits

__all__ = ["as_route", "check_payload", "several"]


def as_route(given: RouteLike) -> Route:
    """Return a route for any form of one; parsed texts are cached."""
    if isinstance(given, str):
        return _parsed(given)
    return given if _is_route(given) else route_of(given)


def check_payload(payload: bytes, limits: NodeLimits) -> None:
    """Check the type and the size of a payload.

    Raises:
        PayloadNotBytes: The payload is not `bytes`.
        PayloadTooBig: The payload is over the limit.
    """
    if type(payload) is not bytes:
        check_bytes(payload)
    if len(payload) > limits.payload:
        raise PayloadTooBig(len(payload), limits.payload)


def several(name: str, given: Iterable[AddressLike]) -> tuple[Address, ...]:
    """Return an argument of several addresses as a tuple.

    Args:
        name: The name of the argument, for the error.
        given: The addresses. A single one is refused, as a text is iterable too.

    Raises:
        TypeError: The argument is one address.
        AddressError: One of them cannot be read.
    """
    one: object = given  # mypyc takes a narrowed `Iterable` for a str, which bytes are not
    if isinstance(one, Address):
        one = str(one)
    if isinstance(one, str | bytes):
        raise TypeError(f"{name} takes several addresses: {name}=[{one!r}]")
    return tuple(map(address_of, given))


def _is_route(given: RouteLike) -> TypeGuard[Route]:
    if type(given) is not tuple:
        return False
    steps = cast("tuple[object, ...]", given)
    for step in steps:
        if type(step) is not Address:
            return False
    return len(steps) <= MAX_ROUTE_LENGTH


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Route:
    return route_of(text)
