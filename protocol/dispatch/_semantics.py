"""Semantics: what is decided for a name when it is provisioned.

Values that contradict each other are refused, all at once. `CONTRADICTIONS` is the one table of
them: what must not be, and the reason. The reference page has it, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final, TypeAlias

from .._errors import ProtocolError
from ..broker import parse_query
from ..options import Count, Seconds, check_options
from ._errors import BadSemantics
from ._semantics_parts import (
    DEFAULT_WINDOW,
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
from ._semantics_text import semantics_text

__all__ = ["CONTRADICTIONS", "Semantics", "Undeliverable", "read_hint"]

Undeliverable: TypeAlias = Retry | Redirect | Last
"""A part of the chain for messages that no consumer takes."""

_PATTERNS: Final = tuple(RoutingPattern)
_RELIABILITY: Final = Reliability()
_GROUPS: Final[dict[str, object]] = {"reliability": _RELIABILITY, "access": Access()}
"""The defaults of the groups of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """The meaning of a name: the consumers that get a message, and the fate of one that has none.

    `str` writes what differs from the defaults: `balanced, hold 1000 for 60 s, then release`.

    Attributes:
        pattern: The consumers that get a message.
        mechanism: What is routed.
        undeliverable: The chain for messages that no consumer takes, in its order: at most one
            `Retry`, at most one `Redirect`, and then one `Last`.
        reliability: What a producer can rely on.
        window: Unsettled messages that a producer may have.
        gate: What has to be there before a producer gets its window.
        second: What becomes of a second consumer; of the pattern direct only.
        weigh: What is weighed beside that which the pattern weighs.
        overflow: Which pre-settled message is dropped when a consumer has no room.
        reattach: What becomes of the producer's end of a circuit that is lost.
        tags: The query that the consumers match, as destinations of a broker, such as
            `service=orders`; empty: the consumers are those that are attached.
        access: The roles of those that may use the name.
        settle_time: Time in which a consumer has to settle a message that it has, in seconds;
            `None`: that of its node, `DeliveryLimits.settle_time`.

    Raises:
        BadSemantics: Values contradict each other; the error has all contradictions.
        ValueError: A value is of another type, or out of its range.
    """

    pattern: RoutingPattern = RoutingPattern.BALANCED
    mechanism: Mechanism = Mechanism.MESSAGE
    undeliverable: tuple[Undeliverable, ...] = (Last.RELEASE,)
    reliability: Reliability = field(default_factory=Reliability)
    window: Count = DEFAULT_WINDOW
    gate: Gate = Gate.CONSUMER
    second: Second = Second.REFUSE
    weigh: Weigh = Weigh.NONE
    overflow: Overflow = Overflow.OLDEST
    reattach: Reattach = Reattach.NO
    tags: str = ""
    access: Access = field(default_factory=Access)
    settle_time: Seconds | None = None

    def __post_init__(self) -> None:
        check_options(self)
        reasons = [*_of_chain(self.undeliverable), *_of_tags(self.tags)]
        reasons += [reason for contradicts, reason in CONTRADICTIONS if contradicts(self)]
        if reasons:
            raise BadSemantics(reasons)

    @property
    def retry(self) -> Retry | None:
        """The part of the chain that holds messages and tries again, or `None`."""
        return next((each for each in self.undeliverable if isinstance(each, Retry)), None)

    @property
    def redirect(self) -> Redirect | None:
        """The part of the chain that sends messages elsewhere, or `None`."""
        return next((each for each in self.undeliverable if isinstance(each, Redirect)), None)

    @property
    def last(self) -> Last:
        """The end of the chain."""
        return next(each for each in self.undeliverable if isinstance(each, Last))

    @property
    def hint(self) -> int:
        """The number that other nodes are told: that of the pattern, and 8 more for circuits."""
        return _PATTERNS.index(self.pattern) + 8 * (self.mechanism is Mechanism.LINK)

    def __str__(self) -> str:
        return semantics_text(self)


def read_hint(number: int) -> Semantics | None:
    """Return the semantics that a hint of another node stands for; `None`: it is not known."""
    index = number & 7
    if not 0 <= number < 16 or index >= len(_PATTERNS):
        return None
    try:
        return Semantics(
            pattern=_PATTERNS[index], mechanism=Mechanism.LINK if number & 8 else Mechanism.MESSAGE
        )
    except BadSemantics:
        return None  # a circuit to all consumers or to none


# --- what contradicts ---------------------------------------------------------------------


def _of_chain(chain: tuple[Undeliverable, ...]) -> Iterator[str]:
    """Yield what is wrong with the order of a chain."""
    if not chain or not isinstance(chain[-1], Last):
        yield "the chain of what is undeliverable does not end with release, drop or reject"
    if any(isinstance(each, Last) for each in chain[:-1]):
        yield "in the chain of what is undeliverable something follows release, drop or reject"
    for kind, noun in ((Retry, "retry"), (Redirect, "redirect")):
        if sum(isinstance(each, kind) for each in chain) > 1:
            yield f"the chain of what is undeliverable has more than one {noun}"


