"""The parts of semantics: the words to choose from, and the groups of values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final

from .._address import Route, parse_route
from .._errors import ProtocolError
from ..options import Count, Range, Seconds, SecondsOrZero, Size, check_options
from ._errors import BadSemantics
from ._outcomes import ALL

__all__ = [
    "Access",
    "Gate",
    "Hold",
    "Last",
    "Mechanism",
    "Overflow",
    "Reattach",
    "Redirect",
    "Reliability",
    "Retry",
    "RoutingPattern",
    "Second",
    "Settlement",
    "Weigh",
]

DEFAULT_WINDOW: Final = 250


class RoutingPattern(Enum):
    """The consumers that get a message."""

    DIRECT = "direct"
    """The only consumer: there is one at a time."""
    CLOSEST = "closest"
    """One of the consumers at the least cost."""
    BALANCED = "balanced"
    """One of all consumers: that with the least load and cost."""
    MULTICAST = "multicast"
    """All consumers."""
    UNAVAILABLE = "unavailable"
    """None: names are refused."""


class Mechanism(Enum):
    """The unit that is routed."""

    MESSAGE = "message"
    """Each message by itself."""
    LINK = "link"
    """A circuit, which then has all messages of its producer."""


class Settlement(Enum):
    """The moment at which the producer of an unsettled message is told its outcome."""

    AS_SENT = "as-sent"
    """When consumers have told it, as the producer asks by not settling the message."""
    AT_ONCE = "at-once"
    """When its node has taken it: it is accepted, and goes on pre-settled."""


class Gate(Enum):
    """The condition on which a producer gets a window."""

    CONSUMER = "consumer"
    """A consumer."""
    CREDIT = "credit"
    """A consumer that has credit: the window has no more than consumers have."""
    OPEN = "open"
    """Nothing."""


class Second(Enum):
    """The rule for a second consumer of a name with the pattern direct."""

    REFUSE = "refuse"
    """It is refused."""
    NEWEST = "newest"
    """It takes over, and the first one is let go."""
    STANDBY = "standby"
    """It waits, and takes over when the first one is gone."""


class Last(Enum):
    """The fate of a message at the end of the chain."""

    RELEASE = "release"
    """It is released: its producer knows that no consumer has it."""
    DROP = "drop"
    """It is accepted and dropped, counted by its reason."""
    REJECT = "reject"
    """It is rejected, with the condition."""


class Weigh(Enum):
    """The figure that is weighed beside those of the pattern."""

    NONE = "none"
    """Nothing."""
    LOAD = "load"
    """Of equally close consumers, that with the fewest unsettled messages is the closest."""
    TIME = "time"
    """A balanced consumer counts as more loaded the longer it takes to settle."""


class Overflow(Enum):
    """The pre-settled message that is dropped when a consumer has no room."""

    OLDEST = "oldest"
    """The one that has waited longest."""
    NEWEST = "newest"
    """The one that has come."""


class Reattach(Enum):
    """The fate of the producer's end of a circuit that is lost."""

    NO = "no"
    """It is detached, with the reason."""
    AGAIN = "again"
    """It is attached to another circuit, and what was unsettled is in doubt."""
    RESUME = "resume"
    """It is attached to another circuit, and both ends compare what is unsettled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The bounds within which messages of a name wait at a node.

    Attributes:
        messages: Messages. Beyond: the next part of the chain applies to the message that has come.
        size: Bytes of their payloads. Beyond: as with `messages`.
        age: Time for which one waits, in seconds. Then the next part of the chain applies.
        disk: Whether they are kept in a file, which outlives the process.
    """

    messages: Count = 1000
    size: Count = 16 * 1024 * 1024
    age: Seconds = 60.0
    disk: bool = False

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A part of the chain: a message is held and tried again, with each consumer once in a round.

    Attributes:
        rounds: Rounds. Then the next part of the chain applies; 0: it does when the time of
            `hold.age` is over.
        first: Time before the first round, in seconds; it doubles with each round. A new consumer
            makes a round begin at once.
        longest: Longest such time, in seconds.
        hold: The bounds of what waits.
    """

    rounds: Size = 0
    first: Seconds = 1.0
    longest: Seconds = 60.0
    hold: Hold = field(default_factory=Hold)

    def __post_init__(self) -> None:
        check_options(self)
        if self.longest < self.first:
            raise BadSemantics(
                [f"the longest time of a retry, {self.longest:g} s, is less than the first"]
            )


@dataclass(frozen=True, slots=True)
class Redirect:
    """A part of the chain: a message is sent along another route.

    Attributes:
        to: That route as text, such as `34#orders.failed`, or the address of a local worker.
    """

    to: str

    def __post_init__(self) -> None:
        check_options(self)
        try:
            steps = parse_route(self.to)
        except ProtocolError as error:
            raise BadSemantics([f"a redirect cannot be read: {error}"]) from None
        if not steps:
            raise BadSemantics(["a redirect has no route"])

    @property
    def route(self) -> Route:
        """The route."""
        return parse_route(self.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """The reliability of messages to a name.

    Attributes:
        settle: The moment at which its producer is told the outcome of an unsettled message.
        accepts: Consumers that have to accept a multicast for it to be accepted; `ALL`, which is 0,
            is all that it was sent to.
        deduplicate: Time for which a node remembers the ids of messages, in seconds, to drop one
            that comes again; 0: none are remembered.
        deadline: Time after which the outcome of a multicast is decided without the consumers that
            have not told theirs, in seconds: of these it is in doubt.
    """

    settle: Settlement = Settlement.AS_SENT
    accepts: Annotated[int, Range(least=ALL)] = 1
    deduplicate: SecondsOrZero = 0.0
    deadline: Seconds = 30.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The roles of principals that may use a name. Rules of authorization apply as well.

    Attributes:
        producers: Roles of which a producer has one; empty: all may send.
        consumers: Roles of which a consumer has one; empty: all may consume.
    """

    producers: frozenset[str] = frozenset()
    consumers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_options(self)
