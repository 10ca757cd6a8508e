"""Requests between a connection's peer and workers of this node."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ...actors.broker import Exchange
from ...protocol import (
    LinkLost,
    MailboxFull,
    Message,
    NotDelivered,
    OnwardError,
    PayloadTooBig,
    ProtocolError,
    Route,
    UnknownAddress,
    WorkerFailed,
    read_error_reply,
)
from ...protocol.broker import (
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    Dialect,
    WellKnownKey,
    address_for_java,
    parse_id,
    pin_address,
)
from ...protocol.rsocket import (
    ErrorCode,
    Frame,
    FrameType,
    Stream,
    composite_entry,
)
from ._errors import DestinationError
from ._metadata import JAVA
from ._pinning import named_address
from ._reassembly import Reassembly

if TYPE_CHECKING:
    from ._link import Link
    from ._worker import ConnectionWorker

__all__ = ["LocalRequest", "LocalRequests"]

PEER_ROUTE: Final = 2
"""Addresses of a message to a peer broker: the link, and the query."""


_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)


class LocalRequest:
    """A request of a worker of this node to the peer; the `peer` of its stream.

    Attributes:
        message: The request.
    """

    __slots__ = ("_answer", "_link", "message")

    def __init__(self, link: Link, message: Message) -> None:
        self._link = link
        self._answer = Reassembly(link.session.gathered, link.gathering.max_answer)
        self.message = message

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Handle a frame of the peer's answer, and pass the whole answer on."""
        message = self.message
        if frame.type == FrameType.ERROR:
            self._fail(DestinationError(frame.error_code, frame.error_text))
            return
        try:
            answer = self._answer.add(frame)
        except PayloadTooBig as error:
            link.core.terminate(stream, ErrorCode.CANCELED, "")
            self._fail(error)
            return
        if answer is None:
            return
        back = link.return_route
        link.node.parts.router.dispatch_or_lose(
            Message(message.return_route, back, answer.data, back[0])
        )

    def on_gone(self, stream: Stream, text: str) -> None:
        """Fail the request with `LinkLost`."""
        del stream, text
        self._fail(LinkLost(self._link.identity.peer))

    def drop(self) -> None:
        """Drop what is kept of an unfinished answer."""
        self._answer.drop()

    def _fail(self, error: OnwardError) -> None:
        """Raise an error at the request's caller; without one, dead-letter the request."""
        self.drop()
        node = self._link.node
        if not node.fail_request(self.message.return_route[0], error):
            node.dead_letter(self.message, error)


def asking_peer(link: Link, onward: Route) -> bytes:
    """Return the metadata of a message of a worker of this node to a destination of a peer broker.

    Args:
        link: The link to the peer broker.
        onward: The onward route: the link, and the query for the peer broker.

    Raises:
        NotDelivered: The route goes on behind the destination, which only frames can pass.
        AddressError: The query cannot be read.
    """
    if len(onward) != PEER_ROUTE:
        raise NotDelivered("the destination", "no route leads on from a peer broker")
    own = link.broker.broker_id.bytes
    ask = link.broker.index.asked(onward[1])
    asked = named_address(ask, own)
    if link.form is JAVA:
        ids = [parse_id(value) for key, value in ask.query if key == _ROUTE_ID and value]
        made = address_for_java(asked, Dialect.SPECIFICATION, (), ids[0])
        return composite_entry(MIME_BROKER_FRAME.decode(), made)
    passed = pin_address(asked, Dialect.SPECIFICATION, (), own)
    return composite_entry(MIME_FORWARDING.decode(), passed)


class LocalRequests:
    """The requests between one connection and workers of this node.

    Args:
        link: The connection.
        worker: Its worker.
    """

    def __init__(self, link: Link, worker: ConnectionWorker) -> None:
        self._link = link
        self._worker = worker
        # Made by the first request: an empty deque takes 760 bytes, and most connections have none.
        self._asked: deque[Stream] | None = None
        # Requests of the peer that workers are to answer, by token; at most `max_streams`, as each
        # has a stream.
        self._answerable: dict[bytes, Exchange] = {}

    # --- answers of workers to the peer -------------------------------------------------------

    def expect(self, exchange: Exchange) -> bytes:
        """Register a request for a worker's answer; return the token that the answer must have."""
        token = self._worker.node.random_address().value
        self._answerable[token] = exchange
        return token

    def forget(self, token: bytes) -> None:
        """Remove a registered request."""
        self._answerable.pop(token, None)

    @property
    def waiting(self) -> int:
        """The number of the peer's requests that wait for workers' answers."""
        return len(self._answerable)

    def answer(self, message: Message) -> None:
        """Send a worker's answer to the request named by the second address of its route.

        Raises:
            NotDelivered: The request is over, or has been answered already.
        """
        exchange = self._answerable.get(message[0][1].value)
        if exchange is None:
            raise UnknownAddress(message[0][1], "no request waits for this answer")
        error = read_error_reply(message)
        if error is None:
            exchange.answer(message.payload)
        elif error.certain:
            exchange.fail(NotDelivered("the destination", error.reason))
        else:
            exchange.fail(WorkerFailed("the destination"))

    # --- requests of workers to the peer ------------------------------------------------------

    def ask(self, message: Message) -> None:
        """Send a worker's message as a request, with a response if it has a return route.

        Raises:
            NotDelivered: The peer accepts no request now, or is no destination. A worker that
                answered its request knows its address, but must not send it requests.
        """
        link = self._link
        if not link.to_broker and link.session.registration is None:
            raise NotDelivered(link.identity.peer, "it is no destination")
        if link.write_paused:
            raise MailboxFull(message[0][0], "the destination does not keep up")
        if self._asked is None:
            self._asked = deque()
        self._forget_given_up(self._asked)
        wants_answer = bool(message.return_route)
        kind = FrameType.REQUEST_RESPONSE if wants_answer else FrameType.REQUEST_FNF
        metadata = asking_peer(link, message[0]) if link.to_broker else link.session.asking()
        stream = link.open(kind, link.time())
        try:
            link.core.send_request(stream, message.payload, metadata)
        except ProtocolError as error:
            link.core.send_cancel(stream)
            raise NotDelivered(link.identity.peer, str(error)) from None
        link.legs.taken += 1
        if wants_answer:
            stream.peer = LocalRequest(link, message)
            self._asked.append(stream)
        link.flush_soon()

    def _forget_given_up(self, asked: deque[Stream]) -> None:
        """Cancel requests that their callers have given up; check two for each new one."""
        for _ in range(min(2, len(asked))):
            stream = asked.popleft()
            if stream.closed:
                continue
            request: LocalRequest = stream.peer
            back = request.message.return_route
            if back[1:] or self._worker.node.has(back[0]):
                asked.append(stream)
            else:
                request.drop()
                self._link.core.send_cancel(stream)
