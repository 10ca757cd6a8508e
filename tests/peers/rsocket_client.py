"""A requester and a destination written with the `rsocket` package.

The broker frames are put together here byte by byte, from the specification and not with
Onward's codec, so that a mistake of that codec cannot hide itself.

The destination answers as `js/destination.js` does, with "python" for "javascript".
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

from reactivestreams.publisher import Publisher
from reactivestreams.subscriber import Subscriber
from reactivestreams.subscription import Subscription
from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.awaitable.collector_subscriber import CollectorSubscriber
from rsocket.error_codes import ErrorCode
from rsocket.exceptions import RSocketProtocolError, RSocketTransportError
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import (
    authenticate_bearer,
    authenticate_simple,
    metadata_item,
    require_route,
    route,
)
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_client import RSocketClient
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.abstract_messaging import AbstractMessagingTransport
from rsocket.transports.tcp import TransportTCP
from rsocket.transports.transport import Transport
from websockets.asyncio.client import ClientConnection, connect as connect_websocket
from websockets.exceptions import ConnectionClosed

from tests.peers.access import Access
from tests.peers.programs import TIMEOUT

__all__ = ["Destination", "Outcome", "Received", "Wandering", "ask", "connect"]

BROKER_FRAME = b"message/x.rsocket.broker.frame.v0"
ROUTE_SETUP_HEADER = bytes.fromhex("000000010400")
UNICAST_ADDRESS_HEADER = bytes.fromhex("000000011480")
SERVICE_NAME = 0x81

CREDIT = 5


def encode_route_setup(route_id: uuid.UUID, service: str) -> bytes:
    """Encode a ROUTE_SETUP frame without tags."""
    name = service.encode()
    return ROUTE_SETUP_HEADER + route_id.bytes + bytes([len(name)]) + name


def encode_address(origin: uuid.UUID, service: str) -> bytes:
    """Encode an ADDRESS frame with the unicast flag and the tag ServiceName."""
    name = service.encode()
    return UNICAST_ADDRESS_HEADER + origin.bytes + bytes([SERVICE_NAME, len(name)]) + name


def request_metadata(service: str, name: str = "echo") -> bytes:
    """Return composite metadata with the name of a route, and the address of `service`."""
    address = metadata_item(encode_address(uuid.uuid4(), service), BROKER_FRAME)
    metadata: bytes = CompositeMetadata([route(name), address]).serialize()
    return metadata


def request_payload(service: str, text: str) -> Payload:
    """Return the payload of a request for `service`, with composite metadata."""
    return Payload(text.encode(), request_metadata(service))


class Outcome(NamedTuple):
    """What became of a request: the elements that came, and the error that ended it, if any."""

    elements: list[str]
    code: int | None = None
    message: str | None = None


@asynccontextmanager
async def connect(
    where: str | int, service: str, destination: BaseRequestHandler | None = None
) -> AsyncGenerator[RSocketClient]:
    """Connect to the broker as `service`; close the connection at the end.

    Args:
        where: A URI as `access.Access` takes it, or the number of a TCP port of this machine.
        service: The service name.
        destination: What answers requests, if anything does.
    """
    access = Access(f"tcp://127.0.0.1:{where}" if isinstance(where, int) else where)
    setup = [metadata_item(encode_route_setup(uuid.uuid4(), service), BROKER_FRAME)]
    # --8<-- [start:credentials]
    if access.bearer:
        setup.append(authenticate_bearer(access.bearer))
    elif access.simple:
        setup.append(authenticate_simple(*access.simple))
    # --8<-- [end:credentials]
    client = RSocketClient(
        _only(await _dialled(access)),
        # The annotation wants a callable with a parameter; it is called without one.
        handler_factory=lambda _=None: destination or BaseRequestHandler(),
        metadata_encoding=WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA,
        setup_payload=Payload(b"", CompositeMetadata(setup).serialize()),
    )
    async with client:
        yield client


async def ask(rsocket: RSocketClient, service: str, interaction: str, argument: str) -> Outcome:
    """Send one request, named as in `js/requester.js`, and wait for what becomes of it.

    Credit is granted five elements at a time, as there.
    """
    wanted = int(argument) if interaction == "first_of_stream" else None
    # It has the elements that came before an error.
    collected: Any = CollectorSubscriber(limit_rate=CREDIT, limit_count=wanted)
    code: int | None = None
    message: str | None = None
    try:
        async with asyncio.timeout(TIMEOUT):
            await _answers(rsocket, service, interaction, argument, collected)
    except RSocketProtocolError as error:
        code, message = int(error.error_code), error.data
    except RuntimeError as error:  # what the package makes of APPLICATION_ERROR
        code, message = ErrorCode.APPLICATION_ERROR, str(error)
    return Outcome([_text_of(payload) for payload in collected.values], code, message)


class Wandering:
    """A requester that connects to the next broker when its own closes the connection.

    It makes a client of the package for each connection. The `reconnect` of the package loses what
    is asked between the end of a connection and its own start: that is never answered.

    Args:
        uris: The brokers, separated by commas.
        service: The service name.
        stack: What closes its connections.
    """

    def __init__(self, uris: str, service: str, stack: AsyncExitStack) -> None:
        self._uris = itertools.cycle(uris.split(","))
        self._service = service
        self._stack = stack
        self._connection: tuple[RSocketClient, _Leaving] | None = None

    async def ask(self, service: str, interaction: str, argument: str) -> Outcome:
        """Send one request, as `ask`, to the broker of the connection or to the next one."""
        try:
            rsocket = await self._connected()
        except OSError as error:
            return Outcome([], None, f"connection refused: {error}")
        return await ask(rsocket, service, interaction, argument)

    async def _connected(self) -> RSocketClient:
        if self._connection is None or self._connection[1].left:
            # The last one ends by itself: what is in progress there is answered.
            leaving = _Leaving()
            connecting = connect(next(self._uris), self._service, leaving)
            self._connection = await self._stack.enter_async_context(connecting), leaving
        return self._connection[0]


class _Leaving(BaseRequestHandler):  # type: ignore[misc]
    """Notes that the broker has closed a connection, or is about to."""

    def __init__(self) -> None:
        self.left = False

    async def on_error(self, error_code: ErrorCode, payload: Payload) -> None:
        # After CONNECTION_CLOSE, "New requests MAY not be accepted."
        del error_code, payload
        self.left = True

    async def on_close(self, rsocket: Any, exception: Exception | None = None) -> None:
        del rsocket, exception
        self.left = True


async def _answers(
    rsocket: RSocketClient, service: str, interaction: str, argument: str, collected: Any
) -> None:
    """Send one request; `collected` has the answers, also those before an error that is raised."""
    # Half of the package's methods have no annotations.
    requester: Any = AwaitableRSocket(rsocket)
    answers: Any = None
    match interaction:
        case "request_response":
            payload = request_payload(service, argument)
            collected.values.append(await requester.request_response(payload))
        case "fire_and_forget":
            await requester.fire_and_forget(request_payload(service, argument))
        case "metadata_push":
            await requester.metadata_push(request_metadata(service, argument))
        case "request_stream":
            answers = rsocket.request_stream(request_payload(service, argument))
        case "first_of_stream":
            answers = rsocket.request_stream(request_payload(service, "endless"))
        case "request_channel":
            text, *others = argument.split(",")
            rest = StreamFromGenerator(lambda: _elements(others))
            payload = request_payload(service, text)
            answers = rsocket.request_channel(payload, rest)
        case _:
            raise AssertionError(f"no such interaction: {interaction}")
    if answers is not None:
        answers.initial_request_n(CREDIT).subscribe(collected)
        await collected.run()


def _elements(texts: list[str]) -> Generator[tuple[Payload, bool]]:
    for position, text in enumerate(texts, start=1):
        yield Payload(text.encode()), position == len(texts)


async def _dialled(access: Access) -> Transport:
    secure = access.context()
    if access.scheme in {"ws", "wss"}:
        connecting = connect_websocket(access.plain, compression=None, proxy=None, ssl=secure)
        return _WebSocket(await connecting)
    where = (access.host, access.port)
    return TransportTCP(*await asyncio.open_connection(*where, ssl=secure))


async def _only(transport: Transport) -> AsyncGenerator[Transport]:
    # Open already, whatever `Transport.connect` is for: from when the package is given a transport
    # it sends a KEEPALIVE every 500 ms, before SETUP too, where that has to wait for a handshake.
    yield transport


class _WebSocket(AbstractMessagingTransport):  # type: ignore[misc]
    """The client's side of a WebSocket, which the package has only for other libraries."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket
        self._reading: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        base: Any = self
        with suppress(ConnectionClosed):
            async for message in self._socket:
                assert isinstance(message, bytes)
                async for frame in base._frame_parser.receive_data(message, header_length=0):
                    base._incoming_frame_queue.put_nowait(frame)
        base._incoming_frame_queue.put_nowait(RSocketTransportError())

    async def send_frame(self, frame: Any) -> None:
        try:
            await self._socket.send(frame.serialize())
        except ConnectionClosed as error:
            raise RSocketTransportError from error

    async def close(self) -> None:
        await self._socket.close()
        if self._reading:
            await self._reading


