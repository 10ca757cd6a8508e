"""Rules that decide what a principal may do, by the tags that it brings or asks for.

A rule allows or denies one action to some roles or names. Deny wins, and nothing is allowed that no
rule allows. The tags of a rule are *patterns*, with a meaning that depends on the action:

| action | a rule that allows applies if | a rule that denies applies if |
| --- | --- | --- |
| `register` | its patterns cover each tag that the destination brings | the destination brings a tag for each of its patterns |
| `request` | the query has a tag for each of its patterns | the query does not exclude that a destination has them |
| `peer`, `read`, `operate` | always | always |

A query with fewer tags matches more destinations. So `allow request service=orders tenant=a` does
not allow `service=orders`, and `deny request service=admin` denies a query for a region alone: it
may reach the service. Only another service name in the query excludes that.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from .._errors import AddressError
from ..broker import MAX_TAGS, Key, Tag, TagSet, WellKnownKey, format_tag, parse_tag, tag_set
from ._errors import NotAllowed
from ._principal import Principal

__all__ = [
    "MAX_NAME_PATTERNS",
    "MAX_RULES",
    "Action",
    "Decision",
    "Rule",
    "Rules",
    "TagPattern",
    "add_forced_tags",
    "parse_patterns",
]

MAX_RULES: Final = 10_000
"""The maximum number of rules, counted by actions: one for each text of tags. More is an error."""

MAX_NAME_PATTERNS: Final = 1000
"""The maximum number of different names with a `*` at the end, in all rules. More is an error."""

_SERVICE: Final[Key] = int(WellKnownKey.SERVICE_NAME)
_STAR: Final = "*"


class Action(Enum):
    """An action that rules allow or deny."""

    REGISTER = "register"
    """To be a destination with some tags, by a ROUTE_SETUP."""
    REQUEST = "request"
    """To send a request for some tags, by an ADDRESS."""
    PEER = "peer"
    """To be another broker of the cluster, by a BROKER_INFO."""
    READ = "read"
    """To read all about the broker from its management service."""
    OPERATE = "operate"
    """To change the running broker."""

    @property
    def has_tags(self) -> bool:
        """Whether rules for the action have tags."""
        return self in (Action.REGISTER, Action.REQUEST)


@dataclass(frozen=True, slots=True)
class TagPattern:
    """A pattern that tags match: a key and the beginning of a value.

    Attributes:
        key: The key; `None` for any key.
        prefix: The beginning of the value. A null value begins with the empty text only.
    """

    key: Key | None
    prefix: str = ""

    def matches(self, tag: Tag) -> bool:
        """Whether a tag has the key, and a value that begins so."""
        return self.key in (None, tag[0]) and (tag[1] or "").startswith(self.prefix)

    def __str__(self) -> str:
        if self.key is None:
            return _STAR
        return f"{format_tag((self.key, self.prefix))}{_STAR}"


def parse_patterns(text: str) -> tuple[TagSet, tuple[TagPattern, ...]]:
    """Read the tags of a rule: words like `service=orders`, `service=orders-*`, `region=*`, `*`.

    A `*` stands for any characters at the end of a value, or for any tag. `%2A` is the character.

    Returns:
        The tags without a `*`, and the patterns.

    Raises:
        AddressError: There is none, or over `MAX_TAGS`, or one that cannot be read.
    """
    words = text.split()
    if not words:
        raise AddressError(text[:80], "no tags; write * for any")
    if len(words) > MAX_TAGS:
        raise AddressError(text[:80], f"more than {MAX_TAGS} tags")
    exact, patterns = list[Tag](), list[TagPattern]()
    for word in words:
        if word == _STAR:
            patterns.append(TagPattern(None))
            continue
        inner, ends = (word[:-1], True) if word.endswith(_STAR) else (word, False)
        if _STAR in inner or (ends and "=" not in inner):
            raise AddressError(word[:80], "a * stands at the end of a value; write %2A for itself")
        if ends:
            key, value = parse_tag(inner)
            patterns.append(TagPattern(key, value or ""))
        else:
            exact.append(parse_tag(word))
    tags = tag_set(exact)
    if not tags and not patterns:
        raise AddressError(text[:80], "no tags")
    return tags, tuple(dict.fromkeys(patterns))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what some roles or names may or may not do.

    Attributes:
        action: The action.
        roles: The roles that it holds for.
        names: The names of principals that it holds for; a `*` at the end stands for any
            characters. A principal with one of the roles or names is enough.
        tags: The tags of the action, without a `*`.
        patterns: The other patterns of tags.
        deny: Whether it denies the action.
        origin: The place of the rule, as `rules.toml:12`, for explanations.
    """

    action: Action
    roles: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    tags: TagSet = frozenset()
    patterns: tuple[TagPattern, ...] = ()
    deny: bool = False
    origin: str = ""

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        tags = sorted([*map(format_tag, self.tags), *map(str, self.patterns)])
        words = ["deny" if self.deny else "allow", self.action.value, *tags]
        return " ".join(words) + place

    def applies(self, tags: TagSet) -> bool:
        """Whether the rule decides an action with these tags, of a principal that it holds for."""
        if self.action is Action.REGISTER:
            return self._are_in(tags) if self.deny else not self.missing(tags)
        if self.action is Action.REQUEST:
            return not self._excluded(tags) if self.deny else self._are_in(tags)
        return True

    def missing(self, tags: TagSet) -> tuple[str, ...]:
        """Return the tags by which an action misses this rule, in text form.

        Of a registration those that the rule does not cover, of a request those that it lacks.
        Other actions have no tags.
        """
        if self.action is Action.REGISTER:
            others = (tag for tag in tags - self.tags if not self._covers(tag))
            return tuple(sorted(map(format_tag, others)))
        lacking = [format_tag(tag) for tag in self.tags - tags]
        lacking += [str(each) for each in self.patterns if not any(map(each.matches, tags))]
        return tuple(sorted(lacking))

    def _are_in(self, tags: TagSet) -> bool:
        return self.tags <= tags and all(any(map(each.matches, tags)) for each in self.patterns)

    def _covers(self, tag: Tag) -> bool:
        return any(each.matches(tag) for each in self.patterns)

    def _excluded(self, tags: TagSet) -> bool:
        """Whether no destination with these tags has all tags of the rule.

        A query says nothing about the keys that it does not name. Of a key with several values in
        the query, each counts.
        """
        for key, value in self.tags:
            named = [tag for tag in tags if tag[0] == key]
            if named and (key, value) not in named:
                return True
        for each in self.patterns:
            named = [tag for tag in tags if tag[0] == each.key]
            if named and not any(map(each.matches, named)):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on an action.

    Attributes:
        allowed: Whether it is allowed.
        rule: The rule that decides; if no rule applies, the allowing rule that misses it by the
            fewest tags, or `None`.
        missing: The tags that the request lacks for `rule`, or that `rule` does not cover, in text
            form; empty if `rule` decides.
    """

    allowed: bool
    rule: Rule | None = None
    missing: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason in words."""
        if self.rule is None:
            return "no rule of this principal allows the action"
        if not self.missing:
            return f"decided by: {self.rule}"
        fault = "does not cover" if self.rule.action is Action.REGISTER else "also asks for"
        return f"the nearest rule {fault} {' '.join(self.missing)}: {self.rule}"


