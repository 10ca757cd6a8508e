"""A peer link as the cluster uses it: its requests to the other broker, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ...actors.cluster import ElementReceiver
from ...protocol import LinkLost, NotDelivered, OnwardError, PayloadTooBig
from ...protocol.broker import BrokerInfo
from ...protocol.cluster import LinkRole
from ...protocol.rsocket import (
    CLOSED,
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    MalformedComposite,
    Stream,
    composite_entry,
    find_entry,
)
from ._errors import BROKE_PROTOCOL, DestinationError
from ._reassembly import Reassembly
from ._served import ServedStream

if TYPE_CHECKING:
    from ...protocol import Address
    from ._link import Link

__all__ = ["AskedAnswer", "AskedStream", "PeerLink", "routing_entry", "routing_in"]

_ROUTING: Final = "message/x.rsocket.routing.v0"
_MIME: Final = _ROUTING.encode()
_RESPONSE: Final = FrameType.REQUEST_RESPONSE
_STREAM: Final = FrameType.REQUEST_STREAM


def routing_entry(route: str) -> bytes:
    """Return composite metadata that name a route of the other broker."""
    tag = route.encode()
    # Routing Metadata Extension: "Unsigned 8-bit integer of Tag Length in bytes."
    return composite_entry(_ROUTING, bytes((len(tag),)) + tag)


def routing_in(metadata: bytes) -> str:
    """Return the first tag of the routing metadata in composite metadata; empty without one."""
    try:
        found = find_entry(metadata, _MIME)
    except MalformedComposite:
        return ""
    if found is None or found[0] == found[1]:
        return ""
    start = found[0] + 1
    end = start + metadata[found[0]]
    return metadata[start:end].decode("ascii", "replace") if end <= found[1] else ""


class AskedAnswer:
    """A request/response of this broker to a peer broker; the `peer` of its stream.

    Args:
        link: The connection.
        answered: Called with the data of the answer.
        failed: Called with the error instead.
    """

    __slots__ = ("_answer", "_answered", "_failed")

    def __init__(
        self,
        link: Link,
        answered: Callable[[bytes], object],
        failed: Callable[[OnwardError], object],
    ) -> None:
        self._answer = Reassembly(link.session.gathered, link.gathering.max_answer)
        self._answered = answered
        self._failed = failed

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Handle a frame of the answer."""
        if frame.type == FrameType.ERROR:
            self._fail(DestinationError(frame.error_code, frame.error_text))
            return
        try:
            answer = self._answer.add(frame)
        except PayloadTooBig as error:
            link.core.terminate(stream, ErrorCode.CANCELED, "")
            self._fail(error)
            return
        if answer is not None:
            self._answered(answer.data)

    def on_gone(self, stream: Stream, text: str) -> None:
        """Fail the request, as the link was lost."""
        del stream
        self._fail(LinkLost("the peer broker", text))

    def _fail(self, error: OnwardError) -> None:
        self._answer.drop()
        self._failed(error)


class AskedStream:
    """A request/stream of this broker to a peer broker; the `peer` of its stream.

    Args:
        link: The connection.
        stream: The stream.
        receiver: The receiver of the elements.
    """

    __slots__ = ("_elements", "_link", "_receiver", "_stream")

    def __init__(self, link: Link, stream: Stream, receiver: ElementReceiver) -> None:
        self._link: Link | None = link
        self._stream = stream
        self._receiver = receiver
        self._elements = Reassembly(link.session.gathered, link.gathering.max_answer)

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Handle a frame of the stream."""
        if frame.type == FrameType.ERROR:
            self._end(frame.error_text or "the peer broker has ended it")
            return
        try:
            payload = self._elements.add(frame)
        except PayloadTooBig as error:
            link.core.terminate(stream, ErrorCode.CANCELED, "")
            link.flush_soon()
            self._end(str(error))
            return
        if payload is None or self._link is None:
            return
        if payload.next:
            self._receiver.element(payload.data)
        if payload.ends:
            self._end("")

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the stream, as the link was lost, or as the peer broker has broken it."""
        del stream
        if text is not BROKE_PROTOCOL:
            self._end(text)
        elif self._link is not None:
            self._link = None
            self._elements.drop()
            self._receiver.broken()

    def request_n(self, n: int) -> None:
        """Request more elements. It does nothing once the stream is over."""
        link = self._link
        if link is not None and self._stream.state != CLOSED:
            link.core.send_request_n(self._stream, n)
            link.flush_soon()

    def cancel(self) -> None:
        """Cancel the stream. It does nothing once the stream is over."""
        link = self._link
        if link is not None:
            self._link = None
            self._elements.drop()
            link.core.terminate(self._stream, ErrorCode.CANCELED, "")
            self._stream.peer = None
            link.flush_soon()

    def _end(self, text: str) -> None:
        if self._link is not None:
            self._link = None
            self._elements.drop()
            self._receiver.ended(text)


