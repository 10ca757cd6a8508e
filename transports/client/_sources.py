"""The sources of a blocking client's channels: iterators that may block, on their own threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast

from ...protocol import NotDelivered

if TYPE_CHECKING:
    from ...actors.broker import Answer

__all__ = ["SourceElements", "SourceLimit"]

Asked: TypeAlias = "Future[object]"

_END: Final = object()


class SourceLimit:
    """The limit on the sources that are read at a time.

    Args:
        most: The limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._read = 0

    def enter(self) -> None:
        """Count a source; `leave` has to follow.

        Raises:
            NotDelivered: There are too many.
        """
        with self._lock:
            if self._read >= self._most:
                why = f"the sources of {self._most} channels are being read already (max_sources)"
                raise NotDelivered("the client", why)
            self._read += 1

    def leave(self) -> None:
        """Count the end of a source."""
        with self._lock:
            self._read -= 1


class SourceElements(AsyncIterator["bytes | Answer"]):
    """The elements of a source that may block, each taken when it is asked for.

    The source is read by a thread of its own, which begins with the first element, and ends with
    the source or when the source returns after `aclose`. It is a daemon: a source that blocks for
    ever holds neither other channels nor the end of the process.

    Args:
        source: The source.
        sources: The limit on sources.
    """

    def __init__(self, source: Iterable[bytes | Answer], sources: SourceLimit) -> None:
        self._source = source
        self._sources = sources
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | Answer:
        """Return the next element.

        Raises:
            NotDelivered: Too many other sources are being read.
        """
        if self._thread is None:
            self._begin()
        asked: Asked = Future()
        self._asked.put(asked)
        element = await asyncio.wrap_future(asked)
        if element is _END:
            raise StopAsyncIteration
        return cast("bytes | Answer", element)

    async def aclose(self) -> None:
        """End the thread: at once, or when the source that blocks it returns."""
        self._asked.put(None)

    def _begin(self) -> None:
        self._sources.enter()
        read = copy_context().run
        self._thread = threading.Thread(
            target=read, args=(self._read,), name="source of a channel", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._sources.leave()
            raise

    def _read(self) -> None:
        try:
            iterator = None
            while (asked := self._asked.get()) is not None:
                if not asked.set_running_or_notify_cancel():
                    continue
                try:
                    if iterator is None:
                        iterator = iter(self._source)
                    element = next(iterator, _END)
                except BaseException as error:  # noqa: BLE001 - of foreign code, for the consumer
                    asked.set_exception(error)
                    return
                asked.set_result(element)
                if element is _END:
                    return
        finally:
            self._sources.leave()
