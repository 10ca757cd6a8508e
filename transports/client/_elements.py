"""Streams and channels as asynchronous generators, with credit both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager

from ...actors.broker import Answer
from ...protocol import NotDelivered
from ...protocol.rsocket import ErrorCode, FrameType
from ._asked import AskedElements
from ._calls import Calls, Tries

__all__ = ["channel_elements", "stream_elements"]


async def stream_elements(
    calls: Calls, data: bytes, metadata: bytes, timeout: float | None
) -> AsyncGenerator[Answer]:
    """Yield what a stream brings."""
    kind = FrameType.REQUEST_STREAM
    tries = Tries()
    calls.requests += 1
    async with _admitted(calls, tries, timeout):
        while True:
            async with calls.in_time(tries, timeout):
                asked = await calls.send(tries, lambda link: link.elements(kind, data, metadata))
            try:
                while (element := await _next(calls, tries, asked, timeout)) is not None:
                    yield element
            except NotDelivered as error:
                if asked.begun:
                    raise
                rejected = error
            else:
                return
            finally:
                asked.cancel()
            async with calls.in_time(tries, timeout):
                await calls.again(tries, rejected)


async def channel_elements(
    calls: Calls,
    source: AsyncIterable[bytes | Answer],
    wrap: Callable[[bytes | None], bytes],
    timeout: float | None,
) -> AsyncGenerator[Answer]:
    """Yield what a channel brings, and send what `source` yields."""
    kind = FrameType.REQUEST_CHANNEL
    tries = Tries()
    calls.requests += 1
    elements = aiter(source)
    try:
        first = await anext(elements, None)
        if first is None:
            return
        data, metadata = _parts(first)
        wrapped = wrap(metadata)
        async with _admitted(calls, tries, timeout):
            while True:
                async with calls.in_time(tries, timeout):
                    asked = await calls.send(tries, lambda link: link.elements(kind, data, wrapped))
                pump = _Pump(asked, elements)
                try:
                    while (element := await _next(calls, tries, asked, timeout)) is not None:
                        yield element
                    await pump.finish()
                except NotDelivered as error:
                    if asked.begun or pump.taken:
                        raise
                    rejected = error
                else:
                    return
                finally:
                    await pump.stop()
                    asked.cancel()
                async with calls.in_time(tries, timeout):
                    await calls.again(tries, rejected)
    finally:
        close = getattr(elements, "aclose", None)
        if close is not None:
            await close()


@asynccontextmanager
async def _admitted(calls: Calls, tries: Tries, timeout: float | None) -> AsyncGenerator[None]:
    async with calls.in_time(tries, timeout):
        await calls.admission.enter()
    try:
        yield
    finally:
        calls.admission.leave()


async def _next(
    calls: Calls, tries: Tries, asked: AskedElements, timeout: float | None
) -> Answer | None:
    async with calls.in_time(tries, timeout):
        return await asked.take()


def _parts(element: bytes | Answer) -> tuple[bytes, bytes | None]:
    return (element.data, element.metadata) if isinstance(element, Answer) else (element, None)


class _Pump:
    """Sends the elements of a channel after the first, as its responder asks for them.

    Attributes:
        taken: Whether one has been taken from the source.

    Args:
        asked: The channel.
        elements: Where they come from.
    """

    def __init__(self, asked: AskedElements, elements: AsyncIterator[bytes | Answer]) -> None:
        self.taken = False
        self._asked = asked
        self._elements = elements
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        asked = self._asked
        try:
            while await asked.may_send():
                self.taken = True
                element = await anext(self._elements, None)
                if element is None:
                    asked.send_complete()
                    return
                asked.send(*_parts(element))
        except Exception as error:  # noqa: BLE001 - the source is foreign code
            # For whoever takes the answers. The responder is told no more than that.
            asked.end_with(error, ErrorCode.APPLICATION_ERROR, "the requester failed")

    async def finish(self) -> None:
        """Wait until all is sent, or no more is wanted."""
        no_more = asyncio.ensure_future(self._asked.input_over.wait())
        try:
            await asyncio.wait({self._task, no_more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            no_more.cancel()
        self._asked.check()

    async def stop(self) -> None:
        """Send no more."""
        self._task.cancel()
        await asyncio.wait({self._task})
