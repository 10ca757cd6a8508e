"""Ockam's wire over datagrams: messages in parts, and parts put together again; no I/O.

A message is the CBOR that is also the body of a frame over TCP. It is cut into parts of at most
`MAX_PART` bytes, so that each fits into a datagram that gets through nearly everywhere (RFC 1122:
576 bytes of IP, which leaves 508):

```
[1, number of the message, number of the part, how many there are, bytes]
```

All parts of a message but the last have the same length. Before December 2024 (the crate
`ockam_transport_udp` before 0.77) it was another form, of the same version:

```
[1, number of the message, offset of the part in bytes, whether it is the last, bytes]
```

The fourth item tells them apart, so both are read; which one is written is to be said.

Nothing is confirmed or sent again. Parts arrive in any order, more than once, from any source, or
never. Incomplete messages are bounded in number, bytes and age, by peer and in all, and at a bound
the oldest is dropped. Honest messages are complete soon after their first part; those sent to fill
the table are not, so the oldest is most likely one of the latter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Final

from cbor2 import dumps

from .._errors import MalformedMessage, PayloadTooBig
from ..options import Count, Range, Seconds, check_options
from ._cbor import CborReader

__all__ = [
    "MAX_DATAGRAM",
    "MAX_PART",
    "MAX_PARTS",
    "Assembler",
    "DatagramLimits",
    "DatagramPart",
    "OffsetPart",
    "read_part",
    "split_message",
]

MAX_DATAGRAM: Final = 508
"""Most bytes of a datagram that is sent."""

MAX_PART: Final = 493
"""Most bytes of a message in one datagram that is sent; what is around them takes at most 15."""

MAX_PARTS: Final = 0xFFFF
"""Most parts a message may have."""

VERSION: Final = 1
"""The version of this wire, the first item of each part."""

PART_COST: Final = 128
"""Bytes that a part counts for besides its own: about what the objects take that hold it."""

_MAX_U16: Final = 0xFFFF
_HALF: Final = 0x8000
_MAX_U32: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class DatagramLimits:
    """Limits of the parts of incomplete messages.

    Attributes:
        max_message: Most bytes of a message, routes included, both ways. One that grows over it is
            given up.
        messages_of_peer: Most messages of one peer that are not whole; the oldest is given up.
        messages: Most messages in all that are not whole; the oldest is given up.
        max_bytes: Most bytes they hold in all, with 128 for each part; the oldest is given up.
        max_age: How long a message may take to come whole, in seconds.

    Raises:
        ValueError: A number is not at least 1, the age not above 0, or `max_bytes` has no room for
            a message of the greatest length.
    """

    max_message: Annotated[int, Range(least=1, most=_MAX_U32)] = 64 * 1024
    messages_of_peer: Count = 16
    messages: Count = 1024
    max_bytes: Count = 16 * 1024 * 1024
    max_age: Seconds = 5.0

    def __post_init__(self) -> None:
        check_options(self)
        parts = -(-self.max_message // MAX_PART)
        if self.max_bytes < self.max_message + parts * PART_COST:
            raise ValueError("max_bytes must have room for a message of max_message in parts")


@dataclass(frozen=True, slots=True)
class DatagramPart:
    """A part of a message: what is in one datagram.

    Attributes:
        number: Tells the messages of a sender apart: 0 to 65535, and from there 0 again.
        index: Which part it is, from 0.
        total: How many parts there are.
        content: The bytes; at least one, unless it is the last of several. Rust nodes send such a
            last part where a message fills the others.
    """

    number: int
    index: int
    total: int
    content: bytes

    @property
    def end(self) -> int:
        """The least size of the message, in bytes."""
        if self.last:
            return self.index + len(self.content)
        return (self.total - 1) * len(self.content)

    @property
    def last(self) -> bool:
        """Whether the message ends with it."""
        return self.index == self.total - 1

    @property
    def alone(self) -> bool:
        """Whether it is the whole message."""
        return self.total == 1

    def serialize(self) -> bytes:
        """Write it as a datagram."""
        return dumps((VERSION, self.number, self.index, self.total, self.content))


@dataclass(frozen=True, slots=True)
class OffsetPart:
    """A part of a message in the form before December 2024.

    Attributes:
        number: Tells the messages of a sender apart: 0 to 65535, and from there 0 again.
        offset: Where in the message it is, in bytes.
        last: Whether the message ends with it.
        content: The bytes, at least one.
    """

    number: int
    offset: int
    last: bool
    content: bytes

    @property
    def end(self) -> int:
        """Offset of the end of the part in the message."""
        return self.offset + len(self.content)

    @property
    def alone(self) -> bool:
        """Whether it is the whole message."""
        return self.last and not self.offset

    def serialize(self) -> bytes:
        """Write it as a datagram."""
        return dumps((VERSION, self.number, self.offset, self.last, self.content))


def read_part(data: bytes) -> DatagramPart | OffsetPart:
    """Read a datagram of either form. What follows the array is ignored, as are further items.

    Raises:
        MalformedMessage: It does not hold a part, or one of another version.
    """
    reader = CborReader(data)
    number = place = total = 0
    last = False
    content: bytes | None = None
    for index in reader.elements("the part", 5):
        if index == 0:
            version = reader.unsigned("the version", _MAX_U16)
            if version != VERSION:
                raise MalformedMessage(f"version {version} of datagrams, not {VERSION}")
        elif index == 1:
            number = reader.unsigned("the number of the message", _MAX_U16)
        elif index == 2:
            place = reader.unsigned("the place of the part", _MAX_U32)
        elif index == 3:
            if reader.is_boolean():
                last = reader.boolean("whether the part is the last")
            else:
                total = reader.unsigned("how many parts there are", _MAX_U16)
                if place >= total:
                    raise MalformedMessage(f"part {place} of {total}, from 0")
        else:
            content = reader.payload("the content of the part")
    if content is None or (not content and not (total > 1 and place == total - 1)):
        raise MalformedMessage("the content of the part is missing or empty")
    if total:
        return DatagramPart(number, place, total, content)
    return OffsetPart(number, place, last, content)


def split_message(
    body: bytes, number: int, limit: int = MAX_PARTS * MAX_PART, *, offsets: bool = False
) -> list[bytes]:
    """Write a message as datagrams.

    Args:
        body: The message, as `encode_message` writes it.
        number: Its number, 0 to 65535.
        limit: Most bytes it may have; more than `MAX_PARTS` parts it may not have in any case.
        offsets: Whether to write the form before December 2024.

    Raises:
        PayloadTooBig: It has more.
    """
    size = len(body)
    if size > min(limit, MAX_PARTS * MAX_PART):
        raise PayloadTooBig(size, min(limit, MAX_PARTS * MAX_PART))
    if offsets:
        return [
            OffsetPart(number, at, at + MAX_PART >= size, body[at : at + MAX_PART]).serialize()
            for at in range(0, size, MAX_PART)
        ]
    total = -(-size // MAX_PART)
    return [
        DatagramPart(
            number, index, total, body[index * MAX_PART : (index + 1) * MAX_PART]
        ).serialize()
        for index in range(total)
    ]


class _Unfinished:
    """A message that has not come whole."""

    __slots__ = ("began", "cost", "length", "parts", "size", "total")

    def __init__(self, began: float) -> None:
        self.began = began
        self.parts: dict[int, bytes] = {}
        self.size = 0
        self.total = 0
        self.length = -1  # of each part but the last, once one of those is here
        self.cost = 0

    def has(self, part: DatagramPart | OffsetPart) -> bool:
        """Whether a part has arrived already."""
        return (
            isinstance(part, DatagramPart)
            and part.total == self.total
            and self.parts.get(part.index) == part.content
        )

    def contradicts(self, part: DatagramPart | OffsetPart) -> bool:
        """Whether a part cannot be of the same message as the parts here."""
        if not isinstance(part, DatagramPart) or part.index in self.parts:
            return True
        if self.parts and part.total != self.total:
            return True
        return not part.last and self.length not in {-1, len(part.content)}

    def add(self, part: DatagramPart | OffsetPart) -> None:
        """Add a part that fits."""
        if not isinstance(part, DatagramPart):
            raise AssertionError(f"unexpected {part}")  # noqa: TRY004 - it cannot happen
        self.total = part.total
        self.parts[part.index] = part.content
        self.size += len(part.content)
        if not part.last:
            self.length = len(part.content)

    def whole(self) -> bytes | None:
        """Return the message if all of it is here."""
        if len(self.parts) != self.total:
            return None
        return b"".join(self.parts[index] for index in range(self.total))


class _UnfinishedOffsets:
    """A message in the form before December 2024 that has not come whole."""

    __slots__ = ("began", "cost", "end", "offsets", "parts", "size", "total")

    def __init__(self, began: float) -> None:
        self.began = began
        self.parts: dict[int, bytes] = {}
        self.offsets: list[int] = []  # in order
        self.size = 0
        self.end = 0  # of the part that reaches furthest
        self.total = -1  # once the last part is here
        self.cost = 0

    def has(self, part: DatagramPart | OffsetPart) -> bool:
        """Whether a part has arrived already."""
        if not isinstance(part, OffsetPart):
            return False
        known = self.parts.get(part.offset) == part.content
        return known and part.last == (self.total == part.end)

    def contradicts(self, part: DatagramPart | OffsetPart) -> bool:
        """Whether a part cannot be of the same message as the parts here."""
        if not isinstance(part, OffsetPart):
            return True
        if 0 <= self.total < part.end or (part.last and (self.total >= 0 or self.end > part.end)):
            return True
        offsets = self.offsets
        at = bisect_left(offsets, part.offset)
        before = offsets[at - 1] if at else -1
        overlaps = at and before + len(self.parts[before]) > part.offset
        return bool(overlaps or (at < len(offsets) and offsets[at] < part.end))

    def add(self, part: DatagramPart | OffsetPart) -> None:
        """Add a part that fits."""
        if not isinstance(part, OffsetPart):
            raise AssertionError(f"unexpected {part}")  # noqa: TRY004 - it cannot happen
        self.offsets.insert(bisect_left(self.offsets, part.offset), part.offset)
        self.parts[part.offset] = part.content
        self.size += len(part.content)
        self.end = max(self.end, part.end)
        if part.last:
            self.total = part.end

    def whole(self) -> bytes | None:
        """Return the message if all of it is here."""
        if self.size != self.total:
            return None
        return b"".join(self.parts[offset] for offset in self.offsets)


class Assembler:
    """An assembler of the parts of messages from many peers.

    A part that cannot be of the same message as others with its number is of a newer message:
    numbers repeat after 65536 messages, and after a restart. The older message is dropped then. A
    message is also dropped when its peer is 32768 numbers ahead of it, before its number repeats.
    A repeated number goes unnoticed if few messages arrived in between.

    Args:
        limits: What may be kept.

    Attributes:
        dropped: What came for nothing, by reason: datagrams that are `malformed`, parts that are
            `duplicate`s, messages `too big`, and messages given up: `contradicted`, `not whole in
            time`, `overtaken` by 32768 others, `too many of the peer`, `too many`, `too many
            bytes`.
    """

    __slots__ = ("_bytes", "_latest", "_order", "_peers", "dropped", "limits")

    def __init__(self, limits: DatagramLimits = DatagramLimits()) -> None:
        self.limits = limits
        self.dropped: Counter[str] = Counter()
        self._order: dict[
            tuple[Hashable, int], _Unfinished | _UnfinishedOffsets
        ] = {}  # the oldest first
        self._peers: dict[Hashable, dict[int, None]] = {}  # the oldest of each first
        self._latest: dict[Hashable, int] = {}  # the number that is furthest ahead, of the same
        self._bytes = 0

    @property
    def unfinished(self) -> int:
        """Number of incomplete messages."""
        return len(self._order)

    @property
    def held(self) -> int:
        """Number of bytes that they count for."""
        return self._bytes

    def receive(self, peer: Hashable, data: bytes, now: float) -> bytes | None:
        """Receive a datagram.

        Args:
            peer: The sender.
            data: The content of the datagram.
            now: The time, in seconds; never less than before.

        Returns:
            The message that it makes whole, or `None`.
        """
        self.expire(now)
        try:
            part = read_part(data)
        except MalformedMessage:
            self.dropped["malformed"] += 1
            return None
        if peer in self._peers:
            self._note(peer, part.number)
        key = (peer, part.number)
        if part.end > self.limits.max_message:
            self.dropped["too big"] += 1
            self._give_up(key)
            return None
        return self._take(key, part, now)

    def _note(self, peer: Hashable, number: int) -> None:
        """Record the latest number of a peer, and drop messages that are too far behind it."""
        if not 0 < (number - self._latest[peer]) & _MAX_U16 < _HALF:
            return
        self._latest[peer] = number
        numbers = self._peers[peer]
        while numbers:
            oldest = next(iter(numbers))
            if (number - oldest) & _MAX_U16 < _HALF:
                return
            self._give_up((peer, oldest), "overtaken")

    def _take(
        self, key: tuple[Hashable, int], part: DatagramPart | OffsetPart, now: float
    ) -> bytes | None:
        message = self._order.get(key)
        if message is not None:
            if message.has(part):
                self.dropped["duplicate"] += 1
                return None
            if message.contradicts(part):
                self._give_up(key, "contradicted")
                message = None
        if message is None:
            if part.alone:
                return part.content
            message = self._begin(key, part, now)
        cost = len(part.content) + PART_COST
        message.add(part)
        message.cost += cost
        self._bytes += cost
        if message.size > self.limits.max_message:
            self.dropped["too big"] += 1
            self._give_up(key)
            return None
        body = message.whole()
        if body is not None:
            self._give_up(key)
            return body
        while self._bytes > self.limits.max_bytes:
            self._give_up(next(iter(self._order)), "too many bytes")
        return None

    def expire(self, now: float) -> None:
        """Drop messages that are incomplete after their time. `receive` does so too.

        Args:
            now: The time, in seconds.
        """
        while self._order:
            key = next(iter(self._order))
            if now < self._order[key].began + self.limits.max_age:  # as `get_timer` says
                return
            self._give_up(key, "not whole in time")

    def get_timer(self) -> float | None:
        """Return when `expire` has something to do, in seconds; `None`: never."""
        if not self._order:
            return None
        return next(iter(self._order.values())).began + self.limits.max_age

    def _begin(
        self, key: tuple[Hashable, int], part: DatagramPart | OffsetPart, now: float
    ) -> _Unfinished | _UnfinishedOffsets:
        """Make room for a message, and begin it."""
        peer, number = key
        numbers = self._peers.get(peer)
        if numbers is not None and len(numbers) >= self.limits.messages_of_peer:
            self._give_up((peer, next(iter(numbers))), "too many of the peer")
        elif len(self._order) >= self.limits.messages:
            self._give_up(next(iter(self._order)), "too many")
        kind = _Unfinished if isinstance(part, DatagramPart) else _UnfinishedOffsets
        message = self._order[key] = kind(now)
        self._peers.setdefault(peer, {})[number] = None
        self._latest.setdefault(peer, number)
        return message

    def _give_up(self, key: tuple[Hashable, int], reason: str = "") -> None:
        message = self._order.pop(key, None)
        if message is None:
            return
        peer, number = key
        self._bytes -= message.cost
        numbers = self._peers[peer]
        del numbers[number]
        if not numbers:
            del self._peers[peer]
            del self._latest[peer]
        if reason:
            self.dropped[reason] += 1
