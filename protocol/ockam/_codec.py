"""One message as the body of a frame: a CBOR array of four.

```
[onward route, return route, payload, tracing context or null]
```

A route is an array of addresses, an address the array `[type, value]`, payload and values
are byte strings. We always write four elements: Rust nodes also take three, Elixir nodes
take nothing else.

Nearly every message on a connection has one shape: short definite lengths, no tracing, and
very often the routes of the message before. `MessageDecoder` reads that shape in a straight
line and hands everything else to the careful `CborReader`; both give the same answer for the
same bytes, always. cbor2 makes the headers that are written, once, and a message is headers
and bytes joined; why it does not read is said in `_cbor`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from cbor2 import dumps

from .._address import MAX_ROUTE_LENGTH, Address, Route, checked
from .._errors import FrameTooBig, MalformedMessage, RouteTooLong, UnusableRoute
from .._message import Context, Message, check_bytes
from ._cbor import CborReader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ARRAY_OF_FOUR",
    "SHORT_SIZES",
    "FrameReader",
    "MessageDecoder",
    "RouteWriter",
    "decode_message",
    "encode_message",
    "encode_routes",
    "encode_size",
    "encode_tail",
    "message_size",
]

_Fields: TypeAlias = "tuple[Route, Route, bytes, Address | None, Context | None]"

ARRAY_OF_FOUR: Final = b"\x84"
_NULL: Final = 0xF6
_FIELDS: Final = ("the onward route", "the return route", "the payload")

_length_at: Final = Struct(">I").unpack_from

# What a NamedTuple's own constructor calls, without the detour.
_new_address: Final = cast("Callable[[type[Address], tuple[int, bytes]], Address]", tuple.__new__)
_new_message: Final = cast("Callable[[type[Message], _Fields], Message]", tuple.__new__)


# --- writing ------------------------------------------------------------------------------


def encode_message(message: Message) -> bytes:
    """Write a message as the body of a frame, without its length.

    Raises:
        AddressError: An address of a route is out of range.
        RouteTooLong: A route has more than `MAX_ROUTE_LENGTH` addresses.
        PayloadNotBytes: The payload is something else than `bytes`.
        TypeError: The tracing context is no text.
    """
    onward, back, payload, _, context = message
    if type(payload) is not bytes:
        check_bytes(payload)
    head = encode_routes(onward, back) + encode_size(len(payload))
    return head + payload + encode_tail(context)


def message_size(message: Message) -> int:
    """Return the bytes of a message as `encode_message` writes it, without a copy of its payload.

    Raises:
        AddressError: An address of a route is out of range.
        RouteTooLong: A route has more than `MAX_ROUTE_LENGTH` addresses.
        TypeError: The tracing context is no text.
    """
    onward, back, payload, _, context = message
    size = len(payload)
    around = len(encode_routes(onward, back)) + len(encode_size(size)) + len(encode_tail(context))
    return around + size


def encode_routes(onward: Route, back: Route) -> bytes:
    """Write what comes before the payload.

    Raises:
        AddressError: An address of a route is out of range.
        RouteTooLong: A route has more than `MAX_ROUTE_LENGTH` addresses.
    """
    return ARRAY_OF_FOUR + _encode_route(onward) + _encode_route(back)


def _encode_route(route: Route) -> bytes:
    if len(route) > MAX_ROUTE_LENGTH:
        raise RouteTooLong(len(route), MAX_ROUTE_LENGTH)
    parts = [_ARRAYS[len(route)]]
    for address in route:
        number, value = address
        size = len(value)
        if not (0 <= number <= 255 and 0 < size < 256):
            checked(address)
        parts += (_ADDRESSES[number], encode_size(size), value)
    return b"".join(parts)


class RouteWriter:
    """A writer of the routes of one connection's messages.

    Many differ from the one before in their last address alone, as those of messages to one worker
    with a word for it. Of a route of two addresses it remembers the bytes of the first one.
    """

    __slots__ = ("_first", "_front")

    def __init__(self) -> None:
        self._first: Address | None = None
        self._front = b""

    def write(self, route: Route) -> bytes:
        """Write a route.

        Raises:
            AddressError: An address is out of range.
            RouteTooLong: There are more than `MAX_ROUTE_LENGTH` addresses.
        """
        if len(route) != 2:
            return _encode_route(route)
        first, last = route
        number, value = last
        size = len(value)
        if first is self._first and 0 <= number <= 255 and 0 < size < 256:
            return self._front + _ADDRESSES[number] + SHORT_SIZES[size] + value
        made = _encode_route(route)
        behind = len(_ADDRESSES[number]) + len(encode_size(size)) + size
        self._first, self._front = first, made[:-behind]
        return made


def encode_size(size: int) -> bytes:
    """Write the header of a payload of so many bytes; the payload itself is not copied."""
    return SHORT_SIZES[size] if size < 256 else _long_bytes(size)


def encode_tail(context: Context | None) -> bytes:
    """Write what comes after the payload's bytes: the tracing context or null.

    Raises:
        TypeError: The tracing context is no text: the peer would close the connection.
    """
    trace = None if context is None else cast("object", context.trace)
    if trace is None:
        return b"\xf6"
    if not isinstance(trace, str):
        raise TypeError(f"a tracing context is a text, not {type(trace).__name__}")
    return dumps(trace)


def _long_bytes(size: int) -> bytes:
    if size < 1 << 16:
        return b"\x59" + size.to_bytes(2)
    return b"\x5a" + size.to_bytes(4)


# The headers of all short items, as cbor2 writes them.
SHORT_SIZES: Final = tuple(dumps(bytes(size))[: 1 if size < 24 else 2] for size in range(256))
_ARRAYS: Final = tuple(
    dumps([0] * size)[: 1 if size < 24 else 2] for size in range(MAX_ROUTE_LENGTH + 1)
)
_ADDRESSES: Final = tuple(dumps([number, b""])[:-1] for number in range(256))


# --- reading ------------------------------------------------------------------------------


def decode_message(body: bytes) -> Message:
    """Read the body of a frame. What follows the array is ignored.

    Raises:
        MalformedMessage: It does not hold a message.
    """
    return MessageDecoder().decode(body)


UNUSUAL: Final = 16
"""How many times as long as a usual message one takes that is read item by item."""


class MessageDecoder:
    """A decoder of the bodies of one connection's frames.

    It remembers the bytes of the last two routes. CBOR is read from left to right and says
    itself where an item ends, so a body that begins with the same bytes has the same routes.

    Args:
        own: The worker that receives the messages: its address is put at the front of their
            return routes, and is their source. By default messages are as they were sent.

    Attributes:
        context: The context of messages without a tracing text, which the receiver may set.
        extra: How many messages of the usual kind would have taken as long to read as what was
            read besides: heartbeats, messages that cannot be used, and those that had to be read
            item by item, as those with long routes. The receiver may set it back to 0.
    """

    __slots__ = (
        "_behind",
        "_onward",
        "_own",
        "_prefix",
        "_read_back",
        "_read_onward",
        "_return",
        "_traced",
        "context",
        "extra",
    )

    def __init__(self, own: Address | None = None) -> None:
        self.context: Context | None = None
        self.extra = 0
        self._own = own
        self._traced: Route = () if own is None else (own,)
        self._prefix = b"\x84\x80\x80"  # two empty routes
        self._onward: Route = ()
        self._return: Route = self._traced
        self._behind = b"\x80"  # the bytes of the return route alone
        self._read_onward: Final = _RouteReader()
        self._read_back: Final = _RouteReader()

    def decode(self, body: bytes) -> Message:
        """Read the body of a frame. What follows the array is ignored.

        Equal routes of consecutive messages are the same objects.

        Raises:
            MalformedMessage: It does not hold a message. The decoder can go on.
        """
        return self._decode(body, 0, len(body))

    def _decode(self, data: bytes, begin: int, stop: int) -> Message:
        """Read the body of a frame in place."""
        prefix = self._prefix
        if data.startswith(prefix, begin, stop):
            position = begin + len(prefix)
        else:
            position = self._read_routes(data, begin, stop)
            if not position:
                return self._read_any(data[begin:stop])
        start = position + 1
        # Behind the header there is at least what comes after the payload.
        size = data[position] - 0x40 if start < stop else -1
        if size == 24:  # the length is in the next byte
            size = data[start]
            start += 1
        elif size == 25 or size == 26:  # or in the next 2 or 4
            width = 2 if size == 25 else 4
            size = int.from_bytes(data[start : start + width])
            start += width
        elif not 0 <= size < 24:
            return self._read_any(data[begin:stop])
        end = start + size
        if end >= stop:
            return self._read_any(data[begin:stop])
        context = self.context
        if data[end] != _NULL:
            context = _context(CborReader(data[begin:stop], end - begin).trace())
        return _new_message(
            Message, (self._onward, self._return, data[start:end], self._own, context)
        )

    def _read_any(self, body: bytes) -> Message:
        self.extra += UNUSUAL
        onward, back, payload, _, context = _decode_any(body)
        return Message(onward, (*self._traced, *back), payload, self._own, context)

    def _read_routes(self, data: bytes, begin: int, stop: int) -> int:
        """Read both routes if they have the usual shape; return where they end, or 0."""
        try:
            if data[begin] != ARRAY_OF_FOUR[0]:
                return 0
            onward, middle = self._read_onward.read(data, begin + 1)
            back, behind = self._return, self._behind
            position = middle + len(behind)
            if not data.startswith(behind, middle):
                read, position = self._read_back.read(data, middle)
                back, behind = (*self._traced, *read), data[middle:position]
        except (_Unusual, IndexError):
            return 0
        if position > stop:
            return 0
        self._prefix = data[begin:position]
        self._onward, self._return, self._behind = onward, back, behind
        return position


class FrameReader(MessageDecoder):
    """A reader of the frames in a stream, and of the messages in the frames.

    Args:
        own: As for `MessageDecoder`.
        limit: Most bytes a frame's body may have.

    Attributes:
        heartbeats: Messages with an empty onward route read so far.
        unusable: Messages read so far, and passed over, that have a route no node can use.
        needed: How many bytes the first incomplete frame has at least, as far as is known.
    """

    __slots__ = ("_limit", "heartbeats", "needed", "unusable")

    def __init__(self, own: Address | None, limit: int) -> None:
        super().__init__(own)
        self._limit = limit
        self.heartbeats = 0
        self.unusable = 0
        self.needed = 4

    def read(self, data: bytes, position: int, messages: list[Message]) -> int:
        """Read all complete frames, and append their messages.

        Returns:
            Where the first incomplete frame starts.

        Raises:
            FrameTooBig: A frame announces more than the limit.
            MalformedMessage: A frame does not hold a message.

        After an error the messages before it have been appended.
        """
        end = len(data)
        self.needed = 4
        while end - position >= 4:
            (size,) = _length_at(data, position)
            if size > self._limit:
                raise FrameTooBig(size, self._limit)
            start, position = position + 4, position + 4 + size
            if position > end:
                self.needed = 4 + size
                return start - 4
            try:
                message = self._decode(data, start, position)
            except UnusableRoute:
                self.unusable += 1
                self.extra += 1
                continue
            if message[0]:
                messages.append(message)
            else:
                self.heartbeats += 1
                self.extra += 1
        return position


class _Unusual(Exception):
    """The bytes may be right, but the straight line cannot tell."""


class _RouteReader:
    """A reader of routes of the usual shape, which remembers the first address as `RouteWriter`."""

    __slots__ = ("_first", "_front")

    def __init__(self) -> None:
        self._first = Address(0, b"-")
        self._front = b"\xff"  # no route begins with this

    def read(self, body: bytes, position: int) -> tuple[Route, int]:
        """Read a route of at most 23 addresses, of types and values up to 255.

        Returns:
            The route, and where it ends.

        Raises:
            _Unusual: It may be another route, or none.
            IndexError: The bytes end before it.
        """
        front = self._front
        if body.startswith(front, position):
            last, position = _usual_address(body, position + len(front))
            return (self._first, last), position
        count = body[position] - 0x80
        if not 0 <= count < 24:
            raise _Unusual
        if count == 2:
            first, middle = _usual_address(body, position + 1)
            last, end = _usual_address(body, middle)
            self._first, self._front = first, body[position:middle]
            return (first, last), end
        position += 1
        made: list[Address] = []
        for _ in range(count):
            address, position = _usual_address(body, position)
            made.append(address)
        return tuple(made), position


def _usual_address(body: bytes, position: int) -> tuple[Address, int]:
    """Read an address of the usual shape; return it and where it ends."""
    if body[position] != 0x82:
        raise _Unusual
    number = body[position + 1]
    if number == 24:  # the type is in the next byte, as that of a name
        position += 1
        number = body[position + 1]
    elif number > 24:
        raise _Unusual
    size = body[position + 2] - 0x40
    start = position + 3
    if size == 24:
        size = body[start]
        start += 1
    elif size > 24:
        raise _Unusual
    if size < 1:
        raise _Unusual
    position = start + size
    return _new_address(Address, (number, body[start:position])), position


def _decode_any(body: bytes) -> Message:
    reader = CborReader(body)
    onward: Route = ()
    back: Route = ()
    payload = b""
    trace: str | None = None
    index = -1
    for index in reader.elements("the message", 4):
        if index == 0:
            onward = reader.route(_FIELDS[0])
        elif index == 1:
            back = reader.route(_FIELDS[1])
        elif index == 2:
            payload = reader.payload()
        else:
            trace = reader.trace()
    if index < 2:
        raise MalformedMessage(f"{_FIELDS[index + 1]} is missing")
    return Message(onward, back, payload, None, _context(trace))


def _context(trace: str | None) -> Context | None:
    return None if trace is None else Context(trace=trace)
