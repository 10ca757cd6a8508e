"""Requests to a running broker and through it, made with the client library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias

from ..actors.broker import MANAGEMENT_SERVICE
from ..protocol import LinkDown, LinkLost, OnwardError, RequestTimeout
from ..protocol.security import NotAllowed
from ..transports.client import (
    Client,
    ClientOptions,
    CredentialsRefused,
    RequestRejected,
    RetryOptions,
    connect,
)
from ..transports.rsocket import DestinationError
from ._access import Access
from ._show import printable
from ._status import CommandError, Status, status_of

__all__ = [
    "Ask",
    "ask_broker",
    "ask_of",
    "asking",
    "connected",
    "refused",
    "request_through",
    "table_of_broker",
    "watch_broker",
]

DESTINATION: Final = f"@no-route=reject service={MANAGEMENT_SERVICE}"
"""The address of the management service; without one, a broker rejects at once."""

SLACK: Final = 60.0
"""Seconds by which the client's timeout is longer than the command's."""

WINDOW: Final = 64
"""Most events that are requested ahead of those printed."""

_OPEN: Final = Access()

DRAIN: Final = 1.0
"""Longest time for closing, in seconds."""


Ask: TypeAlias = Callable[[str], Awaitable[Any]]
"""A function that sends a question to the management service of a broker."""


async def ask_broker(uri: str, question: str, timeout: float, access: Access = _OPEN) -> Any:
    """Send a question to a broker's management service.

    Args:
        uri: The broker's URI: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or
            `rsocket+unix:///path`; `rsocket+tls` and `rsocket+wss` with TLS.
        question: `routes`, `statistics`, or `resolve` with a query.
        timeout: The longest time it may take, in seconds.
        access: The certificates and credentials.

    Returns:
        The value of the JSON in the answer.

    Raises:
        CommandError: No connection, or the peer does not answer as a broker does.
    """
    client = _client(uri, timeout, access)
    with _readable(uri, timeout, access):
        async with asyncio.timeout(timeout), client:
            answer = await client.request(DESTINATION, question.encode())
    return _read(uri, answer.data)


@asynccontextmanager
async def connected(
    uri: str,
    timeout: float,
    access: Access = _OPEN,
    options: ClientOptions | None = None,
    **service: Any,
) -> AsyncGenerator[Client]:
    """Connect to a broker.

    Args:
        uri: The broker's URI, as for `ask_broker`.
        timeout: The longest time for that, in seconds.
        access: The certificates and credentials.
        options: The options of the client; by default those for some questions.
        **service: What the client serves; see `connect`.

    Raises:
        CommandError: No connection.
    """
    client = _client(uri, timeout, access, options, **service)
    async with AsyncExitStack() as stack:
        with _readable(uri, timeout, access):
            async with asyncio.timeout(timeout + (0.0 if options is None else SLACK)):
                await stack.enter_async_context(client)
        yield client


@asynccontextmanager
async def asking(uri: str, timeout: float, access: Access = _OPEN) -> AsyncGenerator[Ask]:
    """Connect to a broker, and yield the function that sends it questions.

    Args:
        uri: The broker's URI, as for `ask_broker`.
        timeout: The longest time to connect, and for each answer, in seconds.
        access: The certificates and credentials.

    Raises:
        CommandError: No connection, or the peer does not answer as a broker does.
    """
    async with connected(uri, timeout, access) as client:
        yield ask_of(client, uri, timeout, access)


def ask_of(client: Client, uri: str, timeout: float, access: Access = _OPEN) -> Ask:
    """Return the function that sends questions to the broker of a connected client."""

    async def ask(question: str) -> Any:
        with _readable(uri, timeout, access):
            async with asyncio.timeout(timeout):
                answer = await client.request(DESTINATION, question.encode())
        return _read(uri, answer.data)

    return ask


async def request_through(
    uri: str, destination: str, payload: bytes, timeout: float, access: Access = _OPEN
) -> bytes:
    """Send a request/response through a broker, and return the data of the answer.

    Args:
        uri: The broker's URI, as for `ask_broker`.
        destination: The query, as in an address of type 32.
        payload: The data.
        timeout: The longest time it may take, in seconds.
        access: The certificates and credentials.

    Raises:
        CommandError: No answer came, or an error, in which case it has the error's text.
    """
    client = _client(uri, timeout, access)
    connected = False
    try:
        async with asyncio.timeout(timeout), client:
            connected = True
            return (await client.request(destination, payload)).data
    except CredentialsRefused as error:
        raise refused(uri, access) from error
    except LinkDown as error:
        raise CommandError(f"{uri}: cannot connect: {error.detail}") from error
    except TimeoutError as error:
        late = RequestTimeout(destination, f"{timeout:g} s")
        if not connected:
            raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
        raise CommandError(printable(str(late)), status_of(late)) from error
    except OnwardError as error:
        # The texts of errors come from peers.
        raise CommandError(printable(str(error)), status_of(error)) from error


async def watch_broker(uri: str, timeout: float, access: Access = _OPEN) -> AsyncGenerator[Any]:
    """Yield the events of a broker as they happen.

    Args:
        uri: The broker's URI, as for `ask_broker`.
        timeout: The longest time to connect, in seconds.
        access: The certificates and credentials.

    Raises:
        CommandError: No connection, the peer is no broker, or it has stopped.
    """
    # There may be no event for any length of time.
    async with aclosing(_stream(uri, b"watch", timeout, None, access)) as events:
        async for event in events:
            yield _read(uri, event)
    raise CommandError(f"{uri} sends no more events: it has stopped")


async def table_of_broker(
    uri: str, timeout: float, access: Access = _OPEN
) -> AsyncGenerator[bytes]:
    """Yield the table of a broker, some lines at a time; see `protocol.broker.parse_routes`.

    Args:
        uri: The broker's URI, as for `ask_broker`.
        timeout: The longest time to connect, and to wait for each part, in seconds.
        access: The certificates and credentials.

    Raises:
        CommandError: No connection, the peer is no broker that tells its routes, or it has stopped.
    """
    async with aclosing(_stream(uri, b"table", timeout, timeout, access)) as chunks:
        async for chunk in chunks:
            yield chunk


async def _stream(
    uri: str, question: bytes, timeout: float, silence: float | None, access: Access
) -> AsyncGenerator[bytes]:
    client = _client(uri, timeout, access)
    with _readable(uri, timeout, access):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(timeout):
                await stack.enter_async_context(client)
            stream = client.stream(DESTINATION, question, timeout=silence)
            await stack.enter_async_context(aclosing(stream))
            async for element in stream:
                yield element.data


def refused(uri: str, access: Access) -> CommandError:
    """Return the error of a command at a broker that has refused its credentials."""
    if access.credentials is None:
        return CommandError(
            f"{uri} asks for credentials: give --token-file, or --user and --password-file"
        )
    return CommandError(f"{uri} refuses the credentials")


def _client(
    uri: str,
    timeout: float,
    access: Access,
    options: ClientOptions | None = None,
    **service: Any,
) -> Client:
    options = options or ClientOptions(
        connect_timeout=timeout + SLACK,
        request_timeout=None,
        reconnect=False,
        stream_window=WINDOW,
        drain_timeout=DRAIN,
        tls=access.tls,
        retry=RetryOptions(max_tries=1),
    )
    try:
        return connect(uri, credentials=access.credentials, options=options, **service)
    except (OSError, ValueError) as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error


@contextmanager
def _readable(uri: str, timeout: float, access: Access) -> Generator[None]:
    """Turn errors of the client into one line each.

    Raises:
        CommandError: In place of the error.
    """
    try:
        yield
    except CredentialsRefused as error:
        raise refused(uri, access) from error
    except LinkDown as error:
        raise CommandError(f"{uri}: cannot connect: {error.detail}") from error
    except TimeoutError as error:
        raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
    except LinkLost as error:
        raise CommandError(f"{uri}: the connection is lost: {error.detail}") from error
    except RequestRejected as error:
        why = "it is busy" if "busy" in error.text else "its management is off"
        raise CommandError(f"{uri} does not tell its routes: {why}") from error
    except DestinationError as error:
        if error.text.startswith(NotAllowed.reason):
            raise CommandError(f"{uri}: {printable(error.text)}") from error
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error
    except OnwardError as error:
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error


def _read(uri: str, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise CommandError(f"{uri} is not a broker that tells its routes") from error
