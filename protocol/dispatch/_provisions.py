"""What a node has provisioned, what other nodes have told of that, and the semantics of a name.

"When an address is created in the network, it is assigned a set of semantics": a name has one set,
at whatever node it is used. So the provisions of all nodes count at each of them. The best pattern
decides, and of the same pattern at several nodes the node with the smallest name does, at all nodes
alike: no clock and no order of arrival matters. Where nodes say different things of one pattern
that is a *conflict*: nothing is refused, but it is reported.

Two things are of a node alone. A name that it has provisioned as unavailable is closed there and
nowhere else: another node that closes a name closes none here, and none opens one that is closed
here. And the roles that may use a name at a node are those that it has provisioned, if it has.

The hint that a node tells beside a name decides nothing. It shows what the name means there, as the
default of that node may be another one: that is a conflict as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from .._address import NAME, Address
from ._errors import BadPattern, BadSemantics, PatternInUse, TooManyProvisions
from ._frames import ToldName
from ._limits import DispatchLimits
from ._names import ALL_NODES, Name, NameKind
from ._patterns import NamePattern, PatternTable
from ._semantics import Semantics, read_hint
from ._semantics_codec import decode_semantics, encode_semantics
from ._semantics_parts import Access, RoutingPattern

__all__ = ["PROGRAM", "Conflict", "Provision", "Provisions", "ProvisionsChange"]

PROGRAM: Final = "program"
"""The source of provisions that a program has made."""

_LIMITS: Final = DispatchLimits()

# Names of these kinds mean what they say, whatever is provisioned.
_TEMPORARY: Final = Semantics(pattern=RoutingPattern.BALANCED)
_AT_NODE: Final = Semantics(pattern=RoutingPattern.CLOSEST)
_AT_ALL: Final = Semantics(pattern=RoutingPattern.MULTICAST)
_ANYONE: Final = Access()
_GUARDED: Final = 1024
"""Semantics with the roles of this node that are kept as they were made."""


@dataclass(frozen=True, slots=True)
class Provision:
    """A pattern with semantics.

    Attributes:
        pattern: The pattern of the names.
        semantics: What they mean.
        source: Where it comes from: `program`, the name of a file, or `node NAME`.
        line: The line in that file, from 1; 0 for others.

    Raises:
        BadPattern: The pattern is of temporary or topological names, which mean what they say.
        BadSemantics: The name of the pattern is redirected to itself, or they have more bytes than
            other nodes can be told.
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

        if redirect is not None or self.semantics.tags or self.semantics.access != _ANYONE:
            encode_semantics(self.semantics)  # the others are short

    @property
    def told_pattern(self) -> str | None:
        """The pattern as other nodes are told of it; `None`: it is of local names."""
        tokens = self.pattern.tokens
        return None if tokens[0] == "_local" else ".".join(tokens)

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
    """A pattern or a name that two nodes understand differently.

    Attributes:
        name: The pattern or the name.
        here: What it means at this node.
        node: The node that has something else for it. It is this one where a provision of another
            node decides and not its own.
        there: What that node has for it, as far as it has told; `None`: this node does not know
            what that means.
    """

    name: str
    here: Semantics
    node: str
    there: Semantics | None

    def __str__(self) -> str:
        there = "something unknown" if self.there is None else self.there
        return f"{self.name}: {self.here} here, {there} at {self.node}"


def _serves_all(provision: Provision) -> None:
    """Refuse no provision."""
    del provision


def _no_nodes(name: str) -> Mapping[str, ToldName]:
    """Return the nodes with consumers of a name where there is no other node."""
    del name
    return {}


