"""`PipeReceiver`: the worker at the receiving end of a pipe."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from ...protocol import Message
from ...protocol.options import check_value
from ...protocol.pipes import Gap, PipeReceiverOptions, Receiver
from .._worker import Worker
from ._hooks import call_hook
from ._memory import ReceiverMemory, Retired
from ._receiving import PipeReceiverStatistics, ReceivingHalf

__all__ = ["PipeReceiver"]

_OPTIONS = PipeReceiverOptions()


class PipeReceiver(Worker):
    """The receiving end of a pipe; the sender chooses the mode of delivery.

    Messages go on along their own onward routes, with their own return routes: a pipe adds nothing
    to them. A message counts as handed on, and is confirmed, when it is in the mailbox of its
    worker. A full mailbox stalls the pipe for `stall_timeout`. A message that no worker accepts
    becomes a dead letter here, and the sender is told that it was missed.

    It serves one sender at a time: a pipe that is opened later replaces the one before. Use
    `PipeService` for several senders. An unconfirmed pipe goes on when a new frame of it comes,
    also after `idle_timeout`.

    Args:
        options: Its limits.
        on_gap: Called, on the node's loop, with the numbers of missed messages.
        on_closed: Called, on the node's loop, with the identity of a pipe that is over or that
            received nothing for `idle_timeout`.
    """

    def __init__(
        self,
        options: PipeReceiverOptions = _OPTIONS,
        *,
        on_gap: Callable[[Gap], object] | None = None,
        on_closed: Callable[[bytes], object] | None = None,
    ) -> None:
        check_value("options", options, PipeReceiverOptions)
        super().__init__()
        self._options = options
        self._on_gap = on_gap
        self._on_closed = on_closed
        self._receiving: ReceivingHalf | None = None
        self._retired: Retired | None = None  # shared by all of a service
        self._budget: ReceiverMemory | None = None

    def on_start(self) -> None:
        """Prepare to receive a pipe."""
        self._receiving = ReceivingHalf(
            self,
            self._options,
            on_gap=self._on_gap,
            on_closed=self._pipe_closed,
            retired=self._retired,
            budget=self._budget,
        )

    def handle_message(self, message: Message) -> None:
        """Process a frame."""
        frame = self._pipe.read(message)
        if frame is not None:
            self._pipe.receive(frame, message)

    def statistics(self) -> PipeReceiverStatistics:
        """Return the counters. Call it on the node's loop."""
        return self._pipe.statistics()

    def on_stop(self) -> None:
        """Hand on the messages that can be, and inform the sender that this end has stopped."""
        if self._receiving is not None:
            self._receiving.stop()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close as at a stop."""
        self.on_stop()

    def _pipe_closed(self, machine: Receiver) -> None:
        call_hook(self._on_closed, self, machine.identity)

    @property
    def _pipe(self) -> ReceivingHalf:
        if self._receiving is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._receiving
