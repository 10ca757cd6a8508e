"""Questions to a running broker, as any client of it would ask them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar

from ..actors.broker import MANAGEMENT_SERVICE
from ..protocol import LinkDown, LinkLost, OnwardError, RequestTimeout
from ..transports.client import Client, ClientOptions, RequestRejected, connect
from ._arguments import no_log
from ._status import CommandError, Status

__all__ = ["ask_broker", "watch_broker"]

T = TypeVar("T")

DESTINATION: Final = f"service={MANAGEMENT_SERVICE}"

SHORTEST: Final = 0.001
"""The client takes no time-outs of 0, and commands do: seconds."""

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
        async with asyncio.timeout(timeout), _connected(client) as trouble:
            answer = await _unless(trouble, client.request(DESTINATION, question.encode()))
    return _read(uri, answer.data)


async def watch_broker(uri: str, timeout: float) -> AsyncGenerator[Any]:
    """Yield what happens in a broker, as it happens.

    Args:
        uri: Where it listens, as for `ask_broker`.
        timeout: How long it may take to connect, in seconds.

    Raises:
        CommandError: Nobody is there, it is no broker, or it has gone.
    """
    client = _client(uri, timeout)
    with _readable(uri, timeout):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(timeout):
                trouble = await stack.enter_async_context(_connected(client))
            # Nothing may happen for as long as it likes.
            stream = client.stream(DESTINATION, b"watch", timeout=None)
            await stack.enter_async_context(aclosing(stream))
            while (event := await _unless(trouble, anext(stream, None))) is not None:
                yield _read(uri, event.data)
    raise CommandError(f"{uri} says no more: it has stopped")


def _client(uri: str, timeout: float) -> Client:
    patience = max(timeout, SHORTEST)
    options = ClientOptions(
        connect_timeout=patience,
        request_timeout=patience,
        max_tries=1,
        stream_window=WINDOW,
        drain_timeout=DRAIN,
    )
    try:
        return connect(uri, options=options)
    except ValueError as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error


class _Trouble(Exception):
    """The client could not connect, or has lost the connection."""


async def _unless(trouble: asyncio.Future[str], work: Coroutine[Any, Any, T]) -> T:
    """Do some work, with one connection: a program would try on, a person wants to know.

    Raises:
        _Trouble: There was none, or it was lost.
    """
    task = asyncio.ensure_future(work)
    both: set[asyncio.Future[Any]] = {task, trouble}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _Trouble(trouble.result())
        return task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, OnwardError):
            await task


@asynccontextmanager
async def _connected(client: Client) -> AsyncGenerator[asyncio.Future[str]]:
    """Connect, and yield what will say that the connection is lost.

    Raises:
        _Trouble: It has failed.
        LinkDown: It took too long.
    """
    with _overheard() as trouble:
        try:
            await _unless(trouble, client.__aenter__())
            yield trouble
        finally:
            await client.close()


@contextmanager
def _overheard() -> Generator[asyncio.Future[str]]:
    """Take what the client logs, and print none of it; the first line becomes the result."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not first.done():
                first.set_result(record.getMessage())

    logger = logging.getLogger("onward.transports.client")
    handler, before = Listening(logging.WARNING), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        # The package logs tracebacks of what is no news here.
        with no_log("pyrsocket"):
            yield first
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


@contextmanager
def _readable(uri: str, timeout: float) -> Generator[None]:
    """Say in a line what goes wrong.

    Raises:
        CommandError: It did.
    """
    try:
        yield
    except _Trouble as error:
        raise CommandError(str(error)) from error
    except (TimeoutError, RequestTimeout, LinkDown) as error:
        raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
    except LinkLost as error:
        raise CommandError(f"{uri} says no more: {error.detail}") from error
    except RequestRejected as error:
        # A broker, but one that was told to keep its table to itself, or one too busy.
        raise CommandError(f"{uri} does not tell its routes: {error}") from error
    except OnwardError as error:
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error


def _read(uri: str, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise CommandError(f"{uri} is not a broker that tells its routes") from error
