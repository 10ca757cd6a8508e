"""The reading of records: the part of deterministic CBOR (RFC 8949 section 4.2.1) that they use.

A record is a positional array of numbers, byte strings, texts, booleans, nulls and arrays, and has
one spelling only, as its bytes are signed. `cbor2` reads numbers in any width, indefinite lengths,
tags and maps, and bytes behind the end; the reader of `protocol/ockam` reads the first two of
these, as other nodes write them. So this one checks each header before anything is made of it: it
takes the shortest form alone, never allocates by a length that is announced, and reads only what
its caller expects at that place.

They are written by `cbor2.dumps`, of tuples, which writes the shortest form.
"""

from __future__ import annotations

from typing import Final

from ._errors import BadRecord, RecordTooBig
from ._identities import IDENTITY_SIZE, Identity, is_derived, parse_identity_bytes

__all__ = ["MAX_DEPTH", "MAX_NUMBER", "MAX_RECORD", "RecordReader"]

MAX_RECORD: Final = 1024 * 1024
"""Most bytes of a record with all that is in it."""
MAX_DEPTH: Final = 8
"""Most arrays of a record that are in each other."""
MAX_NUMBER: Final = 2**64 - 1
"""Greatest number of a record."""

# Major types (RFC 8949, section 3.1).
_UNSIGNED, _BYTES, _TEXT, _ARRAY = 0, 2, 3, 4
_FALSE: Final = 0xF4
_TRUE: Final = 0xF5
_NULL: Final = 0xF6
_WIDTHS: Final = {24: (1, 24), 25: (2, 0x100), 26: (4, 0x10000), 27: (8, 0x100000000)}
"""For each additional information with an argument behind it: its bytes, and the smallest number
that needs that many."""
_IDENTITY_STARTS: Final = frozenset({b"\x58\x21\x01", b"\x58\x21\x02"})
"""What an identity begins with: the head of a byte string of its size, and each kind."""
_IDENTITY_ITEM: Final = 2 + IDENTITY_SIZE
_MAJORS: Final = (
    "a number",
    "a negative number",
    "a byte string",
    "a text",
    "an array",
    "a map",
    "a tag",
    "a simple value",
)


def binary_head(size: int) -> bytes:
    """Return the head of a byte string of less than 4 GiB, in the shortest form."""
    if size < 24:
        return bytes((0x40 | size,))
    if size < 0x100:
        return bytes((0x58, size))
    return b"\x59" + size.to_bytes(2) if size < 0x10000 else b"\x5a" + size.to_bytes(4)


