"""What a node has provisioned, what other nodes have told of it, and the semantics of a name.

A rule of this node decides. For a name without one, what other nodes have told decides: a *hint*,
which has the pattern and the mechanism. Otherwise the default of the node does, which closes the
network to names that are not provisioned if it is `unavailable`. Where two of these say different
things that is a *conflict*: nothing is refused, as the other node may be right, but it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from .._address import NAME, Address
from ._errors import BadPattern, BadSemantics, PatternInUse, TooManyProvisions
from ._limits import DispatchLimits
from ._names import ALL_NODES, Name, NameKind
from ._patterns import NamePattern, PatternTable
from ._semantics import Semantics, read_hint
from ._semantics_parts import RoutingPattern

__all__ = ["PROGRAM", "Conflict", "Provision", "Provisions", "ProvisionsChange"]

PROGRAM: Final = "program"
"""The source of provisions that a program has made."""

_LIMITS: Final = DispatchLimits()

# Names of these kinds mean what they say, whatever is provisioned.
_TEMPORARY: Final = Semantics(pattern=RoutingPattern.BALANCED)
_AT_NODE: Final = Semantics(pattern=RoutingPattern.CLOSEST)
_AT_ALL: Final = Semantics(pattern=RoutingPattern.MULTICAST)


@dataclass(frozen=True, slots=True)
class Provision:
    """A pattern with semantics.

    Attributes:
        pattern: The pattern of the names.
        semantics: What they mean.
        source: Where it comes from: `program`, or the name of a file.
        line: The line in that file, from 1; 0 for others.

    Raises:
        BadPattern: The pattern is of temporary or topological names, which mean what they say.
        BadSemantics: The name of the pattern is redirected to itself.
    """

    pattern: NamePattern
    semantics: Semantics
    source: str = PROGRAM
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        first = self.pattern.tokens[0]
        if first in ("_temp", "_topo"):
            raise BadPattern(self.pattern.written, f"names with {first}/ cannot be provisioned")
        redirect = self.semantics.redirect
        if redirect is not None and self.pattern.is_exact:
            to = redirect.route[0]
            if to == Address(NAME, self.pattern.written.encode()):
                raise BadSemantics([f"{self.pattern.written} is redirected to itself"])

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{self.pattern}: {self.semantics} ({place})"


@dataclass(frozen=True, slots=True)
class ProvisionsChange:
    """The difference that new provisions make.

    Attributes:
        added: Provisions that are new.
        changed: Provisions that have the place of others with an equal pattern.
        withdrawn: Provisions that are gone.
    """

    added: tuple[Provision, ...] = ()
    changed: tuple[Provision, ...] = ()
    withdrawn: tuple[Provision, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.withdrawn)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name that two nodes understand differently.

    Attributes:
        name: The name.
        here: What it means at this node.
        node: The other node.
        there: What it means at that node, as far as it has told; `None`: this node does not know
            the hint.
    """

    name: str
    here: Semantics
    node: str
    there: Semantics | None

    def __str__(self) -> str:
        there = "something unknown" if self.there is None else self.there
        return f"{self.name}: {self.here} here, {there} at {self.node}"


