"""Undeliverable messages: dead letters, failed requests and error replies."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final

from ...protocol import HANDLED, Address, InDoubt, Message, OnwardError, PayloadTooBig
from .._errors import GivenUp, Refused
from ..runtime._lost import is_answer, is_forward_of, reason_text
from ..runtime._run_queue import RunQueue
from ._dead_letters import DeadLetters
from ._error_replies import ErrorReplies
from ._reply import Reply
from ._table import AddressTable

__all__ = ["Undeliverable"]


class Undeliverable:
    """The end of messages that cannot be delivered: counted, kept, and reported to their senders.

    Args:
        run_queue: The run queue of the node.
        table: The address table of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.

    Attributes:
        dead_letters: The messages that could not be delivered.
        error_replies: The sender of error replies.
        ends: Functions for failures, by the type of the last address of the return route; each
            returns whether it has reported the failure.
    """

    __slots__ = ("_run_queue", "_table", "dead_letters", "ends", "error_replies")

    def __init__(
        self, run_queue: RunQueue, table: AddressTable, clock: Callable[[], float] | None = None
    ) -> None:
        self._run_queue: Final = run_queue
        self._table: Final = table
        limits = run_queue.limits
        self.dead_letters: Final = DeadLetters(
            keep=limits.dead_letters,
            reasons=limits.dead_letter_reasons,
            clock=clock or self._loop_time,
        )
        self.error_replies: Final = ErrorReplies(run_queue, table)
        self.ends: Final[dict[int, Callable[[Address, OnwardError], bool]]] = {}

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request, in place of an answer; see `Node.fail_request`."""
        reply = self._table.targets.get(address)
        return type(reply) is Reply and reply.fail(error)

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender; see `Node.lose`."""
        self.dead_letter(message, error)
        try:
            self._answer_lost(message, error)
        except Exception as fault:  # noqa: BLE001 - only this message may be lost
            self._run_queue.fault("telling a request that its answer is lost", fault)
        self._tell(message, error)

    def _answer_lost(self, message: Message, error: OnwardError) -> None:
        """Fail the request of this node that a lost message was the answer to, if there is one."""
        onward = message[0]
        if onward and self._table.is_request(onward[-1]):
            lost = GivenUp(onward[0], f"the answer was lost: {reason_text(error)}")
            self._fail_soon(onward[-1], lost)

    def return_to_sender(
        self, message: Message | None, error: OnwardError, own: tuple[Address, ...]
    ) -> bool:
        """Lose the message of an error that a worker has raised, and report it to its sender.

        Args:
            message: The message that the worker has in hand, if any.
            error: The error. Its `lost` is cleared, as the next receiver of the error has lost
                no message.
            own: The worker's addresses.

        Returns:
            Whether the lost message is the one in hand, or its answer. If not, the message in
            hand has not been dealt with.
        """
        lost, error.lost = error.lost, None
        if lost is None:
            return False
        if message is not None and is_forward_of(lost, message):
            self.lose(message, error)
            return True
        if message is not None and lost[0] == message[1]:  # an answer
            self.dead_letter(lost, error)
            if isinstance(error, PayloadTooBig):
                reason = reason_text(error)
                self._tell(message, GivenUp(message.to, reason), reason)
            else:  # an error reply would take the return route on which the answer failed
                self._answer_lost(lost, error)
            return True
        if is_answer(lost, own):  # there is no other sender to report to
            self.dead_letter(lost, error)
        else:
            self.lose(lost, error)
        return False

    def answer_error(self, message: Message, reason: str, *, certain: bool = True) -> bool:
        """Report that a message will not be handled to its sender; see `Node.answer_error`."""
        error = (Refused if certain else GivenUp)(message.to, reason)
        return self._tell(message, error, reason)

    def _tell(self, message: Message, error: OnwardError, reason: str = "") -> bool:
        try:
            return self._tell_sender(message, error, reason)
        except Exception as fault:  # noqa: BLE001 - only this message may be lost
            self._run_queue.fault("telling a sender of a dead letter", fault)
            return False

    def _tell_sender(self, message: Message, error: OnwardError, reason: str) -> bool:
        back = message[1]
        if not back:
            return False
        if HANDLED in back and not isinstance(error, InDoubt):
            # `NotDelivered` would tell the sender that it is safe to send the message again, but
            # a worker has handled it.
            reason = reason or reason_text(error)
            error = GivenUp(getattr(error, "target", ""), reason)
        if not self._table.is_request(back[-1]):
            end = self.ends.get(back[-1][0])
            if end is not None and end(back[-1], error):
                return True
            return self.error_replies.answer(message, error, reason or reason_text(error))
        return self._fail_soon(back[-1], error)

    def _fail_soon(self, mailbox: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request; from any thread."""
        if get_ident() != self._run_queue.thread_id:
            self._run_queue.call_on_loop(lambda: self.fail_request(mailbox, error))
            return True
        return self.fail_request(mailbox, error)

    def route_cut(self, message: Message) -> None:
        """Count a message that is answered before the end of its route."""
        self.dead_letters.routes_cut += 1
        instruments = self._run_queue.instruments
        if instruments is not None:
            instruments.route_cut(message)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered; see `Node.dead_letter`."""
        try:
            words = reason if isinstance(reason, str) else reason_text(reason)
            self.dead_letters.add(message, words)
        except Exception as error:  # noqa: BLE001 - only this message may be lost
            self._run_queue.fault("keeping a dead letter", error)

    def _loop_time(self) -> float:
        return self._run_queue.loop.time()
