"""Events of a network of dispatchers, for the worker that drives it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ._graph import Paths

__all__ = [
    "CostsDiffer",
    "LaterFrames",
    "NameClaimed",
    "NeighbourClosed",
    "NeighbourJoined",
    "NeighbourLeft",
    "NetworkEvent",
    "NodesChanged",
    "PathsChanged",
    "ProvisionsTold",
]


@dataclass(frozen=True, slots=True)
class PathsChanged:
    """There are other paths."""

    paths: Paths


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """Other nodes have consumers of some names, or tell something else of them.

    Attributes:
        names: All of these names.
        joined: The names that a node has consumers of now, with the node.
        left: The names that a node has none of any more, with the node.
    """

    names: frozenset[str]
    joined: frozenset[tuple[str, str]]
    left: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ProvisionsTold:
    """Another node has other provisions than before.

    Attributes:
        node: The node.
        added: The patterns that are new, or have other semantics, with these as bytes.
        removed: The patterns that are gone.
    """

    node: str
    added: Mapping[str, bytes]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class NeighbourJoined:
    """The node at the other end of a link is a neighbour."""

    link: Hashable
    node: str


@dataclass(frozen=True, slots=True)
class NeighbourLeft:
    """A node is not a neighbour by this link any more.

    Attributes:
        link: The link.
        node: The name of the node.
        restarted: Whether it has ended or started again, with nothing of what it had; then it may
            have left before.
    """

    link: Hashable
    node: str
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class NeighbourClosed:
    """A link must be closed: nothing more is read from it.

    Attributes:
        link: The link.
        node: The name of the node at its other end; empty if it is not known.
        reason: The reason, in a few words.
    """

    link: Hashable
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LaterFrames:
    """A neighbour sends frames of a later version, which are ignored. Reported once for a link."""

    link: Hashable
    version: int


@dataclass(frozen=True, slots=True)
class NameClaimed:
    """Something is told as of this node that it has not told: another node may have its name.

    Attributes:
        link: The link on which it was told; the neighbour may have been told so itself.
        instance: The start that it is told of.
    """

    link: Hashable
    instance: int


@dataclass(frozen=True, slots=True)
class CostsDiffer:
    """The two ends of a link tell different costs. The higher one counts."""

    node: str
    own: int
    theirs: int


NetworkEvent: TypeAlias = (
    PathsChanged
    | NodesChanged
    | ProvisionsTold
    | NeighbourJoined
    | NeighbourLeft
    | NeighbourClosed
    | LaterFrames
    | NameClaimed
    | CostsDiffer
)
"""Any event."""
