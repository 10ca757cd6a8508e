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

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final, TypeVar, cast

from cbor2 import dumps

from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._errors import BadName, BadPattern, LaterVersion, NetworkFrameError
from ._frames import (
    MAX_ASKED,
    MAX_COST,
    MAX_FRAME,
    MAX_HINT,
    MAX_NUMBER,
    MAX_PEERS,
    MAX_SEEN,
    MAX_SEMANTICS,
    Advertisement,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NetworkFrame,
    NetworkFrameKind,
    NodeHello,
    NodeLinks,
    NodeNumbers,
    ToldName,
    check_told_name,
    check_told_pattern,
)
from ._names import check_node_name

__all__ = [
    "decode_network_frame",
    "encode_network_frame",
    "in_frames",
    "links_item",
    "list_item",
    "read_change_head",
]

VERSION: Final = 1

_CHANGE: Final = bytes((0x88, VERSION, NetworkFrameKind.LIST_CHANGE))
"""The first bytes of a change: an array of eight items, the version and the kind."""

_LISTED: Final = MAX_FRAME // 2
"""Bytes of the items that are gathered for one frame: none of them is longer than the rest."""

_CODEC: Final = CborCodec(PayloadLimits(size=MAX_FRAME, depth=5, items=MAX_FRAME))

_T = TypeVar("_T")


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


def read_change_head(data: bytes) -> tuple[ListKind, str, int, int] | None:
    """Return list, node, instance and number of a change, without reading what is changed.

    Returns:
        `None` if the frame is no change, or is not written as it is here. It has not been checked
        further: what follows the number may be anything.
    """
    if data[:3] != _CHANGE or len(data) < 5 or data[3] > max(ListKind):
        return None
    try:
        size, start = _argument(data, 4, 0x60)
        instance, position = _argument(data, start + size, 0)
        number, end = _argument(data, position, 0)
        node = data[start : start + size].decode()
    except (IndexError, ValueError):
        return None
    return (ListKind(data[3]), node, instance, number) if end < len(data) else None


def _argument(data: bytes, position: int, major: int) -> tuple[int, int]:
    """Read the head of an item of CBOR; return its argument, and the position behind it.

    Raises:
        IndexError: The bytes end before it.
        ValueError: It is of another type, or has no argument.
    """
    short = data[position] - major
    position += 1
    if 0 <= short < 24:
        return short, position
    if not 24 <= short < 28:
        raise ValueError
    end = position + (1 << short - 24)
    return int.from_bytes(data[position:end]), end


def links_item(links: NodeLinks) -> tuple[object, ...]:
    """Return the link states of a node as they are written."""
    return *links[:3], tuple(links.peers.items())


def list_item(item: tuple[str, ToldName | bytes]) -> tuple[object, ...]:
    """Return an item of a list as it is written."""
    key, value = item
    return (key, value) if isinstance(value, bytes) else (key, *value)


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
