"""Requests that the broker sends to the handlers of this client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Handlers, Handling, Interaction
from ...protocol import OnwardError, PayloadTooBig
from ...protocol.rsocket import ErrorCode, Frame, FrameType, Reassembler, Stream
from ..rsocket._reassembly import Reassembly
from ..rsocket._request import INTERACTIONS
from ._metadata import request_of

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["CREDIT_WINDOW", "HandlerStream", "Handlings", "SilentOutlet"]

_WITH_CREDIT: Final = frozenset({Interaction.STREAM, Interaction.CHANNEL})

CREDIT_WINDOW: Final = 16
"""Most elements that a handler may send while the socket is full."""

_PRUNE: Final = 64
"""Least handlers kept before ended ones are removed."""


class Handlings:
    """The running handlers of one connection."""

    __slots__ = ("_noted", "_prune_at")

    def __init__(self) -> None:
        self._noted: set[Handling] = set()
        self._prune_at = _PRUNE

    def note(self, handling: Handling) -> None:
        """Add a handler, which may end before the connection is closed."""
        self._noted.add(handling)
        if len(self._noted) >= self._prune_at:
            self._noted = {each for each in self._noted if not each.done}
            self._prune_at = 2 * len(self._noted) + _PRUNE

    async def wait(self) -> None:
        """Wait until the handlers that run now have ended."""
        for handling in list(self._noted):
            await handling.wait()

    def cancel(self) -> None:
        """Cancel the handlers that have not ended."""
        for handling in self._noted:
            handling.cancel()


class SilentOutlet:
    """The requester's end of a request without a response, which discards all."""

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Discard an element."""

    def complete(self) -> None:
        """Ignore the completion."""

    def error(self, code: int, text: str) -> None:
        """Discard an error."""

    def request_n(self, n: int) -> None:
        """Ignore a request for elements."""

    def cancel_input(self) -> None:
        """Ignore a cancellation."""


class HandlerStream:
    """A stream opened by the broker: the requester's end for its handler.

    A handler runs in its own task, and the state machine decides which frames are legal. Defects 11
    to 14 of the `rsocket` package (0.4.20): it awaits handlers in the task that reads, answers a
    fire-and-forget that fails, ends a live stream if its id is used again, and fails on the CANCEL
    of a channel.

    A handler is granted no more credit than the requester's, nor more than
    `CREDIT_WINDOW` elements ahead of the socket (defect 19: the package queues all output of
    handlers).

    Args:
        link: The connection.
        stream: The stream.
        handlers: The handlers to choose from.
    """

    __slots__ = (
        "_ahead",
        "_handlers",
        "_handling",
        "_link",
        "_reassembly",
        "interaction",
        "stream",
    )

    def __init__(self, link: ClientLink, stream: Stream, handlers: Handlers) -> None:
        self.stream = stream
        self.interaction = INTERACTIONS[stream.kind]
        self._link = link
        self._handlers = handlers
        self._handling: Handling | None = None
        self._ahead = 0  # unused credit of the handler
        self._reassembly = Reassembly(link.budget, link.max_request)

    # --- from the connection ------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the requester."""
        kind = frame.type
        handling = self._handling
        if kind == FrameType.CANCEL:
            self.on_gone(None)
        elif kind == FrameType.REQUEST_N:
            self.replenish()
        elif kind == FrameType.ERROR:
            self._reassembly.drop()
            if handling is not None:
                # Request Channel: "Upon receiving an
                # ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID], the stream is terminated on
                # both Requester and Responder."
                handling.input_error(frame.error_code, frame.error_text)
        else:
            self._on_payload(frame)

    def _on_payload(self, frame: Frame) -> None:
        try:
            payload = self._reassembly.add(frame)
        except PayloadTooBig as error:
            self._link.end_stream(self.stream, ErrorCode.INVALID, str(error))
            self.on_gone(None)
            return
        if payload is None:
            return
        handling = self._handling
        if handling is None:
            handling = self._start(payload)
        elif payload.next:
            handling.element(payload.data, payload.metadata)
        if payload.ends:
            # Request Channel: "A Requester MUST NOT send any additional PAYLOAD frames after
            # sending a frame with the C bit set."
            handling.input_complete()

    def _start(self, payload: Reassembler) -> Handling:
        request = request_of(payload.data, payload.metadata)
        self._handling = handling = self._handlers.start(self.interaction, request, self)
        if self.interaction is Interaction.CHANNEL:
            # An element may have arrived in part: no handler takes the rest.
            handling.then(self._reassembly.drop)
        self._link.responder.handlings.note(handling)
        self.replenish()
        return handling

    def replenish(self) -> None:
        """Grant the handler credit, within the requester's credit and unless the socket is full."""
        handling = self._handling
        if handling is None or self.interaction not in _WITH_CREDIT:
            return
        if self._link.full:
            self._link.blocked_on_write.add(self)
            return
        # Reactive Streams Semantics: "the Requester grants the Responder credit for the number of
        # PAYLOADs it can send."
        more = min(self.stream.send_credit, CREDIT_WINDOW) - self._ahead
        if more > 0:
            self._ahead += more
            handling.credit(more)

    def on_gone(self, _error: OnwardError | None) -> None:
        """Cancel the handler after the end of the stream."""
        self._reassembly.drop()
        if self._handling is not None:
            self._handling.cancel()

    # --- from the handler ---------------------------------------------------------------------

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element."""
        limit = self._link.max_request
        size = len(data) + len(metadata or b"")
        if size > limit:
            raise PayloadTooBig(size, limit)
        self._ahead -= 1
        core = self._link.core
        self._send(lambda: core.send_payload(self.stream, data, metadata, complete=complete))
        self.replenish()

    def complete(self) -> None:
        """Complete the response."""
        core = self._link.core
        self._send(lambda: core.send_payload(self.stream, next=False, complete=True))

    def error(self, code: int, text: str) -> None:
        """End the response with an error."""
        self._send(lambda: self._link.core.send_error(self.stream, code, text))

    def request_n(self, n: int) -> None:
        """Request `n` more elements of a channel."""
        self._send(lambda: self._link.core.send_request_n(self.stream, n))

    def cancel_input(self) -> None:
        """Cancel the requester's elements of a channel."""
        self._send(lambda: self._link.core.send_cancel(self.stream))

    def _send(self, send: Callable[[], None]) -> None:
        if not self.stream.closed:
            send()
            self._link.flush_soon()
