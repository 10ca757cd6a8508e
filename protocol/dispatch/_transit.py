"""The values of addresses of type 35, byte for byte.

| first byte | the rest | where |
| --- | --- | --- |
| `t` | CBOR `[version, name, ingress, instance, id, flags, ttl, wait, path]` | onward route, to \
the next dispatcher |
| `r` | a token of 8 bytes | return route, of a node that has bound a copy |
| `d` | a token of 8 bytes | onward route of a disposition, as the return address turned |
| `s` | a token of 8 bytes | onward route of the word that its producer has settled |
| `e` | a token of 8 bytes | onward route of the word that it is abandoned |
| `c` | a label of 8 bytes | onward route of a frame of a circuit, which has it on that link |

Instance and id are of 8 bytes; ttl and wait are in milliseconds (0: none); and the path is a byte
string: the digests of the nodes passed, 4 bytes each.

The head of each array and its version are one byte each, in all versions.

Each value has one spelling, the shortest: an input that would be written in another way is refused.
So nothing can come behind it, and no string or array has an indefinite length.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from cbor2 import dumps

from .._errors import MalformedMessage
from ..ockam._cbor import CborReader
from ._errors import DispatchError, LaterVersion
from ._limits import MAX_NAME

__all__ = [
    "DIGEST_SIZE",
    "ID_SIZE",
    "MAX_PATH",
    "MAX_TRANSIT",
    "TOKEN_SIZE",
    "BadTransit",
    "Identity",
    "Transit",
    "check_version",
    "circuit_address",
    "decode_transit",
    "disposition_address",
    "encode_transit",
    "ended_address",
    "milliseconds",
    "next_wait",
    "node_digest",
    "read_end",
    "read_token",
    "return_address",
]

MAX_TRANSIT: Final = 1024
"""Most bytes of a transit address."""
MAX_PATH: Final = 48
"""Most nodes that a message or the attach of a circuit passes. With the longest names a transit
address of so many still fits into an address."""
ID_SIZE: Final = 8
"""Bytes of the id of a delivery, and of the instance of its ingress."""
TOKEN_SIZE: Final = 8
"""Bytes of the token of a copy."""
DIGEST_SIZE: Final = 4
"""Bytes of the digest of a node."""

_MAX_NODE: Final = 256
_MAX_TIME: Final = 0xFFFFFFFF
_PRE_SETTLED, _REDIRECTED = 1, 2
_VERSION: Final = 1
_MAX_VERSION: Final = 23
_BYTES, _TEXT, _ARRAY = 2, 3, 4
_NUMBERS: Final = ((1, 24), (2, 1 << 8), (4, 1 << 16))
"""The bytes behind the heads 24, 25 and 26 of a number, and the least number with them."""


Identity: TypeAlias = tuple[str, bytes, bytes]
"""The identity of a delivery: its ingress, the instance of that node, and its id."""


class BadTransit(DispatchError):
    """A value or a frame about a delivery that cannot be read.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no word of a dispatcher about a delivery: {self.reason}"


class Transit(NamedTuple):
    """A message on its way from one dispatcher to the next.

    Attributes:
        name: The name that it was sent to, 1 to 512 bytes in UTF-8.
        ingress: The node where it entered, 1 to 256 bytes in UTF-8.
        instance: The instance of that node: `ID_SIZE` random bytes of each start.
        id: Its id, unique in that instance, of `ID_SIZE` bytes.
        settled: Whether it is pre-settled.
        redirected: Whether it was redirected: it is not redirected a second time at any node.
        ttl: Time that is left for it, in milliseconds; 0 is no limit.
        wait: Time for which its outcome is awaited, in milliseconds; 0 is no limit.
        path: The digests of the nodes that it has passed, at most `MAX_PATH`.
    """

    name: str
    ingress: str
    instance: bytes
    id: bytes
    settled: bool = False
    redirected: bool = False
    ttl: int = 0
    wait: int = 0
    path: tuple[bytes, ...] = ()

    @property
    def identity(self) -> Identity:
        """The identity of the delivery, in all of the network."""
        return self.ingress, self.instance, self.id


def node_digest(node: str) -> bytes:
    """Return the digest of a node in a path: the first bytes of the SHA-256 of its name.

    Two nodes with one digest are taken for one: a message that has passed one does not go to the
    other. In a network of a thousand nodes the odds of such a pair are one to nine thousand.
    """
    return sha256(node.encode()).digest()[:DIGEST_SIZE]


