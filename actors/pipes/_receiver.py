"""`PipeReceiver`: the worker that messages come out of a pipe by."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from ...protocol import Message
from ...protocol.options import check_value
from ...protocol.pipes import Gap, PipeReceiverOptions, Receiver
from .._worker import Worker
from ._hooks import call_hook
from ._memory import Budget, Retired
from ._receiving import PipeReceiverStatistics, Receiving

__all__ = ["PipeReceiver"]

_OPTIONS = PipeReceiverOptions()


class PipeReceiver(Worker):
    """The receiving end of a pipe; what it promises the sender says.

    Messages go on along their own onward routes, with the return routes they had: a pipe leaves no
    trace on them. A message counts as handed on, and is confirmed, when it is in the mailbox of the
    worker it is for. A full mailbox holds the pipe up for `stall_timeout`; what no worker takes
    becomes a dead letter here, and the sender is told that it was missed.

    One sender at a time: a pipe that is opened later takes the place of the one before. For
    several there is `PipeService`. A pipe that is not confirmed goes on when something new of it
    comes, also after `idle_timeout`.

    Args:
        options: Its limits.
        on_gap: Is told, on the node's loop, of the numbers of messages that were missed.
        on_closed: Is called, on the node's loop, when a pipe is over or nothing was heard of it for
            `idle_timeout`, with its identity.
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
        self._receiving: Receiving | None = None
        self._retired: Retired | None = None  # shared by all of a service
        self._budget: Budget | None = None

    def on_start(self) -> None:
        """Be ready for a pipe."""
        self._receiving = Receiving(
            self,
            self._options,
            on_gap=self._on_gap,
            on_closed=self._pipe_closed,
            retired=self._retired,
            budget=self._budget,
        )

    def handle_message(self, message: Message) -> None:
        """Take in a frame."""
        frame = self._pipe.read(message)
        if frame is not None:
            self._pipe.receive(frame, message)

    def statistics(self) -> PipeReceiverStatistics:
        """Return what is counted. Call it on the node's loop."""
        return self._pipe.statistics()

    def on_stop(self) -> None:
        """Hand on what can be, and tell the sender that nobody is here any more."""
        if self._receiving is not None:
            self._receiving.stop()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do as at a stop."""
        self.on_stop()

    def _pipe_closed(self, machine: Receiver) -> None:
        call_hook(self._on_closed, self, machine.identity)

    @property
    def _pipe(self) -> Receiving:
        if self._receiving is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._receiving
