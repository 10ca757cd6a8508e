"""What was asked for, as the log names it, and which method chooses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...actors.broker import BrokerOptions
from ...actors.broker._methods import Methods
from ...protocol import AddressError
from ...protocol.broker import Balancer, Query, RoutingType, Sharding, parse_tag, tag_set
from .._errors import BadMethod

__all__ = ["Code", "MethodSet", "Question", "read_question"]

DEFAULT_UNICAST: Final = BrokerOptions().method
DEFAULT_SHARD: Final = BrokerOptions().shard_method


class Code(IntEnum):
    """How a destination is chosen, for the code that does so for many frames at once."""

    ALL = 0
    """A multicast: nobody is chosen."""
    REMAINDER = 1
    """`modulo`, and `round-robin` by turns."""
    JUMP = 2
    RENDEZVOUS = 3
    RING = 4
    """`bounded-ring`, as if nobody had any load."""
    CHANCE = 5
    """`random`; and those that look at two by chance, as if nobody had any load."""
    WEIGHTED = 6
    FOREIGN = 7
    """A plug-in: frame by frame."""


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
_ROUTINGS: Final = {each.name.lower(): each for each in RoutingType}


@dataclass(frozen=True, slots=True)
class Question:
    """What requests ask for.

    Attributes:
        query: The tags that a destination must carry.
        routing: Unicast, multicast or shard.
        method: What they say chooses; empty for the broker's default.
    """

    query: Query
    routing: RoutingType
    method: str


def read_question(text: str, routing: str, method: str) -> Question:
    """Read a row of `dim_tagset`.

    Args:
        text: Its tags as people write them; words that begin with `@` are in the other columns.
        routing: `unicast`, `multicast` or `shard`.
        method: In the form of `method_name`.

    Raises:
        AddressError: It cannot be read.
    """
    kind = _ROUTINGS.get(routing)
    if kind is None:
        raise AddressError(routing, "not a way of routing")
    return Question(
        tag_set([parse_tag(word) for word in text.split() if word[0] != "@"]), kind, method
    )


class MethodSet:
    """The methods of one side of a rehearsal, as a broker with these options would have them.

    Args:
        unicast: `BrokerOptions.method`; `None` for the default.
        shard: `BrokerOptions.shard_method`; `None` for the default.

    Raises:
        BadMethod: There is none of the name.
    """

    def __init__(self, unicast: str | None, shard: str | None) -> None:
        options = {"method": unicast or DEFAULT_UNICAST, "shard_method": shard or DEFAULT_SHARD}
        try:
            self._methods: Final = Methods(BrokerOptions(**options))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - both are texts
        except ValueError as error:
            name = unicast if f"{unicast!r}" in str(error) else shard
            raise BadMethod(str(name), str(error).rpartition(" of ")[2]) from None

    def method(self, question: Question) -> str:
        """Return the name of what chooses: what the question says, if it is known here."""
        methods, name = self._methods, question.method
        if question.routing is RoutingType.SHARD:
            return name if methods.knows_sharding(name) else methods.sharding
        return name if methods.knows_balancer(name) else methods.balancer

    def code(self, question: Question) -> Code:
        """Return how to choose for a question."""
        if question.routing is RoutingType.MULTICAST:
            return Code.ALL
        return _CODES.get((question.routing, self.method(question)), Code.FOREIGN)

    def balancer(self, name: str) -> Balancer:
        """Make a method of unicast, with a state of its own."""
        return self._methods.make_balancer(name)

    def sharding(self, name: str) -> Sharding:
        """Make a method of sharding."""
        return self._methods.make_sharding(name)
