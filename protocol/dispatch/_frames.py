"""The frames that neighbours in a network of dispatchers send each other, byte for byte.

A frame is one array of CBOR (RFC 8949) with fewer than 24 items: the version, 1, the kind, and what
its kind has. It has at most `MAX_FRAME` bytes, is read with limits and without tags, and no bytes
may follow it. The first two items are one byte each, so that a frame of a later version is known
whatever else is in it.

| kind | frame | has |
| --- | --- | --- |
| 1 | `NodeHello` | node, instance, sum, [seen …] |
| 2 | `Advertisement` | [[node, instance, number, links, names] …] |
| 3 | `LinksRequest` | [node …] |
| 4 | `LinksUpdate` | node, instance, links, [[peer, cost] …] |
| 5 | `NamesChange` | node, instance, names, [[name, hint] …], [removed …] |
| 6 | `NamesRequest` | node, instance |
| 7 | `NamesPart` | node, instance, names, part, last, [[name, hint] …] |

Numbers are not negative and below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from cbor2 import dumps

from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._errors import BadName, LaterVersion, NetworkFrameError
from ._names import check_node_name

__all__ = [
    "MAX_COST",
    "MAX_FRAME",
    "MAX_HINT",
    "MAX_NUMBER",
    "Advertisement",
    "LinksRequest",
    "LinksUpdate",
    "NamesChange",
    "NamesPart",
    "NamesRequest",
    "NetworkFrame",
    "NetworkFrameKind",
    "NodeHello",
    "NodeNumbers",
    "decode_network_frame",
    "encode_network_frame",
    "in_frames",
]

VERSION: Final = 1

MAX_FRAME: Final = 64 * 1024
"""Most bytes of a frame."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest number in a frame: other languages have no exact one beyond."""

MAX_COST: Final = 2**31 - 1
"""Largest cost of a link."""

MAX_HINT: Final = 1024
"""Most bytes of a hint."""

_MAX_NAME: Final = 512
_LISTED: Final = MAX_FRAME // 2
"""Bytes of the items that are gathered for one frame: none of them is longer than the rest."""

_CODEC: Final = CborCodec(PayloadLimits(size=MAX_FRAME, depth=4, items=MAX_FRAME))


class NetworkFrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    ADVERTISEMENT = 2
    LINKS_REQUEST = 3
    LINKS_UPDATE = 4
    NAMES_CHANGE = 5
    NAMES_REQUEST = 6
    NAMES_PART = 7


@dataclass(frozen=True, slots=True)
class NodeHello:
    """A node greets the other end of a link.

    Attributes:
        node: Its name.
        instance: When it was started, in milliseconds since the Unix epoch.
        checksum: The sum of what it knows, see `Network`.
        seen: The nodes that it has heard on this link.
    """

    node: str
    instance: int
    checksum: int
    seen: tuple[str, ...] = ()


class NodeNumbers(NamedTuple):
    """The numbers that tell how new what is known of a node is.

    Attributes:
        node: The name of the node.
        instance: When it was started.
        number: The number of its advertisement.
        links: The number of its link states; 0 for none.
        names: The number of its last change of names.
    """

    node: str
    instance: int
    number: int
    links: int
    names: int


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A node tells what it holds of some nodes."""

    nodes: tuple[NodeNumbers, ...]


@dataclass(frozen=True, slots=True)
class LinksRequest:
    """A node asks for the link states of nodes."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinksUpdate:
    """The link states of a node: its neighbours with the costs."""

    node: str
    instance: int
    links: int
    peers: dict[str, int]


