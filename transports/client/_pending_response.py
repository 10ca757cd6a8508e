"""Requests of ours that are open: what comes back on their streams.

One object for each stream; the connection hands it the frames, its request takes what they
hold. All of it happens on one loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ...actors.broker import Answer
from ...protocol import OnwardError, PayloadTooBig
from ...protocol.rsocket import ErrorCode, Frame, FrameType, Stream
from ._errors import failure, late_failure
from ._gather import Gatherer

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["AskedElements", "PendingResponse"]


class PendingResponse:
    """A request/response.

    Attributes:
        stream: Its stream.
        answer: What will have come of it.
    """

    __slots__ = ("_gatherer", "_link", "answer", "stream")

    def __init__(self, link: ClientLink, stream: Stream) -> None:
        self.stream = stream
        self.answer: asyncio.Future[Answer] = link.loop.create_future()
        self._link = link
        self._gatherer = Gatherer(link.budget, link.options.max_answer)

    def on_frame(self, frame: Frame) -> None:
        """Take a PAYLOAD or ERROR."""
        if frame.type == FrameType.ERROR:
            self.on_gone(failure(frame.error_code, frame.error_text))
            return
        try:
            payload = self._gatherer.add(frame)
        except PayloadTooBig as error:
            self._link.end_stream(self.stream, ErrorCode.CANCELED, "")
            self.on_gone(error)
            return
        if payload is not None and not self.answer.done():
            self.answer.set_result(Answer(payload.data, payload.metadata))

    def on_gone(self, error: OnwardError) -> None:
        """Fail: the stream has ended without an answer."""
        self._gatherer.drop()
        if not self.answer.done():
            self.answer.set_exception(error)

    def cancel(self) -> None:
        """Have no more of it."""
        self._gatherer.drop()
        self._link.end_stream(self.stream, ErrorCode.CANCELED, "")


class AskedElements:
    """What the responder of a stream or a channel sends.

    The requester has given credit for `window` elements at first. It gives more as they are
    taken, half a window at a time. So no more than the window is ever held.

    Attributes:
        stream: Its stream.
        begun: Whether the responder certainly has the request in hand: an element has come,
            or one after the first was sent.
        awaited: Whether somebody waits for an element, or is about to.
        writable: Set whenever the responder of a channel wants more, or none any more.
        input_over: Set once the responder of a channel wants no more elements.
    """

    __slots__ = (
        "_due",
        "_ended",
        "_error",
        "_gatherer",
        "_held",
        "_link",
        "_news",
        "_window",
        "awaited",
        "begun",
        "input_over",
        "stream",
        "writable",
    )

    def __init__(self, link: ClientLink, stream: Stream, window: int) -> None:
        self.stream = stream
        self.begun = False
        self.awaited = True
        self.input_over = asyncio.Event()
        self.writable = asyncio.Event()
        self._link = link
        self._window = window
        self._due = window  # elements asked for that have not come
        self._held: deque[Answer] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._gatherer = Gatherer(link.budget, link.options.max_answer)

    # --- from the connection ------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Take a frame of the responder."""
        kind = frame.type
        if kind == FrameType.PAYLOAD:
            self._on_payload(frame)
        elif kind == FrameType.ERROR:
            told = late_failure if self.begun else failure
            self.on_gone(told(frame.error_code, frame.error_text))
        elif kind == FrameType.CANCEL:
            # Defect 14 of the `rsocket` package (0.4.20): it raises here if the channel has
            # nothing to send. It is the responder's good right.
            self.input_over.set()
            self.writable.set()
        else:  # REQUEST_N: the credit is counted by the state machine
            self.writable.set()

    def _on_payload(self, frame: Frame) -> None:
        try:
            payload = self._gatherer.add(frame)
        except PayloadTooBig as error:
            self._link.end_stream(self.stream, ErrorCode.CANCELED, "")
            self.on_gone(error)
            return
        if payload is None:
            return
        if payload.next:
            self.begun = True
            self._due -= 1
            self._held.append(Answer(payload.data, payload.metadata))
        if payload.ends:
            self._ended = True
        self._news.set()

    def on_gone(self, error: Exception) -> None:
        """Note that the stream has ended with an error; what came before it is still given."""
        self._gatherer.drop()
        self._ended = True
        self._error = self._error or error
        self.input_over.set()
        self.writable.set()
        self._news.set()

    # --- for the requester ----------------------------------------------------------------------

    async def take(self) -> Answer | None:
        """Return the next element, or `None` after the last one.

        Raises:
            OnwardError: The stream ended with an error.
        """
        while not self._held:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        element = self._held.popleft()
        missing = self._window - self._due - len(self._held)
        if not self._ended and 2 * missing >= self._window:
            self._due += missing
            self._link.core.send_request_n(self.stream, missing)
            self._link.flush_soon()
        return element

    def check(self) -> None:
        """Raise what the stream ended with, if that is an error."""
        if self._error is not None:
            raise self._error

    async def may_send(self) -> bool:
        """Wait until the responder wants an element; return whether it ever does."""
        while not self.input_over.is_set() and not self.stream.closed:
            if self.stream.send_credit > 0 and not self._link.full:
                return True
            self.writable.clear()
            await self.writable.wait()
        return False

    def send(self, data: bytes, metadata: bytes | None) -> None:
        """Send an element; nobody gets it if the responder wants none any more.

        Raises:
            PayloadTooBig: It is over `max_request`, or cannot be sent.
        """
        size, limit = len(data) + len(metadata or b""), self._link.options.max_request
        if size > limit:
            raise PayloadTooBig(size, limit)
        if not self.input_over.is_set() and not self.stream.closed:
            self._link.core.send_payload(self.stream, data, metadata)
            self._link.flush_soon()

    def send_complete(self) -> None:
        """End our elements."""
        if not self.input_over.is_set() and not self.stream.closed:
            self._link.core.send_payload(self.stream, next=False, complete=True)
            self._link.flush_soon()

    def end_with(self, error: Exception, code: int, text: str) -> None:
        """End the channel with an error of ours, which `take` raises."""
        if not self.stream.closed:
            self._link.core.send_error(self.stream, code, text)
            self._link.flush_soon()
        self.on_gone(error)

    def cancel(self) -> None:
        """Have no more of it."""
        self._gatherer.drop()
        self._held.clear()
        self._ended = True
        self._link.end_stream(self.stream, ErrorCode.CANCELED, "")
