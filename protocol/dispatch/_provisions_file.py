"""Reading provisions from TOML: to `Provision` values, or everything that is wrong with the file.

```toml
default = "unavailable"

[[name]]
pattern = "orders"
routing = "direct"
second = "standby"
undeliverable = [{ hold = 1000, age = 60 }, { redirect = "34#orders.failed" }]
last = "reject"

[[name]]
prefix = "prices"
routing = "multicast"
accepts = "all"
```
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from ..options import spelling
from ..toml import (
    FileTable,
    Problems,
    count,
    flag,
    one_of,
    positive_seconds,
    read_toml,
    seconds,
    size,
    text,
    texts,
)
from ._errors import BadPattern, BadSemantics, DispatchError
from ._limits import DispatchLimits
from ._outcomes import ALL
from ._patterns import NamePattern
from ._provisions import Provision
from ._semantics import Semantics, Undeliverable
from ._semantics_parts import (
    Access,
    Gate,
    Last,
    Mechanism,
    Overflow,
    Reattach,
    Redirect,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Settlement,
    Weigh,
)

__all__ = ["MAX_PROVISIONS_FILE", "ProvisionsFile", "read_names", "read_provisions"]

E = TypeVar("E", bound=Enum)
T = TypeVar("T")

MAX_PROVISIONS_FILE: Final = 32 * 1024 * 1024
"""The maximum size of a file of provisions, in bytes."""
MAX_PROBLEMS: Final = 100
"""Most problems of a file that are told; others are counted."""
_DEPTH: Final = 8
_LIMITS: Final = DispatchLimits()


@dataclass(frozen=True, slots=True)
class ProvisionsFile:
    """The content of a file of provisions.

    Attributes:
        provisions: The provisions, in their order.
        default: The semantics of names that nothing is known of; `None`: the file does not say.
    """

    provisions: tuple[Provision, ...] = field(default=())
    default: Semantics | None = None


def read_provisions(
    content: str | bytes, file: str = "provisions", limits: DispatchLimits = _LIMITS
) -> ProvisionsFile:
    """Read a file of provisions.

    Args:
        content: The content of the file; bytes are UTF-8.
        file: The name of the file, which is the source of its provisions and in errors.
        limits: Limits of names, tokens and provisions.

    Raises:
        FileError: The file has problems; the error lists all of them.
    """
    problems = Problems(file, MAX_PROBLEMS)
    document = read_toml(content, problems, size=MAX_PROVISIONS_FILE, depth=_DEPTH)
    problems.check()
    top = FileTable(problems, (), document)
    read = read_names(top, file, limits)
    top.finish()
    problems.check()
    return read


def read_names(top: FileTable, file: str, limits: DispatchLimits) -> ProvisionsFile:
    """Read the provisions in a table of a file, which may have other keys.

    Args:
        top: The table.
        file: The name of the file, which is the source of the provisions.
        limits: Limits of names, tokens and provisions.
    """
    default: Semantics | None = None
    if top.peek("default") is not None:
        table = top.table("default", short="routing")
        default = _semantics(table)
        table.finish()
    known: dict[NamePattern, int] = {}
    provisions: list[Provision] = []
    for table in top.tables("name"):
        pattern, semantics = _pattern(table, limits), _semantics(table)
        table.finish()
        if pattern is None or semantics is None:
            continue
        line = table.place.line
        if pattern in known:
            table.add("", f"{pattern} is in line {known[pattern]} already")
            continue
        known[pattern] = line
        try:
            provisions.append(Provision(pattern, semantics, file, line))
        except DispatchError as error:
            table.add("", _told(error))
    if len(provisions) > limits.max_provisions:
        most = limits.max_provisions
        top.add("name", f"{len(provisions)} provisions are over the limit of {most}")
    return ProvisionsFile(tuple(provisions), default)


def _told(error: DispatchError) -> str:
    if isinstance(error, BadSemantics):
        return "; ".join(error.reasons)
    return error.reason if isinstance(error, BadPattern) else str(error)


def _pattern(table: FileTable, limits: DispatchLimits) -> NamePattern | None:
    """Return the pattern of a table, which has a pattern or a prefix; `None`: it is wrong."""
    has_pattern, has_prefix = (table.peek(key) is not None for key in ("pattern", "prefix"))
    if has_pattern == has_prefix:
        said = "and prefix exclude each other" if has_pattern else "or prefix is missing"
        table.add("", f"pattern {said}")

    def of(read: Callable[[str, DispatchLimits], NamePattern]) -> Callable[[object], NamePattern]:
        def made(value: object) -> NamePattern:
            try:
                return read(text(value), limits)
            except BadPattern as error:
                raise ValueError(error.reason) from None

        return made

    pattern = table.maybe("pattern", of(NamePattern.parse))
    prefix = table.maybe("prefix", of(NamePattern.of_prefix))
    return prefix if pattern is None else pattern


def _word(kind: type[E]) -> Callable[[object], E]:
    """Return a reader of a word for a member of an enum."""
    words = {spelling(each): each for each in kind}
    read = one_of(*words)
    return lambda value: words[read(value)]


def _accepts(value: object) -> int:
    return ALL if value == "all" else count(value)


def _roles(value: object) -> frozenset[str]:
    return frozenset(texts([value] if isinstance(value, str) else value))


def _semantics(table: FileTable) -> Semantics | None:
    """Return the semantics of a table, or `None` if there is something wrong with it."""
    reliability = _group(
        table,
        Reliability(),
        settle=_word(Settlement),
        accepts=_accepts,
        deduplicate=seconds,
        deadline=positive_seconds,
    )
    access = _group(table, Access(), producers=_roles, consumers=_roles)
    values: dict[str, Any] = {
        "pattern": table.take("routing", _word(RoutingPattern), RoutingPattern.BALANCED)
    }
    for key, read in _READERS.items():
        value = table.maybe(key, read)
        if value is not None:
            values[key] = value
    chain = _chain(table)
    if table.has_problem or chain is None:
        return None
    try:
        return Semantics(**values, undeliverable=chain, reliability=reliability, access=access)
    except BadSemantics as error:
        for reason in error.reasons:
            table.add("", reason)
        return None


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "mechanism": _word(Mechanism),
    "window": count,
    "gate": _word(Gate),
    "second": _word(Second),
    "weigh": _word(Weigh),
    "overflow": _word(Overflow),
    "reattach": _word(Reattach),
    "tags": text,
    "settle_time": positive_seconds,
}


def _group(table: FileTable, values: T, **readers: Callable[[object], object]) -> T:
    """Return a group of values with those that the table has."""
    given: dict[str, Any] = {}
    for key, read in readers.items():
        value = table.maybe(key, read)
        if value is not None:
            given[key] = value
    return replace(values, **given)  # type: ignore[type-var]


def _chain(table: FileTable) -> tuple[Undeliverable, ...] | None:
    """Return the chain for what is undeliverable, or `None` if there is something wrong with it."""
    chain: list[Undeliverable] = []
    is_right = True
    for part in table.tables("undeliverable"):
        made = _part(part)
        part.finish()
        if made is None or part.has_problem:
            is_right = False
        else:
            chain.append(made)
    chain.append(table.take("last", _word(Last), Last.RELEASE))
    return tuple(chain) if is_right else None


def _part(part: FileTable) -> Undeliverable | None:
    """Return a part of a chain, or `None` if there is something wrong with it."""
    is_redirect = part.peek("redirect") is not None
    made = _redirect(part) if is_redirect else _retry(part)
    if part.has_problem:
        return None
    try:
        return made()
    except BadSemantics as error:
        part.add("", "; ".join(error.reasons))
        return None


def _redirect(part: FileTable) -> Callable[[], Redirect]:
    return partial(Redirect, part.take("redirect", text, ""))


def _retry(part: FileTable) -> Callable[[], Retry]:
    retry = Retry()
    hold = replace(
        retry.hold,
        messages=part.need("hold", count) or retry.hold.messages,
        size=part.take("size", count, retry.hold.size),
        age=part.take("age", positive_seconds, retry.hold.age),
        disk=part.take("disk", flag, False),
    )
    rounds = part.take("rounds", size, retry.rounds)
    first = part.take("first", positive_seconds, retry.first)
    longest = part.take("longest", positive_seconds, max(first, retry.longest))
    return partial(Retry, rounds=rounds, first=first, longest=longest, hold=hold)