class Rules:
    """Rules compiled for look-up by action and role, and by a tag of the request.

    Args:
        rules: The rules, in any order.

    Raises:
        ValueError: There are more than `MAX_RULES`, or than `MAX_NAME_PATTERNS` names with a `*`.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules: Final = tuple(rules)
        if len(self.rules) > MAX_RULES:
            raise ValueError(f"{len(self.rules)} rules are over the limit of {MAX_RULES}")
        table: defaultdict[tuple[Action, str], _Subject] = defaultdict(_Subject)
        starred = set[str]()
        for rule in self.rules:
            holders = [f"role {role}" for role in rule.roles]
            for name in rule.names:
                holders.append(f"name {name}")
                if name.endswith(_STAR):
                    starred.add(name)
            for holder in holders:
                table[rule.action, holder].add(rule)
        if len(starred) > MAX_NAME_PATTERNS:
            raise ValueError(
                f"{len(starred)} names with a * are over the limit of {MAX_NAME_PATTERNS}"
            )
        self._starred: Final = tuple((name[:-1], f"name {name}") for name in sorted(starred))
        self._table: Final[Mapping[tuple[Action, str], _Subject]] = MappingProxyType(dict(table))

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self.rules)

    def allows(self, principal: Principal, action: Action, tags: TagSet = frozenset()) -> bool:
        """Whether a principal may do an action; as `decide`, without the reason."""
        return self._deciding(principal, action, tags)[0]

    def decide(self, principal: Principal, action: Action, tags: TagSet = frozenset()) -> Decision:
        """Decide whether a principal may do an action.

        Args:
            principal: The principal.
            action: The action.
            tags: The tags that a destination brings, or those of a query, in normal form, with the
                forced tags of the principal; see `add_forced_tags`. To register, forced tags need
                no rule that allows them, and count for rules that deny.
        """
        allowed, rule = self._deciding(principal, action, tags)
        if rule is not None:
            return Decision(allowed, rule)
        tags = _needing_a_rule(principal, action, tags)
        near = [
            (each.missing(tags), each)
            for subject in self._subjects(principal, action)
            for each in subject.allowing()
        ]
        if not near:
            return Decision(False)
        missing, rule = min(near, key=lambda each: len(each[0]))
        return Decision(False, rule, missing)

    def _deciding(
        self, principal: Principal, action: Action, tags: TagSet
    ) -> tuple[bool, Rule | None]:
        subjects = tuple(self._subjects(principal, action))
        for subject in subjects:
            for rule in subject.denying:
                if rule.applies(tags):
                    return False, rule
        tags = _needing_a_rule(principal, action, tags)
        for subject in subjects:
            for rule in subject.near(tags):
                if rule.applies(tags):
                    return True, rule
        return False, None

    def _subjects(self, principal: Principal, action: Action) -> Iterator[_Subject]:
        name, table = principal.name, self._table
        holders = [f"role {role}" for role in principal.roles]
        holders.append(f"name {name}")
        holders += [holder for prefix, holder in self._starred if name.startswith(prefix)]
        for holder in holders:
            subject = table.get((action, holder))
            if subject is not None:
                yield subject


@dataclass(slots=True)
class _Subject:
    """The rules of one action for one role or name.

    Attributes:
        denying: Those that deny.
        by_tag: Those that allow requests, by one of their tags without a `*`, the service if there
            is one: a request that lacks it lacks the rule.
        others: The others that allow.
    """

    denying: list[Rule] = field(default_factory=list[Rule])
    by_tag: dict[Tag, list[Rule]] = field(default_factory=dict[Tag, list[Rule]])
    others: list[Rule] = field(default_factory=list[Rule])

    def add(self, rule: Rule) -> None:
        """Add a rule."""
        if rule.deny:
            self.denying.append(rule)
            return
        found_by = sorted(rule.tags, key=lambda tag: tag[0] != _SERVICE)
        if rule.action is Action.REQUEST and found_by:
            self.by_tag.setdefault(found_by[0], []).append(rule)
        else:
            self.others.append(rule)

    def near(self, tags: TagSet) -> Iterator[Rule]:
        """Yield the allowing rules that may apply to some tags."""
        if self.by_tag:
            for tag in tags:
                yield from self.by_tag.get(tag, ())
        yield from self.others

    def allowing(self) -> Iterator[Rule]:
        """Yield all allowing rules."""
        for rules in self.by_tag.values():
            yield from rules
        yield from self.others


def _needing_a_rule(principal: Principal, action: Action, tags: TagSet) -> TagSet:
    """Return the tags that a rule has to allow: of a destination, those that are not forced."""
    return tags - principal.tags if action is Action.REGISTER else tags


def add_forced_tags(action: Action, tags: TagSet, forced: TagSet) -> TagSet:
    """Return tags with those that a principal is forced to have.

    Args:
        action: The action, for the error.
        tags: The tags that the principal brings or asks for.
        forced: Those of the principal.

    Raises:
        NotAllowed: It gives another value for a key of a forced tag.
    """
    if not forced:
        return tags
    keys = {key for key, _ in forced}
    if any(tag[0] in keys and tag not in forced for tag in tags):
        raise NotAllowed(action.value)
    return tags | forced
