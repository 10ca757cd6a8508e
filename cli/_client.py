"""Questions to a running broker, and requests through it, as any client would make them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import Any, Final

from ..actors.broker import MANAGEMENT_SERVICE
from ..protocol import LinkDown, LinkLost, OnwardError, RequestTimeout
from ..transports.client import Client, ClientOptions, RequestRejected, connect
from ._show import printable
from ._status import CommandError, Status, status_of

__all__ = ["ask_broker", "request_through", "table_of_broker", "watch_broker"]

DESTINATION: Final = f"@no-route=reject service={MANAGEMENT_SERVICE}"
"""A broker has its management service from the start, or will not have it."""

SLACK: Final = 60.0
"""The client gives up so many seconds after the command has."""

WINDOW: Final = 64
"""Most events that are ahead of what has been printed."""

DRAIN: Final = 1.0
"""How long closing may take, in seconds."""


async def ask_broker(uri: str, question: str, timeout: float) -> Any:
    """Ask a broker about itself.

    Args:
        uri: Where it listens: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or
            `rsocket+unix:///path`.
        question: `routes`, `statistics`, or `resolve` and what to resolve.
        timeout: How long it may take, in seconds.

    Returns:
        What its JSON says.

    Raises:
        CommandError: Nobody is there, or somebody who does not answer as a broker does.
    """
    client = _client(uri, timeout)
    with _readable(uri, timeout):
        async with asyncio.timeout(timeout), client:
            answer = await client.request(DESTINATION, question.encode())
    return _read(uri, answer.data)


async def request_through(uri: str, destination: str, payload: bytes, timeout: float) -> bytes:
    """Send a request/response through a broker, and return the data of the answer.

    Args:
        uri: Where the broker listens, as for `ask_broker`.
        destination: What is asked for, as in an address of type 32.
        payload: The data.
        timeout: How long it may take, in seconds.

    Raises:
        CommandError: It did not get an answer; or an error, whose text it has.
    """
    client = _client(uri, timeout)
    connected = False
    try:
        async with asyncio.timeout(timeout), client:
            connected = True
            return (await client.request(destination, payload)).data
    except LinkDown as error:
        raise CommandError(f"{uri}: cannot connect: {error.detail}") from error
    except TimeoutError as error:
        late = RequestTimeout(destination, f"{timeout:g} s")
        if not connected:
            raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
        raise CommandError(printable(str(late)), status_of(late)) from error
    except OnwardError as error:
        # Other people choose the texts of errors.
        raise CommandError(printable(str(error)), status_of(error)) from error


async def watch_broker(uri: str, timeout: float) -> AsyncGenerator[Any]:
    """Yield what happens in a broker, as it happens.

    Args:
        uri: Where it listens, as for `ask_broker`.
        timeout: How long it may take to connect, in seconds.

    Raises:
        CommandError: Nobody is there, it is no broker, or it has gone.
    """
    # Nothing may happen for as long as it likes.
    async with aclosing(_stream(uri, b"watch", timeout, None)) as events:
        async for event in events:
            yield _read(uri, event)
    raise CommandError(f"{uri} says no more: it has stopped")


async def table_of_broker(uri: str, timeout: float) -> AsyncGenerator[bytes]:
    """Yield the table of a broker, some lines at a time; see `protocol.broker.parse_routes`.

    Args:
        uri: Where it listens, as for `ask_broker`.
        timeout: How long it may take to connect, and how long nothing may come, in seconds.

    Raises:
        CommandError: Nobody is there, it is no broker that tells it, or it has gone.
    """
    async with aclosing(_stream(uri, b"table", timeout, timeout)) as chunks:
        async for chunk in chunks:
            yield chunk


async def _stream(
    uri: str, question: bytes, timeout: float, silence: float | None
) -> AsyncGenerator[bytes]:
    client = _client(uri, timeout)
    with _readable(uri, timeout):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(timeout):
                await stack.enter_async_context(client)
            stream = client.stream(DESTINATION, question, timeout=silence)
            await stack.enter_async_context(aclosing(stream))
            async for element in stream:
                yield element.data


def _client(uri: str, timeout: float) -> Client:
    options = ClientOptions(
        connect_timeout=timeout + SLACK,
        request_timeout=None,
        reconnect=False,
        max_tries=1,
        stream_window=WINDOW,
        drain_timeout=DRAIN,
    )
    try:
        return connect(uri, options=options)
    except ValueError as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error


@contextmanager
def _readable(uri: str, timeout: float) -> Generator[None]:
    """Say in a line what goes wrong.

    Raises:
        CommandError: It did.
    """
    try:
        yield
    except LinkDown as error:
        raise CommandError(f"{uri}: cannot connect: {error.detail}") from error
    except TimeoutError as error:
        raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
    except LinkLost as error:
        raise CommandError(f"{uri}: the connection is lost: {error.detail}") from error
    except RequestRejected as error:
        why = "it is busy" if "busy" in error.text else "its management is off"
        raise CommandError(f"{uri} does not tell its routes: {why}") from error
    except OnwardError as error:
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error


def _read(uri: str, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise CommandError(f"{uri} is not a broker that tells its routes") from error
