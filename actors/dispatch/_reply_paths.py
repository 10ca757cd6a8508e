"""The paths back of outcomes: to a producer, to the node before, or along a return route."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

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
from ._arrival import Arrival, CopyPath, PlainPath, ProducerPath, TransitPath
from ._recorded import count_end

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["ReplyPaths"]

RELEASED_REASON: Final = "no consumer took it"
MODIFIED_REASON: Final = "in doubt"
REJECTED_REASON: Final = "rejected"


class ReplyPaths:
    """The sender of outcomes.

    Args:
        core: The dispatcher.

    Attributes:
        outcomes: Numbers of messages by their outcome.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self.outcomes: Final = Counter[str]()

    def tell(self, arrival: Arrival, outcome: Outcome, tally: Tally | None = None) -> None:
        """Send the outcome of a message, once, if there is a path back."""
        path, arrival.reply_path = arrival.reply_path, None
        core = self._core
        if isinstance(path, TransitPath) and not arrival.repeated:
            core.copies.returned(path.link, path.token)
        if arrival.outcome is None:
            arrival.outcome = outcome
            self.outcomes[type(outcome).__name__.lower()] += 1
            count_end(arrival, outcome)
        if arrival.stored and core.stored is not None:
            core.stored.ended(arrival, outcome, told=path is not None)
        match path:
            case ProducerPath(number):
                producer = core.attachments.producers.get(number)
                if producer is not None:
                    producer.ended(path, outcome, arrival.answer)
            case TransitPath():
                self._tell_node(path, arrival, outcome, tally)
            case PlainPath():
                self._tell_sender(path, arrival, outcome)
            case CopyPath(token):
                core.copies.copied(token, outcome, arrival.answer)
            case _:
                pass

    def _tell_node(
        self, path: TransitPath, arrival: Arrival, outcome: Outcome, tally: Tally | None
    ) -> None:
        # The tally of a multicast counts at its ingress; an answer of one consumer does not.
        if isinstance(outcome, Accepted) and arrival.answer is not None and tally is None:
            answer = arrival.answer
            back = answer.return_route
            self._dispatch(Message(path.route, back, answer.payload, None, None))
            return
        end = Address(DELIVERY, disposition_address(path.route[-1].value))
        frame = encode_disposition(Disposition(outcome, tally=tally))
        self._dispatch(Message((*path.route[:-1], end), (), frame, None, None))

    def _tell_sender(self, path: PlainPath, arrival: Arrival, outcome: Outcome) -> None:
        message = path.message
        match outcome:
            case Accepted():
                answer = arrival.answer
                back: Route = () if answer is None else answer.return_route
                payload = b"" if answer is None else answer.payload
                self._dispatch(Message(message.return_route, back, payload, None, None))
            case Rejected(condition, description):
                words = ": ".join(filter(None, (condition, description)))
                self._core.node.answer_error(message, words or REJECTED_REASON)
            case Modified():
                self._core.node.answer_error(message, MODIFIED_REASON, certain=False)
            case _:
                self._core.node.answer_error(message, RELEASED_REASON)

    def _dispatch(self, message: Message) -> None:
        try:
            self._core.node.parts.router.dispatch(message)
        except OnwardError as error:
            self._core.counts["outcomes that could not be told"] += 1
            self._core.node.dead_letter(message, error)