# --- transit ----------------------------------------------------------------------------------


def encode_transit(transit: Transit) -> bytes:
    """Write the value of a transit address.

    Raises:
        BadTransit: A field is out of its range.
    """
    _check_text("name", transit.name, MAX_NAME)
    _check_text("ingress", transit.ingress, _MAX_NODE)
    if len(transit.instance) != ID_SIZE or len(transit.id) != ID_SIZE:
        raise BadTransit("an instance or an id of another size")
    if transit.path and set(map(len, transit.path)) != {DIGEST_SIZE}:
        raise BadTransit("a digest of another size")
    if len(transit.path) > MAX_PATH:
        raise BadTransit(f"a path of more than {MAX_PATH} nodes")
    if not (0 <= transit.ttl <= _MAX_TIME and 0 <= transit.wait <= _MAX_TIME):
        raise BadTransit("a time out of range")
    return b"t" + _transit_bytes(transit)


def _transit_bytes(transit: Transit) -> bytes:
    flags = _PRE_SETTLED * transit.settled | _REDIRECTED * transit.redirected
    origin = transit.ingress, transit.instance, transit.id
    path = b"".join(transit.path)
    made: bytes = dumps((_VERSION, transit.name, *origin, flags, transit.ttl, transit.wait, path))
    return made


def decode_transit(value: bytes) -> Transit:
    """Read the value of a transit address.

    Raises:
        BadTransit: It is none.
        LaterVersion: It is of a later version.
    """
    if len(value) > MAX_TRANSIT or value[:1] != b"t":
        raise BadTransit("no transit address, or one of too many bytes")
    check_version(value[1:3])
    usual = _usual_transit(value)
    if usual is not None:
        return usual
    try:
        transit = _read_transit(CborReader(value, 1))
    except (MalformedMessage, UnicodeDecodeError):
        raise BadTransit("a transit address that is malformed") from None
    if encode_transit(transit) != value:
        raise BadTransit("a transit address in another spelling")
    return transit


def _usual_transit(value: bytes) -> Transit | None:
    """Read a transit address with texts and a path of at most 255 bytes, in its one spelling.

    This runs for each message of a neighbour. It gives what `_read_transit` gives, or `None`.
    """
    try:
        if value[1] != 0x89 or value[2] != _VERSION:
            return None
        name, at = _usual_string(value, 3, _TEXT)
        ingress, at = _usual_string(value, at, _TEXT)
        instance, at = _usual_string(value, at, _BYTES)
        identity, at = _usual_string(value, at, _BYTES)
        flags = value[at]
        ttl, at = _usual_number(value, at + 1)
        wait, at = _usual_number(value, at)
        path, at = _usual_string(value, at, _BYTES)
        if at != len(value) or flags > _PRE_SETTLED | _REDIRECTED or not (name and ingress):
            return None
        if len(instance) != ID_SIZE or len(identity) != ID_SIZE or len(path) % DIGEST_SIZE:
            return None
        texts = name.decode(), ingress.decode()
    except (IndexError, UnicodeDecodeError):
        return None
    starts = range(0, len(path), DIGEST_SIZE)
    digests = tuple([path[each : each + DIGEST_SIZE] for each in starts])
    if len(digests) > MAX_PATH:
        return None
    settled, redirected = bool(flags & _PRE_SETTLED), bool(flags & _REDIRECTED)
    return Transit(*texts, instance, identity, settled, redirected, ttl, wait, digests)


def _usual_string(value: bytes, at: int, major: int) -> tuple[bytes, int]:
    """Read a string of at most 255 bytes; return it and where it ends.

    Raises:
        IndexError: It is none, or not in its shortest spelling.
    """
    size = value[at] - (major << 5)
    start = at + 1
    if size == 24:
        size = value[start]
        start += 1
        if size < 24:
            raise IndexError
    elif not 0 <= size < 24:
        raise IndexError
    end = start + size
    return value[start:end], end


