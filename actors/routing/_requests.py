"""Pending requests, each with a mailbox at a random address.

An answer is matched to its request by that address, so requests need no numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import Any, Final

from ...protocol import (
    Address,
    Context,
    MailboxFull,
    Message,
    NodeStopped,
    OnwardError,
    RequestTimeout,
    RouteLike,
    format_route,
)
from ...protocol.options import check_timeout
from .._errors import TooManyRequests
from ..runtime._lost import note_lost
from ..runtime._room import Room, join
from ..runtime._run_queue import Phase
from ._given import as_route, check_payload
from ._reply import Reply
from ._router import Router

__all__ = ["Requests"]

_CLOSED: Final = Phase.CLOSED
_SHARED_TIMERS: Final = 16
_DEADLINES: Final = 256
"""Requests with the same timeout share a deadline within this fraction of it."""

_AT_ONCE: Final = 16
"""Requests in a row that may be answered before the event loop runs other tasks."""
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class _Patience:
    """The requests with the same timeout, oldest first, and their one timer.

    A timer for each request would be a fifth of its cost. The oldest expires first,
    so only that one needs a timer; it is set again when it fires, not for every request.
    """

    __slots__ = ("_loop", "_timer", "armed", "context", "deadlines", "shared", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self._loop = loop
        self.shared = False
        self.deadlines: dict[Reply, float] = {}
        self.until = float("-inf")
        self.context = Context()
        self.arm(deadline)

    def arm(self, deadline: float) -> None:
        """Set the timer for a deadline."""
        self.armed = True
        self._timer = self._loop.call_at(deadline, self._due)

    def renew(self, deadline: float, timeout: float) -> None:
        """Make a context for the next requests, with a deadline slightly after theirs.

        A context for each request would be a thirtieth of its cost.
        """
        self.until = deadline + timeout / _DEADLINES
        self.context = Context(self.until)

    def cancel(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()

    def _due(self) -> None:
        now = self._loop.time()
        self.armed = False
        while self.deadlines:
            reply, deadline = next(iter(self.deadlines.items()))
            if deadline > now:
                self.arm(deadline)
                return
            del self.deadlines[reply]
            reply.expire()


class Requests:
    """The requests of a node that wait for an answer.

    Args:
        router: The router of the node.

    Attributes:
        count: The number of waiting requests.
        refused: How often there was no place for one more.
    """

    __slots__ = (
        "_at_once",
        "_lose",
        "_patience",
        "_router",
        "_run_queue",
        "_table",
        "count",
        "refused",
    )

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        self._run_queue: Final = router.run_queue
        self._table: Final = router.addresses
        self._lose: Final[Callable[[Message, str], object]] = router.undeliverable.dead_letter
        self.count = 0
        self.refused = 0
        self._at_once = 0
        self._patience: dict[float, _Patience] = {}

    def request(
        self,
        source: Address | None,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a message and wait for the answer; see `Node.request`.

        Args:
            source: The worker that sends it; `None` for code outside of workers.
            route: The onward route.
            payload: The payload.
            timeout: Time to wait, in seconds.
            context: The context of the message inside the node.
        """
        if source is None and context is not None and context[4] is not None:
            return self._request_outside(route, payload, timeout, context)
        work = self._request(source, route, payload, timeout, context)
        run_queue = self._run_queue
        return work if get_ident() == run_queue.thread_id else run_queue.on_loop(work)

    async def _request_outside(
        self, route: RouteLike, payload: bytes, timeout: float, context: Context
    ) -> Message:
        """Send a request that a worker makes for another node by a method of the node."""
        onward = as_route(route)
        run_queue = self._run_queue
        try:
            return await run_queue.on_loop(self._request(None, onward, payload, timeout, context))
        except OnwardError as error:
            note_lost(error, Message(onward, (), payload, None, context))
            raise

    async def _request(  # noqa: C901 - every request passes here; calls would cost more than they show
        self,
        source: Address | None,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Message:
        router, run_queue = self._router, self._run_queue
        loop = run_queue.event_loop
        if loop is None or run_queue.phase is _CLOSED:
            raise run_queue.stopped_error()
        limits = run_queue.limits
        if type(payload) is not bytes or len(payload) > limits.payload:
            check_payload(payload, limits)
        onward = as_route(route)
        if context is not None and context[4] is not None:
            sent = _new(Message, (onward, (), payload, source, context))
            context = router.passage.pass_on(sent)[4]
        if self.count >= limits.requests:
            self.refused += 1
            raise TooManyRequests(format_route(onward), f"{limits.requests} wait")
        future: asyncio.Future[Message] = loop.create_future()
        run_queue.now = now = loop.time()
        patience = self._patience.get(timeout) or self._patience_of(loop, timeout, now)
        reply = Reply(run_queue, self._lose, future, onward, timeout)
        deadline = now + timeout
        deadlines = patience.deadlines
        deadlines[reply] = deadline
        if not patience.armed:
            patience.arm(deadline)
        if context is None:
            if deadline > patience.until:
                patience.renew(deadline, timeout)
            context = patience.context
        elif context[0] is None:
            context = context._replace(deadline=deadline)
        sampler = run_queue.sampler
        if sampler is not None and source is None:
            context = router.entering(sampler, context)
        instruments = run_queue.instruments
        asking = instruments if instruments is not None and instruments.asks else None
        table = self._table
        address = table.random_address()
        table.targets[address] = reply
        self.count += 1
        try:
            if asking is not None:
                asking.request_begun(source, address, onward)
            message = _new(Message, (onward, (address,), payload, source, context))
            room: Room | None = None
            try:
                router.dispatch_now(message)
            except MailboxFull as full:
                room = full.room
                if room is None or not room.may_wait:
                    raise
            if room is not None:
                # Not in the handler: tests/test_compiled.py says why.
                await _put_in_time(room, future)
            if future.done():
                # Answered without a pass of the loop, which must run other tasks now and then.
                self._at_once = (self._at_once + 1) % _AT_ONCE
                if not self._at_once:
                    await asyncio.sleep(0)
            return await future
        except BaseException:
            table.give_up(address)
            if future.done() and not future.cancelled():
                future.exception()  # an answer may come together with a cancellation
            raise
        finally:
            self.count -= 1
            del table.targets[address]
            deadlines.pop(reply, None)
            if not patience.shared:
                patience.cancel()
            if asking is not None:
                asking.request_ended(address)

    def close(self, name: str) -> None:
        """Fail all waiting requests and cancel the timers, because the node stops."""
        for target in list(self._table.targets.values()):
            if type(target) is Reply:
                target.fail(NodeStopped(name, "while an answer was due"))
        for patience in self._patience.values():
            patience.cancel()

    def _patience_of(
        self, loop: asyncio.AbstractEventLoop, timeout: float, now: float
    ) -> _Patience:
        # A shared timeout has been checked before, so most requests skip the check.
        deadline = now + check_timeout(timeout)
        # Most programs use a few timeouts. A program that computes them from deadlines must
        # not leave a timer behind for each.
        shared = self._patience
        if len(shared) >= _SHARED_TIMERS:
            for key, patience in list(shared.items()):
                if not patience.deadlines:
                    patience.cancel()
                    del shared[key]
        made = _Patience(loop, deadline)
        if len(shared) < _SHARED_TIMERS:
            made.shared = True
            shared[timeout] = made
        return made


async def _put_in_time(room: Room, future: asyncio.Future[Message]) -> None:
    """Put a message into a mailbox once there is room, within the timeout of its request.

    Raises:
        MailboxFull: There was no room in time. Unlike after a timeout, it is certain that the
            message was not handed over.
    """
    line = join(room)
    if line is None:
        room.intake.refused -= 1  # there was room by then
        return
    try:
        await asyncio.wait((line.future, future), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waited = not line.future.done()
        line.leave()
    if not waited:
        line.future.result()
        room.intake.refused -= 1  # it has waited instead
    elif isinstance(future.exception(), RequestTimeout):
        raise MailboxFull(room.intake.address, "no room in time")
    # Else the node has stopped, and the request raises that error.
