"""Checks of a record of identities: its bytes, and all bytes that are nearly these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import cbor2
import pytest

from onward.protocol.identity import BadRecord

R = TypeVar("R")

_FOREIGN: tuple[Any, ...] = (
    *(5, -1, b"\x05", "5", (), (5,), {}, {5: 5}, True, False, None, 1.5, cbor2.undefined),
    cbor2.CBORTag(18, 5),
)
"""Values of all kinds, one of which stands in the place of each item."""


def check_bytes(
    parse: Callable[[bytes], R], serialize: Callable[[R], bytes], record: R, data: bytes
) -> None:
    """Check that a record has exactly these bytes, and that they are read only whole."""
    assert serialize(record).hex() == data.hex()
    assert parse(data) == record
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse(data[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse(data + b"\x00")


def check_kinds(
    parse: Callable[[bytes], R],
    serialize: Callable[[R], bytes],
    data: bytes,
    *nullable: tuple[int, ...],
) -> int:
    """Check that no item may be of another kind, and return how many times one was.

    Args:
        parse: Reads the record.
        serialize: Writes it.
        data: The record.
        nullable: The places that null may be at, each by its numbers from the outside in.
    """
    tried = 0
    whole: Any = cbor2.loads(data)
    for place, item in _places(whole):
        for foreign in _FOREIGN:
            changed = cbor2.dumps(_replaced(whole, place, foreign))
            tried += 1
            if place in nullable and (item is None or foreign is None):
                is_read(parse, serialize, changed)
            elif _kind(foreign) != _kind(item):
                with pytest.raises(BadRecord):
                    parse(changed)
            else:
                is_read(parse, serialize, changed)
    return tried


def check_bits(
    parse: Callable[[bytes], R], serialize: Callable[[R], bytes], data: bytes
) -> tuple[int, int]:
    """Change each bit and remove each byte; return how many of these are read, and how many not.

    What is read is written as the same bytes.
    """
    changes = [
        *(_flipped(data, bit) for bit in range(8 * len(data))),
        *(data[:place] + data[place + 1 :] for place in range(len(data))),
    ]
    read = sum(is_read(parse, serialize, changed) for changed in changes)
    return read, len(changes) - read


def is_read(parse: Callable[[bytes], R], serialize: Callable[[R], bytes], data: bytes) -> bool:
    """Whether bytes are a record, which is written as the same bytes then."""
    try:
        record = parse(data)
    except BadRecord:
        return False
    assert serialize(record).hex() == data.hex()
    return True


def _places(value: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the place and the value of a record and of all items in it."""
    yield place, value
    if _kind(value) == "array":
        for number, item in enumerate(value):
            yield from _places(item, (*place, number))


def _replaced(value: Any, place: tuple[int, ...], item: Any) -> Any:
    """Return a record with another item at a place."""
    if not place:
        return item
    first, *rest = place
    return tuple(
        _replaced(each, tuple(rest), item) if number == first else each
        for number, each in enumerate(value)
    )


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return "array" if kind in {"list", "tuple"} else kind


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
