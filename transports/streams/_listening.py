"""Listening by a worker: how such a worker is started, held, and closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ...actors import Worker
from ...protocol import Address, NodeStopped, WorkerStopped
from .._base import Listener

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["Arrival", "Listeners", "ListeningWorker", "WorkerListener", "close_server"]


class ListeningWorker(Worker):
    """A worker that listens; the links of what it accepts are its children.

    Args:
        on_closed: To be called once with its address when it is over.

    Attributes:
        uri: Where it listens, once it does.
    """

    def __init__(self, on_closed: Callable[[Address], object]) -> None:
        super().__init__()
        self.uri = ""
        self._on_closed = on_closed

    async def listen(self) -> None:
        """Listen, unless to be started was all it took.

        Raises:
            OSError: It cannot be done; the worker has no use then.
            NodeStopped: The worker was stopped meanwhile.
        """


W = TypeVar("W", bound=ListeningWorker)


class WorkerListener(Listener, Generic[W]):
    """What others hold of a worker that listens."""

    def __init__(self, node: Node, worker: W) -> None:
        self._node = node
        self._worker = worker

    @property
    def uri(self) -> str:
        """Where it listens, with the port it really has."""
        return self._worker.uri

    @property
    def address(self) -> Address:
        """The address of its worker."""
        return self._worker.address

    async def close(self) -> None:
        """Stop listening and close the links that came of it. Idempotent."""
        if self._node.has(self.address):
            await self._node.stop_worker(self.address)


L = TypeVar("L", bound=Listener)


class Listeners(Generic[W, L]):
    """The listeners of one transport.

    Args:
        node: The node they are on.
        make: Makes what others hold of a worker.
    """

    def __init__(self, node: Node, make: Callable[[Node, W], L]) -> None:
        self._node = node
        self._make = make
        self._listeners: dict[Address, L] = {}

    def __iter__(self) -> Iterator[L]:
        return iter(list(self._listeners.values()))

    async def start(self, worker: W) -> L:
        """Start a worker, and have it listen; if it cannot, it is stopped.

        Raises:
            OSError: It cannot be listened there.
            NodeStopped: The node was stopped meanwhile.
        """
        node, address = self._node, self._node.random_address()
        try:
            await node.start(lambda: worker, address=address)
            await worker.listen()
        except WorkerStopped:
            raise NodeStopped(node.name) from None
        except BaseException:
            if node.has(address):
                await node.stop_worker(address)
            raise
        if not node.has(address):
            raise NodeStopped(node.name)
        listener = self._listeners[address] = self._make(node, worker)
        return listener

    def forget(self, address: Address) -> None:
        """Let go of a listener whose worker is over."""
        self._listeners.pop(address, None)

    async def close(self) -> None:
        """Close all of them."""
        for listener in self:
            await listener.close()


async def close_server(server: asyncio.Server) -> None:
    """Stop listening, and see off who has just been accepted.

    asyncio accepts a connection in one turn of the loop and asks for its protocol in the next. One
    that is accepted as its server closes fails in between, and its socket stays open: the peer
    waits, and so does whoever waits for its handshake. So nobody is accepted any more first, and
    the server is closed a turn later.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        with contextlib.suppress(NotImplementedError):
            # The loop of Windows has no readers.
            loop.remove_reader(each.fileno())
    try:
        await asyncio.sleep(0)
    finally:
        server.close()


class Arrival(asyncio.Protocol):
    """A connection that has just come: it gets its protocol once it is known where from.

    Args:
        admit: Returns what is to have the connection, or `None` to close it.
    """

    def __init__(
        self, admit: Callable[[asyncio.BaseTransport], asyncio.BaseProtocol | None]
    ) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over, or close it."""
        protocol = self._admit(transport)
        if protocol is None:
            transport.close()
        else:
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
