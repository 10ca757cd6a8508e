"""`PipeSender`: the worker at the sending end of a pipe."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

from ...protocol import LOCAL, Message, OnwardError, RouteLike
from ...protocol.options import check_value
from ...protocol.pipes import Broken, Missed, PipeClosed, PipeOptions
from .._worker import Worker
from ..routing._given import as_route
from ..runtime._cell import Cell
from ..runtime._policy import MailboxOptions
from ._sending import AckReceiver, PipeSenderStatistics, SendingHalf

__all__ = ["PipeSender"]

logger: Final = logging.getLogger("onward")

_OPTIONS = PipeOptions()


class PipeSender(Worker):
    """The sending end of a pipe.

    A message sent here goes on from the other end, with the rest of its onward route and with its
    return route unchanged: a pipe adds nothing to them.

    ```
    app ── [pipe, printer] ──▶ PipeSender ══ frames ══▶ PipeReceiver ── [printer] ──▶ printer
                                   ▲                        │
                                   └────── confirmations ◀──┘
    ```

    Replies do not return through a pipe: on another node, the return route of a delivered message
    leads to that node's own workers. Use `PipeChannel` for requests.

    A message that is not delivered becomes a dead letter, and the request of this node that it
    belongs to ends. With `PipeMissed` and `PipeClosed` it was certainly not handed on; with
    `PipeBroken` it is in doubt. After a break the next message begins a new pipe to the same route.
    Stopping the worker breaks the pipe; call `end` first to have everything confirmed.

    Args:
        route: The route to the receiver: a `PipeReceiver` or a `PipeService`.
        options: The mode of delivery of the pipe, and its limits.
        refuse: Whether a message is refused as `PipeFull` when the queue is full. Otherwise it
            stays in the mailbox, and the mailbox policy applies.
        on_missed: Called with messages that the receiver skipped; they are not delivered.
        on_broken: Called when the pipe broke, with the messages in doubt and those not sent.

    The hooks are called on the node's loop, after the dead letters; an exception of a hook is
    logged.
    """

    def __init__(
        self,
        route: RouteLike,
        options: PipeOptions = _OPTIONS,
        *,
        refuse: bool = False,
        on_missed: Callable[[Missed], object] | None = None,
        on_broken: Callable[[Broken], object] | None = None,
    ) -> None:
        check_value("options", options, PipeOptions)
        super().__init__()
        self._route = route
        self._options = options
        self._refuse = refuse
        self._on_missed = on_missed
        self._on_broken = on_broken
        self._sending: SendingHalf | None = None
        self._warned = False

    def on_start(self) -> None:
        """Start the worker that receives confirmations."""
        sending = SendingHalf(
            self,
            self._options,
            on_missed=self._on_missed,
            on_broken=self._on_broken,
            on_closed=self.stop,
        )
        sending.route = as_route(self._route)
        sending.back = (
            self.spawn(lambda: AckReceiver(sending), mailbox=MailboxOptions(self._options.window)),
        )
        self._sending = sending

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Put a message into the pipe, or wait until there is room."""
        sending = self._pipe
        if not self._warned and message[1] and self.node.parts.table.is_request(message[1][-1]):
            self._warn_of_request()
        try:
            if sending.machine.room <= 0 and not self._refuse:
                return self._when_room(message)
            sending.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)
        return None

    async def _when_room(self, message: Message) -> None:
        try:
            if not await self._pipe.room():
                raise PipeClosed(self.address, "it was stopped")
            self._pipe.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)

    def _warn_of_request(self) -> None:
        """Log once that a reply cannot return from another node."""
        self._warned = True
        first = (self._pipe.route or self.addresses)[0]
        target = self.node.parts.table.targets.get(first)
        far = target.worker.leaves_node if isinstance(target, Cell) else first.type != LOCAL
        if far:
            logger.warning(
                "a request goes through %s, a pipe to another node: no reply can return through "
                "it; use a PipeChannel",
                self.address,
                extra={"event": "pipe.request"},
            )

    async def end(self, timeout: float = 30.0) -> None:
        """Send all messages, wait until they are confirmed, end the pipe, and stop this worker.

        Messages in the mailbox at the call are sent too; later ones are refused as `PipeClosed`.
        Call it on the node's loop, and not from a handler of this worker.

        Args:
            timeout: The longest time it may take, in seconds.

        Raises:
            PipeBroken: It took longer. The messages in doubt have been reported.
        """
        await self._pipe.ended(timeout)

    def statistics(self) -> PipeSenderStatistics:
        """Return the counters. Call it on the node's loop."""
        return self._pipe.statistics()

    def on_stop(self) -> None:
        """Break the pipe if it has not ended."""
        if self._sending is not None:
            self._sending.abort()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Break the pipe."""
        self.on_stop()

    @property
    def _pipe(self) -> SendingHalf:
        if self._sending is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._sending
