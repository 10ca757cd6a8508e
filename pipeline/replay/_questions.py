"""Questions, the tags and routing of a tag set in the log, and the methods that answer them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ...actors.broker import ChoiceOptions
from ...actors.broker.table._methods import Methods
from ...actors.broker.table._peers import RESERVED_SERVICES
from ...protocol import AddressError
from ...protocol.broker import (
    BALANCERS,
    SHARD_METHODS,
    Balancer,
    Query,
    RoutingType,
    Sharding,
    WellKnownKey,
    parse_tag,
    tag_set,
)
from .._errors import BadMethod

__all__ = ["ASKED", "Code", "MethodSet", "Question", "is_own", "read_question"]

ASKED: Final = ("text", "routing", "method")
"""The columns of `dim_tagset` that make a question."""

DEFAULT_UNICAST: Final = ChoiceOptions().method
DEFAULT_SHARD: Final = ChoiceOptions().shard_method


class Code(IntEnum):
    """The method that chooses a destination, for the code that places many frames at once."""

    ALL = 0
    """A multicast: all candidates."""
    REMAINDER = 1
    """`modulo`, and `round-robin` by turns."""
    JUMP = 2
    RENDEZVOUS = 3
    RING = 4
    """`bounded-ring`, without load."""
    CHANCE = 5
    """`random`; and the methods that compare two random candidates, without load."""
    WEIGHTED = 6
    FOREIGN = 7
    """A plug-in of any name: frame by frame."""


_CODES: Final = {
    (RoutingType.SHARD, "modulo"): Code.REMAINDER,
    (RoutingType.SHARD, "jump"): Code.JUMP,
    (RoutingType.SHARD, "rendezvous"): Code.RENDEZVOUS,
    (RoutingType.SHARD, "boundedring"): Code.RING,
    (RoutingType.UNICAST, "roundrobin"): Code.REMAINDER,
    (RoutingType.UNICAST, "random"): Code.CHANCE,
    (RoutingType.UNICAST, "leastoutstanding"): Code.CHANCE,
    (RoutingType.UNICAST, "peakewma"): Code.CHANCE,
    (RoutingType.UNICAST, "weighted"): Code.WEIGHTED,
}
_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_ROUTINGS: Final = {each.name.lower(): each for each in RoutingType}


@dataclass(frozen=True, slots=True)
class Question:
    """The query, routing and method of requests.

    Attributes:
        query: The tags that a destination must carry.
        routing: Unicast, multicast or shard.
        method: The method that the requests name; empty for the broker's default.
    """

    query: Query
    routing: RoutingType
    method: str


def read_question(text: str, routing: str, method: str) -> Question:
    """Read a row of `dim_tagset`.

    Args:
        text: The tags as text; words that begin with `@` are in the other columns.
        routing: `unicast`, `multicast` or `shard`.
        method: In the form of `method_name`.

    Raises:
        AddressError: A column cannot be read.
    """
    kind = _ROUTINGS.get(routing)
    if kind is None:
        raise AddressError(routing, "not a way of routing")
    return Question(
        tag_set([parse_tag(word) for word in text.split() if word[0] != "@"]), kind, method
    )


def is_own(question: Question) -> bool:
    """Return whether a question asks for a service of the broker itself: no saved table has it."""
    return any(
        key == _SERVICE and (value or "").startswith(RESERVED_SERVICES)
        for key, value in question.query
    )


class MethodSet:
    """The methods of one side of a rehearsal, as a broker with these options would have them.

    Args:
        unicast: `ChoiceOptions.method`; `None` for the default.
        shard: `ChoiceOptions.shard_method`; `None` for the default.

    Raises:
        BadMethod: There is no method of the name.
    """

    def __init__(self, unicast: str | None, shard: str | None) -> None:
        options = {"method": unicast or DEFAULT_UNICAST, "shard_method": shard or DEFAULT_SHARD}
        try:
            self._methods: Final = Methods(ChoiceOptions(**options))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - both are texts
        except ValueError as error:
            name = unicast if f"{unicast!r}" in str(error) else shard
            raise BadMethod(str(name), str(error).rpartition(" of ")[2]) from None
        self._codes: Final[dict[tuple[RoutingType, str], Code]] = {}

    def method(self, question: Question) -> str:
        """Return the name of the method: the question's, if it is installed, else the default."""
        methods, name = self._methods, question.method
        if question.routing is RoutingType.SHARD:
            return name if methods.knows_sharding(name) else methods.sharding
        return name if methods.knows_balancer(name) else methods.balancer

    def code(self, question: Question) -> Code:
        """Return the code of the method for a question."""
        if question.routing is RoutingType.MULTICAST:
            return Code.ALL
        key = question.routing, self.method(question)
        code = self._codes.get(key)
        if code is None:
            # Bounded by the number of methods.
            code = self._codes[key] = self._code(*key)
        return code

    def _code(self, routing: RoutingType, name: str) -> Code:
        shard = routing is RoutingType.SHARD
        built_in: Any = (SHARD_METHODS if shard else BALANCERS).get(name)
        if built_in is None:
            return Code.FOREIGN
        try:
            made = self.sharding(name) if shard else self.balancer(name)
        except Exception:  # noqa: BLE001 - foreign code; the failure is counted for each frame
            return Code.FOREIGN
        # A plug-in replaces a built-in method of the same name.
        return _CODES.get((routing, name), Code.FOREIGN) if type(made) is built_in else Code.FOREIGN

    def balancer(self, name: str) -> Balancer:
        """Return a new unicast method, with its own state."""
        return self._methods.make_balancer(name)

    def sharding(self, name: str) -> Sharding:
        """Return a new shard method."""
        return self._methods.make_sharding(name)
