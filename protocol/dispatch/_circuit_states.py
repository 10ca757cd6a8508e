"""The states of a circuit, at a node and at an end, and every step between them.

A circuit is a chain: an end that attaches, the *pairs* of the nodes between, and the end that
accepts. A pair ties its two sides and passes on what comes, so it has few states; what is sent and
settled only the ends know.

An end that is *resumable* is suspended by a loss and by a detach: it keeps its unsettled map, and
attaches again under the same key. A closed circuit is over for both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final

__all__ = [
    "CIRCUIT_END",
    "CIRCUIT_PAIR",
    "CircuitCondition",
    "CircuitSide",
    "EndInput",
    "EndState",
    "PairInput",
    "PairState",
]


class CircuitCondition(StrEnum):
    """The reasons for which a node, or an end by itself, refuses or ends a circuit."""

    NO_ROUTE = "no-route"
    """There is no container of the name."""
    ROUTE_LOOP = "route-loop"
    """The attach has passed this node before, or too many nodes."""
    ROUTE_LOST = "route-lost"
    """A link, a node or an end of the circuit is gone."""
    CIRCUITS_FULL = "circuits-full"
    """The node has as many circuits as it may."""
    PEER_CIRCUITS_FULL = "peer-circuits-full"
    """A neighbour, client or container has as many circuits as it may."""
    SHARE_FULL = "circuit-share-full"
    """A connection, principal or neighbour has its share of the circuits of a node or a side."""
    ANSWER_TIMEOUT = "answer-timeout"
    """An attach, detach or close was not answered in time."""
    IDLE = "idle"
    """A side has sent nothing for too long."""
    CREDIT_EXCEEDED = "credit-exceeded"
    """A producer has used more credit than it was given, or was given more than there is."""
    UNSETTLED_EXCEEDED = "unsettled-exceeded"
    """A producer has more unsettled deliveries than the consumer bears."""
    BAD_FRAME = "bad-frame"
    """A frame that is none, or that may not come there."""
    TOO_SLOW = "too-slow"
    """A link or an end takes the frames of the circuit more slowly than they come."""
    UNAUTHORIZED = "unauthorized"
    """The name is for other roles now."""
    END_FAILED = "end-failed"
    """The program at an end has failed."""


class CircuitSide(Enum):
    """A side of a circuit at a node."""

    UPSTREAM = "towards the end that has attached"
    DOWNSTREAM = "towards the end that accepts"

    @property
    def other(self) -> CircuitSide:
        """The other side."""
        up = self is CircuitSide.UPSTREAM
        return CircuitSide.DOWNSTREAM if up else CircuitSide.UPSTREAM


class PairState(Enum):
    """The state of a circuit at a node between its ends."""

    ATTACHING = "the attach was passed on"
    ATTACHED = "frames pass in both directions"
    DETACHING = "an end has detached or closed; the answer is to come"
    REFUSED = "there is no circuit"
    DETACHED = "both ends have detached or closed"
    LOST = "a part of the circuit is gone"


class PairInput(Enum):
    """An input of the state machine of a circuit at a node."""

    ATTACHED = "the accepting end has accepted"
    REFUSED = "the accepting end, or a node, has refused"
    DETACH = "an end detaches or closes"
    ANSWER = "the other end answers a detach"
    LOSE = "a link is lost, a time is over, or a side has broken the protocol"


_P, _I = PairState, PairInput

CIRCUIT_PAIR: Final[Mapping[tuple[PairState, PairInput], PairState]] = MappingProxyType(
    {
        (_P.ATTACHING, _I.ATTACHED): _P.ATTACHED,
        (_P.ATTACHING, _I.REFUSED): _P.REFUSED,
        (_P.ATTACHING, _I.DETACH): _P.DETACHING,
        (_P.ATTACHING, _I.LOSE): _P.LOST,
        (_P.ATTACHED, _I.DETACH): _P.DETACHING,
        (_P.ATTACHED, _I.LOSE): _P.LOST,
        # The answer to an attach crosses a detach.
        (_P.DETACHING, _I.ATTACHED): _P.DETACHING,
        (_P.DETACHING, _I.REFUSED): _P.REFUSED,
        (_P.DETACHING, _I.ANSWER): _P.DETACHED,
        (_P.DETACHING, _I.LOSE): _P.LOST,
    }
)
"""(state, input) to the next state. A side that sends another frame breaks the protocol."""


class EndState(Enum):
    """The state of a circuit at one of its ends."""

    IDLE = "nothing was sent"
    ATTACHING = "an attach was sent"
    ATTACHED = "deliveries may be sent"
    DETACHING = "this end has detached or closed; the answer is to come"
    SUSPENDED = "detached or lost; the unsettled map is kept"
    RESUMING = "an attach with the unsettled map was sent"
    ENDED = "it is over"


class EndInput(Enum):
    """An input of the state machine of an end."""

    ATTACH = "this end attaches"
    ACCEPT = "this end accepts the attach of the other one"
    ATTACHED = "the other end has accepted"
    REFUSED = "the attach was refused"
    DETACH = "this end detaches or closes"
    DETACHED = "the circuit is detached, or lost"
    CLOSED = "the circuit is closed, or is not resumable"


_E, _J = EndState, EndInput

CIRCUIT_END: Final[Mapping[tuple[EndState, EndInput], EndState]] = MappingProxyType(
    {
        (_E.IDLE, _J.ATTACH): _E.ATTACHING,
        (_E.IDLE, _J.ACCEPT): _E.ATTACHED,
        (_E.ATTACHING, _J.ATTACHED): _E.ATTACHED,
        (_E.ATTACHING, _J.REFUSED): _E.ENDED,
        (_E.ATTACHING, _J.DETACH): _E.DETACHING,
        (_E.ATTACHING, _J.DETACHED): _E.SUSPENDED,
        (_E.ATTACHING, _J.CLOSED): _E.ENDED,
        (_E.ATTACHED, _J.DETACH): _E.DETACHING,
        (_E.ATTACHED, _J.DETACHED): _E.SUSPENDED,
        (_E.ATTACHED, _J.CLOSED): _E.ENDED,
        # The answer to an attach crosses a detach.
        (_E.DETACHING, _J.ATTACHED): _E.DETACHING,
        (_E.DETACHING, _J.DETACHED): _E.SUSPENDED,
        (_E.DETACHING, _J.CLOSED): _E.ENDED,
        (_E.SUSPENDED, _J.ATTACH): _E.RESUMING,
        (_E.SUSPENDED, _J.ACCEPT): _E.ATTACHED,
        (_E.SUSPENDED, _J.CLOSED): _E.ENDED,
        (_E.RESUMING, _J.ATTACHED): _E.ATTACHED,
        (_E.RESUMING, _J.REFUSED): _E.SUSPENDED,
        (_E.RESUMING, _J.DETACH): _E.DETACHING,
        (_E.RESUMING, _J.DETACHED): _E.SUSPENDED,
        (_E.RESUMING, _J.CLOSED): _E.ENDED,
    }
)
"""(state, input) to the next state. What is not listed is refused."""
