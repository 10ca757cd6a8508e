"""The CBOR in a segment: plain data, read with limits, written in one form."""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from cbor2 import dumps as _dumps

from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._errors import SegmentCorrupt

__all__ = ["MAX_I64", "Fields", "clean", "dumps", "read"]

MAX_I64: Final = (1 << 63) - 1
"""Largest number of an event, time or count: 64 bits with a sign are what most readers have."""

_MAX_ITEMS: Final = 1 << 24


def dumps(item: Any) -> bytes:
    """Write an item. What UTF-8 cannot write, in a text, becomes a question mark."""
    try:
        return _dumps(item)
    except UnicodeEncodeError:
        return _dumps(_cleaned(item))


def _cleaned(item: Any) -> Any:
    if isinstance(item, str):
        return clean(item)
    if isinstance(item, list):
        return [_cleaned(each) for each in cast("list[object]", item)]
    return item


def clean(text: str) -> str:
    """Return a text that UTF-8 can write."""
    return text.encode("utf-8", "replace").decode()


def read(body: bytes, offset: int) -> Any:
    """Read the one item that a body holds.

    Raises:
        SegmentCorrupt: It is no plain CBOR.
    """
    # A body is at most as long as a block, and no item is shorter than a byte.
    limits = PayloadLimits(size=max(len(body), 1), depth=8, items=_MAX_ITEMS)
    try:
        return CborCodec(limits).decode(body)
    except PayloadError as error:
        raise SegmentCorrupt(offset, f"CBOR: {error.reason}") from None


class Fields:
    """The fields of a header or footer, each taken with the type and range it must have."""

    __slots__ = ("_fields", "_offset")

    def __init__(self, body: bytes, offset: int) -> None:
        fields = read(body, offset)
        self._offset = offset
        if not isinstance(fields, dict):
            self.refuse("no map")
        self._fields = cast("dict[object, object]", fields)

    def number(self, name: str, least: int = 0, most: int = MAX_I64) -> int:
        """Return a whole number."""
        value = self._fields.get(name)
        if type(value) is not int or not least <= value <= most:
            self.refuse(f"{name} is no number from {least} to {most}")
        return value

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            self.refuse(f"{name} is no text")
        return value

    def octets(self, name: str, size: int) -> bytes:
        """Return bytes of a fixed length."""
        value = self._fields.get(name)
        if not isinstance(value, bytes) or len(value) != size:
            self.refuse(f"{name} is not {size} bytes")
        return value

    def rate(self, name: str) -> float:
        """Return a rate from 0 to 1."""
        value = self._fields.get(name)
        if type(value) is int:
            value = float(value)
        if type(value) is not float or not 0 <= value <= 1:
            self.refuse(f"{name} is no rate from 0 to 1")
        return value

    def expect(self, name: str, value: object) -> None:
        """Check that a field has the one value that this version has."""
        if self._fields.get(name) != value:
            self.refuse(f"{name} is not {value!r}")

    def refuse(self, reason: str) -> NoReturn:
        """Raise `SegmentCorrupt` at the current offset."""
        raise SegmentCorrupt(self._offset, reason)
