"""The part of CBOR (RFC 8949) a routed message is made of, read header by header.

A general decoder builds every object first and leaves the checks to its caller. Here that is
too late: 16 MiB of four-byte addresses would become 4 million objects, an indefinite byte
string would look like a definite one, and a tag would be converted before it could be refused.
So this reader checks each header first and builds only expected items: it never allocates by
an announced count, never recurses, and gives up after `MAX_SKIPPED_ITEMS` unknown items.

It accepts the same input as the Rust nodes (minicbor): lengths in any width, arrays of
definite or indefinite length, further elements behind those known. It refuses the same input:
indefinite strings, text where bytes belong, an item cut short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._address import MAX_ADDRESS_VALUE, MAX_ROUTE_LENGTH, Address, Route
from .._errors import MalformedMessage, UnusableRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_SKIPPED_ITEMS", "CborReader"]

MAX_SKIPPED_ITEMS: Final = 256
"""Most items of a message that are read only to be skipped: elements a later version of
the wire may add behind those known. More make the message malformed."""

# Major types (RFC 8949, section 3.1).
_UNSIGNED, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = 0, 2, 3, 4, 5, 6, 7
_FALSE: Final = 0xF4
_TRUE: Final = 0xF5
_NULL: Final = 0xF6
_BREAK: Final = 0xFF
_INDEFINITE: Final = 31

_MAJORS: Final = (
    "a number",
    "a negative number",
    "a byte string",
    "a text string",
    "an array",
    "a map",
    "a tag",
    "a simple value",
)


class CborReader:
    """Reads the items of one message, from left to right.

    Args:
        body: The message.
        position: Where to start, in bytes.

    After a `MalformedMessage` the position is undefined and the reader is of no use.
    """

    __slots__ = ("_body", "_skipped", "position")

    def __init__(self, body: bytes, position: int = 0) -> None:
        self._body = body
        self._skipped = 0
        self.position = position

    def elements(self, what: str, known: int) -> Iterator[int]:
        """Enter an array and count its elements, skipping those behind the `known` ones.

        The caller reads one item for each number it is given.

        Raises:
            MalformedMessage: It is not an array.
        """
        count = self._enter(_ARRAY, what)
        index = 0
        while not self._at_end(count, index):
            if index < known:
                yield index
            else:
                self.skip()
            index += 1

    def route(self, what: str) -> Route:
        """Read a route.

        Raises:
            UnusableRoute: It has more than `MAX_ROUTE_LENGTH` addresses, or one that is not
                valid for any worker.
            MalformedMessage: It is not an array of addresses.
        """
        count = self._enter(_ARRAY, what)
        made: list[Address] = []
        while not self._at_end(count, len(made)):
            if len(made) == MAX_ROUTE_LENGTH:
                raise UnusableRoute(f"{what} has more than {MAX_ROUTE_LENGTH} addresses")
            made.append(self.address(what))
        return tuple(made)

    def address(self, what: str) -> Address:
        """Read an address: `[type, value]`.

        Raises:
            UnusableRoute: The byte string has not 1 to `MAX_ADDRESS_VALUE` bytes.
            MalformedMessage: It is not an array of a number from 0 to 255 and a byte string.
        """
        number = -1
        value: bytes | None = None
        for index in self.elements(f"an address of {what}", 2):
            if index == 0:
                number = self._enter(_UNSIGNED, "the type of an address")
                if number > 255:
                    raise MalformedMessage(f"an address type of {number}, over 255")
            else:
                value = self.string(
                    _BYTES, "the value of an address", MAX_ADDRESS_VALUE, UnusableRoute
                )
        if value is None:
            raise MalformedMessage(f"an address of {what} has no value")
        if not value:
            raise UnusableRoute(f"an address of {what} has no value")
        return Address(number, value)

    def payload(self, what: str = "the payload") -> bytes:
        """Read a byte string of any length, such as the payload.

        Raises:
            MalformedMessage: It is not a byte string of definite length.
        """
        return self.string(_BYTES, what, len(self._body))

    def trace(self) -> str | None:
        """Read the tracing context, a text or null.

        Raises:
            MalformedMessage: It is something else, or not UTF-8.
        """
        if self._peek() == _NULL:
            self.position += 1
            return None
        text = self.string(_TEXT, "the tracing context", len(self._body))
        try:
            return text.decode()
        except UnicodeDecodeError:
            # RFC 8949, section 3.1: "A string containing an invalid UTF-8 sequence is well-formed
            # but invalid."
            raise MalformedMessage("the tracing context is not UTF-8") from None

    def unsigned(self, what: str, limit: int) -> int:
        """Read a number.

        Raises:
            MalformedMessage: It is something else, or more than `limit`.
        """
        number = self._enter(_UNSIGNED, what)
        if number > limit:
            raise MalformedMessage(f"{what} is {number}, over {limit}")
        return number

    def is_boolean(self) -> bool:
        """Whether the next item is true or false."""
        return self._peek() in {_FALSE, _TRUE}

    def boolean(self, what: str) -> bool:
        """Read true or false.

        Raises:
            MalformedMessage: It is something else.
        """
        value = self._peek()
        if value not in {_FALSE, _TRUE}:
            raise MalformedMessage(f"{what} is neither true nor false")
        self.position += 1
        return value == _TRUE

    def string(
        self,
        major: int,
        what: str,
        limit: int,
        too_long: type[MalformedMessage] = MalformedMessage,
    ) -> bytes:
        """Read the bytes of a string of definite length.

        Raises:
            MalformedMessage: It is of another kind, of indefinite length, or cut short.
            too_long: It is longer than `limit` bytes.
        """
        size = self._enter(major, what)
        if size == -1:
            raise MalformedMessage(f"{what} is a string of indefinite length")
        if size > limit:
            raise too_long(f"{what} has {size} bytes, over the limit of {limit}")
        start, self.position = self.position, self.position + size
        if self.position > len(self._body):
            # RFC 8949, section 3: "If the encoded sequence of bytes ends before the end of a data
            # item, that item is not well-formed."
            raise MalformedMessage(f"{what} is cut short")
        return self._body[start : self.position]

    def skip(self) -> None:
        """Pass over one item of any kind, with all that is in it.

        Raises:
            MalformedMessage: It is not well-formed (RFC 8949 section 5.3.1), or the message
                holds more than `MAX_SKIPPED_ITEMS` to skip.
        """
        open_items = [1]  # how many items are due at each depth; -1: up to a break
        while open_items:
            if open_items[-1] == 0:
                open_items.pop()
            elif open_items[-1] == -1 and self._peek() == _BREAK:
                self.position += 1
                open_items.pop()
            else:
                open_items[-1] -= open_items[-1] > 0
                open_items.append(self._skip_head())

    def _skip_head(self) -> int:
        """Pass over one header, and a string's bytes; return how many items are inside."""
        self._skipped += 1
        if self._skipped > MAX_SKIPPED_ITEMS:
            raise MalformedMessage(f"more than {MAX_SKIPPED_ITEMS} items of unknown meaning")
        major, argument = self._head()
        if major in {_BYTES, _TEXT}:
            if argument == -1:
                raise MalformedMessage("a string of indefinite length")
            self.position += argument
            if self.position > len(self._body):
                raise MalformedMessage("a string is cut short")
        elif major in {_ARRAY, _MAP}:
            # RFC 8949, section 3.2.2, of the stop code: if it "appears after a key in a map, in
            # place of that key's value, the map is not well-formed." It is accepted here: the map
            # is only skipped.
            return argument if major == _ARRAY or argument == -1 else 2 * argument
        elif major == _TAG:
            return 1
        return 0

    def _at_end(self, count: int, index: int) -> bool:
        if count != -1:
            return index == count
        if self._peek() != _BREAK:
            return False
        self.position += 1
        return True

    def _enter(self, expected: int, what: str) -> int:
        major, argument = self._head()
        if major != expected:
            raise MalformedMessage(f"{what} is {_MAJORS[major]}, not {_MAJORS[expected]}")
        return argument

    def _peek(self) -> int:
        if self.position >= len(self._body):
            raise MalformedMessage("the message is cut short")
        return self._body[self.position]

    def _head(self) -> tuple[int, int]:
        """Read a header: its major type and its argument, -1 for an indefinite length."""
        major, information = divmod(self._peek(), 32)
        self.position += 1
        # RFC 8949, section 3: "The argument's value is the value of the additional information."
        if information < 24:
            return major, information
        # RFC 8949, section 3: "If the major type is 0, 1, or 6, the encoded item is not
        # well-formed. For major types 2 to 5, the item's length is indefinite".
        if information == _INDEFINITE and _BYTES <= major <= _MAP:
            return major, -1
        # RFC 8949, section 3: "These values are reserved for future additions to the CBOR format.
        # In the present version of CBOR, the encoded item is not well-formed."
        if information > 27:
            raise MalformedMessage("a header that RFC 8949 does not define")
        # RFC 8949, section 3: "The argument's value is held in the following 1, 2, 4, or 8 bytes,
        # respectively, in network byte order."
        width = 1 << (information - 24)
        start, self.position = self.position, self.position + width
        if self.position > len(self._body):
            raise MalformedMessage("the message is cut short")
        argument = int.from_bytes(self._body[start : self.position])
        # RFC 8949, section 3.3: "An encoder MUST NOT issue two-byte sequences that start with 0xf8
        # (major type 7, additional information 24) and continue with a byte less than 0x20 (32
        # decimal). Such sequences are not well-formed."
        if major == _SIMPLE and width == 1 and argument < 32:
            raise MalformedMessage("a header that RFC 8949 does not define")
        return major, argument