class RecordReader:
    """A reader of the items of one record, from left to right.

    Args:
        record: The bytes.
        limit: The most bytes that the record may have.

    After a `BadRecord` the reader is of no use.

    Raises:
        RecordTooBig: There are more bytes than `limit`.
    """

    __slots__ = ("_at", "_depth", "_record")

    def __init__(self, record: bytes, limit: int = MAX_RECORD) -> None:
        if len(record) > limit:
            raise RecordTooBig(len(record), limit)
        self._record = record
        self._at = 0
        self._depth = 0

    def enter(self, what: str, least: int, most: int | None = None) -> int:
        """Enter an array and return how many items it has; `leave` comes after them.

        Args:
            what: What it is, for the error.
            least: Fewest items.
            most: Most items; `None` for exactly `least`.

        Raises:
            BadRecord: It is no array, or of another length.
        """
        count = self._head(_ARRAY, what)
        most = least if most is None else most
        if count < least or count > most:
            right = str(least) if least == most else f"{least} to {most}"
            raise BadRecord(f"{what} has {count} items, not {right}")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadRecord(f"more than {MAX_DEPTH} arrays in each other")
        return count

    def leave(self) -> None:
        """Leave the array that was entered last, after its items."""
        self._depth -= 1

    def number(self, what: str, most: int = MAX_NUMBER) -> int:
        """Read a number from 0 to `most`.

        Raises:
            BadRecord: It is something else.
        """
        number = self._head(_UNSIGNED, what)
        if number > most:
            raise BadRecord(f"{what} is {number}, over {most}")
        return number

    def binary(self, what: str, most: int = MAX_RECORD, least: int = 0) -> bytes:
        """Read a byte string of `least` to `most` bytes.

        Raises:
            BadRecord: It is something else.
        """
        return self._string(_BYTES, what, most, least)

    def text(self, what: str, most: int, least: int = 0) -> str:
        """Read a text of `least` to `most` bytes in UTF-8.

        Raises:
            BadRecord: It is something else.
        """
        found = self._string(_TEXT, what, most, least)
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise BadRecord(f"{what} is not UTF-8") from None

    def identity(self, what: str) -> Identity:
        """Read an identity.

        Raises:
            BadRecord: It is something else.
        """
        record, at = self._record, self._at
        end = at + _IDENTITY_ITEM
        if record[at : at + 3] in _IDENTITY_STARTS and end <= len(record):
            self._at = end
            return Identity(record[at + 2 : end])
        found = self._string(_BYTES, what, IDENTITY_SIZE, IDENTITY_SIZE)
        try:
            return parse_identity_bytes(found)
        except ValueError:
            raise BadRecord(f"{what} is of no kind of identity") from None

    def keyed(self, what: str) -> Identity:
        """Read an identity that has a key: of a node, a topic, a domain, or such an engine.

        Raises:
            BadRecord: It is something else, or derived.
        """
        found = self.identity(what)
        if is_derived(found):
            raise BadRecord(f"{what} has no key")
        return found

    def boolean(self, what: str) -> bool:
        """Read true or false.

        Raises:
            BadRecord: It is something else.
        """
        value = self._peek(what)
        if value not in {_FALSE, _TRUE}:
            raise BadRecord(f"{what} is neither true nor false")
        self._at += 1
        return value == _TRUE

    def is_null(self, what: str) -> bool:
        """Whether the next item is null, which is read then."""
        if self._peek(what) != _NULL:
            return False
        self._at += 1
        return True

    def end(self) -> None:
        """Check that all has been read.

        Raises:
            BadRecord: There are bytes behind the end.
        """
        if self._at != len(self._record):
            raise BadRecord(f"{len(self._record) - self._at} bytes behind the end")

    def _string(self, major: int, what: str, most: int, least: int) -> bytes:
        size = self._head(major, what)
        if size < least or size > most:
            right = str(least) if least == most else f"{least} to {most}"
            raise BadRecord(f"{what} has {size} bytes, not {right}")
        start = self._at
        end = self._at = start + size
        if end > len(self._record):
            raise BadRecord(f"{what} is cut short")
        return self._record[start:end]

    def _peek(self, what: str) -> int:
        try:
            return self._record[self._at]
        except IndexError:
            raise BadRecord(f"{what} is missing") from None

    def _head(self, expected: int, what: str) -> int:
        """Read a header of a major type and return its argument."""
        try:
            first = self._record[self._at]
        except IndexError:
            raise BadRecord(f"{what} is missing") from None
        argument = first - (expected << 5)
        if argument < 0 or argument > 31:
            raise BadRecord(f"{what} is {_MAJORS[first >> 5]}, not {_MAJORS[expected]}")
        self._at += 1
        if argument < 24:
            return argument
        if argument not in _WIDTHS:
            # RFC 8949, section 4.2.1: "Indefinite-length items MUST NOT appear."
            raise BadRecord(f"{what} is of indefinite length, or has a reserved one")
        width, least = _WIDTHS[argument]
        end = self._at + width
        if end > len(self._record):
            raise BadRecord(f"{what} is cut short")
        number = int.from_bytes(self._record[self._at : end])
        if number < least:
            # RFC 8949, section 4.2.1: "The encoding of an argument MUST be as short as possible."
            raise BadRecord(f"{what} is not in the shortest form")
        self._at = end
        return number
