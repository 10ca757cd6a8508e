"""Addresses and routes of the routing protocol.

An address is a type and a value; the type says which routing rule resolves it. A route
is a plain tuple of addresses. Both are tuples on purpose: they are hashed, compared and
sliced on every hop, and nothing beats a tuple at that.

Text form: `type#value`, and ` => ` between the addresses of a route; read without a `#`,
an address is local. Values are bytes; those that are not plain text are written with
percent-escapes, so that parsing and printing are inverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from ._errors import AddressError, RouteTooLong
from ._route_hints import hint_for

__all__ = [
    "DELIVERY",
    "IDENTITY",
    "LOCAL",
    "MAX_ADDRESS_VALUE",
    "MAX_ROUTE_LENGTH",
    "NAME",
    "RSOCKET",
    "TAGS",
    "TCP",
    "UDP",
    "UDS",
    "WEBSOCKET",
    "Address",
    "AddressLike",
    "Route",
    "RouteLike",
    "address",
    "format_route",
    "parse_route",
    "route",
]

MAX_ROUTE_LENGTH: Final = 64
"""Most addresses a route may have. It is the loop guard: a relay chain that feeds itself
grows a route by one address each time round and ends here."""

MAX_ADDRESS_VALUE: Final = 1024
"""Most bytes an address value may have, read from text or from a wire. Ockam's own are 32
bytes; a tag query is the longest value in use."""

# Address types. 0 is fixed by the routing protocol, 1 to 5 are Ockam's numbers.
# Routing protocol, Destination types: "A router MUST be able to route to type 0 addresses (these
# considered local)".
LOCAL: Final = 0
"""Address type of the workers of a node; the value is a worker's name."""
TCP: Final = 1
"""Address type of nodes reached over TCP; the value is `host:port`."""
UDP: Final = 2
"""Address type of nodes reached over UDP."""
WEBSOCKET: Final = 3
"""Address type of nodes reached over WebSocket."""
UDS: Final = 5
"""Address type of nodes reached over a Unix domain socket."""
TAGS: Final = 32
"""Address type of a broker's destinations; the value is the tags that one must all have."""
RSOCKET: Final = 33
"""Address type of RSocket connections."""
NAME: Final = 34
"""Address type of names that a dispatcher resolves; the value is the name, in UTF-8."""
DELIVERY: Final = 35
"""Address type of what dispatchers tell each other about one delivery."""
IDENTITY: Final = 36
"""Address type of identities; the value is a destination, such as `engine:` and its text."""

_PLAIN = re.compile(r"[A-Za-z0-9_\-.:/@,+*~=&?!$()\[\]{}|;^ ]*")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOP = " => "

_MAX_SHOWN: Final = 400
"""Most characters of a route in an error."""


