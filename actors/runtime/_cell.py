"""`Cell`: the state and the turns of one worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as ContextVars
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol import Address, Message, OnwardError, WorkerFailed
from .._coroutines import coroutine_of, is_coroutine, is_generator
from .._errors import YIELDS, BadHandler, Expired
from ..instruments._statistics import WorkerStatistics
from . import (
    _closing as closing,
    _envelopes as envelopes,
    _failures as failures,
    _lifecycle as lifecycle,
)
from ._host import Host, HostedActor
from ._lost import is_others
from ._mailbox import HEAVY, HEAVY_FOR_SLOW, Mailbox, is_envelope
from ._policy import MailboxOptions, OnFailure, Supervision
from ._room import WorkerLine
from ._state import BUSY, NAMES, NEW, RUNNING, STOPPED, STOPPING

if TYPE_CHECKING:
    from ..instruments._composite import Instruments
    from ._restart_wait import RestartWait
    from ._room import Line
    from ._run_queue import RunQueue
    from ._thread import OwnThread
    from ._timer import Timer

__all__ = ["Cell", "Factory"]


Factory: TypeAlias = Callable[[], HostedActor]

NEARLY: Final = 5
"""A mailbox is nearly full when at most one place in this many is free."""


class Cell(Mailbox):
    """One worker of a node, with its mailbox.

    Only the `put` methods may be called from other threads than the node's.
    """

    __slots__ = (
        "children",
        "context",
        "deadline",
        "done",
        "factory",
        "failed",
        "failures",
        "handle",
        "handled",
        "in_hand",
        "inside",
        "nearly",
        "parent",
        "paused",
        "pausing",
        "registered",
        "restart_wait",
        "restarts",
        "started",
        "supervision",
        "task",
        "thread",
        "timers",
        "waits_for",
        "worker",
    )

    worker: Any  # a `Worker`, which the runtime does not import; `lifecycle.bind` sets it

    def __init__(
        self,
        run_queue: RunQueue,
        host: Host,
        addresses: tuple[Address, ...],
        factory: Factory | None,
        mailbox: MailboxOptions,
        supervision: Supervision,
        parent: Cell | None,
    ) -> None:
        self.queue = None
        self.take_mailbox(mailbox)
        self.heavy = HEAVY
        self.bytes = 0
        self.lines: deque[Line] | None = None
        self.scheduled = False
        self.run_queue = run_queue
        self.host = host
        self.addresses = addresses
        self.factory = factory
        self.supervision = supervision
        self.parent = parent
        self.state = NEW
        self.registered = False
        self.handle: Callable[[Message], object] | None = None
        self.thread: OwnThread | None = None
        self.task: asyncio.Task[Any] | None = None
        self.context: ContextVars | None = None
        self.started: asyncio.Future[None] | None = None
        self.done: asyncio.Future[None] | None = None
        self.deadline: float | None = None
        self.children: dict[Cell, None] | None = None
        self.timers: dict[Timer, None] | None = None
        self.in_hand: Message | None = None
        self.waits_for: dict[Mailbox, WorkerLine] | None = None  # none: it may go on
        self.pausing = False  # until the end of the turn, before it is paused
        self.paused = False
        self.inside = 0  # bytes of waiting heavy messages that came over this link
        self.failures: deque[float] | None = None
        self.handled = 0
        self.failed = 0
        self.refused = 0
        self.dropped = 0
        self.restarts = 0
        self.restart_wait: RestartWait | None = None

    def __str__(self) -> str:
        return f"{closing.kind_of(self)} {self.addresses[0]}"

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping or has stopped."""
        return self.state >= STOPPING

    def take_mailbox(self, mailbox: MailboxOptions) -> None:
        """Set the limits and the overflow policy of the mailbox."""
        self.limit = self.most = mailbox.limit
        # One waiting message is not reported, even if the limit is 1.
        self.nearly = max(2, -(-self.most * (NEARLY - 1) // NEARLY))
        self.most_bytes = mailbox.max_bytes
        self.overflow = mailbox.overflow

    # --- turns ------------------------------------------------------------------------

    def turn(self) -> int:  # noqa: C901 - every hop passes here; calls would cost more than they show
        """Handle a batch of messages; return its size plus one."""
        queue = self.queue
        if self.state != RUNNING or queue is None:
            return self._turn_out_of_order()
        handle = self.handle
        if handle is None:
            handle = self.handle = lifecycle.bound_handler(self)
        take = queue.popleft
        count = len(queue)
        run_queue = self.run_queue
        if count >= self.nearly:
            instruments = run_queue.instruments
            if instruments is not None:
                instruments.mailbox_nearly_full(self.worker, count)
        batch = run_queue.limits.batch
        if count > batch:
            count = batch
        counted = 0
        for number in range(count):
            try:
                item = take()
            except IndexError:  # dropped by a sender on another thread
                count = number
                break
            try:
                if type(item) is Message:
                    context = item[4]
                    if context is None or (
                        context[1] is None and ((due := context[0]) is None or due > run_queue.now)
                    ):
                        result = handle(item)
                    else:
                        result = self._in_context(handle, item)
                    if result is None:
                        continue
                    if not self.suspend(result, self.turn_done):
                        self._suspend_other(result)
                    self.in_hand = item
                else:
                    # The item may stop the worker, so its counts are completed first.
                    self.handled += number - counted
                    counted = number + 1
                    self._do_other(item)
            except BaseException as error:  # noqa: BLE001 - the top of a worker's loop
                self.handled += number + 1 - counted
                counted = number + 1
                self.raised(error, item)
            if self.state != RUNNING:
                count = number + 1
                break
        self.handled += count - counted
        if self.lines:
            self.serve_lines()
        if self.state == RUNNING:
            self.look_again()
        return count + 1

    def handle_other(self, message: Message) -> None:
        """Handle a message that was wrapped in the queue, as by `Heavy`."""
        self.handled += 1
        handle = self.handle
        if handle is None:
            handle = self.handle = lifecycle.bound_handler(self)
        try:
            context = message[4]
            result = handle(message) if context is None else self._in_context(handle, message)
            if result is not None:
                if not self.suspend(result, self.turn_done):
                    self._suspend_other(result)
                self.in_hand = message
        except BaseException as error:  # noqa: BLE001 - as in `turn`
            self.raised(error, message)

    def _in_context(self, handle: Callable[[Message], object], message: Message) -> object:
        """Handle a message with a context, unless its deadline has passed."""
        context = message[4]
        if context is None:
            raise AssertionError("unexpected message without a context")
        deadline, trace = context[0], context[1]
        run_queue = self.run_queue
        if deadline is not None and deadline <= run_queue.now:
            self.handled -= 1
            self.dropped += 1
            self.host.lose(message, Expired(self.address))
            return None
        if trace is not None:
            instruments = run_queue.instruments
            if instruments is not None and instruments.traces:
                return instruments.handle_traced(self.worker, message, handle)
        return handle(message)

    def found_full(self, instruments: Instruments, waiting: int) -> None:
        """Report a full mailbox to the instruments; a worker that hangs has no turns to do so."""
        run_queue = self.run_queue
        if get_ident() == run_queue.thread_id:
            instruments.mailbox_nearly_full(self.worker, waiting)
        else:
            with suppress(RuntimeError):  # the loop is closed
                report = partial(instruments.mailbox_nearly_full, self.worker, waiting)
                run_queue.call_on_loop(report)

    def _do_other(self, item: Any) -> None:
        if is_envelope(item):
            envelopes.receive(self, item)
        else:
            item.perform(self)

    def post_stop(self, item: object) -> None:
        """Put a request to stop into the queue; a wait for a restart ends with it."""
        self.post(item)
        if self.restart_wait is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.run_queue.call_on_loop(partial(lifecycle.stop_waiting, self))

    def look_again(self) -> None:
        """Stay in the run queue while the queue is not empty."""
        if self.queue:
            self.scheduled = True
            self.run_queue.schedule(self)
        else:
            self.scheduled = False
            # A sender that saw the flag just before it was cleared relies on this check.
            if self.queue:
                self.scheduled = True
                self.run_queue.schedule(self)

    def _turn_out_of_order(self) -> int:
        if self.state == NEW:
            lifecycle.start(self)
        elif self.state == STOPPED:
            self.flush()
        return 1

    def suspend(self, result: object, finished: Callable[[asyncio.Task[Any]], object]) -> bool:
        """Run a handler's result in a task if it is a coroutine.

        The worker handles no further message until the task is done.

        Returns:
            Whether the result is a coroutine.
        """
        if not is_coroutine(result):
            return False
        if self.context is None:
            self.context = self.run_queue.context.copy()
        try:
            task = self.run_queue.loop.create_task(result, context=self.context)
        except BaseException:
            result.close()  # it would be reported as never awaited
            raise
        self.state = BUSY
        self.task = task
        if self.worker.leaves_node:
            self.heavy = HEAVY_FOR_SLOW  # a link that waits for its socket
        task.add_done_callback(finished, context=self.context)
        instruments = self.run_queue.instruments
        if instruments is not None:
            instruments.worker_suspended(self.worker)
        return True

    def _suspend_other(self, result: object) -> None:
        """Run a handler's result that is an awaitable but not a coroutine.

        Raises:
            BadHandler: It cannot be awaited; the handler returned it as if it were an answer.
        """
        work = coroutine_of(result)
        if work is None:
            raise self._returned(result)
        self.suspend(work, self.turn_done)

    def _returned(self, result: object) -> BadHandler:
        method = f"{type(self.worker).__name__}.handle_message"
        if is_generator(result):
            return BadHandler(method, YIELDS)
        kind = type(result).__name__
        return BadHandler(method, f"it returned {kind}, which is discarded; answer with `reply`")

    def resumed(self, task: asyncio.Task[Any]) -> bool:
        """Record the end of a task; return false if the worker has been given up meanwhile."""
        if self.task is not task or self.state == STOPPED:
            if not task.cancelled():
                task.exception()  # or asyncio reports it as never retrieved
            return False
        self.task = None
        self.heavy = HEAVY
        self.run_queue.now = self.run_queue.loop.time()
        if self.state == BUSY:
            self.state = RUNNING
        instruments = self.run_queue.instruments
        if instruments is not None:
            instruments.worker_resumed(self.worker)
        return True

    def turn_done(self, task: asyncio.Task[Any]) -> None:
        try:
            if self.resumed(task):
                message, self.in_hand = self.in_hand, None
                error = failures.task_error(task)
                if error is not None:
                    self.raised(error, message)
                elif (result := task.result()) is not None:
                    self._look_at_result(result, message)
                if self.state == RUNNING:
                    self.turn()
        except BaseException as error:
            self.recover(error)
            if not isinstance(error, Exception):
                raise

    def _look_at_result(self, result: object, message: Message | None) -> None:
        # The result of a timer's action is ignored, unless it is a generator: that has not run.
        if message is not None:
            self.raised(self._returned(result), message)
        elif is_generator(result):
            self.raised(BadHandler(f"a timer of {type(self.worker).__name__}", YIELDS))

    def recover(self, error: BaseException) -> None:
        """Recover from an exception that the worker's own code did not raise.

        The message in hand is lost, and its sender is told. The worker continues with the next
        message; if it was starting or stopping, it is closed.
        """
        self.run_queue.fault("a turn", error)
        if self.task is not None and self.task.done():
            self.task = None
        if self.task is None:
            message, self.in_hand = self.in_hand, None
            if message is not None:
                self.mishandled(message, error)
            if self.state == BUSY:
                if not self.paused:
                    self.state = RUNNING
            elif self.state == STOPPED:
                self.flush()
            elif self.state != RUNNING:
                self.host.abandon()
                closing.close(self)
        if self.state == RUNNING:
            self.look_again()
        if self.lines:
            self.serve_lines()

    def mishandled(self, message: Message, error: BaseException | None) -> None:
        """Report a message that the worker did not finish handling."""
        failure = WorkerFailed(self.address, "" if error is not None else "it was stopped")
        failure.__cause__ = error
        self.host.lose(message, failure)

    def raised(self, error: BaseException, item: object = None) -> None:
        """Apply the worker's supervision policy to an error and the item in hand.

        An error of forwarding or answering a message of another sender is not a failure of the
        worker: other senders must not be able to have it restarted.
        """
        try:
            self._apply_policy(error, item)
        except Exception as fault:  # noqa: BLE001 - only this message may be lost
            self.run_queue.fault("handling the failure of a worker", fault)

    def _apply_policy(self, error: BaseException, item: object) -> None:
        message = item if type(item) is Message else None
        lost = error.lost if isinstance(error, OnwardError) else None
        if self.settle(error, message):
            return
        if message is not None:
            self.mishandled(message, error)
        if lost is not None and is_others(lost, self.addresses):
            return
        self.failed += 1
        if failures.is_fatal(error):
            lifecycle.fatal(self, error)
        elif self.supervision.on_failure is OnFailure.RESUME:
            failures.log_failure(self, error)
        else:
            lifecycle.fail(self, error)

    def settle(self, error: BaseException, message: Message | None = None) -> bool:
        """Make a dead letter of the message lost with an error, and tell its sender.

        Returns:
            Whether the lost message is the message in hand.
        """
        return isinstance(error, OnwardError) and self.host.return_to_sender(
            message, error, self.addresses
        )

    def call(self, function: Callable[..., object], *args: object) -> object:
        """Call user code; for a worker with a thread, return a coroutine that does so there."""
        if self.thread is None:
            return function(*args)
        return self.thread.run(function, *args)

    # --- the end ----------------------------------------------------------------------

    def flush(self) -> None:
        """Answer or dead-letter each item left in the queue of a stopped worker."""
        queue = self.queue
        while queue:
            item = queue.popleft()
            try:
                self.refuse(item)
            except Exception as error:  # noqa: BLE001 - the items behind it must be refused too
                self.run_queue.fault("refusing a message", error)
        self.scheduled = False
        if queue:
            self.scheduled = True
            self.run_queue.schedule(self)

    def cell_of(self) -> Cell:
        """Return this cell."""
        return self

    def give_up(self) -> None:
        """Close the worker and dead-letter its queue after the loop was closed."""
        closing.close(self)
        self.flush()

    def when_done(self) -> asyncio.Future[None]:
        """Return the future that is done when the worker has stopped."""
        if self.done is None:
            self.done = self.run_queue.loop.create_future()
        return self.done

    def statistics(self) -> WorkerStatistics:
        """Return the worker's counters."""
        waits = self.restart_wait is not None and self.restart_wait.is_waiting
        return WorkerStatistics(
            address=self.address,
            kind=type(self.worker).__name__,
            state="waiting to restart" if waits else NAMES[self.state],
            waiting=len(self.queue or ()),
            limit=self.most,
            handled=self.handled,
            failed=self.failed,
            refused=self.refused,
            dropped=self.dropped,
            restarts=self.restarts,
            children=len(self.children or ()),
            timers=len(self.timers or ()),
        )