@dataclass(frozen=True, slots=True)
class NamesChange:
    """A change of the names with consumers at a node, and its number."""

    node: str
    instance: int
    names: int
    added: dict[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamesRequest:
    """A node asks for all names of a node."""

    node: str
    instance: int


@dataclass(frozen=True, slots=True)
class NamesPart:
    """A part of all names of a node, as of a number. Parts are counted from 0."""

    node: str
    instance: int
    names: int
    part: int
    last: bool
    held: dict[str, str]


NetworkFrame: TypeAlias = (
    NodeHello | Advertisement | LinksRequest | LinksUpdate | NamesChange | NamesRequest | NamesPart
)
"""Any frame."""


def encode_network_frame(frame: NetworkFrame) -> bytes:
    """Write a frame."""
    kinds = NetworkFrameKind
    fields: tuple[object, ...]
    match frame:
        case NodeHello(node, instance, checksum, seen):
            fields = kinds.HELLO, node, instance, checksum, seen
        case Advertisement(nodes):
            fields = kinds.ADVERTISEMENT, nodes
        case LinksRequest(wanted):
            fields = kinds.LINKS_REQUEST, wanted
        case LinksUpdate(node, instance, number, peers):
            fields = kinds.LINKS_UPDATE, node, instance, number, tuple(peers.items())
        case NamesChange(node, instance, number, added, removed):
            pairs = tuple(added.items())
            fields = kinds.NAMES_CHANGE, node, instance, number, pairs, removed
        case NamesRequest(node, instance):
            fields = kinds.NAMES_REQUEST, node, instance
        case _:
            pairs = tuple(frame.held.items())
            fields = kinds.NAMES_PART, frame.node, frame.instance, frame.names
            fields += frame.part, frame.last, pairs
    return dumps((VERSION, int(cast("int", fields[0])), *fields[1:]))


def decode_network_frame(data: bytes) -> NetworkFrame:
    """Read a frame.

    Raises:
        LaterVersion: It is of a later version.
        NetworkFrameError: It is none.
    """
    if len(data) < 3 or not 0x83 <= data[0] < 0x98:
        raise NetworkFrameError("it is no array of 3 to 23 items")
    if data[1] != VERSION:
        if VERSION < data[1] < 24:
            raise LaterVersion(data[1])
        raise NetworkFrameError("it has no version")
    try:
        items: list[Any] = _CODEC.decode(data)
    except PayloadError as error:
        raise NetworkFrameError(error.reason) from None
    read = _READERS.get(data[2])
    if read is None:
        raise NetworkFrameError("there is no such kind")
    size, make = read
    if len(items) != size:
        raise NetworkFrameError(f"{len(items)} items, not {size}")
    return make(items[2:])


_T = TypeVar("_T")


def in_frames(items: Iterable[_T]) -> Iterator[list[_T]]:
    """Divide what is listed among frames, such that each is below its limit. None is one frame."""
    some: list[_T] = []
    size = 0
    for item in items:
        more = len(dumps(item))
        if some and size + more > _LISTED:
            yield some
            some, size = [], 0
        some.append(item)
        size += more
    yield some


# --- reading ----------------------------------------------------------------------------------


def _node(value: object) -> str:
    if not isinstance(value, str):
        raise NetworkFrameError("a node without a name")
    try:
        return check_node_name(value)
    except BadName as error:
        raise NetworkFrameError(error.reason) from None


def _number(value: object, least: int = 0, most: int = MAX_NUMBER) -> int:
    if type(value) is not int or not least <= value <= most:
        raise NetworkFrameError(f"a number that is none from {least} to {most}")
    return value


def _text(value: object, least: int, most: int) -> str:
    if not isinstance(value, str) or not least <= len(value.encode()) <= most:
        raise NetworkFrameError(f"a text that has not {least} to {most} bytes")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise NetworkFrameError("something else where a list has to be")
    found: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return found


def _row(value: object, size: int) -> list[Any]:
    row = _list(value)
    if len(row) != size:
        raise NetworkFrameError(f"a list of {len(row)}, not of {size}")
    return row


def _nodes(value: object) -> tuple[str, ...]:
    return tuple(_node(each) for each in _list(value))


def _once(found: dict[str, _T], count: int) -> dict[str, _T]:
    if len(found) != count:
        raise NetworkFrameError("a name twice in one list")
    return found


def _peers(value: object) -> dict[str, int]:
    rows = [_row(each, 2) for each in _list(value)]
    found = {_node(peer): _number(cost, 1, MAX_COST) for peer, cost in rows}
    return _once(found, len(rows))


def _names(value: object) -> dict[str, str]:
    rows = [_row(each, 2) for each in _list(value)]
    found = {_text(name, 1, _MAX_NAME): _text(hint, 0, MAX_HINT) for name, hint in rows}
    return _once(found, len(rows))


def _numbers(value: object) -> NodeNumbers:
    node, instance, number, links, names = _row(value, 5)
    return NodeNumbers(
        _node(node), _number(instance), _number(number), _number(links), _number(names)
    )


def _hello(items: list[Any]) -> NodeHello:
    node, instance, checksum, seen = items
    return NodeHello(_node(node), _number(instance), _number(checksum), _nodes(seen))


def _links_update(items: list[Any]) -> LinksUpdate:
    node, instance, links, peers = items
    return LinksUpdate(_node(node), _number(instance), _number(links, 1), _peers(peers))


def _names_change(items: list[Any]) -> NamesChange:
    node, instance, number, added, removed = items
    gone = tuple(_text(each, 1, _MAX_NAME) for each in _list(removed))
    found = _names(added)
    _once(found | dict.fromkeys(gone, ""), len(found) + len(gone))
    return NamesChange(_node(node), _number(instance), _number(number, 1), found, gone)


def _names_part(items: list[Any]) -> NamesPart:
    node, instance, number, part, last, held = items
    if not isinstance(last, bool):
        raise NetworkFrameError("a part that is neither the last one nor not")
    return NamesPart(
        _node(node), _number(instance), _number(number), _number(part), last, _names(held)
    )


_READERS: Final[dict[int, tuple[int, Callable[[list[Any]], NetworkFrame]]]] = {
    NetworkFrameKind.HELLO: (6, _hello),
    NetworkFrameKind.ADVERTISEMENT: (
        3,
        lambda items: Advertisement(tuple(map(_numbers, _list(items[0])))),
    ),
    NetworkFrameKind.LINKS_REQUEST: (3, lambda items: LinksRequest(_nodes(items[0]))),
    NetworkFrameKind.LINKS_UPDATE: (6, _links_update),
    NetworkFrameKind.NAMES_CHANGE: (7, _names_change),
    NetworkFrameKind.NAMES_REQUEST: (
        4,
        lambda items: NamesRequest(_node(items[0]), _number(items[1])),
    ),
    NetworkFrameKind.NAMES_PART: (8, _names_part),
}
