"""What a node has provisioned, what other nodes have told of that, and the semantics of a name.

"When an address is created in the network, it is assigned a set of semantics": a name is
provisioned at one node, and has these semantics at all. A node's own provisions come first: where
one of its patterns matches a name, the best of them decides, and no other node changes that. For
other names the best pattern of all other nodes decides, and of the same pattern at several of them
the node with the smallest name does: no clock and no order of arrival matters. Where nodes say
different things that is a *conflict*: nothing is refused, but it is reported.

A name that a node has provisioned as unavailable is closed there and nowhere else.

The hint that a node tells beside a name decides nothing. It shows what the name means there, as the
default of that node may be another one: that is a conflict as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
        node: The node that has something else for it.
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
        # Of each pattern that only other nodes have, the provision that decides where no better one
        # matches.
        self._others: Final = PatternTable[Provision]()

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[Provision]:
        """Return the provisions of this node."""
        return iter(self._own)

    def deciding(self) -> Iterator[Provision]:
        """Return the provisions that decide, of any node, each for its pattern."""
        yield from self._own
        yield from self._others

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
        if self._others.get(pattern) is not None:
            self._others.remove(pattern)
        chosen = self._own.get(pattern)
        if chosen is None:
            found = {
                node: each
                for node, each in self._told.get(pattern, {}).items()
                if each is not None and each.semantics.pattern is not RoutingPattern.UNAVAILABLE
            }
            if found:
                chosen = found[min(found)]
                self._others.add(pattern, chosen)
        guarded = chosen is not None and chosen.semantics.access != _ANYONE
        (self._guarded.add if guarded else self._guarded.discard)(pattern)

    # --- the semantics of a name ----------------------------------------------------------

    def provision_of(self, name: Name) -> Provision | None:
        """Return the provision that decides for a name, or `None` if none matches."""
        if name.kind in (NameKind.TEMPORARY, NameKind.TOPOLOGICAL):
            return None
        return self._decides(name.text)

    def _decides(self, text: str) -> Provision | None:
        """Return the provision that decides for the text of a name: one of this node first."""
        own = self._own.find(text)
        return self._others.find(text) if own is None and len(self._others) else own

    def semantics_of(self, name: Name) -> Semantics:
        """Return the semantics of a name: those that are provisioned, or the default."""
        if name.kind is NameKind.TEMPORARY:
            return _TEMPORARY
        if name.kind is NameKind.TOPOLOGICAL:
            return _AT_ALL if name.node == ALL_NODES else _AT_NODE
        found = self._decides(name.text)
        return self.default if found is None else found.semantics

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
        """Yield the conflicts about a pattern of other nodes, in the order of these."""
        decides = (
            self._own.get(pattern) or self._own.find(_covered(pattern)) or self._others.get(pattern)
        )
        here = self.default if decides is None else decides.semantics
        for node, told in sorted(self._told[pattern].items()):
            there = None if told is None else told.semantics
            if there != here:
                yield Conflict(".".join(pattern.tokens), here, node, there)


def _covered(pattern: NamePattern) -> str:
    """Return the text of a name that stands for those of a pattern, in a search for a wider one."""
    most = ".".join(["#"] * (_LIMITS.max_tokens + 1))  # too many for a pattern without `#`
    return ".".join(most if each == "#" else each for each in pattern.tokens)
