"""The responses to a client's open requests.

There is one object for each stream: the connection passes it the frames, and the request reads
their payloads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ...actors.broker import Answer
from ...protocol import OnwardError, PayloadTooBig
from ...protocol.rsocket import ErrorCode, Frame, FrameType, Stream
from ..rsocket._reassembly import Reassembly
from ._errors import failure, late_failure

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["AskedElements", "PendingResponse"]


class PendingResponse:
    """The pending response of a request/response.

    Attributes:
        stream: The stream.
        answer: The future of the answer.
    """

    __slots__ = ("_link", "_reassembly", "answer", "stream")

    def __init__(self, link: ClientLink, stream: Stream) -> None:
        self.stream = stream
        self.answer: asyncio.Future[Answer] = link.loop.create_future()
        self._link = link
        self._reassembly = Reassembly(link.budget, link.max_answer)

    def on_frame(self, frame: Frame) -> None:
        """Handle a PAYLOAD or ERROR."""
        if frame.type == FrameType.ERROR:
            # Request Response: "Upon receiving a COMPLETE or
            # ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID], the stream is terminated on the
            # Requester."
            self.on_gone(failure(frame.error_code, frame.error_text))
            return
        try:
            payload = self._reassembly.add(frame)
        except PayloadTooBig as error:
            self._link.end_stream(self.stream, ErrorCode.CANCELED, "")
            self.on_gone(error)
            return
        if payload is not None and not self.answer.done():
            self.answer.set_result(Answer(payload.data, payload.metadata))

    def on_gone(self, error: OnwardError) -> None:
        """Fail the answer after the end of the stream."""
        self._reassembly.drop()
        if not self.answer.done():
            self.answer.set_exception(error)

    def cancel(self) -> None:
        """Cancel the request."""
        self._reassembly.drop()
        # Request Response: "Upon sending a CANCEL, the stream is terminated on the Requester."
        self._link.end_stream(self.stream, ErrorCode.CANCELED, "")


class AskedElements:
    """The elements from the responder of a stream or a channel.

    The request grants credit for `window` elements. More is granted as elements are consumed, half
    a window at a time. So no more than the window is ever held.

    Attributes:
        stream: The stream.
        begun: Whether the request must not be sent again: an element was received, or one after
            the first was taken from the source.
        awaited: Whether the consumer waits for an element, or is about to.
        writable: Set whenever the responder of a channel grants credit or cancels.
        input_over: Set once the responder of a channel accepts no more elements.
    """

    __slots__ = (
        "_due",
        "_ended",
        "_error",
        "_held",
        "_link",
        "_news",
        "_reassembly",
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
        self._due = window  # elements requested and not received
        self._held: deque[Answer] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._reassembly = Reassembly(link.budget, link.max_answer)

    # --- from the connection ------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the responder."""
        kind = frame.type
        if kind == FrameType.PAYLOAD:
            self._on_payload(frame)
        elif kind == FrameType.ERROR:
            told = late_failure if self.begun else failure
            self.on_gone(told(frame.error_code, frame.error_text))
        elif kind == FrameType.CANCEL:
            # A responder may cancel at any time. Defect 14 of the `rsocket` package (0.4.20): it
            # raises here if the channel has nothing to send.
            self.input_over.set()
            self.writable.set()
        else:  # REQUEST_N; the state machine counts the credit
            self.writable.set()

    def _on_payload(self, frame: Frame) -> None:
        try:
            payload = self._reassembly.add(frame)
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
        """End the stream with an error; `take` returns the elements before it first."""
        self._reassembly.drop()
        self._ended = True
        self._error = self._error or error
        self.input_over.set()
        self.writable.set()
        self._news.set()

    # --- from the requester ---------------------------------------------------------------------

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
            # Request Stream: "At any time, the Requester may send REQUEST_N frames."
            self._link.core.send_request_n(self.stream, missing)
            self._link.flush_soon()
        return element

    def check(self) -> None:
        """Raise the error that the stream ended with, if any."""
        if self._error is not None:
            raise self._error

    async def may_send(self) -> bool:
        """Wait until an element can be sent; return False once the responder accepts none."""
        # REQUEST_CHANNEL Frame: "A requester MUST not send PAYLOAD frames after the REQUEST_CHANNEL
        # frame until the responder sends a REQUEST_N frame granting credits for number of PAYLOADs
        # able to be sent."
        while not self.input_over.is_set() and not self.stream.closed:
            if self.stream.send_credit > 0 and not self._link.full:
                return True
            self.writable.clear()
            await self.writable.wait()
        return False

    def send(self, data: bytes, metadata: bytes | None) -> None:
        """Send an element; drop it if the responder accepts no more.

        Raises:
            PayloadTooBig: It is over `max_request`, or cannot be sent.
        """
        size, limit = len(data) + len(metadata or b""), self._link.max_request
        if size > limit:
            raise PayloadTooBig(size, limit)
        if not self.input_over.is_set() and not self.stream.closed:
            self._link.core.send_payload(self.stream, data, metadata)
            self._link.flush_soon()

    def send_complete(self) -> None:
        """Complete the requester's elements."""
        if not self.input_over.is_set() and not self.stream.closed:
            self._link.core.send_payload(self.stream, next=False, complete=True)
            self._link.flush_soon()

    def end_with(self, error: Exception, code: int, text: str) -> None:
        """End the channel with an error of the requester, which `take` raises."""
        if not self.stream.closed:
            # Request Channel: "Upon sending an ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID],
            # the stream is terminated on both the Requester and Responder."
            self._link.core.send_error(self.stream, code, text)
            self._link.flush_soon()
        self.on_gone(error)

    def cancel(self) -> None:
        """Cancel the stream, and drop the elements held."""
        self._reassembly.drop()
        self._held.clear()
        self._ended = True
        self._link.end_stream(self.stream, ErrorCode.CANCELED, "")
