"""The channel between `onward broker --processes` and each process: questions both ways.

A line of JSON is a question, `{"id": 1, "ask": "prepare"}`, or an answer, `{"to": 1}`. An answer
may be `failed`, with a text. The end of the channel tells either side that the other has ended.

| asked by | ask | with | answer |
| --- | --- | --- | --- |
| a process | started | listeners: their URIs | |
| | failed | text, status: why it could not start | |
| | totals | totals: its figures at the end | |
| | operate | name: drain, undo-drain, reload | that of the operation, for all processes |
| | whole | target, body: of a path of all processes; principal, reads, source | as of `path` |
| `onward broker` | stop | pace: the name of a `Pace` | |
| | undo-drain | | that of the operation |
| | prepare | | errors: of each part that cannot be read anew |
| | apply, abort | | parts: those that were prepared |
| | path | target, body: of a path of this process; principal, reads, source | status, type, body |
| | pulse | | nothing: it is alive |
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeAlias, cast

from ._status import CommandError

__all__ = ["Answerer", "Channel", "ChannelClosed", "Said"]

_logger: Final = logging.getLogger("onward.cli")

MAX_LINE: Final = 16 * 1024 * 1024
"""Most bytes of a line: an answer of the admin interface with all that is around it."""

MAX_UNREAD: Final = 1024 * 1024
"""Most bytes that wait for the other side to read; then a further question fails at once."""

MAX_ASKED: Final = 256
"""Most questions in either direction at a time; a further one fails at once."""

Said: TypeAlias = dict[str, Any]
"""A question or an answer."""

Answerer: TypeAlias = Callable[[str, Said], Awaitable[Said]]
"""Answers a question; a `CommandError` is a failure that the other side is told of."""


class ChannelClosed(CommandError):
    """The other side has ended."""

    def __init__(self) -> None:
        super().__init__("the process has ended")


class Channel:
    """One side of a channel.

    Args:
        reader: The stream from the other side.
        writer: The stream to it.
        answer: Answers its questions.

    Attributes:
        over: The task that ends with the channel.
        heard: How many lines the other side has written.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answerer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Said]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.heard = 0
        self.over: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._follow())

    @classmethod
    async def open(cls, end: socket.socket, answer: Answerer) -> Channel:
        """Return the side of a channel at one end of a pair of sockets."""
        streams = await asyncio.open_unix_connection(sock=end, limit=MAX_LINE)
        return cls(*streams, answer)

    async def ask(self, what: str, timeout: float, **values: Any) -> Said:
        """Ask the other side, and return its answer.

        Args:
            what: The question.
            timeout: Most seconds to wait.
            **values: What goes with it.

        Raises:
            ChannelClosed: The other side has ended.
            CommandError: It failed, or gave no answer in time.
        """
        if self.over.done():
            raise ChannelClosed
        if len(self._asked) >= MAX_ASKED:
            raise CommandError("there are too many questions")
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD:
            raise CommandError("it does not read its questions")
        return await self._said(what, timeout, values)

    async def pulse(self, timeout: float) -> bool:
        """Ask whether the other side is alive; return whether it has written anything meanwhile.

        A side with too many questions, or too many answers to write, is alive. So this question is
        beside their limit, and each line is an answer to it. One is asked at a time.

        Args:
            timeout: Most seconds to wait.

        Raises:
            ChannelClosed: The other side has ended.
        """
        if self.over.done():
            raise ChannelClosed
        heard = self.heard
        try:
            await self._said("pulse", timeout, {})
        except ChannelClosed:
            raise
        except CommandError:
            return self.heard > heard
        return True

    async def _said(self, what: str, timeout: float, values: Said) -> Said:
        number = next(self._numbers)
        answered: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._write({"id": number, "ask": what, **values})
            async with asyncio.timeout(timeout):
                said = await answered
        except TimeoutError:
            raise CommandError(f"no answer within {timeout:g} s") from None
        finally:
            self._asked.pop(number, None)
        if "failed" in said:
            raise CommandError(str(said["failed"]))
        return said

    def tell(self, what: str, **values: Any) -> None:
        """Ask the other side without waiting for its answer."""
        self._write({"id": 0, "ask": what, **values})

    async def close(self) -> None:
        """Close the channel after what was written."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        self.over.cancel()
        await asyncio.wait({self.over})

    def _write(self, said: Said) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")

    async def _follow(self) -> None:
        try:
            with suppress(OSError, ValueError):  # ValueError: a line that is too long
                while line := await self._reader.readline():
                    self.heard += 1
                    self._on_line(cast("Said", json.loads(line)))
        finally:
            for each in self._asked.values():
                if not each.done():
                    each.set_exception(ChannelClosed())
            for task in self._tasks:
                task.cancel()
            self._writer.close()

    def _on_line(self, said: Said) -> None:
        if "to" in said:
            waiting = self._asked.get(said["to"])
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
        elif len(self._tasks) >= MAX_ASKED:
            self._write({"to": said["id"], "failed": "there are too many questions"})
        else:
            task = asyncio.get_running_loop().create_task(self._answered(said))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answered(self, said: Said) -> None:
        try:
            answer = await self._answer(said["ask"], said)
        except CommandError as error:
            answer = {"failed": str(error)}
        except Exception:
            # Or the other side would wait for its whole time. What is wrong is for the log alone.
            _logger.exception(
                "no answer to the question %s", said["ask"], extra={"event": "process.fault"}
            )
            answer = {"failed": "there is a fault in the answer; see the log"}
        if said["id"]:
            self._write({**answer, "to": said["id"]})
