"""Undeliverable messages: dead letters, failed requests and error replies."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, cast

from ...protocol import (
    Address,
    DeliveryError,
    Message,
    NotDelivered,
    OnwardError,
    PayloadTooBig,
    RouteError,
)
from .._errors import GivenUp, Refused
from ..runtime._policy import NodeLimits
from ..runtime._run_queue import RunQueue
from ._dead_letters import DeadLetters
from ._error_replies import ErrorReplies
from ._requests import Requests

if TYPE_CHECKING:
    from ..instruments._instrument import Instruments
    from ._router import Router

__all__ = ["Undeliverable", "is_others", "note_lost", "reason_text"]


class Undeliverable(RunQueue):
    """A run queue with dead letters, requests and error replies.

    Args:
        name: The name of the node.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.

    Attributes:
        instruments: The instruments of the node as one, if there are any.
        dead_letters: The messages that could not be delivered.
        error_replies: The sender of error replies.
    """

    def __init__(self, name: str, limits: NodeLimits, clock: Callable[[], float] | None) -> None:
        super().__init__(name, limits)
        self.instruments: Instruments | None = None
        self.dead_letters = DeadLetters(
            keep=limits.dead_letters,
            reasons=limits.dead_letter_reasons,
            clock=clock or self._loop_time,
        )
        self._requests = Requests(cast("Router", self))
        self.error_replies = ErrorReplies(
            cast("Router", self), limits.error_replies, limits.link_error_replies
        )

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of dead letters, as given."""
        return self.dead_letters.clock

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request, in place of an answer. Call it on the loop.

        For rules and transports that learn that no answer will come.

        Args:
            address: The mailbox of the request: the last address of its return route.
            error: The error that `request` raises.

        Returns:
            Whether a request waits there.
        """
        return self._requests.fail(address, error)

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender.

        A request of this node raises the error. Any other sender gets an error reply, if the
        node sends them. If the message is the answer to a request of this node, that request
        raises `GivenUp`. For rules and workers that have taken a message over and cannot deliver
        it. Safe from any thread.

        Args:
            message: The message.
            error: The cause; the request raises it.
        """
        self.dead_letter(message, error)
        try:
            self._answer_lost(message, error)
        except Exception as fault:  # noqa: BLE001 - only this message may be lost
            self.fault("telling a request that its answer is lost", fault)
        self._tell(message, error)

    def _answer_lost(self, message: Message, error: OnwardError) -> None:
        """Fail the request of this node that a lost message was the answer to, if there is one."""
        onward = message[0]
        if onward and onward[-1] in self._requests:
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
        """Report to the sender of a message that it will not be handled. Safe from any thread.

        A request of this node raises `Refused` or `GivenUp`. Any other sender gets an error
        reply, if the node sends them and the message has a return route.

        Args:
            message: The message, as it came to the worker.
            reason: The reason, in a few words that may be disclosed to any peer.
            certain: Whether the message has certainly had no effect, so that it is safe to
                send it again.

        Returns:
            Whether the error is reported.
        """
        error = (Refused if certain else GivenUp)(message.to, reason)
        return self._tell(message, error, reason)

    def _tell(self, message: Message, error: OnwardError, reason: str = "") -> bool:
        try:
            return self._tell_sender(message, error, reason)
        except Exception as fault:  # noqa: BLE001 - only this message may be lost
            self.fault("telling a sender of a dead letter", fault)
            return False

    def _tell_sender(self, message: Message, error: OnwardError, reason: str) -> bool:
        back = message[1]
        if not back:
            return False
        if back[-1] not in self._requests:
            return self.error_replies.answer(message, error, reason or reason_text(error))
        return self._fail_soon(back[-1], error)

    def _fail_soon(self, mailbox: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request; from any thread."""
        if get_ident() != self.thread_id:
            self.call_on_loop(lambda: self.fail_request(mailbox, error))
            return True
        return self.fail_request(mailbox, error)

    def route_cut(self, message: Message) -> None:
        """Count a message that is answered before the end of its route."""
        self.dead_letters.routes_cut += 1
        instruments = self.instruments
        if instruments is not None:
            instruments.route_cut(message)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered. Safe from any thread.

        Args:
            message: The message.
            reason: A few words, the same for the same cause, or the error.
        """
        try:
            words = reason if isinstance(reason, str) else reason_text(reason)
            self.dead_letters.add(message, words)
        except Exception as error:  # noqa: BLE001 - only this message may be lost
            self.fault("keeping a dead letter", error)

    def _loop_time(self) -> float:
        return self.loop.time()


def is_forward_of(lost: Message, message: Message) -> bool:
    """Whether a lost message is a given message, or was made of it by a worker.

    Such a message has the same return route, or without one the rest of the same onward route.
    The payload may have been changed.
    """
    if lost is message:
        return True
    back, rest = message[1], message[0][1:]
    if len(lost[1]) < len(back) or lost[1][len(lost[1]) - len(back) :] != back:
        return False
    if lost[2] is message[2] or back:
        return True
    return bool(rest) and lost[0][-len(rest) :] == rest


def is_answer(lost: Message, own: tuple[Address, ...]) -> bool:
    """Whether the return route of a lost message leads only to the worker that sent it."""
    return len(lost[1]) == 1 and lost[1][0] in own


def is_others(lost: Message, own: tuple[Address, ...]) -> bool:
    """Whether a worker lost a message of another sender, or an answer to one."""
    return bool(lost[0] and lost[0][0] in own) or is_answer(lost, own) or is_given(lost)


def is_given(message: Message) -> bool:
    """Whether another node chose the first address of a message, or the message has none left."""
    context = message[4]
    outside = None if context is None else context[4]
    return outside is not None and len(message[0]) <= outside[0]


def note_lost(error: OnwardError, message: Message) -> None:
    """Set `lost` of an error, unless the worker that passed the message on is at fault."""
    handed_over = not isinstance(error, NotDelivered | RouteError)
    if error.lost is None and not handed_over and is_given(message):
        error.lost = message


def reason_text(error: OnwardError) -> str:
    """Return the reason under which an error is counted."""
    if isinstance(error, DeliveryError):
        return error.reason
    name = type(error).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
