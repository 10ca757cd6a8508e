"""Requests that are served by handlers of this node.

`Served` is the requester's end for the handler, and reads the frames of the requester for it. What
the handler sends goes to the stream of the requester (`ServedStream`) or to a leg of a multicast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...actors.broker import DestinationEnd, Interaction, Request, RequesterEnd, StartEnd
from ...actors.broker._exchange import CANCELED, DELIVER, FAILED
from ...protocol import PayloadTooBig
from ...protocol.rsocket import (
    CLOSED,
    MAX_REQUEST_N,
    ErrorCode,
    Frame,
    FrameType,
    Stream,
)
from ._reassembly import Reassembly, TooMuchKept
from ._request import INTERACTIONS, WITH_CREDIT, completes

if TYPE_CHECKING:
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["Served", "ServedStream"]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_REQUEST_N: Final = int(FrameType.REQUEST_N)


class Served:
    """The requester's end for a destination's end of this node, such as a handler.

    Attributes:
        ahead: Elements that the handler may still send.
        credit: Elements that the handler has requested and not received.

    Args:
        requester: The requester's end.
        link: The requester's connection.
    """

    __slots__ = (
        "_elements",
        "_handling",
        "_link",
        "_over",
        "_requester",
        "ahead",
        "credit",
    )

    def __init__(self, requester: RequesterEnd, link: Link) -> None:
        self._requester: RequesterEnd | None = requester
        self._link = link
        self._handling: DestinationEnd | None = None
        self._elements = Reassembly(link.session.gathered, link.gathering.max_request)
        self._over = False
        self.ahead = 0
        self.credit = 0

    def start(
        self, start: StartEnd, interaction: Interaction, request: Request, *, complete: bool
    ) -> DestinationEnd:
        """Start the destination's end.

        Args:
            start: Starts the destination's end.
            interaction: The interaction of the request.
            request: The request.
            complete: Whether the first element of a channel is its last.
        """
        link = self._link
        handling = start(interaction, request, self, link.return_route[0])
        self._handling = handling
        if interaction is Interaction.CHANNEL:
            handling.then(self._let_go)
        if complete:
            handling.input_complete()
        return handling

    @property
    def kept(self) -> int:
        """Bytes of the requester's whole elements that the handler has not received yet."""
        return self._at_work.held

    def _let_go(self) -> None:
        """Drop what is kept of the requester, as the handler has ended."""
        self._elements.drop()
        self._link.session.gathered.let_go(self)

    # --- from the handler ---------------------------------------------------------------------

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element, for which the handler has credit."""
        if self._requester is None:
            return
        self._over = complete
        try:
            self._requester.element(data, metadata, complete=complete)
        except PayloadTooBig:
            self._over = False
            raise

    def complete(self) -> None:
        """Complete the response."""
        self._over = True
        if self._requester is not None:
            self._requester.complete()

    def error(self, code: int, text: str) -> None:
        """End the response with an error."""
        self._over = True
        if self._requester is not None:
            self._requester.error(code, text)

    def request_n(self, n: int) -> None:
        """Request more elements of a channel."""
        self.credit += n
        if self._requester is not None:
            self._requester.request_n(n)

    def cancel_input(self) -> None:
        """Cancel the requester's elements of a channel."""
        if self._requester is not None:
            self._requester.cancel_input()

    # --- from the requester -------------------------------------------------------------------

    @property
    def _at_work(self) -> DestinationEnd:
        if self._handling is None:
            raise AssertionError("the handler has been started")
        return self._handling

    def want(self, n: int) -> None:
        """Grant the handler credit for `n` more elements."""
        self.ahead += n
        self._at_work.credit(n)

    def relay(self, frame: Frame) -> None:
        """Pass a PAYLOAD or an ERROR of the requester to the handler."""
        handling = self._at_work
        if frame.type == _ERROR:
            self._over = True
            handling.input_error(frame.error_code, frame.error_text)
            return
        try:
            element = self._elements.add(frame)
        except TooMuchKept:
            self._no_room()
            return
        except PayloadTooBig as error:
            self._give_up(ErrorCode.INVALID, str(error))
            return
        if element is None:
            return
        if element.next:
            self.credit -= 1
            handling.element(element.data, element.metadata)
        if element.ends:
            handling.input_complete()
        size = frame.end - frame.start
        if not handling.over and not self._link.session.gathered.keep(self, size):
            self._no_room()

    def _no_room(self) -> None:
        """End a channel because too much is kept of its requester."""
        limit = self._link.session.gathered.limit
        self._give_up(ErrorCode.CANCELED, f"{limit} bytes of the requester are held already")

    def _give_up(self, code: int, text: str) -> None:
        """End a channel because its elements cannot be kept."""
        self._elements.drop()
        self._at_work.cancel()
        self.error(code, text)

    def cancel(self) -> None:
        """Cancel the handler, unless it has completed."""
        if not self._over:
            self._over = True
            self._at_work.cancel()

    def end(self) -> None:
        """Cancel the handler, unless it has completed, and release the requester's end."""
        self.cancel()
        self.release()

    def release(self) -> None:
        """Release the requester's end, which gets nothing more.

        The two refer to each other; without this they would wait for the cycle collector.
        """
        self._requester = None


