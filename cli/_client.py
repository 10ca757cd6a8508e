"""Questions to a running broker, as any RSocket client would ask them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.error_codes import ErrorCode
from rsocket.exceptions import RSocketError, RSocketProtocolError
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import metadata_item
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.tcp import TransportTCP

from ..actors.broker import MANAGEMENT_SERVICE
from ..protocol.broker import (
    MIME_BROKER_FRAME,
    AddressFrame,
    Dialect,
    RoutingType,
    make_tags,
)
from ._arguments import no_log
from ._listen import reason_of
from ._status import CommandError, Status

__all__ = ["ask_broker", "watch_broker"]

SCHEME: Final = "rsocket+tcp"

WINDOW: Final = 64
"""Most events that are ahead of what has been printed."""


async def ask_broker(uri: str, question: str, timeout: float) -> Any:
    """Ask a broker about itself.

    Args:
        uri: Where it listens: `rsocket+tcp://host:port`.
        question: `routes`, `statistics`, or `resolve` and what to resolve.
        timeout: How long it may take, in seconds.

    Returns:
        What its JSON says.

    Raises:
        CommandError: Nobody is there, or somebody who does not answer as a broker does.
    """
    place = _host_and_port(uri)
    with _readable(uri, timeout):
        async with asyncio.timeout(timeout), _connected(place) as client:
            answer: Payload = await AwaitableRSocket(client).request_response(_asking(question))
    return _read(uri, bytes(answer.data or b""))


async def watch_broker(uri: str, timeout: float) -> AsyncGenerator[Any]:
    """Yield what happens in a broker, as it happens.

    Args:
        uri: Where it listens.
        timeout: How long it may take to connect, in seconds.

    Raises:
        CommandError: Nobody is there, it is no broker, or it has gone.
    """
    place = _host_and_port(uri)
    with _readable(uri, timeout):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(timeout):
                client = await stack.enter_async_context(_connected(place))
            events = _Events()
            # The package's annotations leave out what its publishers can do.
            stream: Any = client.request_stream(_asking("watch"))
            stream.initial_request_n(WINDOW).subscribe(events)
            async for each in events:
                yield _read(uri, each)
    raise CommandError(f"{uri} says no more: it has stopped")


class _Events:
    """The elements of a stream, at most a window ahead of who takes them."""

    def __init__(self) -> None:
        self._come: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._subscription: Any = None
        self._taken = 0

    def on_subscribe(self, subscription: Any) -> None:
        self._subscription = subscription

    def on_next(self, value: Payload, is_complete: bool = False) -> None:
        self._come.put_nowait(bytes(value.data or b""))
        if is_complete:
            self.on_complete()

    def on_error(self, exception: Exception) -> None:
        self._come.put_nowait(exception)

    def on_complete(self) -> None:
        self._come.put_nowait(None)

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> bytes:
        come = await self._come.get()
        if isinstance(come, Exception):
            raise come
        if come is None:
            raise StopAsyncIteration
        self._taken += 1
        if self._taken == WINDOW // 2:
            self._taken = 0
            self._subscription.request(WINDOW // 2)
        return come


@contextmanager
def _readable(uri: str, timeout: float) -> Generator[None]:
    """Say in a line what goes wrong.

    Raises:
        CommandError: It did.
    """
    try:
        # The package logs tracebacks of what it raises anyway.
        with no_log("pyrsocket"):
            yield
    except TimeoutError as error:
        raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
    except OSError as error:
        raise CommandError(f"cannot connect to {uri}: {reason_of(error)}") from error
    except (RSocketError, RuntimeError) as error:
        if isinstance(error, RSocketProtocolError) and error.error_code is ErrorCode.REJECTED:
            # A broker, but one that was told to keep its table to itself, or one too busy.
            raise CommandError(f"{uri} does not tell its routes: {error}") from error
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error


def _read(uri: str, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise CommandError(f"{uri} is not a broker that tells its routes") from error


def _host_and_port(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error
    if parts.scheme != SCHEME or not parts.hostname or port is None or parts.path.strip("/"):
        raise CommandError(f"{uri!r} is not {SCHEME}://host:port", Status.USAGE)
    return parts.hostname, port


def _asking(question: str) -> Payload:
    address = AddressFrame(
        uuid.uuid4().bytes, RoutingType.UNICAST, make_tags({"service": MANAGEMENT_SERVICE})
    )
    item = metadata_item(address.serialize(Dialect.REFERENCE), MIME_BROKER_FRAME)
    return Payload(question.encode(), CompositeMetadata([item]).serialize())


@asynccontextmanager
async def _connected(place: tuple[str, int]) -> AsyncGenerator[RSocketClient]:
    # Made here and not in the generator: the client would log a refusal and go on.
    transport = TransportTCP(*await asyncio.open_connection(*place))
    async with RSocketClient(
        _once(transport),
        metadata_encoding=WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA,
    ) as client:
        yield client


async def _once(transport: TransportTCP) -> AsyncGenerator[TransportTCP]:
    yield transport
