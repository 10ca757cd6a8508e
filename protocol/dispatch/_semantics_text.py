"""The text form of semantics, for tables: what differs from the defaults, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from .._words import counted
from ._outcomes import ALL
from ._semantics_parts import (
    DEFAULT_WINDOW,
    Gate,
    Hold,
    Last,
    Mechanism,
    Overflow,
    Reattach,
    Redirect,
    Reliability,
    Retry,
    Second,
    Settlement,
    Weigh,
)

if TYPE_CHECKING:
    from ._semantics import Semantics, Undeliverable

__all__ = ["semantics_text"]

_HOLD: Final = Hold()
_RELIABILITY: Final = Reliability()

_WORDS: Final = {
    Weigh.LOAD: "by load",
    Weigh.TIME: "by time of settlement",
    Second.NEWEST: "the newest wins",
    Second.STANDBY: "others stand by",
    Settlement.AT_ONCE: "settled at once",
    Gate.CREDIT: "gate by credit",
    Gate.OPEN: "gate open",
    Overflow.NEWEST: "the newest overflow",
    Reattach.AGAIN: "attached again",
    Reattach.RESUME: "resumed",
}
_ALONE: Final = {
    Last.RELEASE: "",
    Last.DROP: "drop what is undeliverable",
    Last.REJECT: "reject what is undeliverable",
}


def semantics_text(semantics: Semantics) -> str:
    """Return what differs from the defaults: `balanced, hold 1000 for 60 s, then release`."""
    return ", ".join(part for part in _parts(semantics) if part)


def _parts(semantics: Semantics) -> Iterator[str]:
    by = f" {_WORDS[semantics.weigh]}" if semantics.weigh in _WORDS else ""
    circuit = " circuits" if semantics.mechanism is Mechanism.LINK else ""
    yield f"{semantics.pattern.value}{circuit}{by}"
    if semantics.tags:
        yield f"to {semantics.tags}"
    yield _WORDS.get(semantics.second, "")
    yield from _reliability(semantics.reliability)
    if semantics.window != DEFAULT_WINDOW:
        yield f"window {semantics.window}"
    if semantics.settle_time is not None:
        yield f"settled within {_seconds(semantics.settle_time)}"
    yield from (_WORDS.get(each, "") for each in (semantics.gate, semantics.overflow))
    yield _WORDS.get(semantics.reattach, "")
    yield from _chain(semantics.undeliverable)
    for roles, noun in (
        (semantics.access.producers, "producer"),
        (semantics.access.consumers, "consumer"),
    ):
        if roles:
            yield f"{noun}s {_listed(roles)}"


def _reliability(reliability: Reliability) -> Iterator[str]:
    yield _WORDS.get(reliability.settle, "")
    if reliability.accepts == ALL:
        yield "all accept"
    elif reliability.accepts != 1:
        yield f"{reliability.accepts} accept"
    if reliability.deadline != _RELIABILITY.deadline:
        yield f"deadline {_seconds(reliability.deadline)}"
    if reliability.deduplicate:
        yield f"no duplicates for {_seconds(reliability.deduplicate)}"


def _chain(chain: Iterable[Undeliverable]) -> Iterator[str]:
    is_alone = True
    for part in chain:
        if isinstance(part, Last):
            yield _ALONE[part] if is_alone else f"then {part.value}"
        elif isinstance(part, Redirect):
            yield f"redirect to {part.to}"
        else:
            yield _retry(part)
        is_alone = False


def _retry(retry: Retry) -> str:
    hold = retry.hold
    size = f" or {counted(hold.size, 'byte', ',')}" if hold.size != _HOLD.size else ""
    disk = " on disk" if hold.disk else ""
    rounds = f" and {counted(retry.rounds, 'round')}" if retry.rounds else ""
    return f"hold {hold.messages}{size}{disk} for {_seconds(hold.age)}{rounds}"


def _listed(roles: Iterable[str]) -> str:
    return " ".join(sorted(roles))


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s"
