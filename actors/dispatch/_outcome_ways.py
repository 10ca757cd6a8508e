"""The way back of outcomes: to a producer, to the dispatcher before this one, or along a route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from ...protocol import DELIVERY, Address, Message, OnwardError, Route
from ...protocol.dispatch import (
    Accepted,
    Disposition,
    Modified,
    Outcome,
    Rejected,
    Tally,
    disposition_address,
    encode_disposition,
)
from ._arrival import Arrival, CopyWay, PlainWay, ProducerWay, TransitWay

if TYPE_CHECKING:
    from .._node import Node
    from ._stored import StoredMessages

__all__ = ["OutcomeWays"]

RELEASED_REASON: Final = "no consumer took it"
MODIFIED_REASON: Final = "in doubt"
REJECTED_REASON: Final = "rejected"


class OutcomeWays:
    """The sender of outcomes.

    Args:
        node: The node.
        counts: What is counted, by its reason.
        told: Gives an outcome to a producer of this node: its number, that of the send, the outcome
            and the reply.
        upstream: What is known of the unsettled deliveries of neighbours, by link and token.
    """

    def __init__(
        self,
        node: Node,
        counts: Counter[str],
        told: Callable[[ProducerWay, Outcome | None, Message | None], None],
        upstream: MutableMapping[tuple[Hashable, bytes], Any],
    ) -> None:
        self._node: Final = node
        self._counts: Final = counts
        self._told: Final = told
        self._upstream: Final = upstream
        self.copied: Callable[[bytes, Outcome, Message | None], object] = lambda _, __, ___: None
        """Gives an outcome to another name of this node: the token, the outcome and the reply."""
        self.outcomes: Final = Counter[str]()
        """Numbers of messages by their outcome."""
        self.stored: StoredMessages | None = None
        """The messages on disk."""

    def tell(self, arrival: Arrival, outcome: Outcome, tally: Tally | None = None) -> None:
        """Send the outcome of a message, once, if there is a way back."""
        way, arrival.way = arrival.way, None
        if isinstance(way, TransitWay):
            self._upstream.pop((way.link, way.token), None)
        if arrival.outcome is None:
            arrival.outcome = outcome
            self.outcomes[type(outcome).__name__.lower()] += 1
        if arrival.stored and self.stored is not None:
            self.stored.ended(arrival, outcome, told=way is not None)
        match way:
            case ProducerWay():
                self._told(way, outcome, arrival.answer)
            case TransitWay():
                self._tell_node(way, arrival, outcome, tally)
            case PlainWay():
                self._tell_sender(way, arrival, outcome)
            case CopyWay(token):
                self.copied(token, outcome, arrival.answer)
            case _:
                pass

    def _tell_node(
        self, way: TransitWay, arrival: Arrival, outcome: Outcome, tally: Tally | None
    ) -> None:
        # The tally of a multicast counts at its ingress; an answer of one consumer does not.
        if isinstance(outcome, Accepted) and arrival.answer is not None and tally is None:
            answer = arrival.answer
            back = answer.return_route
            self._dispatch(Message(way.route, back, answer.payload, None, None))
            return
        end = Address(DELIVERY, disposition_address(way.route[-1].value))
        frame = encode_disposition(Disposition(outcome, tally=tally))
        self._dispatch(Message((*way.route[:-1], end), (), frame, None, None))

    def _tell_sender(self, way: PlainWay, arrival: Arrival, outcome: Outcome) -> None:
        message = way.message
        match outcome:
            case Accepted():
                answer = arrival.answer
                back: Route = () if answer is None else answer.return_route
                payload = b"" if answer is None else answer.payload
                self._dispatch(Message(message.return_route, back, payload, None, None))
            case Rejected(condition, description):
                words = ": ".join(filter(None, (condition, description)))
                self._node.answer_error(message, words or REJECTED_REASON)
            case Modified():
                self._node.answer_error(message, MODIFIED_REASON, certain=False)
            case _:
                self._node.answer_error(message, RELEASED_REASON)

    def _dispatch(self, message: Message) -> None:
        try:
            self._node.parts.router.dispatch(message)
        except OnwardError as error:
            self._counts["outcomes that could not be told"] += 1
            self._node.dead_letter(message, error)
