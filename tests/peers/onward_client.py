"""A requester and a destination written with `onward.transports.client`.

It speaks the reference dialect, as the Java broker wants it. The destination answers as
`js/destination.js` does, with "onward" for "javascript".
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from onward.actors.broker import ApplicationError, Handlers, Request
from onward.protocol import InDoubt, NotDelivered, RequestTimeout
from onward.protocol.broker import Dialect
from onward.protocol.security import BearerToken, Credentials, UserPassword
from onward.transports import TlsOptions
from onward.transports.client import Client, ClientOptions, connect as connect_client
from onward.transports.rsocket import DestinationError
from tests.peers.access import Access
from tests.peers.programs import TIMEOUT
from tests.peers.rsocket_client import CREDIT, Outcome, Received

__all__ = ["OnwardDestination", "ask", "connect"]

ROUTE = "echo"
APPLICATION_ERROR = 0x201


def connect(uri: str, service: str, handlers: Handlers | None = None) -> Client:
    """Return a client of the broker at a URI, as `access.Access` takes it, to be entered.

    Of several, separated by commas, the next one is connected to when a connection ends.
    """
    places = [Access(each) for each in uri.split(",")]
    access = places[0]
    tls = None
    if access.authority:
        tls = TlsOptions(authority=access.authority, certificate=access.certificate)
    options = ClientOptions(
        dialect=Dialect.REFERENCE,
        stream_window=CREDIT,
        drain_timeout=0.05,
        request_timeout=TIMEOUT,
        tls=tls,
    )
    credentials: Credentials | None = None
    if access.bearer:
        credentials = BearerToken(access.bearer.encode())
    elif access.simple:
        credentials = UserPassword(*access.simple)
    return connect_client(
        [f"rsocket+{each.plain}" for each in places],
        service=service,
        handlers=handlers,
        credentials=credentials,
        options=options,
    )


async def ask(client: Client, service: str, interaction: str, argument: str) -> Outcome:
    """Send one request, named as in `js/requester.js`, and wait for what becomes of it."""
    elements: list[str] = []  # also those before an error
    try:
        async for each in _answers(client, f"service={service}", interaction, argument):
            elements.append(each)  # noqa: PERF401
    except DestinationError as error:
        return Outcome(elements, error.code, error.text)
    except NotDelivered as error:
        return Outcome(elements, None, f"refused: {error}")
    except RequestTimeout:
        raise TimeoutError from None
    except InDoubt as error:
        return Outcome(elements, None, f"closed: {error}")
    return Outcome(elements)


async def _answers(client: Client, to: str, interaction: str, argument: str) -> AsyncGenerator[str]:
    data = argument.encode()
    match interaction:
        case "request_response":
            yield (await client.request(to, data, route=ROUTE)).data.decode()
        case "fire_and_forget":
            await client.send(to, data, route=ROUTE)
        case "metadata_push":
            await client.push(to, route=argument)
        case "request_stream":
            async for each in client.stream(to, data, route=ROUTE):
                yield each.data.decode()
        case "first_of_stream":
            async with aclosing(client.stream(to, b"endless", route=ROUTE)) as stream:
                for _ in range(int(argument)):
                    yield (await anext(stream)).data.decode()
        case "request_channel":
            async for each in client.channel(to, _elements(argument.split(",")), route=ROUTE):
                yield each.data.decode()
        case _:
            raise AssertionError(f"no such interaction: {interaction}")


async def _elements(texts: list[str]) -> AsyncIterator[bytes]:
    for text in texts:
        yield text.encode()


class OnwardDestination:
    """A client with handlers, in this process."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[Received] = asyncio.Queue()
        self._canceled: asyncio.Queue[int] = asyncio.Queue()
        self._client: Client | None = None

    async def start(self, uri: str, service: str) -> None:
        """Connect it."""
        self._client = connect(uri, service, self._handlers())
        await self._client.__aenter__()

    def _handlers(self) -> Handlers:
        handlers = Handlers()
        handlers.response(self._respond)
        handlers.stream(self._stream)
        handlers.channel(self._channel)

        @handlers.fire_and_forget
        async def take(request: Request) -> None:
            self._take("fire_and_forget", request)

        @handlers.metadata_push("news")
        async def take_push(request: Request) -> None:
            self._take("metadata_push", request)

        return handlers

    def _take(self, interaction: str, request: Request) -> str:
        text = request.data.decode()
        self._received.put_nowait(Received(interaction, text, request.route))
        return text

    async def _respond(self, request: Request) -> bytes:
        text = self._take("request_response", request)
        if text == "fail":
            raise ApplicationError(APPLICATION_ERROR, "refused by onward")
        if text == "hold":
            await asyncio.get_running_loop().create_future()
        return _answer_to(text)

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        text = self._take("request_stream", request)
        # COUNT, or COUNT TEXT: then the text is in each element, behind its number.
        count, space, rest = text.partition(" ")
        last = None if count == "endless" else int(count)
        sent = 0
        try:
            for number in itertools.count(1):
                sent = number
                yield _answer_to(f"{number}{space}{rest}")
                if number == last:
                    return
        finally:
            if sent != last:
                self._canceled.put_nowait(sent)

    async def _channel(
        self, request: Request, incoming: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        self._take("request_channel", request)
        async for element in incoming:
            yield _answer_to(element.decode())

    async def received(self) -> Received:
        """Wait for the next request it got."""
        async with asyncio.timeout(TIMEOUT):
            return await self._received.get()

    async def canceled(self) -> int:
        """Wait until a request is canceled; return how many elements it had sent by then."""
        async with asyncio.timeout(TIMEOUT):
            return await self._canceled.get()

    async def kill(self) -> None:
        """End its connection."""
        assert self._client
        await self._client.close()


def _answer_to(text: str) -> bytes:
    return f"{text} from onward".encode()
