"""The names with consumers at each node of the network, as one node knows them.

Each node numbers the changes of its own names. They are gathered for a moment: what is added and
removed again in that time is not told. A change is applied if its number follows the last one, and
is then passed on. If it does not, all names of that node are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ._frames import NamesChange, NamesPart, in_frames
from ._network_limits import NetworkLimits

__all__ = ["NameSync", "NamesOfNode"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True)
class NamesOfNode:
    """The names of one node.

    Attributes:
        instance: The start of the node that they are of.
        number: The number of the last change; 0 if nothing is known.
        names: The names with their hints.
        part: The number of the part of all names that is to come next.
        arriving: The parts that have come.
        arriving_as_of: The number that they are as of.
    """

    instance: int
    number: int = 0
    names: dict[str, str] = field(default_factory=dict[str, str])
    part: int = 0
    arriving: dict[str, str] = field(default_factory=dict[str, str])
    arriving_as_of: int = 0


class NameSync:
    """The names of this node and of all others.

    Args:
        limits: The limits.

    Attributes:
        number: The number of the last change of this node's names.
        gather_at: Time at which changes of this node's names are to be told; `None` for none.
        refused: Number of names of other nodes for which there was no room.
        others: The names of other nodes.
    """

    __slots__ = (
        "_changed",
        "_index",
        "_kept",
        "_limits",
        "_pending",
        "_told",
        "gather_at",
        "number",
        "others",
        "refused",
    )

    def __init__(self, limits: NetworkLimits) -> None:
        self._limits = limits
        self.number = 0
        self.gather_at: float | None = None
        self.refused = 0
        self.others: dict[str, NamesOfNode] = {}
        self._told: dict[str, str] = {}
        self._pending: dict[str, str | None] = {}
        self._index: dict[str, dict[str, str]] = {}
        self._kept = 0
        self._changed: set[str] = set()

    # --- of this node -------------------------------------------------------------------------

    def change(self, added: Mapping[str, str], removed: Iterable[str], now: float) -> None:
        """Gather names that have got consumers here, with hints, and names that have none now."""
        wanted: dict[str, str | None] = dict.fromkeys(removed)
        wanted.update(added)
        for name, hint in wanted.items():
            if self._told.get(name) == hint:
                self._pending.pop(name, None)
            else:
                self._pending[name] = hint
        if not self._pending:
            self.gather_at = None
        elif self.gather_at is None:
            self.gather_at = now + self._limits.gather

    def gather(self, node: str, instance: int) -> list[NamesChange]:
        """Return the changes that are to be told, each with its number."""
        frames: list[NamesChange] = []
        for some in in_frames(self._pending.items()):
            self.number += 1
            added = {name: hint for name, hint in some if hint is not None}
            removed = tuple(name for name, hint in some if hint is None)
            frames.append(NamesChange(node, instance, self.number, added, removed))
            self._told |= added
            for name in removed:
                del self._told[name]
        self._pending.clear()
        self.gather_at = None
        return frames

    def own_parts(self, node: str, instance: int) -> list[NamesPart]:
        """Return all names of this node that are told."""
        return _parts(node, instance, self.number, self._told)

    # --- of other nodes -----------------------------------------------------------------------

    def nodes_of(self, name: str) -> Mapping[str, str]:
        """Return the other nodes with consumers of a name, and their hints. It is live."""
        found = self._index.get(name)
        return _NONE if found is None else MappingProxyType(found)

    def parts(self, node: str, instance: int) -> list[NamesPart]:
        """Return all names of another node; none if they are not known."""
        known = self.others.get(node)
        if known is None or known.instance != instance or not known.number:
            return []
        return _parts(node, instance, known.number, known.names)

    def apply(self, change: NamesChange) -> bool | None:
        """Apply a change of another node.

        Returns:
            Whether it is applied; `None` if it is known already.
        """
        known = self.others.get(change.node)
        number = 0 if known is None or known.instance != change.instance else known.number
        if number and change.names <= number:
            return None
        if change.names != number + 1:
            return False
        if known is None or known.instance != change.instance:
            self.drop(change.node)
            known = self.others[change.node] = NamesOfNode(change.instance)
        known.number = change.names
        for name in change.removed:
            self._remove(change.node, known, name)
        for name, hint in change.added.items():
            self._add(change.node, known, name, hint)
        return True

    def apply_part(self, part: NamesPart) -> bool | None:
        """Apply a part of all names of another node.

        Returns:
            Whether all parts are there, and are applied; `None` if another part has to be next.
        """
        known = self.others.get(part.node)
        if known is None or known.instance != part.instance:
            self.drop(part.node)
            known = self.others[part.node] = NamesOfNode(part.instance)
        if not part.part:
            known.part, known.arriving, known.arriving_as_of = 0, {}, part.names
        if part.part != known.part or part.names != known.arriving_as_of:
            known.part, known.arriving = 0, {}
            return None
        known.part += 1
        room = self._limits.max_names - self._kept + len(known.names) - len(known.arriving)
        taken = list(part.held.items())[: max(room, 0)]
        self.refused += len(part.held) - len(taken)
        known.arriving.update(taken)
        if not part.last:
            return False
        names, known.arriving, known.part = known.arriving, {}, 0
        known.number = part.names
        for name in known.names.keys() - names.keys():
            self._remove(part.node, known, name)
        for name, hint in names.items():
            self._add(part.node, known, name, hint)
        return True

    def drop(self, node: str) -> None:
        """Forget all names of a node."""
        known = self.others.pop(node, None)
        if known is not None:
            for name in list(known.names):
                self._remove(node, known, name)

    def take_changed(self) -> frozenset[str]:
        """Return the names with nodes that have changed since the last call."""
        found = frozenset(self._changed)
        self._changed.clear()
        return found

    def _add(self, node: str, known: NamesOfNode, name: str, hint: str) -> None:
        if known.names.get(name) == hint:
            return
        if name not in known.names:
            if self._kept >= self._limits.max_names:
                self.refused += 1
                return
            self._kept += 1
        known.names[name] = hint
        self._index.setdefault(name, {})[node] = hint
        self._changed.add(name)

    def _remove(self, node: str, known: NamesOfNode, name: str) -> None:
        if known.names.pop(name, None) is None:
            return
        self._kept -= 1
        nodes = self._index[name]
        del nodes[node]
        if not nodes:
            del self._index[name]
        self._changed.add(name)


def _parts(node: str, instance: int, number: int, names: Mapping[str, str]) -> list[NamesPart]:
    chunks = list(in_frames(names.items()))
    last = len(chunks) - 1
    return [
        NamesPart(node, instance, number, part, part == last, dict(some))
        for part, some in enumerate(chunks)
    ]
