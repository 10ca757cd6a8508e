"""What a node tells of what it relays: each thing, the figures, and the flows of an event log.

There are nodes next to it and sizes, and no payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....protocol.eventlog import Kind, Outcome
from ....protocol.identity import (
    HoldingRefusal,
    Identity,
    PeelOutcome,
    RelayStatus,
    identity_text,
)

if TYPE_CHECKING:
    from ..._node import Node

__all__ = ["PassedOn", "RelayLog", "RelayStatistics"]

_RELAY: Final = int(Kind.RELAY)
_FORWARD: Final = int(Outcome.FORWARD)
_REJECTED: Final = int(Outcome.REJECTED)


class PassedOn(NamedTuple):
    """A thing that a relay has passed on, as far as it can see it, but for its times.

    The rest is sealed: what it says, which engine it is for, and how it goes on behind the next
    node. Two that belong together look alike by their times and sizes alone. What goes on in the
    clear can be read, and none of that stands here.

    Attributes:
        previous: The node that it came from, which may be a relay as well.
        following: The node that it goes to, which may be a relay as well.
        size: Its bytes, which are those of one of a few sizes, with a layer for each relay left; in
            the clear those of the message with its routes.
        is_answer: Whether it is an answer.
    """

    previous: Identity
    following: Identity
    size: int
    is_answer: bool


@dataclass(frozen=True, slots=True)
class RelayStatistics:
    """The relaying of a node at one moment.

    Attributes:
        relayed: Messages and answers of others that links have taken, sealed or in the clear. One
            that was not sent in the end stays counted, and is a reason in `Identities.refused`.
        relayed_size: Their bytes.
        sealed: Messages of this node that were sealed and given to a first relay.
        refused: Messages that were not relayed, by their status.
        outcomes: Sealed messages that came for this node as a relay or as their end, by what was
            done with them.
        held: Messages that wait for a link.
        held_size: Their bytes.
        reservations: Reservations that other nodes have here and that are not over.
        reserved: Reservations that this node has at relays.
        handles: Answers of others that may come.
        expected: Answers to messages of this node that may come.
        layers: Layers that were opened and are remembered until they expire.
        charged: Messages and answers that were charged to reservations here, without those that
            were refunded.
        charged_size: Their bytes.
        rate_refused: Messages that came faster than a node may send.
        held_refused: Messages and answers that could not be held, by the limit that was reached.
    """

    relayed: int
    relayed_size: int
    sealed: int
    refused: Mapping[RelayStatus, int]
    outcomes: Mapping[PeelOutcome, int]
    held: int
    held_size: int
    reservations: int
    reserved: int
    handles: int
    expected: int
    layers: int
    charged: int
    charged_size: int
    rate_refused: int
    held_refused: Mapping[HoldingRefusal, int]


class RelayLog:
    """The record of what a node relays, in the flows of its event log, if it has one.

    Args:
        node: The node.
        anonymous: Whether the nodes that messages come from are left out.
    """

    __slots__ = ("_anonymous", "_node")

    def __init__(self, node: Node, *, anonymous: bool) -> None:
        self._node: Final = node
        self._anonymous: Final = anonymous

    def passed(self, seen: PassedOn) -> None:
        """Count what was passed on."""
        origin = "" if self._anonymous else identity_text(seen.previous)
        self._count(_FORWARD, origin, identity_text(seen.following), seen.size)

    def refused(self, status: RelayStatus) -> None:
        """Count a message that was not relayed."""
        self._count(_REJECTED, "", status.name.lower(), 0)

    def _count(self, outcome: int, origin: str, to: str, size: int) -> None:
        instruments = self._node.instruments
        # The part of an instrument for messages to names counts flows of any kind.
        part: Any = None if instruments is None else instruments.names
        if part is not None:
            part.count(_RELAY, outcome, origin, to, size)