def _usual_number(value: bytes, at: int) -> tuple[int, int]:
    """Read a number of at most 4 bytes; return it and where it ends.

    Raises:
        IndexError: It is none, or not in its shortest spelling.
    """
    head = value[at]
    if head < 24:
        return head, at + 1
    size, least = _NUMBERS[head - 24]
    end = at + 1 + size
    number = int.from_bytes(value[at + 1 : end])
    if number < least:
        raise IndexError
    return number, end


def _read_transit(reader: CborReader) -> Transit:
    texts: list[str] = []
    ids: list[bytes] = []
    numbers: list[int] = []
    path = b""
    for index in reader.elements("a transit address", 9):
        match index:
            case 0:
                reader.unsigned("the version", _VERSION)
            case 1:
                texts.append(reader.string(_TEXT, "the name", MAX_NAME).decode())
            case 2:
                texts.append(reader.string(_TEXT, "the ingress", _MAX_NODE).decode())
            case 3 | 4:
                ids.append(reader.string(_BYTES, "an instance or an id", ID_SIZE))
            case 5:
                numbers.append(reader.unsigned("the flags", _PRE_SETTLED | _REDIRECTED))
            case 6 | 7:
                numbers.append(reader.unsigned("a time", _MAX_TIME))
            case _:
                path = reader.string(_BYTES, "the path", MAX_PATH * DIGEST_SIZE)
    if len(numbers) < 3:
        raise BadTransit("a transit address with too few parts")
    (name, ingress), (instance, identity), (flags, ttl, wait) = texts, ids, numbers
    digests = tuple(path[at : at + DIGEST_SIZE] for at in range(0, len(path), DIGEST_SIZE))
    settled, redirected = bool(flags & _PRE_SETTLED), bool(flags & _REDIRECTED)
    return Transit(name, ingress, instance, identity, settled, redirected, ttl, wait, digests)


def check_version(head: bytes) -> None:
    """Refuse what is of a later version, by the head of its array and the byte behind."""
    if len(head) == 2 and head[0] >> 5 == _ARRAY and _VERSION < head[1] <= _MAX_VERSION:
        raise LaterVersion(head[1])


def _check_text(what: str, text: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadTransit(f"the {what} cannot be written as UTF-8") from None
    if not 0 < size <= most:
        raise BadTransit(f"the {what} has not 1 to {most} bytes")


def milliseconds(seconds: float) -> int:
    """Return a time that is left, as a transit address has it: at least 1, since 0 is no limit."""
    return min(max(1, round(seconds * 1000)), _MAX_TIME)


def next_wait(seconds: float) -> int:
    """Return the time for which a next node awaits an outcome, of that which this node has.

    It is shorter, so that what the next node decides at its end comes back before it is over here.
    """
    return milliseconds(seconds * 0.9)


# --- tokens -----------------------------------------------------------------------------------


def return_address(token: bytes) -> bytes:
    """Write the value of the address that a node puts on the return route of a copy."""
    return b"r" + token


def disposition_address(value: bytes) -> bytes:
    """Turn a return address into that of a disposition.

    Raises:
        BadTransit: It is no return address.
    """
    return b"d" + read_token(value, b"r")


def circuit_address(label: bytes) -> bytes:
    """Write the value of the address of a circuit on the link to the other node."""
    return b"c" + label


def ended_address(token: bytes, *, settled: bool) -> bytes:
    """Write the value of the address by which a next node is told that a copy has ended.

    Args:
        token: The token of the copy.
        settled: Whether its producer has settled, so that it goes on as a pre-settled message.
            Otherwise it is abandoned: its outcome is not waited for any more.
    """
    return (b"s" if settled else b"e") + token


def read_end(value: bytes) -> tuple[bytes, bool] | None:
    """Read the token of a copy that has ended, and whether its producer has settled.

    Returns:
        `None` if the address is of another kind.

    Raises:
        BadTransit: It is of the kind, and of another size.
    """
    kind = value[:1]
    return (read_token(value, kind), kind == b"s") if kind in {b"s", b"e"} else None


def read_token(value: bytes, kind: bytes) -> bytes:
    """Read the token of an address.

    Args:
        value: The value of the address.
        kind: Its first byte: `r`, the reply of a worker; `d`, a disposition; or `c`, a circuit.

    Raises:
        BadTransit: It is another address.
    """
    if len(value) != 1 + TOKEN_SIZE or value[:1] != kind:
        raise BadTransit("an address of another kind or size")
    return value[1:]
