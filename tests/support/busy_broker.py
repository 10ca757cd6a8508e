"""A broker as a process, with an admin interface, and clients that keep it busy."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from subprocess import Popen
from typing import Any

from onward.actors.broker import ApplicationError, Handlers, Request
from onward.protocol import OnwardError
from onward.protocol.rsocket import ErrorCode
from onward.transports.client import Client, connect
from tests.support.commands import TIMEOUT, onward

__all__ = ["HOSTILE", "BusyBroker", "busy_broker", "listening"]

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31m\x07\u202egnp"
"""A name as an enemy would choose it: markup, control characters, and text from right to left."""

PERIOD = 0.02
"""The seconds between two requests of a client."""


@dataclass
class BusyBroker:
    """A broker that runs.

    Attributes:
        process: Its process.
        uri: Where clients connect.
        admin: The URI of its admin interface.
    """

    process: Popen[str]
    uri: str
    admin: str

    def get(self, path: str) -> Any:
        """Ask the API, and return its answer."""
        client = http.client.HTTPConnection(self.admin.removeprefix("http://"), timeout=TIMEOUT)
        with contextlib.closing(client):
            client.request("GET", path)
            return json.loads(client.getresponse().read())


@contextmanager
def listening(*words: str) -> Generator[BusyBroker]:
    """Run a broker."""
    ours = ("--listen", "rsocket+tcp://127.0.0.1:0", "--quiet", "--log", "error")
    # More words come last: `--admin` may be another one.
    with onward("broker", *ours, "--admin", "http://127.0.0.1:0", *words) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        admin = process.stdout.readline().removeprefix("admin ").split()[0]
        yield BusyBroker(process, uri, admin)


@contextmanager
def busy_broker(*words: str) -> Generator[BusyBroker]:
    """Run a broker with services, requests, failures, and requests that wait or find nothing."""
    with listening("--no-route-timeout", "30", "--trace", *words) as broker:
        ready, over = threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(_load(broker.uri, ready, over))
            except BaseException as error:
                failures.append(error)
                ready.set()

        thread = threading.Thread(target=run, name="load")
        thread.start()
        try:
            assert ready.wait(TIMEOUT)
            yield broker
        finally:
            over.set()
            thread.join(TIMEOUT)
        assert not failures, failures


async def _load(uri: str, ready: threading.Event, over: threading.Event) -> None:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        if request.data == b"fail":
            raise ApplicationError(ErrorCode.APPLICATION_ERROR, "out of paper")
        await asyncio.sleep(0.002 if request.data else 0.04)
        return request.data

    async with AsyncExitStack() as stack:

        async def client(**more: Any) -> Client:
            return await stack.enter_async_context(connect(uri, **more))

        for region in ("eu", "us", "ap"):
            await client(service="orders", tags={"region": region}, handlers=handlers)
        await client(service="search", tags={"region": "eu", "shard": "7"}, handlers=handlers)
        await client(service="mail", handlers=handlers)
        await client(service=HOSTILE, tags={"note": HOSTILE}, handlers=handlers)
        gone = await client(service="billing", handlers=handlers)
        web, batch = await client(service="web", handlers=handlers), await client()
        with contextlib.suppress(OnwardError):
            await batch.request("service=mail", b"fail")
        await gone.close()
        waiting = [
            asyncio.ensure_future(_tried(batch, query))
            for query in ("service=invoices", "service=invoices", "service=orders region=moon")
        ]
        tasks = [
            asyncio.ensure_future(_repeated(web, "service=orders region=eu", b"", over)),
            asyncio.ensure_future(_repeated(web, "service=orders", b"x", over)),
            asyncio.ensure_future(_repeated(batch, "service=search", b"xx", over)),
            asyncio.ensure_future(_repeated(batch, "service=mail", b"fail", over, 0.2)),
        ]
        ready.set()
        await asyncio.gather(*tasks)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)


async def _tried(client: Client, query: str, data: bytes = b"") -> None:
    with contextlib.suppress(OnwardError, asyncio.CancelledError):
        await client.request(query, data)


async def _repeated(
    client: Client, query: str, data: bytes, over: threading.Event, period: float = PERIOD
) -> None:
    while not over.is_set():
        await _tried(client, query, data)
        await asyncio.sleep(period)
