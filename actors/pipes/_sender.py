"""`PipeSender`: the worker that messages are put into a pipe by."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

from ...protocol import LOCAL, Message, OnwardError, RouteLike
from ...protocol.options import check_value
from ...protocol.pipes import Broken, Missed, PipeClosed, PipeOptions
from .._worker import Worker
from ..runtime._cell import Cell
from ..runtime._policy import MailboxOptions
from ._sending import AckReceiver, PipeSenderStatistics, Sending

__all__ = ["PipeSender"]

logger: Final = logging.getLogger("onward")

_OPTIONS = PipeOptions()


class PipeSender(Worker):
    """The sending end of a pipe.

    A message that comes here goes on behind the other end, with the rest of its onward route and
    its return route as they are: a pipe leaves no trace on it.

    ```
    app ── [pipe, printer] ──▶ PipeSender ══ frames ══▶ PipeReceiver ── [printer] ──▶ printer
                                   ▲                        │
                                   └────── confirmations ◀──┘
    ```

    Nor does an answer come back through it: to a worker of another node, the return route of what
    comes out leads to that node's own workers. `PipeChannel` is for what is to be answered.

    What does not get through becomes a dead letter, and a request of this node that it belongs to
    ends: with `PipeMissed` and `PipeClosed` it was certainly not handed on, with `PipeBroken` that
    is in doubt. After a break the next message begins a new pipe to the same route. When the worker
    is stopped the pipe breaks; use `end` before, to have everything confirmed.

    Args:
        route: The way to the receiver: a `PipeReceiver` or a `PipeService`.
        options: What the pipe promises, and its limits.
        refuse: When as many messages wait as may: refuse one more, as `PipeFull`, instead of
            leaving it in the mailbox, whose policy then decides.
        on_missed: Is told of messages the receiver went on without: they are not delivered.
        on_broken: Is told when the pipe broke, with what is in doubt and what was not sent.

    The hooks are called on the node's loop, after the dead letters; what they raise is logged.
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
        self._sending: Sending | None = None
        self._warned = False

    def on_start(self) -> None:
        """Have an address for confirmations."""
        sending = Sending(
            self,
            self._options,
            on_missed=self._on_missed,
            on_broken=self._on_broken,
            on_closed=self.stop,
        )
        sending.route = self.node.route_of(self._route)
        sending.back = (
            self.spawn(lambda: AckReceiver(sending), mailbox=MailboxOptions(self._options.window)),
        )
        self._sending = sending

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Put a message into the pipe, or wait until there is room."""
        sending = self._pipe
        if not self._warned and message[1] and message[1][-1] in self.node._requests:
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
        """Say once that an answer has no way back from another node."""
        self._warned = True
        first = (self._pipe.route or self.addresses)[0]
        target = self.node.table.get(first)
        far = target.worker.leaves_node if isinstance(target, Cell) else first.type != LOCAL
        if far:
            logger.warning(
                "a request goes through %s, a pipe to another node: no answer comes back through "
                "it; use a PipeChannel",
                self.address,
            )

    async def end(self, timeout: float = 30.0) -> None:
        """Send all that came here, have it confirmed, tell the receiver, and stop this worker.

        What is in its mailbox at the call is sent too; what comes later is refused as `PipeClosed`.
        Call it on the node's loop, and not from a handler of this worker.

        Args:
            timeout: How long it may take, in seconds.

        Raises:
            PipeBroken: It took longer: what is in doubt has been reported.
        """
        await self._pipe.ended(timeout)

    def statistics(self) -> PipeSenderStatistics:
        """Return what is counted. Call it on the node's loop."""
        return self._pipe.statistics()

    def on_stop(self) -> None:
        """Break the pipe if it is not at its end."""
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
    def _pipe(self) -> Sending:
        if self._sending is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._sending
