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
    Reassembler,
    RSocketError,
    Stream,
)
from ._errors import DestinationError
from ._request import FRAME_COST, FrameExchange, more_follow

if TYPE_CHECKING:
    from ._link import Link
    from ._worker import ConnectionWorker

__all__ = ["LocalRequest", "LocalRequests"]


class LocalRequest:
    """A request that a worker of this node made to the peer; it is its stream's `peer`.

    Attributes:
        message: The request.
        kept: Bytes of the answer that have come, while it is not whole.
    """

    __slots__ = ("_link", "_payload", "kept", "message")

    def __init__(self, link: Link, message: Message) -> None:
        self._link = link
        self._payload = Reassembler(link.options.max_answer)
        self.message = message
        self.kept = 0

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Take a frame of the peer's answer, and pass the answer on once it is whole."""
        message = self.message
        if frame.type == FrameType.ERROR:
            self._fail(DestinationError(frame.error_code, frame.error_text))
            return
        part = more_follow(frame)
        try:
            # A part of it keeps no whole chunk of input.
            if not self._payload.add(frame.detached() if part else frame):
                self._keep(frame.end - frame.start)
                return
        except (RSocketError, PayloadTooBig) as error:
            link.core.terminate(stream, ErrorCode.CANCELED, "")
            self._fail(error)
            return
        link.session.gathered.let_go(self)
        back = link.return_route
        link.node.carry_or_bury(Message(message.return_route, back, self._payload.data, back[0]))

    def _keep(self, size: int) -> None:
        """Count a part of an answer that is kept.

        Raises:
            PayloadTooBig: The peer has sent too much that is not whole.
        """
        self.kept += size + FRAME_COST
        if not self._link.session.gathered.keep(self, size):
            raise PayloadTooBig(self.kept, self._link.options.max_gathered)

    def on_gone(self, stream: Stream, text: str) -> None:
        """Tell the worker that no answer will come."""
        del stream, text
        self._fail(LinkLost(self._link.peer_name))

    def _fail(self, error: OnwardError) -> None:
        """Raise an error where the request was made; otherwise it is a dead letter."""
        self._link.session.gathered.let_go(self)
        node = self._link.node
        if not node.fail_request(self.message.return_route[0], error):
            node.dead_letter(self.message, error)


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
        self._answerable: dict[bytes, FrameExchange] = {}

    # --- a worker answers the peer ------------------------------------------------------------

    def expect(self, exchange: FrameExchange) -> bytes:
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
        exchange = self._answerable.get(message[0][1].value)
        if exchange is None:
            raise UnknownAddress(message[0][1], "nobody waits for this answer")
        exchange.answer(message.payload)

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
        stream = link.open(kind)
        try:
            link.core.send_request(stream, message.payload, link.session.asking())
        except ProtocolError as error:
            link.core.send_cancel(stream)
            raise NotDelivered(link.peer_name, str(error)) from None
        if wants_answer:
            stream.peer = LocalRequest(link, message)
            self._asked.append(stream)
        link.flush_soon()

    def _forget_given_up(self) -> None:
        """Cancel requests whose senders wait no more; look at two for each new one."""
        asked = self._asked
        for _ in range(min(2, len(asked))):
            stream = asked.popleft()
            if stream.closed:
                continue
            back = stream.peer.message.return_route
            if len(back) > 1 or self._worker.node.has(back[0]):
                asked.append(stream)
            else:
                self._link.core.send_cancel(stream)