class Provisions:
    """The provisions of a node, and those that other nodes have told of.

    What other nodes tell is bounded by `NetworkLimits.max_provisions`.

    Args:
        own: The name of this node.
        default: The semantics of names that nothing is known of.
        limits: Limits of what is kept.
        nodes_of: Returns the other nodes with consumers of a name, and what they tell of it.
        check: Raises `BadSemantics` for a provision of another node that this one does not serve,
            and that decides nothing here then.
    """

    def __init__(
        self,
        own: str,
        default: Semantics | None = None,
        limits: DispatchLimits = _LIMITS,
        nodes_of: Callable[[str], Mapping[str, ToldName]] = _no_nodes,
        check: Callable[[Provision], None] = _serves_all,
    ) -> None:
        self.default = Semantics() if default is None else default
        """The semantics of names that nothing is known of."""
        self.unread = 0
        """Provisions of other nodes that could not be read or served, and so decide nothing."""
        self._node: Final = own
        self._limits: Final = limits
        self._nodes_of: Final = nodes_of
        self._check: Final = check
        self._own: Final = PatternTable[Provision]()
        self._told: Final[dict[NamePattern, dict[str, Provision | None]]] = {}
        self._guarded: Final[set[NamePattern]] = set()
        # Of each pattern the provision that decides.
        self._table: Final = PatternTable[Provision]()

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[Provision]:
        """Return the provisions of this node."""
        return iter(self._own)

    def deciding(self) -> Iterator[Provision]:
        """Return the provisions that decide, of any node."""
        return iter(self._table)

    def in_effect(self, pattern: NamePattern) -> Provision | None:
        """Return the provision of a pattern that decides, of any node."""
        return self._table.get(pattern)

    @property
    def guarded(self) -> bool:
        """Whether any name is for some roles only."""
        return bool(self._guarded) or self.default.access != _ANYONE

    # --- provisions -----------------------------------------------------------------------

    def add(self, provision: Provision) -> None:
        """Add a provision.

        Raises:
            PatternInUse: There is one of an equal pattern.
            TooManyProvisions: There are `DispatchLimits.max_provisions`.
        """
        if len(self._own) >= self._limits.max_provisions:
            raise TooManyProvisions(self._limits.max_provisions)
        self._own.add(provision.pattern, provision)
        self._choose(provision.pattern)

    def replace(self, provision: Provision) -> Provision:
        """Put a provision in the place of that of an equal pattern, and return that.

        Raises:
            UnknownProvision: There is none.
        """
        before = self._own.replace(provision.pattern, provision)
        self._choose(provision.pattern)
        return before

    def withdraw(self, pattern: NamePattern) -> Provision:
        """Remove a provision and return it.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        gone = self._own.remove(pattern)
        self._choose(pattern)
        return gone

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
            other = new.get(each.pattern) or self._own.get(each.pattern)
            if other is not None and (other.source != source or each.pattern in new):
                raise PatternInUse(each.pattern.written, other.pattern.written)
            new[each.pattern] = each
        old = {each.pattern: each for each in self._own if each.source == source}
        if len(self._own) - len(old) + len(new) > self._limits.max_provisions:
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
            self._own.remove(gone)
        for each in new.values():
            self._own.add(each.pattern, each)
        for pattern in old.keys() | new.keys():
            self._choose(pattern)
        return change

    # --- those of other nodes ---------------------------------------------------------------

    def learn(self, node: str, added: Mapping[str, bytes], removed: Iterable[str]) -> None:
        """Keep what another node has provisioned.

        Args:
            node: The node.
            added: Its patterns that are new, or have other semantics, with these as bytes.
            removed: Its patterns that are gone.
        """
        for text in removed:
            pattern = NamePattern.parse(text)
            told = self._told.get(pattern, {})
            if node in told:
                del told[node]
                if not told:
                    del self._told[pattern]
                self._choose(pattern)
        for text, data in added.items():
            pattern = NamePattern.parse(text)
            self._told.setdefault(pattern, {})[node] = self._read(node, pattern, data)
            self._choose(pattern)

    def _read(self, node: str, pattern: NamePattern, data: bytes) -> Provision | None:
        """Return the provision of another node, or `None`: it cannot be read or served."""
        try:
            provision = Provision(pattern, decode_semantics(data), f"node {node}")
            self._check(provision)
        except (BadSemantics, BadPattern):
            self.unread += 1
            return None
        return provision

    def _choose(self, pattern: NamePattern) -> None:
        """Choose the provision of a pattern that decides."""
        own = self._own.get(pattern)
        found = {
            node: each
            for node, each in self._told.get(pattern, {}).items()
            if each is not None and each.semantics.pattern is not RoutingPattern.UNAVAILABLE
        }
        if own is not None:
            if own.semantics.pattern is RoutingPattern.UNAVAILABLE:
                found = {}
            found[self._node] = own
        if self._table.get(pattern) is not None:
            self._table.remove(pattern)
        if found:
            self._table.add(pattern, found[min(found)])
        guarded = any(
            each is not None and each.semantics.access != _ANYONE
            for each in (own, self._table.get(pattern))
        )
        (self._guarded.add if guarded else self._guarded.discard)(pattern)

    # --- the semantics of a name ----------------------------------------------------------

    def provision_of(self, name: Name) -> Provision | None:
        """Return the provision that decides for a name, or `None` if none matches."""
        if name.kind in (NameKind.TEMPORARY, NameKind.TOPOLOGICAL):
            return None
        own = self._own.find(name.text)
        if own is not None and own.semantics.pattern is RoutingPattern.UNAVAILABLE:
            return own
        return self._table.find(name.text)

    def semantics_of(self, name: Name) -> Semantics:
        """Return the semantics of a name: those that are provisioned, or the default."""
        if name.kind is NameKind.TEMPORARY:
            return _TEMPORARY
        if name.kind is NameKind.TOPOLOGICAL:
            return _AT_ALL if name.node == ALL_NODES else _AT_NODE
        own = self._own.find(name.text)
        if own is not None and own.semantics.pattern is RoutingPattern.UNAVAILABLE:
            return own.semantics
        found = self._table.find(name.text)
        if found is None:
            return self.default
        if own is None or own.semantics.access == found.semantics.access:
            return found.semantics
        return _guarded(found.semantics, own.semantics.access)

    # --- conflicts ------------------------------------------------------------------------

    def conflicts(self, names: Iterable[str] = ()) -> tuple[tuple[Conflict, ...], int]:
        """Return the patterns and names that two nodes understand differently.

        Args:
            names: Names with consumers at other nodes; the hints of these are compared.

        Returns:
            At most `DispatchLimits.max_conflicts`, patterns first, by their text and node, and the
            number of all.
        """
        found: list[Conflict] = []
        count = 0
        for conflict in self._all_conflicts(names):
            count += 1
            if len(found) < self._limits.max_conflicts:
                found.append(conflict)
        return tuple(found), count

    def _all_conflicts(self, names: Iterable[str]) -> Iterator[Conflict]:
        for pattern in sorted(self._told, key=lambda each: each.tokens):
            yield from self._conflicts_of(pattern)
        for text in sorted(names):
            here = self.semantics_of(Name(NameKind.MOBILE, text))
            for node, told in sorted(self._nodes_of(text).items()):
                if told.hint != here.hint:
                    yield Conflict(text, here, node, read_hint(told.hint))

    def _conflicts_of(self, pattern: NamePattern) -> Iterator[Conflict]:
        """Yield the conflicts about a pattern, in the order of the nodes."""
        decides, own = self._table.get(pattern), self._own.get(pattern)
        here = self.default if decides is None else decides.semantics
        told = {
            node: None if each is None else each.semantics
            for node, each in self._told[pattern].items()
        }
        if own is not None:
            told[self._node] = own.semantics
        for node, there in sorted(told.items()):
            if there != here:
                yield Conflict(".".join(pattern.tokens), here, node, there)


@lru_cache(maxsize=_GUARDED)
def _guarded(semantics: Semantics, access: Access) -> Semantics:
    """Return semantics with the roles of this node."""
    return replace(semantics, access=access)
