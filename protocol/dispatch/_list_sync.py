"""A list of each node of the network, as one node knows them: of its names, or of its provisions.

Each node numbers the changes of its own list. They are gathered for a moment: what is added and
removed again in that time is not told. A change is applied if its number follows the last one, and
is then passed on. If it does not, the whole list of that node is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from ._frame_codec import in_frames, list_item
from ._frames import (
    ListChange,
    ListKind,
    ListPart,
)
from ._network_limits import NetworkLimits

__all__ = ["Assembly", "ListOfNode", "ListSync"]

V = TypeVar("V")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(slots=True)
class ListOfNode(Generic[V]):
    """The list of one node.

    Attributes:
        instance: The start of the node that it is of.
        number: The number of the last change; 0 if nothing is known.
        held: The names or patterns with their values.
    """

    instance: int
    number: int = 0
    held: dict[str, V] = field(default_factory=dict[str, V])


@dataclass(slots=True)
class Assembly:
    """A whole list of a node, of which some parts have come. A neighbour sends one at a time.

    Attributes:
        kind: The list.
        node: The node.
        instance: Its start.
        number: The number of the change that it is as of.
        part: The number of the part that has to be next.
        held: What has come.
    """

    kind: ListKind
    node: str
    instance: int
    number: int
    part: int = 0
    held: dict[str, Any] = field(default_factory=dict[str, Any])

    def takes(self, part: ListPart) -> bool:
        """Whether a part is the next one."""
        return (self.kind, self.node, self.instance, self.number, self.part) == (
            part.kind,
            part.node,
            part.instance,
            part.number,
            part.part,
        )


class ListSync(Generic[V]):
    """A list of this node, and those of all others.

    Args:
        kind: The list.
        gather: Time for which changes are gathered, in seconds.
        most: Items of other nodes that are kept.
        most_of_node: Items of one node that are kept.

    Attributes:
        number: The number of the last change of this node's list.
        gather_at: Time at which changes of this node's list are to be told; `None` for none.
        refused: Number of items of other nodes for which there was no room.
        others: The lists of other nodes.
    """

    __slots__ = (
        "_changed",
        "_gather",
        "_index",
        "_kept",
        "_most",
        "_most_of_node",
        "_pending",
        "_told",
        "gather_at",
        "kind",
        "number",
        "others",
        "refused",
    )

    def __init__(self, kind: ListKind, gather: float, most: int, most_of_node: int) -> None:
        self.kind: Final = kind
        self._gather: Final = gather
        self._most: Final = most
        self._most_of_node: Final = min(most, most_of_node)
        self.number = 0
        self.gather_at: float | None = None
        self.refused = 0
        self.others: dict[str, ListOfNode[V]] = {}
        self._told: dict[str, V] = {}
        self._pending: dict[str, V | None] = {}
        self._index: dict[str, dict[str, V]] = {}
        self._kept = 0
        # By item and node the value before the last look, None for none.
        self._changed: dict[tuple[str, str], V | None] = {}

    @classmethod
    def of_names(cls, limits: NetworkLimits) -> ListSync[V]:
        """Return the lists of names."""
        return cls(ListKind.NAMES, limits.gather, limits.max_names, limits.max_names_of_node)

    @classmethod
    def of_provisions(cls, limits: NetworkLimits) -> ListSync[V]:
        """Return the lists of provisions."""
        most, of_node = limits.max_provisions, limits.max_provisions_of_node
        return cls(ListKind.PROVISIONS, limits.gather, most, of_node)

    # --- of this node -------------------------------------------------------------------------

    def change(self, added: Mapping[str, V], removed: Iterable[str], now: float) -> None:
        """Gather what is new here, or has another value, and what is gone."""
        wanted: dict[str, V | None] = dict.fromkeys(removed)
        wanted.update(added)
        for key, value in wanted.items():
            if self._told.get(key) == value:
                self._pending.pop(key, None)
            else:
                self._pending[key] = value
        if not self._pending:
            self.gather_at = None
        elif self.gather_at is None:
            self.gather_at = now + self._gather

    def gather(self, node: str, instance: int) -> list[ListChange]:
        """Return the changes that are to be told, each with its number."""
        frames: list[ListChange] = []
        for some in in_frames(self._pending.items(), _written):
            self.number += 1
            added: dict[str, Any] = {key: value for key, value in some if value is not None}
            removed = tuple(key for key, value in some if value is None)
            frames.append(ListChange(self.kind, node, instance, self.number, added, removed))
            self._told |= added
            for key in removed:
                del self._told[key]
        self._pending.clear()
        self.gather_at = None
        return frames

    def own_parts(self, node: str, instance: int) -> list[ListPart]:
        """Return the whole list of this node that is told."""
        return self._parts(node, instance, self.number, self._told)

    # --- of other nodes -----------------------------------------------------------------------

    def nodes_of(self, key: str) -> Mapping[str, V]:
        """Return the other nodes with a name or a pattern, and its values. It is live."""
        found = self._index.get(key)
        return _NONE if found is None else MappingProxyType(found)

    def keys(self) -> Iterable[str]:
        """Return all names or patterns that other nodes have."""
        return self._index.keys()

    def parts(self, node: str, instance: int) -> list[ListPart]:
        """Return the whole list of another node; nothing if it is not known."""
        known = self.others.get(node)
        if known is None or known.instance != instance or not known.number:
            return []
        return self._parts(node, instance, known.number, known.held)

    def holds(self, node: str, instance: int, number: int) -> bool:
        """Whether a change of another node is known already."""
        known = self.others.get(node)
        return known is not None and known.instance == instance and 0 < number <= known.number

    def apply(self, change: ListChange) -> bool:
        """Apply a change of another node, if it is the next one.

        Returns:
            Whether it is applied.
        """
        known = self.others.get(change.node)
        number = 0 if known is None or known.instance != change.instance else known.number
        if change.number != number + 1:
            return False
        known = self._known(change.node, change.instance)
        known.number = change.number
        added: Mapping[str, Any] = change.added
        for key in change.removed:
            self._remove(change.node, known, key)
        for key, value in added.items():
            self._add(change.node, known, key, value)
        return True

    def apply_part(self, assembly: Assembly, part: ListPart) -> bool:
        """Apply the next part of a whole list of another node.

        Returns:
            Whether all parts are there, and are applied.
        """
        known = self._known(part.node, part.instance)
        room = min(self._most_of_node, self._most - self._kept + len(known.held))
        taken = list(part.held.items())[: max(room - len(assembly.held), 0)]
        self.refused += len(part.held) - len(taken)
        assembly.held.update(taken)
        assembly.part += 1
        if not part.last:
            return False
        known.number = part.number
        for key in known.held.keys() - assembly.held.keys():
            self._remove(part.node, known, key)
        for key, value in assembly.held.items():
            self._add(part.node, known, key, value)
        return True

    def drop(self, node: str) -> None:
        """Forget the list of a node."""
        known = self.others.pop(node, None)
        if known is not None:
            for key in list(known.held):
                self._remove(node, known, key)

    def take_changed(self) -> dict[tuple[str, str], V | None]:
        """Return what has another value than at the last call, by item and node, with the old."""
        found = {
            (key, node): before
            for (key, node), before in self._changed.items()
            if self.nodes_of(key).get(node) != before
        }
        self._changed.clear()
        return found

    def _known(self, node: str, instance: int) -> ListOfNode[V]:
        known = self.others.get(node)
        if known is None or known.instance != instance:
            self.drop(node)
            known = self.others[node] = ListOfNode[V](instance)
        return known

    def _add(self, node: str, known: ListOfNode[V], key: str, value: V) -> None:
        before = known.held.get(key)
        if before == value:
            return
        if before is None:
            if self._kept >= self._most or len(known.held) >= self._most_of_node:
                self.refused += 1
                return
            self._kept += 1
        known.held[key] = value
        self._index.setdefault(key, {})[node] = value
        self._changed.setdefault((key, node), before)

    def _remove(self, node: str, known: ListOfNode[V], key: str) -> None:
        before = known.held.pop(key, None)
        if before is None:
            return
        self._kept -= 1
        nodes = self._index[key]
        del nodes[node]
        if not nodes:
            del self._index[key]
        self._changed.setdefault((key, node), before)

    def _parts(
        self, node: str, instance: int, number: int, held: Mapping[str, Any]
    ) -> list[ListPart]:
        chunks = list(in_frames(held.items(), list_item))
        last = len(chunks) - 1
        return [
            ListPart(self.kind, node, instance, number, part, part == last, dict(some))
            for part, some in enumerate(chunks)
        ]


def _written(item: tuple[str, Any]) -> object:
    return item[0] if item[1] is None else list_item(item)
