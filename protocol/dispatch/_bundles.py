"""Bundles: several messages, or several acceptances, in one message between two dispatchers.

What a dispatcher passes on in one turn to one neighbour, of one name, differs in ids, tokens and
payloads alone. So it may stand in one message, of which the address says what is in it:

| first byte | the rest | the payload |
| --- | --- | --- |
| `m` | a transit address without its first byte and its id | unsettled messages: `MESSAGES` |
| `p` | the same | pre-settled messages: `SETTLED` |
| `a` | nothing | acceptances with an answer: `ANSWERS` |
| `n` | nothing | acceptances without one: their tokens, 8 bytes each |
| `b` | a number of 8 bytes | on the return route of a bundle of messages |
| `v` | the version, one byte | nothing: this end of the link takes bundles |

The payload of the first three is the number of records, 2 bytes; the records, of one size each; and
the payloads, in the same order. All numbers are big endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from ._transit import ID_SIZE, BadTransit, read_token

__all__ = [
    "ANSWERS",
    "BUNDLES_TAKEN",
    "MAX_BUNDLE",
    "MAX_BUNDLED",
    "MAX_BUNDLE_SIZE",
    "MESSAGES",
    "SETTLED",
    "bundle_address",
    "bundle_return_address",
    "encode_bundle",
    "read_bundle",
    "read_bundle_number",
    "read_tokens",
    "takes_bundles",
]

MAX_BUNDLE: Final = 32
"""Most messages in a bundle."""
MAX_BUNDLED: Final = 1024
"""Most bytes of the payload of a message in a bundle; a larger one is sent by itself."""
MAX_BUNDLE_SIZE: Final = 12 * 1024
"""Bytes of all payloads in a bundle above which another one is begun."""

MESSAGES: Final = Struct(">8s8sH")
"""The id of a message, the token of the node that sends it on, and the bytes of its payload."""
SETTLED: Final = Struct(">8sH")
"""The id of a message, and the bytes of its payload."""
ANSWERS: Final = Struct(">8sH")
"""The token of a message that is accepted, and the bytes of the answer."""

_TOKENS: Final = Struct("8s")
_VERSION: Final = 1
BUNDLES_TAKEN: Final = b"v" + bytes((_VERSION,))
"""The value of the address by which a node says that it takes bundles."""


def takes_bundles(value: bytes) -> bool:
    """Whether the value of an address says that bundles like these are taken.

    A node that takes those of a later version takes these as well.

    Raises:
        BadTransit: It is none that says something of bundles.
    """
    if value[:1] != b"v" or len(value) != len(BUNDLES_TAKEN):
        raise BadTransit("no word about bundles")
    return value >= BUNDLES_TAKEN


def bundle_address(head: bytes, tail: bytes, *, settled: bool) -> bytes:
    """Write the value of the address of a bundle of messages.

    Args:
        head: The transit address of one of them, as far as its id.
        tail: What follows the id.
        settled: Whether they are pre-settled.
    """
    return (b"p" if settled else b"m") + head[1:] + tail


def bundle_return_address(number: int) -> bytes:
    """Write the value of the address that a node puts on the return route of a bundle."""
    return b"b" + number.to_bytes(ID_SIZE)


def read_bundle_number(value: bytes) -> int:
    """Read the number of a bundle in such an address.

    Raises:
        BadTransit: It is another address.
    """
    return int.from_bytes(read_token(value, b"b"))


def encode_bundle(records: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
    """Write the payload of a bundle.

    Args:
        records: The records, at most `MAX_BUNDLE`.
        payloads: The payload of each, at most `MAX_BUNDLED` bytes.
    """
    return b"".join((len(records).to_bytes(2), *records, *payloads))


def read_bundle(payload: bytes, shape: Struct) -> tuple[list[Any], int]:
    """Read the records of a bundle.

    Args:
        payload: The payload of the bundle.
        shape: The shape of its records, of which the last field is the bytes of a payload.

    Returns:
        The records, and where the first payload begins. All payloads are there.

    Raises:
        BadTransit: It is none, or a limit is passed.
    """
    count = int.from_bytes(payload[:2])
    start = 2 + count * shape.size
    if not 0 < count <= MAX_BUNDLE or len(payload) < start:
        raise BadTransit(f"a bundle of none, or of more than {MAX_BUNDLE}")
    records: list[Any] = list(shape.iter_unpack(payload[2:start]))
    sizes = [each[-1] for each in records]
    if max(sizes) > MAX_BUNDLED or len(payload) != start + sum(sizes):
        raise BadTransit("a bundle with payloads of another size")
    return records, start


def read_tokens(payload: bytes) -> list[bytes]:
    """Read the tokens of acceptances without an answer.

    Raises:
        BadTransit: There are none, or too many.
    """
    count, rest = divmod(len(payload), _TOKENS.size)
    if rest or not 0 < count <= MAX_BUNDLE:
        raise BadTransit(f"acceptances of none, or of more than {MAX_BUNDLE}")
    return [token for (token,) in _TOKENS.iter_unpack(payload)]
