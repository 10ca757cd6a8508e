"""`Cell`: what a node keeps for each worker: its state and its turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as ContextVars
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ...protocol import Address, MailboxFull, Message, OnwardError, WorkerFailed
from .._errors import YIELDS, BadHandler, Expired
from .._log import waiting_text
from ..instruments._statistics import WorkerStatistics
from ..routing._undeliverable import is_others
from . import _lifecycle as lifecycle
from ._mailbox import HEAVY, HEAVY_FOR_SLOW, Mailbox, Turn, is_envelope
from ._policy import MailboxOptions, OnFailure, Supervision
from ._room import WorkerLine, release_thread, wait_on_thread
from ._state import BUSY, NAMES, NEW, RUNNING, STOPPED
from ._thread import coroutine_of, is_coroutine, is_generator

if TYPE_CHECKING:
    from .._node import Node
    from .._worker import Worker
    from ..instruments._observer import Observer
    from ._room import Line, Room
    from ._thread import OwnThread
    from ._timer import Timer

__all__ = ["Cell", "Factory"]


class _Pause(Turn):
    """What a worker does that has something to hand over before the next message: nothing."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Take no message until there is room."""
        cell.pausing = False
        if cell.waits_for:
            cell.paused = True
            cell.state = BUSY


_PAUSE: Final = _Pause()

Factory: TypeAlias = "Callable[[], Worker]"

NEARLY: Final = 5
"""A mailbox is nearly full when no more than one in so many of its places is free."""


