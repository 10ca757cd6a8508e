"""Consumers: the handler of a name, the deliveries that it gets, and the worker that calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ...protocol import Message
from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    DeliveryState,
    Modified,
    Outcome,
    Refusal,
    Rejected,
)
from .._worker import Worker
from ._consumer_record import Accept, ConsumerRecord
from ._handling import Handling

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["Consumer", "ConsumerWorker", "Handler", "Received"]

_HANDLED: Final = Accept.HANDLED
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Received:
    """A delivery, as its consumer gets it.

    Attributes:
        message: The message; its onward route begins with the consumer.
        settled: Whether it is pre-settled, so that its producer learns no outcome.
        outcome: Its outcome: what the consumer has told, or *modified* once its producer, or the
            link that it came by, is lost. `None` while it is open.
    """

    __slots__ = ("_token", "_worker", "message", "outcome", "settled")

    def __init__(self, worker: ConsumerWorker, message: Message, token: bytes | None) -> None:
        self.message: Final = message
        self.settled: Final = token is None
        self.outcome: Outcome | None = None
        self._token: Final = token
        self._worker: Final = worker

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self.message.payload

    def accept(self, payload: bytes | None = None) -> bool:
        """Accept the message: it is taken over.

        Args:
            payload: The answer to a producer that waits for one.

        Each of these functions returns whether it is the outcome: it is not if there is one.
        """
        return self._end(ACCEPTED, payload)

    def reject(self, condition: str = "", description: str = "") -> bool:
        """Refuse the message for good.

        Args:
            condition: The name of the error. It is told to the producer, as the description is.
            description: The error in words.
        """
        return self._end(Rejected(condition, description))

    def release(self) -> bool:
        """Give the message back unhandled, so that it is sent to another consumer."""
        return self._end(RELEASED)

    def modify(self, *, undeliverable_here: bool = False) -> bool:
        """Give the message back although it may have had an effect."""
        return self._end(Modified(failed=True, undeliverable_here=undeliverable_here))

    def received(self) -> None:
        """Report that a part of the message is here, so that it is not sent to another consumer."""
        if self._token is not None and self.outcome is None:
            self._worker.state(self._token, RECEIVED)

    def _end(self, outcome: Outcome, payload: bytes | None = None) -> bool:
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self._worker.end(self._token, outcome, payload)
        return True


Handler: TypeAlias = Callable[[Received], Awaitable[object] | object]
"""A function that handles deliveries."""


class ConsumerWorker(Worker):
    """The worker of a handler.

    Args:
        core: The dispatcher.
        handler: The handler.
    """

    def __init__(self, core: DispatchCore, handler: Handler) -> None:
        super().__init__()
        self._core: Final = core
        self._handler: Final = handler
        self._open: Final[dict[bytes, Received]] = {}
        self.record: ConsumerRecord | None = None

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Give a delivery to the handler; return what is left to be awaited."""
        record = self.record
        if record is None:
            raise AssertionError("a consumer without a record")
        token = _token_of(message)
        onward, _, payload, source, context = message
        given = _new(Message, (onward, (), payload, source, context))
        delivery = Received(self, given, token)
        if token is not None:
            self._open[token] = delivery
        try:
            result = self._handler(delivery)
        except BaseException:
            self._failed(record, delivery)
            raise
        if result is not None and isawaitable(result):
            rest = self._finish(record, delivery, result)
            return Handling(rest, result, lambda: self._failed(record, delivery))
        self._handled(record, delivery)
        return None

    async def _finish(
        self, record: ConsumerRecord, delivery: Received, result: Awaitable[object]
    ) -> None:
        """Wait until the handler has handled a delivery."""
        try:
            await result
        except BaseException:
            self._failed(record, delivery)
            raise
        self._handled(record, delivery)

    def _failed(self, record: ConsumerRecord, delivery: Received) -> None:
        # It may have had an effect before it failed.
        delivery.modify()
        if delivery.settled:
            self._core.attachments.handled(record)

    def _handled(self, record: ConsumerRecord, delivery: Received) -> None:
        if delivery.settled:
            self._core.attachments.handled(record)
        if record.accept is _HANDLED:
            delivery.accept()

    def end(self, token: bytes | None, outcome: Outcome, payload: bytes | None) -> None:
        """Send the outcome of a delivery."""
        if token is None:
            return
        self._open.pop(token, None)
        record = self.record
        fast = self._core.fast
        if (
            (outcome is ACCEPTED or outcome == ACCEPTED)
            and record is not None
            and fast.accept(token, record.target, payload)
        ):
            return
        if payload is not None:
            self._core.copies.answered(token, payload)
        self.state(token, outcome)

    def state(self, token: bytes, state: DeliveryState) -> None:
        """Send the state of a delivery."""
        record = self.record
        if record is not None:
            self._core.copies.disposition(token, state, record.target)

    def abandoned(self, token: bytes, outcome: Outcome = MODIFIED) -> None:
        """Receive word that the outcome of a delivery is not waited for any more."""
        delivery = self._open.pop(token, None)
        if delivery is not None:
            delivery.outcome = outcome


class Consumer:
    """A consumer that is attached to a name.

    Attributes:
        name: The text of the name.
        reason: The reason for which it was detached; empty while it is attached.
    """

    __slots__ = ("_core", "_record", "_state", "name", "reason")

    def __init__(self, state: NameState, record: ConsumerRecord, core: DispatchCore) -> None:
        self.name: Final = state.name.text
        self.reason: Refusal | Literal[""] = ""
        self._state: Final = state
        self._record: Final = record
        self._core: Final = core
        record.ended = self._ended

    @property
    def active(self) -> bool:
        """Whether it gets messages; one on standby does not yet."""
        return self._record.active

    @property
    def unsettled(self) -> int:
        """The messages that it has, or that wait for it."""
        return self._state.load(self._record.number)

    def close(self) -> None:
        """Detach it: what it has is in doubt, and what waits for it goes to others. Idempotent."""
        if not self.reason:
            self._core.attachments.detach(self._record, Refusal.CLOSED)

    def _ended(self, reason: Refusal) -> None:
        if not self.reason:
            self.reason = reason
            self._core.attachments.released(self._record)


def _token_of(message: Message) -> bytes | None:
    """Return the token of a delivery; `None` if it is pre-settled."""
    back = message.return_route
    return back[-1].value[1:] if back else None
