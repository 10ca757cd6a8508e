"""The frames that neighbours in a network of dispatchers send each other, byte for byte.

A frame is one array of CBOR (RFC 8949) with fewer than 24 items: the version, 1, the kind, and what
its kind has. It has at most `MAX_FRAME` bytes, is read with limits and without tags, and no bytes
may follow it. The first two items are one byte each, so that a frame of a later version is known
whatever else is in it.

| kind | frame | has |
| --- | --- | --- |
| 1 | `NodeHello` | node, instance, sum, [seen …] |
| 2 | `Advertisement` | [[node, instance, number, links, names, provisions] …] |
| 3 | `LinksRequest` | [node …] |
| 4 | `LinksUpdate` | [[node, instance, links, [[peer, cost] …]] …] |
| 5 | `ListChange` | list, node, instance, number, [item …], [removed …] |
| 6 | `ListRequest` | list, node, instance |
| 7 | `ListPart` | list, node, instance, number, part, last, [item …] |

Each node has two lists. The items of list 0 are `[name, hint, since]`, a name with consumers; those
of list 1 are `[pattern, semantics]`, a provision. Numbers are not negative and below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from cbor2 import dumps

from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._errors import BadName, BadPattern, LaterVersion, NetworkFrameError
from ._limits import DispatchLimits
from ._names import NameKind, check_node_name, parse_name
from ._patterns import NamePattern

__all__ = [
    "MAX_ASKED",
    "MAX_COST",
    "MAX_FRAME",
    "MAX_HINT",
    "MAX_NUMBER",
    "MAX_PEERS",
    "MAX_SEEN",
    "MAX_SEMANTICS",
    "Advertisement",
    "LinksRequest",
    "LinksUpdate",
    "ListChange",
    "ListKind",
    "ListPart",
    "ListRequest",
    "NetworkFrame",
    "NetworkFrameKind",
    "NodeHello",
    "NodeLinks",
    "NodeNumbers",
    "ToldName",
    "check_told_name",
    "check_told_pattern",
    "decode_network_frame",
    "encode_network_frame",
    "in_frames",
    "links_item",
    "list_item",
]

VERSION: Final = 1

MAX_FRAME: Final = 64 * 1024
"""Most bytes of a frame."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest number in a frame: other languages have no exact one beyond."""

MAX_COST: Final = 2**31 - 1
"""Largest cost of a link."""

MAX_PEERS: Final = 240
"""Most neighbours of a node: link states with so many fit into one frame."""

MAX_ASKED: Final = 128
"""Most nodes in one request for link states."""

MAX_SEEN: Final = 16
"""Most nodes that a hello has seen: on a link between two nodes it is one."""

MAX_HINT: Final = 255
"""Largest hint. A later version may have more of them than this one knows."""

MAX_SEMANTICS: Final = 2048
"""Most bytes of the semantics of a provision."""

_LISTED: Final = MAX_FRAME // 2
"""Bytes of the items that are gathered for one frame: none of them is longer than the rest."""

_NAMES: Final = DispatchLimits()
_CODEC: Final = CborCodec(PayloadLimits(size=MAX_FRAME, depth=5, items=MAX_FRAME))


class NetworkFrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    ADVERTISEMENT = 2
    LINKS_REQUEST = 3
    LINKS_UPDATE = 4
    LIST_CHANGE = 5
    LIST_REQUEST = 6
    LIST_PART = 7


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


class ListKind(IntEnum):
    """The lists that each node has."""

    NAMES = 0
    """The names with consumers at it, each with a `ToldName`."""
    PROVISIONS = 1
    """The patterns that it has provisioned, each with its semantics as bytes."""


class ToldName(NamedTuple):
    """The semantics and the claim that a node tells of a name with consumers at it.

    Attributes:
        hint: The pattern and the mechanism that the name has there, as of `Semantics.hint`.
        since: When its consumer was attached, in milliseconds since the Unix epoch, of several the
            first. It is the claim to a name with the pattern direct; 0 for others.
    """

    hint: int
    since: int = 0


