"""Routes and payloads as callers give them."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeGuard, cast

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    PayloadTooBig,
    Route,
    RouteLike,
    check_bytes,
    route as route_of,
)
from ..runtime._policy import NodeLimits

__all__ = ["as_route", "check_payload"]


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
