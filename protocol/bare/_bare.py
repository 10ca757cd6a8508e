"""BARE's variable-length numbers, strings and data, which is all that Ockam's services use.

BARE has no types on the wire: what a payload means is agreed beforehand, so a reader is told
what comes next. https://www.ietf.org/archive/id/draft-devault-bare-11.html section 2.2.
"""

from __future__ import annotations

from typing import Final

from .._errors import ProtocolError
from .._words import counted

__all__ = ["BareError", "BareReader", "encode_data", "encode_string", "encode_uint"]

MAX_UINT: Final = (1 << 64) - 1
_MAX_UINT_BYTES: Final = 10


class BareError(ProtocolError):
    """Bytes that are not the BARE value they should be.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not BARE: {self.reason}"


def encode_uint(number: int) -> bytes:
    """Write a number as `uint`: seven bits a byte, the lowest first.

    Raises:
        BareError: It is below 0 or over 64 bits.
    """
    if not 0 <= number <= MAX_UINT:
        raise BareError(f"{number} is not a number of 0 to 64 bits")
    if number < 0x80:
        return bytes((number,))
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def encode_data(data: bytes) -> bytes:
    """Write bytes as `data`: their number, then themselves."""
    return encode_uint(len(data)) + data


def encode_string(text: str) -> bytes:
    """Write a text as `str`: the number of its bytes in UTF-8, then those.

    Raises:
        BareError: It has a lone surrogate, which UTF-8 cannot write.
    """
    try:
        return encode_data(text.encode())
    except UnicodeEncodeError:
        raise BareError("a text that UTF-8 cannot write") from None


class BareReader:
    """Reads BARE values from left to right.

    A length is compared with what is left before anything is made of it, so a length that
    lies costs nothing.

    Args:
        data: The bytes to read.
        position: Offset to start at, in bytes.

    Attributes:
        position: Offset of the next value, in bytes. After a `BareError` it is undefined
            and the reader is of no use.
    """

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    def uint(self) -> int:
        """Read a `uint`.

        Raises:
            BareError: It is cut short, over 64 bits, or written in more bytes than it needs
                ("encoded using the minimum necessary number of octets").
        """
        data, start = self._data, self.position
        number = 0
        for index, byte in enumerate(data[start : start + _MAX_UINT_BYTES]):
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                if byte == 0 and index:
                    raise BareError("a number in more bytes than it needs")
                if number > MAX_UINT:
                    break
                self.position = start + index + 1
                return number
        if len(data) - start < _MAX_UINT_BYTES:
            raise BareError("a number is cut short")
        raise BareError("a number over 64 bits")

    def data(self) -> bytes:
        """Read `data`.

        Raises:
            BareError: It, or its length, is cut short or wrong.
        """
        size = self.uint()
        left = len(self._data) - self.position
        if size > left:
            raise BareError(f"a length of {counted(size, 'byte')} where {left} are left")
        start, self.position = self.position, self.position + size
        return self._data[start : self.position]

    def string(self) -> str:
        """Read a `str`.

        Raises:
            BareError: It, or its length, is cut short or wrong, or it is not UTF-8.
        """
        try:
            return self.data().decode()
        except UnicodeDecodeError:
            raise BareError("a text that is not UTF-8") from None

    def finish(self) -> None:
        """Make sure that nothing is left.

        Raises:
            BareError: There are bytes behind the last value.
        """
        left = len(self._data) - self.position
        if left:
            raise BareError(f"{counted(left, 'byte')} behind the value")
