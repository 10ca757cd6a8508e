"""The frames that neighbours in a network of dispatchers send each other, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ._errors import BadName, BadPattern
from ._limits import DispatchLimits
from ._names import NameKind, parse_name
from ._patterns import NamePattern

__all__ = [
    "ENDED_INSTANCE",
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
]

MAX_FRAME: Final = 64 * 1024
"""Most bytes of a frame."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest number in a frame: other languages have no exact one beyond."""

ENDED_INSTANCE: Final = 0
"""The instance in the last hello of a node: it ends, and has nothing any more of what it had."""

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

_NAMES: Final = DispatchLimits()


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
        instance: When it was started, in milliseconds since the Unix epoch; `ENDED_INSTANCE`: it
            ends now.
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