class PeerLink:
    """The connection to another broker, on which each side has the other's BROKER_INFO.

    Args:
        link: The connection.
        info: The BROKER_INFO of the other broker.
        dialled: Whether this broker has dialled.

    Attributes:
        info: As given.
        dialled: As given.
        java: Whether the other is a Java broker: never, as it has two connections.
        role: What the link is for, as the cluster has decided.
        address: The address of the connection's worker.
        peer: The network address of the other end, as text.
    """

    def __init__(self, link: Link, info: BrokerInfo, *, dialled: bool) -> None:
        self._link: Link | None = link
        self.info = info
        self.dialled = dialled
        self.java = False
        self.role = LinkRole.MESH
        self.address: Address = link.worker.address
        self.peer = link.identity.peer
        self._task: asyncio.Task[None] | None = None

    @property
    def round_trip(self) -> float:
        """The time from a KEEPALIVE to its answer, in seconds, lately; 0 if it is not known."""
        return 0.0 if self._link is None else self._link.core.round_trip

    @property
    def in_flight(self) -> int:
        """The requests that were forwarded over the link, either way, and have not ended."""
        if self._link is None:
            return 0
        return sum(map(_is_forwarded, self._link.core.streams.values()))

    @property
    def busy(self) -> bool:
        """Whether other destinations are to be preferred now: it does not keep up, or is silent."""
        return self._link is None or self._link.busy

    def request(self, route: str, data: bytes) -> Awaitable[bytes]:
        """Send a request/response, and return the data of the answer.

        Args:
            route: The route, in routing metadata.
            data: The data.

        Raises:
            OnwardError: (When awaited.) The peer broker answered with an error, or the link was
                lost.
        """
        return self.ask(routing_entry(route), data)

    def ask(self, metadata: bytes, data: bytes = b"") -> asyncio.Future[bytes]:
        """Send a request/response with any metadata; see `request`."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            link, stream = self._open(_RESPONSE, metadata, data, 1)
        except NotDelivered as error:
            answer.set_exception(error)
            return answer

        def answered(content: bytes) -> None:
            if not answer.done():
                answer.set_result(content)

        def failed(error: OnwardError) -> None:
            if not answer.done():
                answer.set_exception(error)

        def given_up(future: asyncio.Future[bytes]) -> None:
            if future.cancelled() and stream.state != CLOSED:
                stream.peer = None
                link.core.terminate(stream, ErrorCode.CANCELED, "")
                link.flush_soon()

        stream.peer = AskedAnswer(link, answered, failed)
        answer.add_done_callback(given_up)
        return answer

    def subscribe(
        self, route: str, data: bytes, credit: int, receiver: ElementReceiver
    ) -> AskedStream:
        """Send a request/stream.

        Args:
            route: The route, in routing metadata.
            data: The data.
            credit: The elements requested at first.
            receiver: The receiver of the elements; never called before this returns.

        Raises:
            NotDelivered: The link is closed, or takes no more streams.
        """
        link, stream = self._open(_STREAM, routing_entry(route), data, credit)
        asked = stream.peer = AskedStream(link, stream, receiver)
        return asked

    def _open(self, kind: FrameType, metadata: bytes, data: bytes, n: int) -> tuple[Link, Stream]:
        link = self._link
        if link is None:
            raise NotDelivered("the peer broker", "the link has ended")
        try:
            stream = link.core.open(kind)
            link.core.send_request(stream, data, metadata, initial_n=n)
        except (LocalProtocolError, PayloadTooBig) as error:
            raise NotDelivered("the peer broker", str(error)) from None
        link.flush_soon()
        return link, stream

    def close(self, reason: str, text: str) -> None:
        """Close the link with ERROR[CONNECTION_ERROR]; idempotent.

        Args:
            reason: The reason, in a few fixed words, as it is counted.
            text: The text for the peer broker.
        """
        if self._link is not None:
            self._link.close(reason, text)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Set the task that is cancelled at the end of the link."""
        if self._link is None:
            task.cancel()
        else:
            self._task = task

    def end(self) -> None:
        """Release the connection, which has ended."""
        self._link = None
        if self._task is not None:
            self._task.cancel()
            self._task = None


def _is_forwarded(stream: Stream) -> bool:
    """Whether a stream has a forwarded request, and not one of the cluster itself."""
    user = stream.peer
    if user is None or isinstance(user, AskedAnswer | AskedStream):
        return False
    return not isinstance(user, ServedStream) or user.routed
