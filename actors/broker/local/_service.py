"""The handling of one request: the handler's task, its credit and its incoming elements.

All calls are made on one loop. The requester's side calls the methods of `Handling`; the
handler's answer goes to the `RequesterEnd`. Two bounds always hold: the handler makes no element
without credit, and `Incoming` holds no more than its window.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from ....protocol import Address, PayloadNotBytes, PayloadTooBig
from ....protocol.rsocket import MAX_REQUEST_N, ErrorCode
from .._ends import RequesterEnd
from .._exchange import CANCELED, DELIVER, FAILED
from ._handlers import Answer, ApplicationError, Handlers, Interaction, Request

__all__ = ["Handling", "Incoming", "as_bytes", "parts_of"]

_logger = logging.getLogger("onward.actors.broker")

ELEMENT_COST: Final = 256
"""Bytes counted for each held element on top of its own, for its objects."""

_LONGEST_NAME: Final = 100
"""Most characters of a route or a service name in a log line."""

_PER_TURN: Final = 64
"""Most elements a generator that never waits may make before it yields to the loop."""


class _Signal:
    """A wake-up signal for at most one waiting task."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether a task waits."""
        return self._waiter is not None

    async def wait(self) -> None:
        """Wait until `wake` is called.

        Raises:
            RuntimeError: Another task waits already.
        """
        if self._waiter is not None:
            raise RuntimeError("another task waits for this already")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Incoming(AsyncIterator[bytes]):
    """The elements of a channel's requester, the first one included.

    Credit is given as elements are taken, for at most `Handlers.channel_window` elements ahead,
    and for fewer if they are large.

    Attributes:
        metadata: The metadata of the element taken last; `None` if it has none.
        held: Bytes of the elements not taken yet, with the cost of their objects.

    Raises:
        ApplicationError: (While iterating.) The requester ended them with an error. The
            handler's further answer is discarded.
    """

    def __init__(self, outlet: RequesterEnd, request: Request, window: int, most: int) -> None:
        self.metadata: bytes | None = None
        self.held = 0
        self._outlet = outlet
        self._window = window
        self._most = most
        self._held: deque[tuple[bytes, bytes | None]] = deque()
        self._due = 0  # elements requested and not yet received
        self._begun = False
        self._ended = False
        self._error: ApplicationError | None = None
        self._news = _Signal()
        self._hold(request.data, request.metadata)

    def _hold(self, data: bytes, metadata: bytes | None) -> None:
        size = _size(data, metadata)
        self.held += size
        # The larger the elements, the fewer are requested ahead.
        self._window = max(1, min(self._window, self._most // size))
        self._held.append((data, metadata))

    @property
    def ended(self) -> bool:
        """Whether no more elements will come."""
        return self._ended

    async def __anext__(self) -> bytes:
        """Return the data of the next element."""
        if self._begun:
            self._ask()
        self._begun = True
        while not self._held:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            await self._news.wait()
        data, self.metadata = self._held.popleft()
        self.held -= _size(data, self.metadata)
        return data

    def _ask(self) -> None:
        """Give credit when at most half of the window is held or on its way."""
        missing = self._window - self._due - len(self._held)
        if not self._ended and 2 * missing >= self._window:
            self._due += missing
            self._outlet.request_n(missing)

    @property
    def waiting(self) -> bool:
        """Whether the handler waits for an element."""
        return self._news.waiting

    def put(self, data: bytes, metadata: bytes | None) -> bool:
        """Store an element; return whether it was requested."""
        if not self._due:
            return False
        self._due -= 1
        self._hold(data, metadata)
        self._news.wake()
        return True

    def end(self, error: ApplicationError | None = None) -> None:
        """End the elements, with an error if one is given."""
        self._ended = True
        self._error = self._error or error
        self._news.wake()

    def close(self) -> None:
        """End the elements and discard those not taken."""
        self.end()
        self._held.clear()
        self.held = 0


class Handling:
    """A request in progress in a handler: the destination's end of an exchange.

    Attributes:
        interaction: The interaction.
        over: Whether either side has ended the request. The handler's task may still be ending.
        outcome: How it ended, for the event log, if it has no answer; see `Outcome`.
    """

    __slots__ = (
        "_credit",
        "_handlers",
        "_incoming",
        "_news",
        "_origin",
        "_outlet",
        "_task",
        "interaction",
        "outcome",
        "over",
    )

    def __init__(
        self,
        handlers: Handlers,
        interaction: Interaction,
        outlet: RequesterEnd,
        origin: Address | None = None,
    ) -> None:
        self.interaction = interaction
        self.over = False
        self.outcome = DELIVER
        self._handlers = handlers
        self._origin = origin
        self._outlet = outlet
        self._credit = 0
        self._news = _Signal()
        self._incoming: Incoming | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, handler: Callable[..., Any], request: Request) -> None:
        """Start the handler's task; once."""
        if self.interaction is Interaction.CHANNEL:
            limits = self._handlers
            window, most = limits.channel_window, limits.channel_bytes
            self._incoming = Incoming(self._outlet, request, window, most)
        self._task = asyncio.get_running_loop().create_task(self._run(handler, request))
        self._task.add_done_callback(self._on_done)

    # --- requester's side -------------------------------------------------------------------

    def credit(self, n: int) -> None:
        """Add credit for elements, the first credit included."""
        self._credit = min(self._credit + n, MAX_REQUEST_N)
        self._news.wake()

    def element(self, data: bytes, metadata: bytes | None) -> None:
        """Add an element of a channel. One without credit ends it as INVALID."""
        incoming = self._incoming
        if self.over or incoming is None or incoming.ended:
            return
        if not incoming.put(data, metadata):
            self._fail(ErrorCode.INVALID, "an element without credit")
            self.cancel()

    def input_complete(self) -> None:
        """End the requester's elements of a channel."""
        if self._incoming is not None:
            self._incoming.end()

    def input_error(self, code: int, text: str) -> None:
        """End a channel with the requester's error.

        Both directions end. A handler that waits for an element gets the error; any other is
        cancelled. Its further answer is discarded.
        """
        if self._incoming is not None and not self.over:
            self.over = True
            try:
                error = ApplicationError(code, text)
            except ValueError:  # an error, with a code that cannot end a stream
                error = ApplicationError(ErrorCode.APPLICATION_ERROR, text)
            if not self._incoming.waiting:
                self.cancel()
            self._incoming.end(error)

    def cancel(self) -> None:
        """Cancel the handler: the requester has cancelled or disconnected."""
        self.over = True
        if self._task is not None:
            self._task.cancel()

    @property
    def done(self) -> bool:
        """Whether the handler has ended, or was never started."""
        return self._task is None or self._task.done()

    @property
    def held(self) -> int:
        """Bytes of a channel's elements that the handler has not taken yet."""
        return 0 if self._incoming is None else self._incoming.held

    def then(self, action: Callable[[], object]) -> None:
        """Call a function once the handler has ended; at once if it was never started."""
        if self._task is None:
            action()
        else:
            self._task.add_done_callback(lambda _: action())

    async def wait(self) -> None:
        """Wait until the handler has ended."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    # --- handler's side -----------------------------------------------------------------------

    async def _run(self, handler: Callable[..., Any], request: Request) -> None:
        try:
            if self._incoming is not None:
                await self._send_all(handler(request, self._incoming))
            elif self.interaction is Interaction.STREAM:
                await self._send_all(handler(request))
            else:
                answer = await handler(request)
                if self.interaction is Interaction.RESPONSE:
                    self._send(answer, complete=True)
        except ApplicationError as error:
            self._refuse(request, error)
        except PayloadTooBig as error:
            self._on_error(request, "the answer is too big", error)
        except Exception as error:  # noqa: BLE001 - the top of foreign code
            self._on_error(request, "the handler failed", error)

    async def _send_all(self, elements: AsyncIterator[Any]) -> None:
        """Send the elements that a handler yields, and advance it only with credit."""
        try:
            sent = 0
            while await self._may_send():
                try:
                    element = await anext(elements)
                except StopAsyncIteration:
                    self._complete()
                    return
                self._credit -= 1
                self._send(element, complete=False)
                sent += 1
                if sent % _PER_TURN == 0:
                    await asyncio.sleep(0)
        finally:
            close = getattr(elements, "aclose", None)
            if close is not None:
                await close()

    async def _may_send(self) -> bool:
        """Wait for credit; return whether the requester still wants elements."""
        while not self._credit and not self.over:
            await self._news.wait()
        return not self.over

    def _send(self, answer: Any, *, complete: bool) -> None:
        data, metadata = parts_of(answer, "an answer")
        if not self.over:
            self._outlet.element(data, metadata, complete=complete)
            self.over = self.over or complete

    def _complete(self) -> None:
        if not self.over:
            self.over = True
            self._outlet.complete()
            if self._incoming is not None and not self._incoming.ended:
                self._outlet.cancel_input()

    def _fail(self, code: int, text: str) -> None:
        if not self.over and self.interaction.answered:
            self._outlet.error(code, text)
        self.over = True

    def _refuse(self, request: Request, error: ApplicationError) -> None:
        try:
            # A subclass may have a code or text that cannot be sent.
            told = ApplicationError(error.code, error.text)
        except Exception as wrong:  # noqa: BLE001 - as above
            self._on_error(request, "the handler failed", wrong)
        else:
            self.outcome = FAILED
            self._fail(told.code, told.text)

    def _on_error(self, request: Request, text: str, error: Exception) -> None:
        self._handlers.on_failed()
        self.outcome = FAILED
        service = self._handlers.service_of(request)
        what = self.interaction.value
        what += f" {request.route[:_LONGEST_NAME]!r}" if request.route else ""
        what += f" of service {service[:_LONGEST_NAME]!r}" if service else ""
        _logger.error("%s: %s", what, text, exc_info=error, extra={"event": "handler.failed"})
        self._fail(ErrorCode.APPLICATION_ERROR, text)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._handlers.on_ended(self._origin)
        if task.cancelled():
            # Unless it is over, the handler or the end of the loop has cancelled it.
            self.outcome = CANCELED
            self._fail(ErrorCode.CANCELED, "the handler was cancelled")
        self.over = True
        if self._incoming is not None:
            self._incoming.close()
            self._incoming = None
        # The exception of the task, if it has one, refers to this by its traceback.
        self._task = None
        self.let_go()

    def let_go(self) -> None:
        """Release the requester's end, which gets nothing more; once.

        The two refer to each other; without this they would wait for the cycle collector.
        """
        del self._outlet


def _size(data: bytes, metadata: bytes | None) -> int:
    """Return the bytes that are counted for an element."""
    return len(data) + len(metadata or b"") + ELEMENT_COST


def parts_of(given: object, what: str) -> tuple[bytes, bytes | None]:
    """Return data and metadata of an answer or an element.

    Args:
        given: `bytes` or an `Answer`.
        what: Its name in the error.

    Raises:
        PayloadNotBytes: It is neither, or a part of the `Answer` is not `bytes`.
    """
    if not isinstance(given, Answer):
        return as_bytes(given, what), None
    metadata: object = given.metadata
    return as_bytes(given.data, what), (
        None if metadata is None else as_bytes(metadata, f"the metadata of {what}")
    )


def as_bytes(given: Any, what: str) -> bytes:
    """Convert data to `bytes`.

    Raises:
        PayloadNotBytes: It is none of `bytes`, `bytearray` and `memoryview`.
    """
    if type(given) is bytes:
        return given
    if issubclass(type(given), (bytes, bytearray, memoryview)):
        return bytes(given)
    raise PayloadNotBytes(type(given).__name__, what)
