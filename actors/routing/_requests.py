"""Pending requests, each with a mailbox at a random address.

An answer is matched to its request by that address, so requests need no numbers.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Final

from ...protocol import (
    ERROR_SOURCE,
    LOCAL,
    Address,
    Context,
    MailboxFull,
    Message,
    NodeStopped,
    OnwardError,
    RequestTimeout,
    Route,
    RouteLike,
    format_route,
    read_error_reply,
)
from ...protocol.options import check_timeout
from .._errors import GivenUp, Refused, TooManyRequests
from ..runtime._mailbox import Target
from ..runtime._room import Room, join
from ..runtime._run_queue import Phase

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["LATE_ANSWER", "RandomAddresses", "Reply", "Requests"]

LATE_ANSWER: Final = "late answer"
"""The reason of a dead letter that is the answer to a request given up."""

_ERRORS: Final = ERROR_SOURCE.value
_BYTES: Final = 16
_CHUNK: Final = 256
_SHARED_TIMERS: Final = 16
_CLOSED: Final = Phase.CLOSED

_DEADLINES: Final = 256
"""Requests with the same timeout share a deadline within this fraction of it."""

_AT_ONCE: Final = 16
"""Requests in a row that may be answered before the event loop runs other tasks."""
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class RandomAddresses:
    """Local addresses of 32 hexadecimal digits from the system's random source.

    Random bytes are read for many addresses at once, which is cheaper. Safe from any thread.
    """

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: deque[Address] = deque()

    def take(self) -> Address:
        """Return an address that has never been used."""
        try:
            return self._ready.popleft()
        except IndexError:
            digits = os.urandom(_BYTES * _CHUNK).hex().encode("ascii")
            made = [
                _new(Address, (LOCAL, digits[at : at + 2 * _BYTES]))
                for at in range(0, len(digits), 2 * _BYTES)
            ]
            address = made.pop()
            self._ready.extend(made)
            return address


class Reply(Target):
    """The mailbox of one request, which accepts one answer."""

    __slots__ = ("_router", "future", "onward", "timeout")

    def __init__(
        self, router: Router, future: asyncio.Future[Message], onward: Route, timeout: float
    ) -> None:
        # `queue` is never set, so that `Router.route` calls `put`.
        self.queue = None
        self.future = future
        self.onward = onward
        self.timeout = timeout
        self._router = router

    def put(self, message: Message) -> None:
        """Accept the answer; a second one becomes a dead letter."""
        if get_ident() != self._router.thread_id:
            self._router.call_on_loop(lambda: self.put(message))
        elif self.future.done():
            self._router.dead_letter(message, LATE_ANSWER)
        else:
            back = message[1]
            # The test of the last address spares most answers the call.
            reply = read_error_reply(message) if back and back[-1][1] == _ERRORS else None
            context = message[4]
            if context is not None and context[1] is not None:
                instruments = self._router.instruments
                if instruments is not None:
                    instruments.reply_traced(message)
            if reply is None:
                self.future.set_result(message)
            else:
                error = (Refused if reply.certain else GivenUp)(reply.address, reply.reason)
                self.future.set_exception(error)

    def expire(self) -> None:
        """Fail the request at its timeout."""
        if not self.future.done():
            target = format_route(self.onward)
            self.future.set_exception(RequestTimeout(target, f"{self.timeout:g} s"))


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
        router: The node.

    Attributes:
        count: The number of waiting requests.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self.count = 0
        self._at_once = 0
        self._patience: dict[float, _Patience] = {}
        # Requests given up and not answered; a dict, for its order.
        self._given_up: dict[Address, None] = {}

    def __contains__(self, address: Address) -> bool:
        return type(self._router.table.get(address)) is Reply

    def is_late(self, address: Address) -> bool:
        """Whether an address belongs to a request given up recently."""
        return address in self._given_up

    async def request(  # noqa: C901 - every request passes here; calls would cost more than they show
        self,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        source: Address | None,
        context: Context | None,
    ) -> Message:
        """Send a message and wait for the answer; see `Router.request`."""
        router = self._router
        loop = router._loop
        if loop is None or router.phase is _CLOSED:
            raise router.stopped_error()
        if type(payload) is not bytes or len(payload) > router.limits.payload:
            router.check_payload(payload)
        onward = router.route_of(route)
        if context is not None and context[4] is not None:
            sent = _new(Message, (onward, (), payload, source, context))
            context = router.pass_on(sent)[4]
        if self.count >= router.limits.requests:
            raise TooManyRequests(format_route(onward), f"{router.limits.requests} wait")
        future: asyncio.Future[Message] = loop.create_future()
        router.now = now = loop.time()
        patience = self._patience.get(timeout) or self._patience_of(loop, timeout, now)
        reply = Reply(router, future, onward, timeout)
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
        instruments = router.instruments
        if instruments is not None and source is None and instruments.samples:
            context = router.entering(instruments, context)
        asking = instruments if instruments is not None and instruments.asks else None
        address = router.random_address()
        router.table[address] = reply
        self.count += 1
        try:
            if asking is not None:
                asking.request_begun(source, address, onward)
            message = _new(Message, (onward, (address,), payload, source, context))
            try:
                router.route_now(message)
            except MailboxFull as full:
                room: Room | None = full.room
                if room is None or not room.may_wait:
                    raise
                await _put_in_time(room, future)
            if future.done():
                # Answered without a pass of the loop, which must run other tasks now and then.
                self._at_once = (self._at_once + 1) % _AT_ONCE
                if not self._at_once:
                    await asyncio.sleep(0)
            return await future
        except BaseException:
            self._give_up(address)
            if future.done() and not future.cancelled():
                future.exception()  # an answer may come together with a cancellation
            raise
        finally:
            self.count -= 1
            del router.table[address]
            deadlines.pop(reply, None)
            if not patience.shared:
                patience.cancel()
            if asking is not None:
                asking.request_ended(address)

    def fail(self, address: Address, error: OnwardError) -> bool:
        """Raise an error in the request that waits at an address; return whether there is one."""
        reply = self._router.table.get(address)
        if type(reply) is not Reply or reply.future.done():
            return False
        error.lost = None  # the requester did not send the message that was lost
        reply.future.set_exception(error)
        return True

    def close(self, name: str) -> None:
        """Fail all waiting requests and cancel the timers, because the node stops."""
        for address in list(self._router.table):
            self.fail(address, NodeStopped(name, "while an answer was due"))
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

    def _give_up(self, address: Address) -> None:
        given_up = self._given_up
        given_up[address] = None
        if len(given_up) > self._router.limits.late_answers:
            del given_up[next(iter(given_up))]


async def _put_in_time(room: Room, future: asyncio.Future[Message]) -> None:
    """Put a message into a mailbox once there is room, within the timeout of its request.

    Raises:
        MailboxFull: There was no room in time. Unlike after a timeout, it is certain that the
            message was not handed over.
    """
    line = join(room)
    if line is None:
        return
    try:
        await asyncio.wait((line.future, future), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waited = not line.future.done()
        line.leave()
    if not waited:
        line.future.result()
    elif isinstance(future.exception(), RequestTimeout):
        raise MailboxFull(room.intake.address, "no room in time")
    # Else the node has stopped, and the request raises that error.