class Cell(Mailbox):
    """One worker of a node. All but the `put` methods are for the node's loop thread."""

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
        "parent",
        "paused",
        "pausing",
        "registered",
        "restarts",
        "started",
        "supervision",
        "task",
        "thread",
        "timers",
        "waits_for",
        "worker",
    )

    worker: Worker  # set by `lifecycle.bind` before anything else

    def __init__(
        self,
        node: Node,
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
        self.node = node
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
        self.waits_for: dict[Mailbox, WorkerLine] | None = None  # while it may not go on
        self.pausing = False  # before it is paused: in the rest of its turn
        self.paused = False
        self.inside = 0  # bytes of the heavy messages that a link has brought and that wait
        self.failures: deque[float] | None = None
        self.handled = 0
        self.failed = 0
        self.refused = 0
        self.dropped = 0
        self.restarts = 0

    def __str__(self) -> str:
        return f"{type(self.worker).__name__} {self.addresses[0]}"

    def take_mailbox(self, mailbox: MailboxOptions) -> None:
        """Have the limits and the policy of a mailbox."""
        self.limit = self.most = mailbox.limit
        self.most_bytes = mailbox.max_bytes
        self.overflow = mailbox.overflow

    # --- turns ------------------------------------------------------------------------

    def turn(self) -> int:  # noqa: C901 - every hop passes here; calls would cost more than they show
        """Handle a batch of what waits; return how much that was."""
        queue = self.queue
        if self.state != RUNNING or queue is None:
            return self._turn_out_of_order()
        handle = self.handle
        if handle is None:
            handle = self.handle = lifecycle.bound_handler(self)
        take = queue.popleft
        count = len(queue)
        node = self.node
        if node.observer is not None:
            self._look_at_mailbox(node.observer, count)
        batch = node.limits.batch
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
                        context[1] is None and ((due := context[0]) is None or due > node.now)
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
                    # Before anything that may stop the worker: its counts must be complete.
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
        """Handle a message that is not in the queue as it is, but in something else."""
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
        """Handle a message with a context, unless nobody waits for it any more."""
        context = message[4]
        if context is None:
            raise AssertionError("unexpected message without a context")
        deadline, trace = context[0], context[1]
        node = self.node
        if deadline is not None and deadline <= node.now:
            self.handled -= 1
            self.dropped += 1
            node.lose(message, Expired(self.address))
            return None
        if trace is not None:
            recorder, tracer = node.recorder, node.tracer
            if recorder is not None:
                return recorder.messages.follow(self.worker, message, handle, tracer)
            if tracer is not None:
                return tracer.follow(self.worker, message, handle)
        return handle(message)

    def _look_at_mailbox(self, observer: Observer, waiting: int) -> None:
        # One message that waits is nothing to tell of, even where that is the limit.
        if waiting > 1 and waiting * NEARLY >= self.most * (NEARLY - 1):
            observer.nearly_full(self, waiting)

    def found_full(self, observer: Observer, waiting: int) -> None:
        """Tell who looks on that a sender found no room: a worker that hangs has no turns."""
        node = self.node
        if get_ident() == node.thread_id:
            observer.nearly_full(self, waiting)
        else:
            with suppress(RuntimeError):  # the loop is closed
                node.call_on_loop(partial(observer.nearly_full, self, waiting))

    def _do_other(self, item: Any) -> None:
        if is_envelope(item):
            self._receive(item)
        else:
            item.perform(self)

    def look_again(self) -> None:
        """Stay in the run queue as long as something waits."""
        if self.queue:
            self.scheduled = True
            self.node.schedule(self)
        else:
            self.scheduled = False
            # A sender that saw the flag just before it was cleared counts on this look.
            if self.queue:
                self.scheduled = True
                self.node.schedule(self)

    def _turn_out_of_order(self) -> int:
        if self.state == NEW:
            lifecycle.start(self)
        elif self.state == STOPPED:
            self.flush()
        return 1

    def suspend(self, result: object, finished: Callable[[asyncio.Task[Any]], object]) -> bool:
        """Run what a handler returned in a task if it is a coroutine.

        The worker takes no further message until the task is done.

        Returns:
            Whether it is a coroutine.
        """
        if not is_coroutine(result):
            return False
        if self.context is None:
            self.context = self.node.context.copy()
        try:
            task = self.node.loop.create_task(result, context=self.context)
        except BaseException:
            result.close()  # it would be reported as never awaited
            raise
        self.state = BUSY
        self.task = task
        if self.worker.leaves_node:
            self.heavy = HEAVY_FOR_SLOW  # a link that awaits its socket
        task.add_done_callback(finished, context=self.context)
        observer = self.node.observer
        if observer is not None:
            observer.suspended(self)
        return True

    def _suspend_other(self, result: object) -> None:
        """Run what a handler returned that is no coroutine, if it can be awaited.

        Raises:
            BadHandler: It cannot: whoever wrote the handler thinks that it is an answer.
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
        return BadHandler(method, f"it returned {kind}, which goes nowhere; an answer is `reply`")

    def resumed(self, task: asyncio.Task[Any]) -> bool:
        """Note the end of a task; false if the worker has been given up meanwhile."""
        if self.task is not task or self.state == STOPPED:
            if not task.cancelled():
                task.exception()  # nobody else will look at it
            return False
        self.task = None
        self.heavy = HEAVY
        self.node.now = self.node.loop.time()
        if self.state == BUSY:
            self.state = RUNNING
        observer = self.node.observer
        if observer is not None:
            observer.resumed(self)
        return True

    def turn_done(self, task: asyncio.Task[Any]) -> None:
        try:
            if self.resumed(task):
                message, self.in_hand = self.in_hand, None
                error = lifecycle.task_error(task)
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
        # What a timer's action returns is nobody's business, unless nothing of it has run.
        if message is not None:
            self.raised(self._returned(result), message)
        elif is_generator(result):
            self.raised(BadHandler(f"a timer of {type(self.worker).__name__}", YIELDS))

    def recover(self, error: BaseException) -> None:
        """Go on after something other than the worker's own code has raised.

        The message it has in hand is lost, and whoever sent it is told; the worker takes up
        the next. One that was starting or stopping just then is closed.
        """
        self.node.fault("a turn", error)
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
                self.node.dead_letters.abandoned += 1
                lifecycle.close(self)
        if self.state == RUNNING:
            self.look_again()
        if self.lines:
            self.serve_lines()

    def mishandled(self, message: Message, error: BaseException | None) -> None:
        """Report a message that the worker had in hand and did not finish with."""
        failure = WorkerFailed(self.address, "" if error is not None else "it was stopped")
        failure.__cause__ = error
        self.node.lose(message, failure)

    def _receive(self, envelope: Envelope[Any]) -> None:
        message, future = envelope.message, envelope.reply_to
        if isinstance(message, messages._ActorStop):
            # Left in the queue: whoever asked is answered when the worker has stopped.
            self.post(envelope, first=True)
            lifecycle.stop(self)
            return
        self.handled += 1
        try:
            result = self.call(self.worker._handle_receive, message)
            done = partial(Cell._envelope_done, future=future)
            if self.suspend(result, partial(lifecycle.contained, done, self)):
                return
        except BaseException as error:
            if future is None:
                raise
            self._answer_error(future, error)
            if lifecycle.is_fatal(error):
                raise
        else:
            if future is not None:
                future.set(result)

    def _envelope_done(self, task: asyncio.Task[Any], future: pykka.Future[Any] | None) -> None:
        alive = self.resumed(task)
        error = lifecycle.task_error(task)
        if error is None:
            if future is not None:
                future.set(task.result())
        elif future is not None:
            self._answer_error(future, error)
        if alive:
            if error is not None and (future is None or lifecycle.is_fatal(error)):
                self.raised(error)
            if self.state == RUNNING:
                self.turn()

    def _answer_error(self, future: pykka.Future[Any], error: BaseException) -> None:
        self.settle(error)  # what was lost is not the caller's loss
        future.set_exception((type(error), error, error.__traceback__))
        if not lifecycle.is_fatal(error):
            self.failed += 1
            lifecycle.log_returned(self, error)

    def raised(self, error: BaseException, item: object = None) -> None:
        """Do what the worker's policy says about a failure, with what it had in hand.

        To let the error of passing on or answering through is none: what others send must not
        have a worker restarted.
        """
        try:
            self._apply_policy(error, item)
        except Exception as fault:  # noqa: BLE001 - it must not cost more than this message
            self.node.fault("handling the failure of a worker", fault)

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
        if lifecycle.is_fatal(error):
            lifecycle.fatal(self, error)
        elif self.supervision.on_failure is OnFailure.RESUME:
            lifecycle.log_failure(self, error)
        else:
            lifecycle.fail(self, error)

    def settle(self, error: BaseException, message: Message | None = None) -> bool:
        """Make a dead letter of what the worker has lost with an error, and tell who sent it.

        Returns:
            Whether it is the message in hand.
        """
        return isinstance(error, OnwardError) and self.node.return_to_sender(
            message, error, self.addresses
        )

    def call(self, function: Callable[..., object], *args: object) -> object:
        """Call user code: here, or on the worker's own thread, and then it is a coroutine."""
        if self.thread is None:
            return function(*args)
        return self.thread.run(function, *args)

    # --- room elsewhere ---------------------------------------------------------------

    def hand_over_later(self, full: MailboxFull, came: Message) -> None:
        """Have what the worker passes on, or answers with, wait for room, if it may.

        If the message in hand came over a link, its other end is pushed back, and the worker
        goes on: others' messages pass it meanwhile. Else the worker is paused, so that the chain
        that it is part of is as slow as its slowest worker.

        Args:
            full: The error, which says where there is no room.
            came: The message in hand.

        Raises:
            MailboxFull: It may not wait.
        """
        room: Room | None = full.room
        if room is None or not room.may_wait:
            raise full
        node = self.node
        if get_ident() != node.thread_id:
            if self.thread is None or not self.thread.is_current():
                raise full
            room.intake.refused -= 1  # it is not refused, after all
            wait_on_thread(room, self.thread, came)
            return
        link = node.origin_of(came)
        if link is None or not link._wait_for_room(room):
            self._wait(room)

    def _wait(self, room: Room) -> None:
        """Wait for room in a mailbox before the next message."""
        intake, message = room.intake, room.message
        waits_for = self.waits_for
        if waits_for is None:
            waits_for = self.waits_for = {}
        line = waits_for.get(intake)
        if line is None:
            if self._closes_circle(intake):
                # None of them would ever go on, so it is let in beyond the limit.
                if len(intake.queue or ()) >= intake.most + self.node.limits.waiting_messages:
                    raise MailboxFull(intake.address, "workers wait for one another")
                intake.refused -= 1
                intake.load(message)
                return
            line = waits_for[intake] = WorkerLine(intake, self)
            intake.join(line)
        elif len(line.messages) >= self.node.limits.waiting_messages:
            raise MailboxFull(
                intake.address, f"{waiting_text(len(line.messages), 'message')} for room"
            )
        intake.refused -= 1  # it is not refused, after all
        line.messages.append(message)
        if not self.pausing and not self.paused:
            self.pausing = True
            self.post(_PAUSE, first=True)

    def _closes_circle(self, intake: Mailbox) -> bool:
        """Whether a worker waits, itself or by others, for this one."""
        seen: set[Mailbox] = set()
        look_at = [intake]
        while look_at:
            each = look_at.pop()
            if each is self:
                return True
            if each not in seen:
                seen.add(each)
                if isinstance(each, Cell) and each.waits_for:
                    look_at.extend(each.waits_for)
        return False

    def has_room_in(self, intake: Mailbox) -> None:
        """Go on if the worker waits for room nowhere else."""
        waits_for = self.waits_for
        if waits_for is None:
            return
        waits_for.pop(intake, None)
        if not waits_for and self.paused:
            self.paused = False
            if self.state == BUSY:
                self.state = RUNNING
                self.look_again()

    def wait_no_more(self) -> None:
        """Lose what waits for room: the worker is to stop."""
        for line in list((self.waits_for or {}).values()):
            line.give_up(MailboxFull(line.intake.address, "the worker that sent it was stopped"))
        if self.thread is not None:
            release_thread(self.thread)

    # --- the end ----------------------------------------------------------------------

    def flush(self) -> None:
        """Answer or dead-letter everything left in the queue of a stopped worker."""
        queue = self.queue
        while queue:
            item = queue.popleft()
            try:
                self.refuse(item)
            except Exception as error:  # noqa: BLE001 - it must not cost those behind it
                self.node.fault("refusing a message", error)
        self.scheduled = False
        if queue:
            self.scheduled = True
            self.node.schedule(self)

    def give_up(self) -> None:
        """Close the worker and turn what waits into dead letters: the loop is closed."""
        lifecycle.close(self)
        self.flush()

    def when_done(self) -> asyncio.Future[None]:
        """Return the future that is done when the worker has stopped."""
        if self.done is None:
            self.done = self.node.loop.create_future()
        return self.done

    def statistics(self) -> WorkerStatistics:
        """Return what is counted for this worker."""
        return WorkerStatistics(
            address=self.address,
            kind=type(self.worker).__name__,
            state=NAMES[self.state],
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