class Provisions:
    """The provisions of a node, and the hints of others.

    Args:
        default: The semantics of names that nothing is known of.
        limits: Limits of what is kept.
    """

    def __init__(self, default: Semantics | None = None, limits: DispatchLimits = _LIMITS) -> None:
        self.default = Semantics() if default is None else default
        """The semantics of names that nothing is known of."""
        self.hints_refused = 0
        """Hints that were not kept, as there were `DispatchLimits.max_hints`."""
        self._limits: Final = limits
        self._table: Final = PatternTable[Provision]()
        # By name and then by node: most names have one node that has told of them.
        self._hints: Final[dict[str, dict[str, int]]] = {}
        self._hint_count = 0

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Provision]:
        return iter(self._table)

    # --- provisions -----------------------------------------------------------------------

    def add(self, provision: Provision) -> None:
        """Add a provision.

        Raises:
            PatternInUse: There is one of an equal pattern.
            TooManyProvisions: There are `DispatchLimits.max_provisions`.
        """
        if len(self._table) >= self._limits.max_provisions:
            raise TooManyProvisions(self._limits.max_provisions)
        self._table.add(provision.pattern, provision)

    def replace(self, provision: Provision) -> Provision:
        """Put a provision in the place of that of an equal pattern, and return that.

        Raises:
            UnknownProvision: There is none.
        """
        return self._table.replace(provision.pattern, provision)

    def withdraw(self, pattern: NamePattern) -> Provision:
        """Remove a provision and return it.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        return self._table.remove(pattern)

    def load(self, provisions: Iterable[Provision], source: str) -> ProvisionsChange:
        """Put provisions in the place of all of their source, as when a file is read anew.

        Args:
            provisions: The provisions, all of this source.
            source: The source.

        Returns:
            What has become different.

        Raises:
            PatternInUse: Two have equal patterns, or one of another source has. Nothing is changed.
            TooManyProvisions: There would be more than `DispatchLimits.max_provisions`. Nothing is
                changed.
        """
        new: dict[NamePattern, Provision] = {}
        for each in provisions:
            other = new.get(each.pattern) or self._table.get(each.pattern)
            if other is not None and (other.source != source or each.pattern in new):
                raise PatternInUse(each.pattern.written, other.pattern.written)
            new[each.pattern] = each
        old = {each.pattern: each for each in self._table if each.source == source}
        if len(self._table) - len(old) + len(new) > self._limits.max_provisions:
            raise TooManyProvisions(self._limits.max_provisions)
        change = ProvisionsChange(
            added=tuple(each for each in new.values() if each.pattern not in old),
            changed=tuple(
                each
                for each in new.values()
                if each.pattern in old and each.semantics != old[each.pattern].semantics
            ),
            withdrawn=tuple(each for each in old.values() if each.pattern not in new),
        )
        for gone in old:
            self._table.remove(gone)
        for each in new.values():
            self._table.add(each.pattern, each)
        return change

    # --- the semantics of a name ----------------------------------------------------------

    def provision_of(self, name: Name) -> Provision | None:
        """Return the provision of the best pattern for a name, or `None` if none matches."""
        if name.kind in (NameKind.TEMPORARY, NameKind.TOPOLOGICAL):
            return None
        return self._table.find(name.text)

    def semantics_of(self, name: Name) -> Semantics:
        """Return the semantics of a name: of this node's provision, of a hint, or the default."""
        if name.kind is NameKind.TEMPORARY:
            return _TEMPORARY
        if name.kind is NameKind.TOPOLOGICAL:
            return _AT_ALL if name.node == ALL_NODES else _AT_NODE
        found = self._table.find(name.text)
        if found is not None:
            return found.semantics
        return self._hinted(name.text) or self.default

    # --- hints ----------------------------------------------------------------------------

    def hint(self, node: str, name: str, number: int) -> None:
        """Keep what another node has told of a name; a new hint has the place of an old one.

        At `DispatchLimits.max_hints` it is not kept, and counted in `hints_refused`.

        Args:
            node: The node.
            name: The text of the name.
            number: The hint, as of `Semantics.hint` at that node.
        """
        by_node = self._hints.get(name, {})
        if node not in by_node:
            if self._hint_count >= self._limits.max_hints:
                self.hints_refused += 1
                return
            self._hint_count += 1
        by_node[node] = number
        self._hints[name] = by_node

    def hinting(self, name: str) -> frozenset[str]:
        """Return the nodes that have told of a name."""
        return frozenset(self._hints.get(name, ()))

    def unhint(self, node: str, name: str) -> None:
        """Forget what a node has told of a name, if it has."""
        by_node = self._hints.get(name, {})
        if by_node.pop(node, None) is not None:
            self._hint_count -= 1
            if not by_node:
                del self._hints[name]

    def forget(self, node: str) -> None:
        """Forget all that a node has told."""
        for name in [name for name, by_node in self._hints.items() if node in by_node]:
            self.unhint(node, name)

    def conflicts(self) -> tuple[tuple[Conflict, ...], int]:
        """Return the names that another node understands differently.

        Returns:
            At most `DispatchLimits.max_conflicts`, by name and node, and the number of all.
        """
        found: list[Conflict] = []
        count = 0
        for name in sorted(self._hints):
            for conflict in self._conflicts_of(name):
                count += 1
                if len(found) < self._limits.max_conflicts:
                    found.append(conflict)
        return tuple(found), count

    def _conflicts_of(self, name: str) -> Iterator[Conflict]:
        """Yield the conflicts about a name, in the order of the nodes."""
        own = self._table.find(name)
        here = (self._hinted(name) or self.default) if own is None else own.semantics
        for node, number in sorted(self._hints[name].items()):
            if number != here.hint:
                yield Conflict(name, here, node, read_hint(number))

    def _hinted(self, name: str) -> Semantics | None:
        """Return what the first node by name tells of a name that this one knows, or `None`."""
        for _, number in sorted(self._hints.get(name, {}).items()):
            semantics = read_hint(number)
            if semantics is not None:
                return semantics
        return None
