"""CBOR (RFC 8949) as a payload: plain data, and nothing that builds more than it says.

A general reader converts tags, allocates by an announced count and recurses before its caller
can check the item. So this one reads header by header and builds plain data only. It
refuses: tags (section 3.4), simple values but false, true and null, bytes behind the item, and
maps that "have duplicate keys" (section 5.6). What it takes in any encoding: lengths in
any width, and items of indefinite length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cbor2 import dumps

from .._words import counted
from ._codec import LIMITS, PayloadError, PayloadLimits
from ._plain import MAX_KEY, check_plain, check_size

__all__ = ["CBOR", "CborCodec"]

# Major types (RFC 8949, section 3.1).
_NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = 1, 2, 3, 4, 5, 6, 7
_INDEFINITE: Final = -1
_BREAK: Final = 0xFF
_BREAK_BYTE: Final = b"\xff"
_KEY: Final = -1
"""How deep a key of a map may be: it is no list and no map."""
_BAD_KEY: Final = "a key that is not a text, bytes or a number of 32 bits"
_UNDEFINED: Final = "a header that RFC 8949 does not define"

_CONSTANTS: Final[dict[int, Any]] = {20: False, 21: True, 22: None}
_FLOATS: Final[dict[int, Callable[[bytes, int], tuple[Any, ...]]]] = {
    25: struct.Struct(">e").unpack_from,
    26: struct.Struct(">f").unpack_from,
    27: struct.Struct(">d").unpack_from,
}


@dataclass(frozen=True, slots=True)
class CborCodec:
    """Plain data as CBOR: also bytes, and keys of maps that are numbers or bytes.

    Attributes:
        limits: How much a payload may hold.
    """

    limits: PayloadLimits = LIMITS

    @property
    def name(self) -> str:
        """Its name."""
        return "cbor"

    @property
    def native(self) -> tuple[type, ...]:
        """The types that are encoded beside plain data."""
        return (bytes,)

    def encode(self, value: Any) -> bytes:
        """Write plain data.

        Raises:
            PayloadError: It is not plain data, a number is over 64 bits, or it is over a limit.
        """
        check_plain(value, self.limits, binary=True)
        try:
            made = dumps(value)
        except UnicodeEncodeError:
            raise PayloadError("a text that UTF-8 cannot write") from None
        return check_size(made, self.limits)

    def decode(self, data: bytes, kind: Any = None) -> Any:
        """Read plain data; the kind does not matter.

        Raises:
            PayloadError: It is not well-formed or not plain data, or is over a limit.
        """
        reader = _Reader(check_size(data, self.limits), self.limits)
        value = reader.item(self.limits.depth)
        # RFC 8949, section 3: "depending on the application, the decoder may either treat the
        # encoding as not well-formed or just identify the start of the remaining bytes to the
        # application."
        if reader.position != len(data):
            raise PayloadError(f"{counted(len(data) - reader.position, 'byte')} behind the item")
        return value


CBOR: Final = CborCodec()
"""Payloads of CBOR, with the default limits."""


class _Reader:
    """Reads one item, and what is in it. Recursion is bounded by the limit of depth."""

    __slots__ = ("_data", "_left", "_limits", "position")

    position: int

    def __init__(self, data: bytes, limits: PayloadLimits) -> None:
        self._data = data
        self._left = limits.items
        self._limits = limits
        self.position = 0

    def item(self, depth: int) -> Any:
        """Read one item. Numbers, short texts and arrays, most of all items, are read at once."""
        self._left -= 1
        if self._left < 0:
            raise PayloadError(f"over {self._limits.items} items")
        data, position = self._data, self.position
        head = data[position] if position < len(data) else _BREAK
        if head < 0x18:
            self.position = position + 1
            return head
        end = position + head - 0x5F
        if 0x60 <= head < 0x78 and end <= len(data):
            self.position = end
            return self._decoded(data[position + 1 : end])
        if head < 0x1C:
            end = position + 1 + (1 << head - 0x18)
            if end <= len(data):
                self.position = end
                return int.from_bytes(data[position + 1 : end])
        elif 0x80 <= head < 0x98:
            self.position = position + 1
            return self._array(head - 0x80, depth - 1)
        return self._any(depth)

    def _any(self, depth: int) -> Any:
        major, information, argument = self._head()
        if major == _MAP:
            return self._map(argument, depth - 1)
        if major == _ARRAY:
            return self._array(argument, depth - 1)
        if major == _TEXT:
            return self._text(argument)
        if major == _BYTES:
            return self._string(_BYTES, argument)
        if major == _SIMPLE:
            # RFC 8949, section 3.3: "Like the major types for integers, items of this major type do
            # not carry content data; all the information is in the initial bytes."
            return self._simple(information)
        if major == _TAG:
            # RFC 8949, section 3.4: "Understanding the semantics of tags is optional for a
            # decoder".
            raise PayloadError("a tag; only plain data is taken")
        if argument == _INDEFINITE:
            raise PayloadError(_UNDEFINED)
        # RFC 8949, section 3.1, of major type 1: "The value of the item is -1 minus the argument."
        return -1 - argument if major == _NEGATIVE else argument

    def _simple(self, information: int) -> Any:
        if information in _CONSTANTS:
            return _CONSTANTS[information]
        if information in _FLOATS:
            # The head has passed over its bytes already.
            return _FLOATS[information](self._data, self.position - (1 << information - 24))[0]
        raise PayloadError("a simple value that is not false, true or null")

    def _head(self) -> tuple[int, int, int]:
        """Read a header: major type, additional information, and argument or -1."""
        data, position = self._data, self.position
        if position >= len(data):
            raise PayloadError("cut short")
        head = data[position]
        position += 1
        information = head & 31
        # RFC 8949, section 3: "The argument's value is the value of the additional information."
        if information < 24:
            self.position = position
            return head >> 5, information, information
        if information == 31:
            self.position = position
            return head >> 5, information, _INDEFINITE
        # RFC 8949, section 3: "These values are reserved for future additions to the CBOR format.
        # In the present version of CBOR, the encoded item is not well-formed."
        if information > 27:
            raise PayloadError(_UNDEFINED)
        self.position = position + (1 << (information - 24))
        if self.position > len(data):
            raise PayloadError("cut short")
        return head >> 5, information, int.from_bytes(data[position : self.position])

    def _string(self, major: int, size: int) -> bytes:
        if size == _INDEFINITE:
            return b"".join(self._chunks(major))
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise PayloadError("cut short")
        return self._data[start : self.position]

    def _text(self, size: int) -> str:
        if size == _INDEFINITE:
            # RFC 8949, section 3.2.3: "a new chunk of a text string can only be started at a code
            # point boundary." So each chunk is a text by itself.
            return "".join(map(self._decoded, self._chunks(_TEXT)))
        return self._decoded(self._string(_TEXT, size))

    @staticmethod
    def _decoded(text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            # RFC 8949, section 3.1: "A string containing an invalid UTF-8 sequence is well-formed
            # but invalid."
            raise PayloadError("a text that is not UTF-8") from None

    def _chunks(self, expected: int) -> list[bytes]:
        made: list[bytes] = []
        while not self._at_break():
            major, _, size = self._head()
            if major != expected or size == _INDEFINITE:
                # RFC 8949, section 3.2.3: "If any item between the indefinite-length string
                # indicator (0b010_11111 or 0b011_11111) and the "break" stop code is not a
                # definite-length string item of the same major type, the string is not
                # well-formed."
                raise PayloadError("a chunk of a string that is none")
            # A chunk of no bytes is an object too.
            self._left -= 1
            if self._left < 0:
                raise PayloadError(f"over {self._limits.items} items")
            made.append(self._string(expected, size))
        return made

    def _array(self, count: int, depth: int) -> list[Any]:
        self._enter(count, depth)
        if count == _INDEFINITE:
            made: list[Any] = []
            while not self._at_break():
                made.append(self.item(depth))
            return made
        return [self.item(depth) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        self._enter(2 * count, depth)
        made: dict[Any, Any] = {}
        number = 0
        while not self._at_break() if count == _INDEFINITE else number < count:
            key = self.item(_KEY)
            if type(key) is not str and not _may_be_key(key):
                raise PayloadError(_BAD_KEY)
            made[key] = self.item(depth)
            number += 1
            # RFC 8949, section 3.1: "A map that has duplicate keys may be well-formed, but it is
            # not valid, and thus it causes indeterminate decoding".
            if len(made) != number:
                raise PayloadError(f"the key {key!r} twice"[:80])
        return made

    def _enter(self, count: int, depth: int) -> None:
        """Go into a list or map, if it is not too deep and what it announces can be there."""
        if depth < _KEY:
            raise PayloadError(_BAD_KEY)
        if depth < 0:
            raise PayloadError(f"over {self._limits.depth} deep")
        if count > self._left:
            raise PayloadError(f"over {self._limits.items} items")
        if count > len(self._data) - self.position:
            raise PayloadError("cut short")

    def _at_break(self) -> bool:
        # RFC 8949, section 3.2.1: "It is not itself a data item: it is just a syntactic feature to
        # close an indefinite-length item."
        if self._data[self.position : self.position + 1] != _BREAK_BYTE:
            return False
        self.position += 1
        return True


def _may_be_key(key: Any) -> bool:
    # By the very type: True is equal to 1.
    return type(key) is bytes or (type(key) is int and -MAX_KEY <= key <= MAX_KEY)
