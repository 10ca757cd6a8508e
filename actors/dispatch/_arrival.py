"""A message that has arrived at a name, and the path back for its outcome."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol import Message, Outside, Route
from ...protocol.dispatch import Delivery, Identity, Outcome, Share

if TYPE_CHECKING:
    from ._recorded import NameInstrument

__all__ = [
    "PLAIN",
    "Arrival",
    "CopyPath",
    "PlainPath",
    "ProducerPath",
    "ReplyPath",
    "TransitPath",
    "without",
]

PLAIN = "plain"
"""The source of deliveries of messages that were sent without a producer."""


@dataclass(frozen=True, slots=True)
class PlainPath:
    """The path back to the sender of a plain message: its return route.

    Attributes:
        message: The message as it came, without its payload.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class TransitPath:
    """The path back to the dispatcher before this one.

    Attributes:
        route: The return route, which ends with the token of that dispatcher.
        link: The link.
        token: That token.
    """

    route: Route
    link: str
    token: bytes


@dataclass(frozen=True, slots=True)
class ProducerPath:
    """The path back to a producer of this node.

    Attributes:
        producer: Its number.
        send: The number of the send that waits for the outcome; 0 for a pre-settled message.
    """

    producer: int
    send: int


@dataclass(frozen=True, slots=True)
class CopyPath:
    """The path back to another name of this node, which has sent a copy here.

    Attributes:
        token: The token of the copy there.
    """

    token: bytes


ReplyPath = PlainPath | TransitPath | ProducerPath | CopyPath
"""The path back to a producer."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A message at a name of this node.

    Attributes:
        message: The message; its onward route is what follows the name.
        settled: Whether it is pre-settled.
        identity: Its identity.
        path: The digests of the nodes that it has passed.
        source: The link that it came by, its producer, or `PLAIN`.
        reply_path: The path back for its outcome; `None` if there is none, or it has been told.
        until: When it is not worth handling any more, in seconds; `None` always is.
        deadline: When its outcome is decided in any case, in seconds; `None` never is.
        redirected: Whether it was redirected.
        delivery: Its record, once it is bound.
        answer: The reply of its consumer.
        outcome: Its outcome, once it is told.
        share: What its source has at this node; `None`: the program itself.
        promised: Whether its producer was told that it is accepted, as it is on disk.
        stored: Its number in the file of messages on hold; 0: it is not there.
        again: Whether it has come out of the file of messages on hold.
        repeated: Whether it came with a token of its node that another one has, which is refused.
        leg: Whether another dispatcher, or another name of this node, has sent it on.
        log: The event log that counts it, if there is one.
        entered: The name that it is counted under; empty before it is.
        ended: Whether its end has been counted.
    """

    message: Message
    settled: bool
    identity: Identity
    source: Hashable
    reply_path: ReplyPath | None
    path: tuple[bytes, ...] = ()
    until: float | None = None
    deadline: float | None = None
    redirected: bool = False
    delivery: Delivery[Arrival] | None = None
    answer: Message | None = None
    outcome: Outcome | None = None
    share: Share | None = None
    promised: bool = False
    stored: int = 0
    again: bool = False
    repeated: bool = False
    leg: bool = False
    log: NameInstrument | None = None
    entered: str = ""
    ended: bool = False


def without(message: Message, rest: Route) -> Message:
    """Return a message with the rest of its onward route, of which a peer has chosen no more."""
    _, _, payload, source, context = message
    if context is not None and context.outside is not None:
        outside = Outside(min(context.outside.given, len(rest)), context.outside.allows)
        context = context._replace(outside=outside if outside.given else None)
    return Message(rest, (), payload, source, context)
