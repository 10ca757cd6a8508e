"""The kinds of worker that a topology file can name, and what they are made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ...protocol import Route
from ...protocol.topology import KindOptions, Option, OptionType
from .._worker import Worker
from ..workers import Echo, Forwarder, Proxy, Spread, Spreader, Tap
from ._workers import Print, Record

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of worker.

    Attributes:
        make: What makes one; it is called with the options by name.
        summary: What such a worker does, for people: the end of "it ...".
        options: What a file may say about one.
    """

    make: Callable[..., Worker]
    summary: str
    options: KindOptions = field(default=KindOptions())


def _takes(passes_on: bool = False, **options: Option) -> KindOptions:
    return KindOptions(options, passes_on=passes_on)


_SPREADS: Final = {each.name.lower().replace("_", "-"): each for each in Spread}


def _spreader(routes: tuple[Route, ...], spread: str = "round-robin") -> Spreader:
    return Spreader(routes, _SPREADS[spread])


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "echo": Kind(Echo, "answers with what came"),
        "forward": Kind(Forwarder, "passes on along the onward route", _takes(passes_on=True)),
        "proxy": Kind(
            Proxy,
            "passes on along a route of its own, what is left of the onward route behind it",
            _takes(
                route=Option(OptionType.ROUTE, required=True), transparent=Option(OptionType.FLAG)
            ),
        ),
        "tap": Kind(
            Tap,
            "passes on along the onward route, and sends a copy to an observer",
            _takes(observer=Option(OptionType.ROUTE, required=True), passes_on=True),
        ),
        "spreader": Kind(
            _spreader,
            "passes on along one of several routes",
            _takes(
                routes=Option(OptionType.ROUTES, required=True),
                spread=Option(OptionType.TEXT, choices=tuple(_SPREADS)),
            ),
        ),
        "print": Kind(Print, "prints payloads as text"),
        "record": Kind(
            Record,
            "keeps the payloads that come, and answers with them at a second address",
            _takes(limit=Option(OptionType.COUNT)),
        ),
    }
)
"""The kinds there are, by name; `{**KINDS, "mine": Kind(...)}` adds one of your own."""
