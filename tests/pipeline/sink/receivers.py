"""Who takes the rows in tests: a node, or a broker with services, on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from onward.actors import Node
from onward.actors.batches import BatchTaker, BatchWorker, serve_batches
from onward.actors.broker import Broker, Handlers
from onward.protocol.batches import BatchOptions, BatchRows
from onward.transports.client import Client, connect

T = TypeVar("T")

OPTIONS: Final = BatchOptions()


class Loop:
    """An event loop in a thread; tests and Spark wait in theirs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Rows:
    """Keeps rows, and fails when a test says so.

    Attributes:
        kept: The rows, in the order they came.
        fail_after: Rows after which all is refused; `None`: never.
    """

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.fail_after: int | None = None

    def __call__(self, rows: tuple[bytes, ...], _batch: BatchRows) -> None:
        if self.fail_after is not None and len(self.kept) >= self.fail_after:
            raise RuntimeError("as the test wants")
        self.kept.extend(rows)


@contextmanager
def a_node(
    rows: Callable[[tuple[bytes, ...], BatchRows], None], options: BatchOptions = OPTIONS
) -> Generator[tuple[str, BatchWorker]]:
    """A node that takes batches at `rows`; give its URI, and its worker."""
    loop, worker = Loop(), BatchWorker(rows, options=options)

    async def start() -> tuple[Node, str]:
        node = Node("receiver")
        await node.__aenter__()
        await node.start(lambda: worker, address="rows")
        listener = await node.listen("tcp://127.0.0.1:0", expose=["rows"])
        return node, listener.uri

    node, uri = loop.run(start())
    try:
        yield uri, worker
    finally:
        loop.run(node.__aexit__(None, None, None))
        loop.close()


class Services:
    """A broker with services that take batches.

    Attributes:
        uri: Of the broker.
        rows: What each service keeps.
    """

    def __init__(self, names: tuple[str, ...], max_waiting: int = 256) -> None:
        self.uri = ""
        self.rows = {name: Rows() for name in names}
        self.takers = {
            name: BatchTaker(rows, max_waiting=max_waiting) for name, rows in self.rows.items()
        }
        self._loop = Loop()
        self._node = Node("edge")
        self._clients: dict[str, Client] = {}

    async def start(self) -> None:
        await self._node.__aenter__()
        broker = await Broker.attach(self._node)
        listener = await self._node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        self.uri = listener.uri
        for name in self.takers:
            await self.join(name)

    async def join(self, name: str) -> None:
        """Connect a service; one that was stopped comes back with what it knows."""
        handlers = Handlers()
        serve_batches(handlers, self.takers[name])
        client = connect(self.uri, service="rows", tags={"name": name}, handlers=handlers)
        self._clients[name] = await client.__aenter__()

    async def stop(self, name: str) -> None:
        await self._clients.pop(name).close()

    async def close(self) -> None:
        for name in list(self._clients):
            await self.stop(name)
        await self._node.__aexit__(None, None, None)

    def run(self, work: Awaitable[Any]) -> None:
        self._loop.run(work)

    def end(self) -> None:
        self._loop.run(self.close())
        self._loop.close()


@contextmanager
def services(*names: str, max_waiting: int = 256) -> Generator[Services]:
    made = Services(names, max_waiting)
    made.run(made.start())
    try:
        yield made
    finally:
        made.end()
