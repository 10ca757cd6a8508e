"""The check of plain data before it is written: what no reader would take is not sent."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, cast

from ._codec import PayloadError, PayloadLimits

__all__ = ["MAX_KEY", "check_plain", "check_size"]

MAX_KEY: Final = (1 << 32) - 1
"""Largest number that may be a key of a map; smallest is the same below zero. Larger ones can be
chosen such that all of them meet in one place of a hash table."""


def check_size(data: bytes, limits: PayloadLimits) -> bytes:
    """Return a payload that is not too big.

    Raises:
        PayloadError: It is.
    """
    if len(data) > limits.size:
        raise PayloadError(f"{len(data)} bytes, over the limit of {limits.size}")
    return data


def check_plain(value: Any, limits: PayloadLimits, *, binary: bool) -> None:
    """Check that a value is plain data within the limits.

    Args:
        value: The value.
        limits: How much it may hold.
        binary: Whether bytes are plain too, and floats without a number, and keys that are
            numbers or bytes, as in CBOR. In JSON they are not.

    Raises:
        PayloadError: It is not.
    """
    left = _check(value, limits.depth, limits.items, limits, binary)
    if left < 0:
        raise PayloadError(f"over {limits.items} items")


def _check(value: Any, depth: int, left: int, limits: PayloadLimits, binary: bool) -> int:
    """Check a value; return how many more items there may be."""
    left -= 1
    kind = cast("type[object]", type(value))
    if value is None or kind is str or kind is bool:
        pass
    elif kind is int:
        if binary and not -1 << 64 <= value < 1 << 64:
            raise PayloadError("a number over 64 bits")
    elif kind is float:
        if not binary and not isfinite(value):
            raise PayloadError(f"{value} is no number of JSON")
    elif kind is bytes:
        if not binary:
            raise PayloadError("bytes have no place in JSON")
    elif kind is list or kind is tuple or kind is dict:
        return _check_within(value, depth - 1, left, limits, binary)
    else:
        raise PayloadError(f"a value of type {kind.__name__} is not plain data")
    return left


def _check_within(
    value: list[Any] | tuple[Any, ...] | dict[Any, Any],
    depth: int,
    left: int,
    limits: PayloadLimits,
    binary: bool,
) -> int:
    if depth < 0:
        raise PayloadError(f"over {limits.depth} deep")
    left -= len(value)
    if left < 0:
        return left
    left += len(value)
    if isinstance(value, dict):
        for key, each in value.items():
            _check_key(key, binary)
            left = _check(each, depth, left - 1, limits, binary)
    else:
        for each in value:
            left = _check(each, depth, left, limits, binary)
    return left


def _check_key(key: Any, binary: bool) -> None:
    kind = cast("type[object]", type(key))
    if kind is str:
        return
    if binary and (kind is bytes or (kind is int and -MAX_KEY <= key <= MAX_KEY)):
        return
    takes = "texts, bytes and numbers of 32 bits" if binary else "texts"
    raise PayloadError(f"a key of type {kind.__name__}; keys are {takes}")