class NodeNumbers(NamedTuple):
    """The numbers that tell how new what is known of a node is.

    Attributes:
        node: The name of the node.
        instance: When it was started.
        number: The number of its advertisement.
        links: The number of its link states; 0 for none.
        names: The number of its last change of names.
        provisions: The number of its last change of provisions.
    """

    node: str
    instance: int
    number: int
    links: int
    names: int
    provisions: int

    def of(self, kind: ListKind) -> int:
        """Return the number of the last change of a list."""
        return self.provisions if kind is ListKind.PROVISIONS else self.names

    def with_list(self, kind: ListKind, number: int) -> NodeNumbers:
        """Return the numbers with another one for a list."""
        if kind is ListKind.PROVISIONS:
            return self._replace(provisions=number)
        return self._replace(names=number)


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A node tells what it holds of some nodes."""

    nodes: tuple[NodeNumbers, ...]


@dataclass(frozen=True, slots=True)
class LinksRequest:
    """A node asks for the link states of nodes."""

    nodes: tuple[str, ...]


class NodeLinks(NamedTuple):
    """The link states of a node: its neighbours with the costs."""

    node: str
    instance: int
    links: int
    peers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LinksUpdate:
    """The link states of nodes."""

    states: tuple[NodeLinks, ...]


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change of a list of a node, and its number.

    Attributes:
        kind: The list.
        node: The node.
        instance: Its start.
        number: The number of the change.
        added: Names or patterns that are new, or have another value, with their values.
        removed: Names or patterns that are gone.
    """

    kind: ListKind
    node: str
    instance: int
    number: int
    added: Mapping[str, ToldName] | Mapping[str, bytes]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A node asks for a whole list of a node."""

    kind: ListKind
    node: str
    instance: int


@dataclass(frozen=True, slots=True)
class ListPart:
    """A part of a whole list of a node, as of the number of a change. Parts count from 0."""

    kind: ListKind
    node: str
    instance: int
    number: int
    part: int
    last: bool
    held: Mapping[str, ToldName] | Mapping[str, bytes]


NetworkFrame: TypeAlias = (
    NodeHello | Advertisement | LinksRequest | LinksUpdate | ListChange | ListRequest | ListPart
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
        case LinksUpdate(states):
            fields = kinds.LINKS_UPDATE, tuple(map(links_item, states))
        case ListChange(kind, node, instance, number, added, removed):
            items = tuple(map(list_item, added.items()))
            fields = kinds.LIST_CHANGE, int(kind), node, instance, number, items, removed
        case ListRequest(kind, node, instance):
            fields = kinds.LIST_REQUEST, int(kind), node, instance
        case _:
            items = tuple(map(list_item, frame.held.items()))
            fields = kinds.LIST_PART, int(frame.kind), frame.node, frame.instance
            fields += frame.number, frame.part, frame.last, items
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


def links_item(links: NodeLinks) -> tuple[object, ...]:
    """Return the link states of a node as they are written."""
    return *links[:3], tuple(links.peers.items())


def list_item(item: tuple[str, ToldName | bytes]) -> tuple[object, ...]:
    """Return an item of a list as it is written."""
    key, value = item
    return (key, value) if isinstance(value, bytes) else (key, *value)


def check_told_name(text: str) -> str:
    """Return a name that nodes tell each other, as it is written in tables.

    Raises:
        BadName: It is none, or is not written so, or counts at one node only.
    """
    found = parse_name(text, "", _NAMES)
    if found.kind is not NameKind.MOBILE:
        raise BadName(text, "a name that other nodes are not told of")
    if found.text != text:
        raise BadName(text, "a name with a scheme, a host or a separator before it")
    return text


def check_told_pattern(text: str) -> str:
    """Return a pattern that nodes tell each other: in normal form, with `.` between its tokens.

    Raises:
        BadPattern: It is none, or is not written so, or is of names that count at one node only.
    """
    found = NamePattern.parse(text, _NAMES)
    if found.tokens[0] in ("_local", "_temp", "_topo"):
        raise BadPattern(text, "a pattern that other nodes are not told of")
    if ".".join(found.tokens) != text:
        raise BadPattern(text, "a pattern that is not in normal form")
    return text


def in_frames(
    items: Iterable[_T], written: Callable[[_T], object] | None = None
) -> Iterator[list[_T]]:
    """Divide what is listed among frames, such that each is below its limit. None is one frame.

    Args:
        items: The items.
        written: A function that returns an item as it is written; `None`: that is the item.
    """
    some: list[_T] = []
    size = 0
    for item in items:
        more = len(dumps(item if written is None else written(item)))
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


def _at_most(value: object, most: int) -> list[Any]:
    found = _list(value)
    if len(found) > most:
        raise NetworkFrameError(f"a list of more than {most}")
    return found


def _once(found: Sized, count: int) -> None:
    if len(found) != count:
        raise NetworkFrameError("a name twice in one list")


def _nodes(value: object, most: int) -> tuple[str, ...]:
    found = tuple(_node(each) for each in _at_most(value, most))
    _once(set(found), len(found))
    return found


def _links(value: object) -> NodeLinks:
    node, instance, links, peers = _row(value, 4)
    rows = [_row(each, 2) for each in _at_most(peers, MAX_PEERS)]
    found = {_node(peer): _number(cost, 1, MAX_COST) for peer, cost in rows}
    _once(found, len(rows))
    return NodeLinks(_node(node), _number(instance), _number(links, 1), found)


def _links_update(items: list[Any]) -> LinksUpdate:
    states = tuple(map(_links, _list(items[0])))
    _once({links.node for links in states}, len(states))
    return LinksUpdate(states)


def _key(kind: ListKind, value: object) -> str:
    if not isinstance(value, str):
        raise NetworkFrameError("a name that is no text")
    try:
        return check_told_name(value) if kind is ListKind.NAMES else check_told_pattern(value)
    except (BadName, BadPattern) as error:
        raise NetworkFrameError(error.reason) from None


def _item(kind: ListKind, value: object) -> tuple[str, ToldName | bytes]:
    if kind is ListKind.NAMES:
        name, hint, since = _row(value, 3)
        return _key(kind, name), ToldName(_number(hint, 0, MAX_HINT), _number(since))
    pattern, semantics = _row(value, 2)
    if not isinstance(semantics, bytes) or not 0 < len(semantics) <= MAX_SEMANTICS:
        raise NetworkFrameError(f"semantics that have not 1 to {MAX_SEMANTICS} bytes")
    return _key(kind, pattern), semantics


def _items(kind: ListKind, value: object) -> Any:
    rows = _list(value)
    found = dict(_item(kind, row) for row in rows)
    _once(found, len(rows))
    return found


def _list_kind(value: object) -> ListKind:
    return ListKind(_number(value, 0, max(ListKind)))


def _numbers(value: object) -> NodeNumbers:
    node, *numbers = _row(value, 6)
    return NodeNumbers(_node(node), *map(_number, numbers))


def _advertisement(items: list[Any]) -> Advertisement:
    nodes = tuple(map(_numbers, _list(items[0])))
    _once({numbers.node for numbers in nodes}, len(nodes))
    return Advertisement(nodes)


def _hello(items: list[Any]) -> NodeHello:
    node, instance, checksum, seen = items
    return NodeHello(_node(node), _number(instance), _number(checksum), _nodes(seen, MAX_SEEN))


def _list_change(items: list[Any]) -> ListChange:
    kind = _list_kind(items[0])
    node, instance, number, added, removed = items[1:]
    gone = tuple(_key(kind, each) for each in _list(removed))
    found = _items(kind, added)
    _once(found.keys() | gone, len(found) + len(gone))
    return ListChange(kind, _node(node), _number(instance), _number(number, 1), found, gone)


def _list_part(items: list[Any]) -> ListPart:
    kind = _list_kind(items[0])
    node, instance, number, part, last, held = items[1:]
    if not isinstance(last, bool):
        raise NetworkFrameError("a part that is neither the last one nor not")
    found = _items(kind, held)
    return ListPart(
        kind, _node(node), _number(instance), _number(number), _number(part), last, found
    )


def _list_request(items: list[Any]) -> ListRequest:
    kind, node, instance = items
    return ListRequest(_list_kind(kind), _node(node), _number(instance))


_READERS: Final[dict[int, tuple[int, Callable[[list[Any]], NetworkFrame]]]] = {
    NetworkFrameKind.HELLO: (6, _hello),
    NetworkFrameKind.ADVERTISEMENT: (3, _advertisement),
    NetworkFrameKind.LINKS_REQUEST: (3, lambda items: LinksRequest(_nodes(items[0], MAX_ASKED))),
    NetworkFrameKind.LINKS_UPDATE: (3, _links_update),
    NetworkFrameKind.LIST_CHANGE: (8, _list_change),
    NetworkFrameKind.LIST_REQUEST: (5, _list_request),
    NetworkFrameKind.LIST_PART: (9, _list_part),
}