class Address(NamedTuple):
    """One step of a route.

    Attributes:
        type: The number of the rule that resolves it, 0 to 255; 0 is local to a node.
        value: The argument of the rule, at most `MAX_ADDRESS_VALUE` bytes.
    """

    type: int
    value: bytes

    def __str__(self) -> str:
        return f"{self.type}#{_escape(self.value)}"

    def __repr__(self) -> str:
        return f"<{self}>"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `type#value`; without a `#` the type is 0.

        Raises:
            AddressError: The type is not a number from 0 to 255, there is a second `#`,
                a percent-escape is broken, the value is empty or too long, or has a lone
                surrogate, which UTF-8 cannot write. Or it is a usual mistake, such as a URI;
                the error has the right form.
        """
        text = text.strip()
        head, mark, tail = text.partition("#")
        if not mark:
            head, tail = "0", head
        # Programs parse a text for each request: a hint is looked for where there may be one.
        if (">" in tail or "→" in tail or (not mark and (":" in tail or "," in tail))) and (
            hint := hint_for(text)
        ):
            raise AddressError(text, *hint)
        if "#" in tail:
            raise AddressError(text, "more than one '#'")
        if not (head.isascii() and head.isdigit()) or len(head) > 3 or int(head) > 255:
            hint = hint_for(text)
            raise AddressError(text, *(hint or ("the type is not a number from 0 to 255",)))
        if "%" in tail and _BROKEN_ESCAPE.search(tail):
            raise AddressError(text, "a '%' without two hexadecimal digits")
        try:
            value = unquote_to_bytes(tail) if "%" in tail else tail.encode()
        except UnicodeEncodeError:
            raise AddressError(text, "a character that UTF-8 cannot write") from None
        return checked(cls(int(head), value))


Route: TypeAlias = tuple[Address, ...]
"""A sequence of addresses, each resolved by the holder of the one before it."""

AddressLike: TypeAlias = Address | str | bytes
"""An address, its text form, or the value of a local address."""

RouteLike: TypeAlias = str | bytes | Address | Iterable[AddressLike]
"""A route, its text form, one address, or any mix of addresses in order."""


def checked(address: Address) -> Address:
    """Return the address if it is within bounds.

    Raises:
        AddressError: The type or the length of the value is out of range.
    """
    if not 0 <= address.type <= 255:
        raise AddressError(str(address), "the type is not a number from 0 to 255")
    if not 0 < len(address.value) <= MAX_ADDRESS_VALUE:
        raise AddressError(
            str(address)[:80],
            f"the value has {len(address.value)} bytes, not 1 to {MAX_ADDRESS_VALUE}",
        )
    return address


def address(given: AddressLike) -> Address:
    """Make an address of its text form, of a local value, or of an address.

    Raises:
        AddressError: It cannot be read or is out of range.
    """
    if isinstance(given, Address):
        return given
    if isinstance(given, str):
        return Address.parse(given)
    if isinstance(given, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        return checked(Address(LOCAL, given))
    raise AddressError(given, "not an address, a str or bytes")


def route(*steps: RouteLike) -> Route:
    """Make a route of addresses, texts and routes, in order.

    `route("relay", "echo")`, `route("relay => echo")` and `route(("relay",), "echo")`
    are the same route.

    Raises:
        AddressError: A step cannot be read.
        RouteTooLong: There are more than `MAX_ROUTE_LENGTH` addresses.
    """
    made: list[Address] = []
    for step in steps:
        if isinstance(step, Address):
            made.append(step)
        elif isinstance(step, str):
            made += _parsed(step)
        elif isinstance(step, bytes):
            made.append(address(step))
        else:
            made.extend(address(each) for each in step)
    if len(made) > MAX_ROUTE_LENGTH:
        raise RouteTooLong(len(made), MAX_ROUTE_LENGTH)
    return tuple(made)


def _parsed(text: str) -> list[Address]:
    """Read the addresses of a text; an error tells which one is wrong, and the right text."""
    made: list[Address] = []
    parts = text.split("=>") if text.strip() else []
    for number, part in enumerate(parts, 1):
        try:
            made.append(Address.parse(part))
        except AddressError as error:
            if len(parts) > 1:
                error.where = f", number {number} of {text[:_MAX_SHOWN]!r}"
            error.written = _written(parts)
            raise
    return made


def _written(parts: list[str]) -> str:
    """Return the right form of the parts of a route, or "" if it is not known."""
    right: list[str] = []
    left = parts[::-1]
    while left and len(right) < MAX_ROUTE_LENGTH:
        part = left.pop().strip()
        hint = hint_for(part)
        if hint is None:
            try:
                Address.parse(part)
            except AddressError:
                return ""
            right.append(part)
        elif hint.written:
            # It may have a mistake of another kind, and be several addresses.
            left += hint.written.split("=>")[::-1]
        else:
            return ""
    text = _HOP.join(right)
    return "" if left or len(text) > _MAX_SHOWN else text


def parse_route(text: str) -> Route:
    """Read the text form of a route; empty text is the empty route.

    Raises:
        AddressError: An address cannot be read.
        RouteTooLong: There are more than `MAX_ROUTE_LENGTH` addresses.
    """
    return route(text)


def format_route(steps: Route) -> str:
    """Write a route as text: the inverse of `parse_route`."""
    return _HOP.join(map(str, steps))


def _escape(value: bytes) -> str:
    if not hasattr(value, "decode"):
        return repr(value)  # made by hand, and of another type: errors have to name it all the same
    text = value.decode("ascii", "replace")
    if _PLAIN.fullmatch(text) and text == text.strip() and "=>" not in text:
        return text
    return "".join(
        chr(byte) if chr(byte).isascii() and _SAFE.fullmatch(chr(byte)) else f"%{byte:02X}"
        for byte in value
    )


_SAFE = re.compile(r"[A-Za-z0-9_\-.:/@,+*~]")
