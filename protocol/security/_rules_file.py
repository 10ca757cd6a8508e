"""Reading rules from TOML: to `Rules`, or everything that is wrong with the file.

```toml
[[rule]]
roles = ["orders"]
register = "service=orders region=*"
request = ["service=stock", "service=mail"]

[[rule]]
names = ["*"]
request = "service=audit"
deny = true
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from .._errors import AddressError
from ..broker import TagSet
from ..toml import FileTable, Problems, flag, read_toml, shown, texts
from ._rules import MAX_RULES, Action, Rule, Rules, TagPattern, parse_patterns

__all__ = ["MAX_RULES_FILE", "contradictions", "read_rules", "rules_in"]

Patterns: TypeAlias = tuple[TagSet, tuple[TagPattern, ...]]

MAX_RULES_FILE: Final = 1024 * 1024
"""The maximum size of a file of rules, in bytes."""
MAX_HOLDERS: Final = 1000
"""Most roles, and most names, of one rule."""
MAX_HOLDER: Final = 255
"""Most bytes of a role or a name."""
MAX_PROBLEMS: Final = 100
"""Most problems of a file that are told; others are counted."""
_DEPTH: Final = 8


def read_rules(text: str | bytes, file: str = "rules") -> Rules:
    """Read a file of rules.

    Args:
        text: The content of the file; bytes are UTF-8.
        file: The name of the file in errors and in the origin of each rule.

    Raises:
        FileError: The file has problems; the error lists all of them.
    """
    problems = Problems(file, MAX_PROBLEMS)
    document = read_toml(text, problems, size=MAX_RULES_FILE, depth=_DEPTH)
    problems.check()
    top = FileTable(problems, (), document)
    if not top.peek("rule"):
        top.add("", "there are no rules; write [[rule]]")
    rules = rules_in(top)
    top.finish()
    for rule, other in contradictions(rules):
        line = int(rule.origin.rpartition(":")[2])
        problems.add_at(line, "", f"it allows nothing, as another rule denies it: {other}")
    problems.check()
    try:
        return Rules(rules)
    except ValueError as error:
        problems.add((), str(error))
        problems.check()
        raise AssertionError("problems raise") from None


def rules_in(top: FileTable) -> list[Rule]:
    """Return the rules of a document, of its tables `[[rule]]`; faults are added to its problems.

    Args:
        top: The document, which may hold other tables.
    """
    return [rule for each in top.tables("rule") for rule in _read_rule(each)]


def _read_rule(table: FileTable) -> list[Rule]:
    """Return the rules of a table: one for each text of tags, and for each other action."""
    roles = table.take("roles", _roles, frozenset[str]())
    names = table.take("names", _names, frozenset[str]())
    deny = table.take("deny", flag, False)
    origin = f"{table.place.file}:{table.place.line}"
    if not roles and not names and not table.has_problem:
        table.add("", 'roles or names are missing; names = ["*"] is all')
    rules: list[Rule] = []
    for action in Action:
        if action.has_tags:
            given = table.take(action.value, _patterns, list[Patterns]())
            rules += [
                Rule(action, roles, names, tags, patterns, deny, origin) for tags, patterns in given
            ]
        elif table.take(action.value, flag, False):
            rules.append(Rule(action, roles, names, deny=deny, origin=origin))
    table.finish()
    if not rules and not table.has_problem:
        table.add("", f"no action; there are: {', '.join(each.value for each in Action)}")
    return rules


def _roles(value: object) -> frozenset[str]:
    roles = _holders(value)
    starred = next((each for each in roles if "*" in each), None)
    if starred is not None:
        raise ValueError(f"{shown(starred)}: roles are without a *; names may end with one")
    return roles


def _names(value: object) -> frozenset[str]:
    names = _holders(value)
    starred = next((each for each in names if "*" in each[:-1]), None)
    if starred is not None:
        raise ValueError(f"{shown(starred)}: a * stands at the end only")
    return names


def _holders(value: object) -> frozenset[str]:
    given = texts([value] if isinstance(value, str) else value)
    if len(given) > MAX_HOLDERS:
        raise ValueError(f"{len(given)} are over the limit of {MAX_HOLDERS}")
    for each in given:
        if not 0 < len(each.encode()) <= MAX_HOLDER:
            raise ValueError(f"{shown(each)} has not 1 to {MAX_HOLDER} bytes")
    return frozenset(given)


def _patterns(value: object) -> list[Patterns]:
    given = texts([value] if isinstance(value, str) else value)
    if len(given) > MAX_RULES:
        raise ValueError(f"{len(given)} are over the limit of {MAX_RULES}")
    return [_pattern(each) for each in given]


def _pattern(given: str) -> Patterns:
    try:
        return parse_patterns(given)
    except AddressError as error:
        raise ValueError(f"{shown(error.text)}: {error.reason}") from None


def contradictions(rules: Iterable[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Yield each rule that allows exactly what another denies to the same role or name, and that.

    Args:
        rules: The rules, which may be of several files.
    """
    denied: dict[tuple[object, ...], Rule] = {}
    known = tuple(rules)
    for rule in known:
        if rule.deny:
            for holder in _keys(rule):
                denied.setdefault(holder, rule)
    for rule in known:
        other = None if rule.deny else next(filter(None, map(denied.get, _keys(rule))), None)
        if other is not None:
            yield rule, other


def _keys(rule: Rule) -> Iterator[tuple[object, ...]]:
    for kind, holders in (("role", rule.roles), ("name", rule.names)):
        for holder in holders:
            yield rule.action, rule.tags, frozenset(rule.patterns), kind, holder
