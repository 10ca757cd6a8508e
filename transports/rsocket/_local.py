"""Requests between a connection's peer and workers of this node."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...protocol import (
    LinkLost,
    MailboxFull,
    Message,
    NotDelivered,
    OnwardError,
    PayloadTooBig,
    ProtocolError,
    UnknownAddress,
)
from ...protocol.rsocket import (
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    Reassembler,
    RSocketError,
    Stream,
)
from ._exchange import StreamExchange

if TYPE_CHECKING:
    from ._link import Link
    from ._worker import ConnectionWorker

__all__ = ["DestinationError", "LocalRequest", "LocalRequests"]


class DestinationError(OnwardError):
    """A destination answered a request with an error.

    Attributes:
        code: Its RSocket error code; numbers from 0x301 on are the destination's own.
        text: Its text.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        try:
            name = ErrorCode(self.code).name
        except ValueError:
            name = f"0x{self.code:x}"
        return f"{name}: {self.text}"


class LocalRequest:
    """A request that a worker of this node made to the peer; it is its stream's `user`."""

    __slots__ = ("message", "payload")

    def __init__(self, message: Message, limit: int) -> None:
        self.message = message
        self.payload = Reassembler(limit)


class LocalRequests:
    """What goes to and from workers of this node, for one connection.

    Args:
        link: The connection.
        worker: Its worker.
    """

    def __init__(self, link: Link, worker: ConnectionWorker) -> None:
        self._link = link
        self._worker = worker
        self._asked: deque[Stream] = deque()
        # Requests of the peer that workers have in hand, by what their answers must name. As
        # each has a stream, there are at most `max_streams`.
        self._answerable: dict[bytes, StreamExchange] = {}

    # --- a worker answers the peer ------------------------------------------------------------

    def expect(self, exchange: StreamExchange) -> bytes:
        """Expect a worker's answer to a request; return what it must name to be taken."""
        token = self._worker.node.random_address().value
        self._answerable[token] = exchange
        return token

    def forget(self, token: bytes) -> None:
        """Expect an answer no more."""
        self._answerable.pop(token, None)

    @property
    def waiting(self) -> int:
        """How many requests of the peer wait for workers' answers."""
        return len(self._answerable)

    def answer(self, message: Message) -> None:
        """Send a worker's answer to the request named by the second step of its route.

        Raises:
            NotDelivered: The request is over, or has been answered already.
        """
        link = self._link
        exchange = self._answerable.get(message[0][1].value)
        stream = exchange.stream if exchange is not None else None
        if exchange is None or stream is None or not exchange.kept:
            raise UnknownAddress(message[0][1], "nobody waits for this answer")
        try:
            link.core.send_payload(stream, message.payload, complete=True)
        except PayloadTooBig:
            link.refuse(exchange, ErrorCode.APPLICATION_ERROR, "the answer is too big")
            return
        except LocalProtocolError as error:
            raise NotDelivered(message[0][1], str(error)) from None
        exchange.end()
        exchange.unlink()
        link.flush_soon()

    # --- a worker asks the peer ---------------------------------------------------------------

    def ask(self, message: Message) -> None:
        """Send a worker's message as a request: with an answer if it has a return route.

        Raises:
            NotDelivered: The peer takes no request now, or is no destination: an answer to
                it may have its address, and is not to be a way to make it work.
        """
        link = self._link
        if link.session.registration is None:
            raise NotDelivered(link.peer_name, "it is no destination")
        if link.write_paused:
            raise MailboxFull(message[0][0], "the destination does not keep up")
        self._forget_given_up()
        wants_answer = bool(message.return_route)
        kind = FrameType.REQUEST_RESPONSE if wants_answer else FrameType.REQUEST_FNF
        try:
            stream = link.core.open(kind)
        except LocalProtocolError as error:
            raise NotDelivered(link.peer_name, str(error)) from None
        try:
            link.core.send_request(stream, message.payload)
        except ProtocolError as error:
            link.core.send_cancel(stream)
            raise NotDelivered(link.peer_name, str(error)) from None
        if wants_answer:
            stream.user = LocalRequest(message, link.options.max_answer)
            self._asked.append(stream)
        link.flush_soon()

    def _forget_given_up(self) -> None:
        """Cancel requests whose senders wait no more; look at two for each new one."""
        asked = self._asked
        for _ in range(min(2, len(asked))):
            stream = asked.popleft()
            if stream.closed:
                continue
            back = stream.user.message.return_route
            if len(back) > 1 or self._worker.node.has(back[0]):
                asked.append(stream)
            else:
                self._link.core.send_cancel(stream)

    def on_frame(self, request: LocalRequest, frame: Frame) -> None:
        """Take a frame of the peer's answer, and pass the answer on once it is whole."""
        message = request.message
        if frame.type == FrameType.ERROR:
            self._fail(message, DestinationError(frame.error_code, frame.error_text))
            return
        try:
            if not request.payload.add(frame):
                return
        except RSocketError as error:
            self._link.core.terminate(frame.stream, ErrorCode.CANCELED, "")
            self._fail(message, error)
            return
        node = self._worker.node
        back = (self._worker.address,)
        answer = Message(message.return_route, back, request.payload.data, back[0])
        node.deliver(answer)

    def on_ended(self, request: LocalRequest) -> None:
        """Tell the worker that no answer will come."""
        self._fail(request.message, LinkLost(self._link.peer_name))

    def _fail(self, message: Message, error: OnwardError) -> None:
        """Raise an error where the request was made; otherwise it is a dead letter."""
        if not self._worker.node.fail_request(message.return_route[0], error):
            self._worker.node.dead_letter(message, error)