def _of_tags(tags: str) -> Iterator[str]:
    if tags:
        try:
            parse_query(tags)
        except ProtocolError as error:
            yield f"the query of tags cannot be read: {error}"


def _is_link(semantics: Semantics) -> bool:
    return semantics.mechanism is Mechanism.LINK


def _asks(semantics: Semantics) -> bool:
    """Whether more or fewer accepts are asked for than that of the one consumer."""
    return semantics.reliability.accepts != 1


def _is_at_once(semantics: Semantics) -> bool:
    return semantics.reliability.settle is Settlement.AT_ONCE


def _says_more(semantics: Semantics) -> bool:
    """Whether names that are refused have anything else provisioned."""
    return semantics.pattern is RoutingPattern.UNAVAILABLE and any(
        getattr(semantics, each.name) not in (each.default, _GROUPS.get(each.name))
        for each in fields(semantics)
        if each.name != "pattern"
    )


CONTRADICTIONS: Final[tuple[tuple[Callable[[Semantics], bool], str], ...]] = (
    (
        lambda it: it.pattern is not RoutingPattern.MULTICAST and _asks(it),
        "accepts other than 1 need the pattern multicast: otherwise one consumer gets a message",
    ),
    (
        lambda it: (
            it.pattern is not RoutingPattern.MULTICAST
            and it.reliability.deadline != _RELIABILITY.deadline
        ),
        "a deadline needs the pattern multicast: otherwise no other consumer waits for the outcome",
    ),
    (
        lambda it: it.pattern is RoutingPattern.MULTICAST and it.gate is Gate.CREDIT,
        "a multicast with a gate by credit would stop for all when one consumer is slow",
    ),
    (
        lambda it: it.pattern is not RoutingPattern.DIRECT and it.second is not Second.REFUSE,
        "a rule for a second consumer needs the pattern direct: others take any number",
    ),
    (
        lambda it: it.pattern is not RoutingPattern.CLOSEST and it.weigh is Weigh.LOAD,
        "to weigh the load needs the pattern closest: balanced weighs it anyway",
    ),
    (
        lambda it: it.pattern is not RoutingPattern.BALANCED and it.weigh is Weigh.TIME,
        "to weigh the time of settlement needs the pattern balanced",
    ),
    (
        lambda it: it.pattern is RoutingPattern.DIRECT and bool(it.tags),
        "a query of tags may match several consumers, and direct has one at a time",
    ),
    (
        lambda it: it.gate is Gate.CREDIT and bool(it.tags),
        "the consumers that a query of tags matches give no credit that a gate could wait for",
    ),
    (
        lambda it: _is_at_once(it) and _asks(it),
        "what is settled at once does not wait for accepts",
    ),
    (
        lambda it: _is_at_once(it) and it.reliability.deadline != _RELIABILITY.deadline,
        "what is settled at once has no outcome that a deadline could decide",
    ),
    (
        lambda it: _is_at_once(it) and it.weigh is Weigh.TIME,
        "what is settled at once has no time of settlement to weigh",
    ),
    (
        lambda it: _is_at_once(it) and it.undeliverable[-1:] == (Last.REJECT,),
        "what is settled at once has been accepted, and cannot be rejected later",
    ),
    (
        lambda it: _is_link(it) and it.pattern is RoutingPattern.MULTICAST,
        "a circuit has one consumer, so it cannot be a multicast",
    ),
    (
        lambda it: _is_link(it) and it.retry is not None,
        "nodes keep no message of a circuit, so they cannot hold one or try it again",
    ),
    (
        lambda it: _is_link(it) and it.redirect is not None,
        "the messages of a circuit go to its consumer, and cannot be redirected",
    ),
    (
        lambda it: _is_link(it) and it.undeliverable[-1:] in ((Last.DROP,), (Last.REJECT,)),
        "a circuit without a consumer is refused: it has no message to drop or to reject",
    ),
    (
        lambda it: _is_link(it) and it.reliability != _RELIABILITY,
        "the outcomes of a circuit are told by its two ends alone, so reliability is theirs",
    ),
    (
        lambda it: _is_link(it) and it.settle_time is not None,
        "nodes keep no message of a circuit that a consumer would have to settle in time",
    ),
    (
        lambda it: _is_link(it) and (it.window != DEFAULT_WINDOW or it.gate is not Gate.CONSUMER),
        "the credit of a circuit is that of its consumer, so it has no window and no gate",
    ),
    (
        lambda it: _is_link(it) and it.overflow is not Overflow.OLDEST,
        "nodes have no queue for a circuit that could overflow",
    ),
    (
        lambda it: _is_link(it) and it.weigh is not Weigh.NONE,
        "circuits are spread by their number: what they carry is not weighed",
    ),
    (
        lambda it: _is_link(it) and bool(it.tags),
        "the consumers that a query of tags matches take messages and no circuits",
    ),
    (
        lambda it: not _is_link(it) and it.reattach is not Reattach.NO,
        "to attach again needs the mechanism link: messages have no circuit",
    ),
    (
        _says_more,
        "unavailable names are refused, so nothing else can be said about them",
    ),
)
"""What must not be, and the reason why not."""
