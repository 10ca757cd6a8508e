"""What becomes of messages that do not get through: who is told, and what is counted."""

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
    from ..instruments._observer import Observer
    from ._router import Router

__all__ = ["Undeliverable", "is_others", "note_lost", "reason_text"]


class Undeliverable(RunQueue):
    """A run queue with dead letters, and with the requests and senders that hear of them.

    Args:
        name: Of the node.
        limits: Of the node.
        clock: What stamps dead letters, in seconds; the loop's clock by default.

    Attributes:
        observer: What looks on while the node works, if anything does.
        dead_letters: What could not be delivered.
        error_replies: What tells others that a message did not get through.
    """

    def __init__(self, name: str, limits: NodeLimits, clock: Callable[[], float] | None) -> None:
        super().__init__(name, limits)
        self.observer: Observer | None = None
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
        """What stamps dead letters, as given."""
        return self.dead_letters.clock

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error where a request waits, in place of an answer. Call it on the loop.

        For rules and transports that learn that no answer will come.

        Args:
            address: The mailbox of the request: the last step of its way back.
            error: What `request` is to raise.

        Returns:
            Whether a request waits there.
        """
        return self._requests.fail(address, error)

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and tell who waits for it.

        A request of this node raises the error. Anybody else is sent an error reply, if the
        node sends any. If the message is the answer to a request of this node, that request
        raises `GivenUp`. For whoever has taken a message over and cannot do anything with it.
        Safe from any thread.

        Args:
            message: The message.
            error: Why; what the request raises.
        """
        self.dead_letter(message, error)
        try:
            self._answer_lost(message, error)
        except Exception as fault:  # noqa: BLE001 - it must not cost more than this message
            self.fault("telling a request that its answer is lost", fault)
        self._tell(message, error)

    def _answer_lost(self, message: Message, error: OnwardError) -> None:
        """Tell the request that a message was the answer to, if it was one's of this node."""
        onward = message[0]
        if onward and onward[-1] in self._requests:
            lost = GivenUp(onward[0], f"the answer was lost: {reason_text(error)}")
            self._fail_soon(onward[-1], lost)

    def return_to_sender(
        self, message: Message | None, error: OnwardError, own: tuple[Address, ...]
    ) -> bool:
        """Lose what a worker could not pass on or answer, if it let the error through.

        Args:
            message: What the worker has in hand, if anything.
            error: What it raised, with `lost`; that is taken from it, as whoever hears of
                the error next has not lost anything.
            own: The worker's addresses.

        Returns:
            Whether the message in hand is what was lost. Otherwise it was another, if any,
            and this one has not been finished with.
        """
        lost, error.lost = error.lost, None
        if lost is None:
            return False
        if message is not None and is_forward_of(lost, message):
            self.lose(message, error)
            return True
        if message is not None and lost[0] == message[1]:  # an answer, which has no way but that
            self.dead_letter(lost, error)
            if isinstance(error, PayloadTooBig):
                reason = reason_text(error)
                self._tell(message, GivenUp(message.to, reason), reason)
            else:  # an error reply would have to go the way that the answer could not
                self._answer_lost(lost, error)
            return True
        if is_answer(lost, own):  # nobody else is to be told
            self.dead_letter(lost, error)
        else:
            self.lose(lost, error)
        return False

    def answer_error(self, message: Message, reason: str, *, certain: bool = True) -> bool:
        """Tell who sent a message that it will not be handled. Safe from any thread.

        A request of this node raises `Refused` or `GivenUp`. Anybody else is sent an error
        reply, if the node sends any and the message has a return route.

        Args:
            message: The message, as it came to the worker.
            reason: Why, in a few words that may be shown to anybody.
            certain: Whether nothing has been done with the message, so that it is safe to
                send it again.

        Returns:
            Whether anybody is told.
        """
        error = (Refused if certain else GivenUp)(message.to, reason)
        return self._tell(message, error, reason)

    def _tell(self, message: Message, error: OnwardError, reason: str = "") -> bool:
        try:
            return self._tell_sender(message, error, reason)
        except Exception as fault:  # noqa: BLE001 - it must not cost more than this message
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
        """Raise an error where a request waits; from any thread."""
        if get_ident() != self.thread_id:
            self.call_on_loop(lambda: self.fail_request(mailbox, error))
            return True
        return self.fail_request(mailbox, error)

    def route_cut(self, message: Message) -> None:
        """Count a message that is answered before the end of its route."""
        self.dead_letters.routes_cut += 1
        observer = self.observer
        if observer is not None:
            observer.route_cut(message)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered. Safe from any thread.

        Args:
            message: The message.
            reason: Why: a few words, the same for the same cause, or the error.
        """
        try:
            words = reason if isinstance(reason, str) else reason_text(reason)
            self.dead_letters.add(message, words)
        except Exception as error:  # noqa: BLE001 - it must not cost more than this message
            self.fault("keeping a dead letter", error)

    def _loop_time(self) -> float:
        return self.loop.time()


def is_forward_of(lost: Message, message: Message) -> bool:
    """Tell whether a message that was lost is one that came, or what a worker made of it.

    That has the same way back, if it has one, and else the rest of the same way; the payload
    may have been changed.
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
    """Tell whether a message that was lost leads back to nobody but who sent it."""
    return len(lost[1]) == 1 and lost[1][0] in own


def is_others(lost: Message, own: tuple[Address, ...]) -> bool:
    """Tell whether a worker lost what others had sent it, or its answer, and nothing of its own."""
    return bool(lost[0] and lost[0][0] in own) or is_answer(lost, own) or is_given(lost)


def is_given(message: Message) -> bool:
    """Tell whether another node chose the first address of a message, or left none to choose."""
    context = message[4]
    outside = None if context is None else context[4]
    return outside is not None and len(message[0]) <= outside[0]


def note_lost(error: OnwardError, message: Message) -> None:
    """Note with an error which message it is about, if it is no failure of who sent it on."""
    handed_over = not isinstance(error, NotDelivered | RouteError)
    if error.lost is None and not handed_over and is_given(message):
        error.lost = message


def reason_text(error: OnwardError) -> str:
    """Return the few words an error is counted under."""
    if isinstance(error, DeliveryError):
        return error.reason
    name = type(error).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