class ServedStream:
    """A requester's stream joined to a handler of this node; the stream's `peer`.

    Args:
        exchange: The request.
    """

    __slots__ = ("_exchange", "_held", "_link", "_served", "_stream")

    def __init__(self, exchange: StreamExchange) -> None:
        self._exchange = exchange
        self._link = exchange.link
        self._stream = exchange.stream
        self._served = Served(self, exchange.link)
        self._held = 0

    def start(self, start: StartEnd) -> DestinationEnd:
        """Start the destination's end for the request.

        Raises:
            ProtocolError: The request's metadata cannot be read.
        """
        exchange, stream = self._exchange, self._stream
        request = exchange.request()
        interaction = INTERACTIONS[exchange.kind]
        complete = completes(exchange.frames)
        exchange.frames.clear()
        if stream is not None and interaction.answered:
            stream.peer = self
            exchange.withdraw = self._served.end
        else:
            exchange.unlink()  # its stream is over
        handling = self._served.start(start, interaction, request, complete=complete)
        if not handling.over:
            exchange.forwarded()
        if not interaction.answered:
            # The route is in use until the handler ends, whether or not the requester is connected.
            handling.then(lambda: self._taken(handling.outcome))
        if stream is not None and exchange.kind in WITH_CREDIT:
            # REQUEST_STREAM Frame: "Unsigned 31-bit integer representing the initial number of
            # items to request."
            self._held = stream.send_credit
            self.replenish()
        return handling

    def _taken(self, outcome: int) -> None:
        """End a request without an answer, as the handler has ended."""
        self._exchange.end(0.0, outcome)
        self._served.end()

    # --- from the requester -------------------------------------------------------------------

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the requester to the handler."""
        exchange = self._exchange
        kind = frame.type
        if kind == _REQUEST_N:
            self._held = min(self._held + frame.request_n, MAX_REQUEST_N)
            self.replenish()
            return
        if kind in {_PAYLOAD, _ERROR}:
            self._served.relay(frame)
        if kind != _PAYLOAD or stream.state == CLOSED:
            exchange.end(0.0, DELIVER if kind == _PAYLOAD else CANCELED)
            exchange.unlink()

    def on_gone(self, stream: Stream, text: str) -> None:
        """Cancel the handler after the loss of the requester."""
        self._exchange.end(0.0, CANCELED)
        self._exchange.unlink()

    def give_up(self, text: str) -> None:
        """End the request because the requester's backlog is too large."""
        self._exchange.refuse(ErrorCode.CANCELED, text)

    def replenish(self) -> None:
        """Grant the handler credit, unless the requester's socket is full."""
        link, served = self._link, self._served
        window = link.flow.credit_window
        if served.ahead > window // 2 or not self._held or self._exchange.ended:
            return
        if link.write_paused:
            link.blocked_on_write.add(self)
            return
        # Reactive Streams Semantics: "the Requester grants the Responder credit for the number of
        # PAYLOADs it can send."
        elements = min(self._held, window - served.ahead)
        self._held -= elements
        served.want(elements)

    # --- from the handler ---------------------------------------------------------------------

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element to the requester."""
        link = self._link
        link.core.send_payload(self._open, data, metadata, complete=complete)
        self._served.ahead -= 1
        self._after(link.time())
        self.replenish()

    def complete(self) -> None:
        """Complete the stream to the requester."""
        self._link.core.send_payload(self._open, next=False, complete=True)
        self._after(0.0)

    def error(self, code: int, text: str) -> None:
        """Send an error to the requester."""
        # A missing or busy handler answers with one of these codes before it has begun.
        begun = code not in {ErrorCode.REJECTED, ErrorCode.INVALID}
        self._exchange.refuse(code, text, FAILED if begun else 0)

    def request_n(self, n: int) -> None:
        """Request more elements of the requester."""
        # Request Channel: "a Responder MUST respond to an initial REQUEST_CHANNEL frame with a
        # REQUEST_N frame."
        self._link.core.send_request_n(self._open, n)
        self._link.flush_soon()

    def cancel_input(self) -> None:
        """Cancel the requester's elements."""
        if not self._exchange.ended:
            self._link.core.send_cancel(self._open)
            self._after(0.0)

    @property
    def routed(self) -> bool:
        """Whether the request has come by a route, and not by its name."""
        return self._exchange.route is not None

    @property
    def began(self) -> float:
        """The time at which the request was read."""
        return self._exchange.began

    @property
    def _open(self) -> Stream:
        if self._stream is None:
            raise AssertionError("a request with answers has a stream")
        return self._stream

    def _after(self, now: float) -> None:
        """Flush, and end the exchange if its stream is closed."""
        self._link.flush_soon()
        if self._open.state == CLOSED:
            self._exchange.end(now)
            self._exchange.unlink()
