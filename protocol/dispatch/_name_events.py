"""What a name asks of its surroundings, and what it reports; in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ._delivery import CopyEnded, Delivery, Unreturned
from ._outcomes import Outcome, Tally
from ._producer_window import CreditChange
from ._semantics_parts import Redirect

__all__ = [
    "Announced",
    "ConsumerActive",
    "ConsumerEnded",
    "DropReason",
    "Dropped",
    "Hand",
    "Held",
    "NameEvent",
    "NamePaths",
    "Redirected",
    "Refusal",
    "SendOn",
    "Told",
]

M = TypeVar("M")


class DropReason(StrEnum):
    """The reason why a message was dropped or not bound, as it is counted."""

    UNAVAILABLE = "unavailable"
    """Its name takes no messages."""
    CIRCUITS = "sent to a name of circuits"
    """Its name takes circuits, and no messages."""
    TOO_FAR = "passed too many nodes"
    """It has passed more nodes than any path has."""
    DUPLICATE = "duplicates"
    """It has been bound before."""
    UNSETTLED = "more than max_unsettled"
    """There is no room for its record."""
    EXPIRED = "too late"
    """It was not worth handling any more."""
    OVERFLOW = "over the window of a consumer"
    """Too many pre-settled messages wait for its consumer."""
    SETTLED_SIZE = "more than max_settled_size"
    """The pre-settled messages that wait at the node have too many bytes."""
    SHARE = "more than the share of its source"
    """Its connection, principal or neighbour has as much as one may of a limit."""
    GONE = "its consumer has gone"
    """It is a copy of a pre-settled multicast, which waited for its consumer."""
    NO_ROOM = "no room to hold it"
    """There is no room on hold, or no time."""
    HOLD_ENDED = "held until their time was over"
    """It was on hold until its rounds or its time were over."""
    DOUBT = "in doubt, and sent again"
    """It was accepted at once and is on disk; a consumer or a link that had it has gone."""
    NOT_SETTLED = "not settled within settle_time"
    """A consumer has had it for too long, and its outcome is that it is in doubt."""
    PROVISIONED = "dropped as provisioned"
    """No consumer took it, and its name drops those."""
    NO_CONSUMER = "no consumer took it"
    """It is pre-settled, and no consumer took it."""


class Refusal(StrEnum):
    """The reason why a consumer or a producer is refused, or has ended."""

    UNAVAILABLE = "unavailable"
    """The name takes no messages."""
    CIRCUITS = "it takes circuits, and no messages"
    """Its mechanism is link."""
    MESSAGES = "it takes messages, and no circuits"
    """Its mechanism is message."""
    TAKEN = "it is direct and has a consumer"
    """Another consumer has the name."""
    DISPLACED = "another consumer has taken its place"
    """A newer consumer has the name now."""
    CONSUMERS = "max_consumers is reached"
    """The name, or the node, has as many consumers as it may."""
    PRODUCERS = "max_producers is reached"
    """The name, or the node, has as many producers as it may."""
    SHARE = "max_share is reached"
    """The connection, or the principal, has as many of them as one may."""
    NAMES = "max_names is reached"
    """The node has as many names as it may."""
    ROLES = "it is for other roles"
    """The principal has none of the roles that the name is for."""
    ELSEWHERE = "it is one of another node"
    """The name has its consumers at another node only."""
    TOPOLOGICAL = "it is one of other nodes: there, _local/… is consumed"
    """The name is that of a node, or of all, which have it as a local one."""
    TEMPORARY = "temporary names are made by the node"
    """A temporary name is not one to choose."""
    CONSUMED = "a temporary name is consumed once"
    """It is not the temporary name of this consumer."""
    TAGS = "its consumers are those that match its tags"
    """The name has no other consumers than those that a query finds."""
    SETTLE_TIME = "a message was not settled within settle_time"
    """The consumer had one for too long."""
    CLOSED = "closed"
    """It was closed by its own program."""
    GONE = "its worker has stopped"
    """Its worker, or its owner, has stopped."""
    STOPPED = "the dispatcher has stopped"
    """The dispatcher has stopped."""


class Hand(NamedTuple, Generic[M]):
    """A message to be handed to a consumer here.

    What certainly cannot be handed over is answered by a disposition `RELEASED`, and by `handled`
    if it is pre-settled. The latter also when a consumer has handled a pre-settled message.

    Attributes:
        consumer: The consumer.
        token: The token of the copy; `None` if it is pre-settled.
        delivery: The delivery.
    """

    consumer: int
    token: bytes | None
    delivery: Delivery[M]


class SendOn(NamedTuple, Generic[M]):
    """A copy to be sent to the next node. What is not sent is answered by `RELEASED`.

    Attributes:
        link: The link to that node.
        token: The token of the copy; `None` if it is pre-settled.
        delivery: The delivery; its `limit` says how long the outcome is awaited.
    """

    link: str
    token: bytes | None
    delivery: Delivery[M]


class Told(NamedTuple, Generic[M]):
    """An outcome to be told the way that the message came from, unless its source is `None`.

    Attributes:
        delivery: The delivery.
        outcome: Its outcome.
        tally: The outcomes of its copies, if it is a multicast.
    """

    delivery: Delivery[M]
    outcome: Outcome
    tally: Tally | None = None


@dataclass(frozen=True, slots=True)
class Dropped(Generic[M]):
    """A message that is dropped. If it is not pre-settled, its outcome is told as well.

    Attributes:
        delivery: The delivery.
        reason: Why.
    """

    delivery: Delivery[M]
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Held(Generic[M]):
    """A message that is on hold from now on.

    Attributes:
        delivery: The delivery.
    """

    delivery: Delivery[M]


@dataclass(frozen=True, slots=True)
class Redirected(Generic[M]):
    """A message to be sent along another route. It has left; if that cannot be, `go_on` is called.

    Attributes:
        delivery: The delivery.
        redirect: The route.
    """

    delivery: Delivery[M]
    redirect: Redirect


@dataclass(frozen=True, slots=True)
class ConsumerActive:
    """A consumer has messages from now on, or stands by.

    Attributes:
        consumer: Its number.
        active: Whether it has messages.
    """

    consumer: int
    active: bool


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """A consumer was detached by its name.

    Attributes:
        consumer: Its number.
        reason: Why.
    """

    consumer: int
    reason: Refusal


@dataclass(frozen=True, slots=True)
class NamePaths:
    """The number of paths has changed.

    Attributes:
        paths: Consumers here, and nodes with consumers.
    """

    paths: int


@dataclass(frozen=True, slots=True)
class Announced:
    """A change of what other nodes have to be told of the consumers here.

    Attributes:
        claim: `None` if there are none; the best claim for a direct name; otherwise 0.
    """

    claim: int | None


NameEvent: TypeAlias = (
    Hand[M]
    | SendOn[M]
    | CopyEnded
    | Told[M]
    | Dropped[M]
    | Held[M]
    | Redirected[M]
    | Unreturned[M]
    | CreditChange
    | ConsumerActive
    | ConsumerEnded
    | NamePaths
    | Announced
)
"""An event of a name."""
