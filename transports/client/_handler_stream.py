"""Requests that the broker sends to the handlers of this client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Handlers, Handling, Interaction
from ...protocol import OnwardError, PayloadTooBig
from ...protocol.rsocket import ErrorCode, Frame, FrameType, Reassembler, Stream
from ._gather import Gatherer
from ._metadata import request_of

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["INTERACTIONS", "HandlerStream", "Handlings", "SilentOutlet"]

INTERACTIONS: Final[dict[int, Interaction]] = {
    FrameType.REQUEST_RESPONSE: Interaction.RESPONSE,
    FrameType.REQUEST_FNF: Interaction.FIRE_AND_FORGET,
    FrameType.REQUEST_STREAM: Interaction.STREAM,
    FrameType.REQUEST_CHANNEL: Interaction.CHANNEL,
}
"""What each kind of request frame asks for."""

_WITH_CREDIT: Final = frozenset({Interaction.STREAM, Interaction.CHANNEL})

_PRUNE: Final = 64
"""Handlers noted until those that have ended are looked for first."""


class Handlings:
    """The handlers at work for one connection."""

    __slots__ = ("_noted", "_prune_at")

    def __init__(self) -> None:
        self._noted: set[Handling] = set()
        self._prune_at = _PRUNE

    def note(self, handling: Handling) -> None:
        """Note one, to let it end when the connection is closed in order."""
        self._noted.add(handling)
        if len(self._noted) >= self._prune_at:
            self._noted = {each for each in self._noted if not each.done}
            self._prune_at = 2 * len(self._noted) + _PRUNE

    async def wait(self) -> None:
        """Wait until all have ended that are at work now."""
        for handling in list(self._noted):
            await handling.wait()

    def cancel(self) -> None:
        """Cancel those that have not ended."""
        for handling in self._noted:
            handling.cancel()


class SilentOutlet:
    """The outlet of what has no answer, where a handler has nothing to say."""

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Drop it."""

    def complete(self) -> None:
        """Do nothing."""

    def error(self, code: int, text: str) -> None:
        """Do nothing."""

    def request_n(self, n: int) -> None:
        """Do nothing."""

    def cancel_input(self) -> None:
        """Do nothing."""


class HandlerStream:
    """A stream that the broker has opened, and the outlet of its handler.

    Defects 11 to 14 of the `rsocket` package (0.4.20): it awaits handlers in the task that
    reads, answers a fire-and-forget that fails, ends a live stream if its id comes again, and
    trips over the CANCEL of a channel. Here a handler is a task of its own, and what may be
    sent or received is up to the state machine.

    A handler is given no more credit than the requester has given, nor more than
    `ClientOptions.credit_window` ahead of the socket (defect 19: the package queues whatever
    handlers make).

    Args:
        link: The connection.
        stream: The stream.
        handlers: What answers.
    """

    __slots__ = ("_ahead", "_gatherer", "_handlers", "_handling", "_link", "interaction", "stream")

    def __init__(self, link: ClientLink, stream: Stream, handlers: Handlers) -> None:
        self.stream = stream
        self.interaction = INTERACTIONS[stream.kind]
        self._link = link
        self._handlers = handlers
        self._handling: Handling | None = None
        self._ahead = 0  # credit that the handler has and has not used
        self._gatherer = Gatherer(link.budget, link.options.max_request)

    # --- from the connection ------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Take a frame of the requester."""
        kind = frame.type
        handling = self._handling
        if kind == FrameType.CANCEL:
            self.on_gone(None)
        elif kind == FrameType.REQUEST_N:
            self.replenish()
        elif kind == FrameType.ERROR:
            self._gatherer.drop()
            if handling is not None:
                handling.input_error(frame.error_code, frame.error_text)
        else:
            self._on_payload(frame)

    def _on_payload(self, frame: Frame) -> None:
        try:
            payload = self._gatherer.add(frame)
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
            handling.input_complete()

    def _start(self, payload: Reassembler) -> Handling:
        request = request_of(payload.data, payload.metadata)
        self._handling = handling = self._handlers.start(self.interaction, request, self)
        self._link.handlings.note(handling)
        self.replenish()
        return handling

    def replenish(self) -> None:
        """Give the handler credit, as far as there is and the socket takes what it makes."""
        handling = self._handling
        if handling is None or self.interaction not in _WITH_CREDIT:
            return
        if self._link.full:
            self._link.block_on_write(self)
            return
        more = min(self.stream.send_credit, self._link.options.credit_window) - self._ahead
        if more > 0:
            self._ahead += more
            handling.credit(more)

    def on_gone(self, _error: OnwardError | None) -> None:
        """Cancel the handler: nobody waits for it."""
        self._gatherer.drop()
        if self._handling is not None:
            self._handling.cancel()

    # --- from the handler ---------------------------------------------------------------------

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element."""
        limit = self._link.options.max_request
        size = len(data) + len(metadata or b"")
        if size > limit:
            raise PayloadTooBig(size, limit)
        self._ahead -= 1
        core = self._link.core
        self._send(lambda: core.send_payload(self.stream, data, metadata, complete=complete))
        self.replenish()

    def complete(self) -> None:
        """End the answer."""
        core = self._link.core
        self._send(lambda: core.send_payload(self.stream, next=False, complete=True))

    def error(self, code: int, text: str) -> None:
        """End with an error."""
        self._send(lambda: self._link.core.send_error(self.stream, code, text))

    def request_n(self, n: int) -> None:
        """Ask for more elements."""
        self._send(lambda: self._link.core.send_request_n(self.stream, n))

    def cancel_input(self) -> None:
        """Want no more elements."""
        self._send(lambda: self._link.core.send_cancel(self.stream))

    def _send(self, send: Callable[[], None]) -> None:
        if not self.stream.closed:
            send()
            self._link.flush_soon()
