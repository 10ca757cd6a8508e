"""Streams and channels as asynchronous generators, with credit both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ...actors.broker import Answer
from ...actors.broker.local._service import parts_of
from ...protocol import NotDelivered
from ...protocol.rsocket import ErrorCode, FrameType
from ._calls import Calls, Tries
from ._pending_response import AskedElements

__all__ = ["Patience", "channel_elements", "stream_elements"]

_END: Final = object()


class Patience(NamedTuple):
    """The timeouts of elements, in seconds; `None`: no limit.

    Attributes:
        first: Time for the first element, sending the request included.
        other: Time from one element to the next.
    """

    first: float | None
    other: float | None


async def stream_elements(
    calls: Calls, tries: Tries, data: bytes, metadata: bytes, patience: Patience
) -> AsyncGenerator[Answer]:
    """Yield the elements of a stream."""
    kind = FrameType.REQUEST_STREAM
    calls.requests += 1
    async with _Admitted(calls, tries, patience.first):
        while True:
            async with calls.in_time(tries, patience.first):
                asked = await calls.send(tries, lambda link: link.elements(kind, data, metadata))
            timeout = patience.first
            try:
                while (element := await _next(calls, tries, asked, timeout)) is not None:
                    asked.awaited = False
                    yield element
                    asked.awaited = True
                    timeout = patience.other
            except NotDelivered as error:
                if asked.begun:
                    raise
                rejected = error
            else:
                return
            finally:
                asked.cancel()
            async with calls.in_time(tries, patience.first):
                await calls.again(tries, rejected)


async def channel_elements(
    calls: Calls,
    tries: Tries,
    source: AsyncIterable[bytes | Answer],
    wrap: Callable[[bytes | None], bytes],
    patience: Patience,
) -> AsyncGenerator[Answer]:
    """Yield the elements of a channel, and send those of `source`."""
    kind = FrameType.REQUEST_CHANNEL
    calls.requests += 1
    elements = aiter(source)
    try:
        first = await _first(calls, elements, patience.first)
        if first is _END:
            return
        data, metadata = parts_of(first, "an element")
        wrapped = wrap(metadata)
        async with _Admitted(calls, tries, patience.first):
            while True:
                async with calls.in_time(tries, patience.first):
                    asked = await calls.send(tries, lambda link: link.elements(kind, data, wrapped))
                pump = _Pump(asked, elements)
                timeout = patience.first
                try:
                    while (element := await _next(calls, tries, asked, timeout, pump)) is not None:
                        asked.awaited = False
                        yield element
                        asked.awaited = True
                        timeout = patience.other
                    await pump.finish()
                except NotDelivered as error:
                    if asked.begun:
                        raise
                    rejected = error
                else:
                    return
                finally:
                    await pump.stop()
                    asked.cancel()
                async with calls.in_time(tries, patience.first):
                    await calls.again(tries, rejected)
    finally:
        close = getattr(elements, "aclose", None)
        if close is not None:
            await close()


async def _first(
    calls: Calls, elements: AsyncIterator[bytes | Answer], timeout: float | None
) -> object:
    """Return the first element of a source, or `_END`.

    Raises:
        NotDelivered: There is none in time. Nothing was sent.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await anext(elements, _END)
    except TimeoutError:
        if not limit.expired():
            raise  # the source's own
        calls.timeouts += 1
        why = f"the source of the channel had no first element in {timeout:g} s"
        raise NotDelivered("the client", why) from None


class _Admitted:
    """The place of a request among those that the client has in flight.

    No `asynccontextmanager`: its generator would be one more that `loop.shutdown_asyncgens` closes,
    maybe before the generator of the elements that is in it, which would fail then.
    """

    def __init__(self, calls: Calls, tries: Tries, timeout: float | None) -> None:
        self._calls = calls
        self._tries = tries
        self._timeout = timeout

    async def __aenter__(self) -> None:
        async with self._calls.in_time(self._tries, self._timeout):
            await self._calls.enter(self._tries)

    async def __aexit__(self, *_exc_info: object) -> None:
        self._calls.admission.leave()


async def _next(
    calls: Calls,
    tries: Tries,
    asked: AskedElements,
    timeout: float | None,
    pump: _Pump | None = None,
) -> Answer | None:
    async with calls.in_time(tries, timeout) as limit:
        if pump is None:
            return await asked.take()
        with pump.stopping(limit):
            return await asked.take()


class _Pump:
    """The task that sends a channel's elements after the first, within the responder's credit.

    Args:
        asked: The channel.
        elements: The source of the elements.
    """

    def __init__(self, asked: AskedElements, elements: AsyncIterator[bytes | Answer]) -> None:
        self._asked = asked
        self._elements = elements
        self._idle = False  # whether an element of the source is awaited
        self._limit: asyncio.Timeout | None = None
        self._left: float | None = None  # seconds left of the limit while it is stopped
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        asked = self._asked
        try:
            while await asked.may_send():
                # The source yields this element once only, so the request cannot be tried again.
                asked.begun = True
                self._set_idle(idle=True)
                try:
                    element = await anext(self._elements)
                except StopAsyncIteration:
                    asked.send_complete()
                    return
                finally:
                    self._set_idle(idle=False)
                asked.send(*parts_of(element, "an element"))
        except Exception as error:  # noqa: BLE001 - the source is foreign code
            # The error goes to the consumer of the responses. The responder gets no details.
            asked.end_with(error, ErrorCode.APPLICATION_ERROR, "the requester failed")

    @contextmanager
    def stopping(self, limit: asyncio.Timeout) -> Generator[None]:
        """Stop a time limit while an element of the source is awaited."""
        self._limit = limit
        self._left = None
        self._move()
        try:
            yield
        finally:
            self._limit = None

    def _set_idle(self, *, idle: bool) -> None:
        self._idle = idle
        self._move()

    def _move(self) -> None:
        limit = self._limit
        if limit is None or limit.expired():
            return
        now = asyncio.get_running_loop().time()
        when = limit.when()
        if self._idle and when is not None:
            self._left = max(0.0, when - now)
            limit.reschedule(None)
        elif not self._idle and self._left is not None:
            limit.reschedule(now + self._left)
            self._left = None

    async def finish(self) -> None:
        """Wait until all elements are sent, or the responder cancels them."""
        no_more = asyncio.ensure_future(self._asked.input_over.wait())
        try:
            await asyncio.wait({self._task, no_more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            no_more.cancel()
        self._asked.check()

    async def stop(self) -> None:
        """Stop sending, and wait for the task."""
        self._task.cancel()
        await asyncio.wait({self._task})