class Received(NamedTuple):
    """What a destination was asked: as its report's line is in JavaScript."""

    interaction: str
    data: str
    route: str


class Destination(BaseRequestHandler):  # type: ignore[misc]
    """Answers requests, and puts what it was asked into `received`."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[Received] = asyncio.Queue()
        self.canceled: asyncio.Queue[int] = asyncio.Queue()

    def _received(self, interaction: str, payload: Any) -> str:
        text = _text_of(payload)
        name = require_route(CompositeMetadata().parse(payload.metadata))
        self.received.put_nowait(Received(interaction, text, name))
        return text

    async def request_response(self, payload: Any) -> Awaitable[Payload]:
        text = self._received("request_response", payload)
        answer: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        if text == "fail":
            answer.set_exception(RuntimeError("refused by python"))
        elif text != "hold":
            answer.set_result(Payload(_answer_to(text)))
        return answer

    async def on_metadata_push(self, payload: Any) -> None:
        name = require_route(CompositeMetadata().parse(payload.metadata))
        self.received.put_nowait(Received("metadata_push", "", name))

    async def request_fire_and_forget(self, payload: Payload) -> None:
        self._received("fire_and_forget", payload)

    async def request_stream(self, payload: Payload) -> Publisher:
        text = self._received("request_stream", payload)
        sent = 0

        def elements() -> Generator[tuple[Payload, bool]]:
            nonlocal sent
            # COUNT, or COUNT TEXT: then the text is in each element, behind its number.
            count, space, rest = text.partition(" ")
            last = None if count == "endless" else int(count)
            for sent in itertools.count(1):
                yield Payload(_answer_to(f"{sent}{space}{rest}")), sent == last

        return StreamFromGenerator(elements, on_cancel=lambda: self.canceled.put_nowait(sent))

    async def request_channel(self, payload: Payload) -> tuple[Publisher, Subscriber]:
        echo = _EchoChannel(self._received("request_channel", payload))
        return echo, echo


class _EchoChannel(Publisher, Subscriber, Subscription):  # type: ignore[misc]
    """Answers each element by one.

    The requester's credit for answers is passed on as credit for elements, so nothing waits
    here. The first element came with the request.
    """

    def __init__(self, first: str) -> None:
        self._first: str | None = first
        self._elements: Any = None
        self._answers: Any = None

    def on_subscribe(self, subscription: Subscription) -> None:
        self._elements = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        self._answers.on_next(Payload(_answer_to(_text_of(value))), is_complete)

    def on_complete(self) -> None:
        self._answers.on_complete()

    def on_error(self, exception: Exception) -> None:
        self._answers.on_error(exception)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._answers = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._answers.on_next(Payload(_answer_to(first)))
            n -= 1
        if n:
            self._elements.request(n)

    def cancel(self) -> None:
        self._elements.cancel()


def _text_of(payload: Any) -> str:
    text: str = payload.data.decode()
    return text


def _answer_to(text: str) -> bytes:
    return f"{text} from python".encode()
