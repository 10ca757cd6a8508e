"""Workers that listen: the table of a transport's listeners, and the start and end of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from ...actors import Worker
from ...protocol import Address, NodeStopped, WorkerStopped
from .._base import Listener

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["Arrival", "Listeners", "ListeningWorker", "WorkerListener", "close_server"]


class ListeningWorker(Worker):
    """A worker that listens; its children are the links of accepted connections.

    Args:
        on_closed: Called once with its address when it has ended.

    Attributes:
        uri: The URI of the listener, once it listens.
    """

    def __init__(self, on_closed: Callable[[Address], object]) -> None:
        super().__init__()
        self.uri = ""
        self._on_closed = on_closed

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        """Stop listening, as when the worker is stopped."""
        del exception_type, exception_value, traceback
        return self.on_stop()

    async def listen(self) -> None:
        """Start listening. Not overridden if `on_start` does that.

        Raises:
            OSError: The URI cannot be listened at.
            NodeStopped: The worker was stopped meanwhile.
        """


W = TypeVar("W", bound=ListeningWorker)


class WorkerListener(Listener, Generic[W]):
    """A handle on a listening worker."""

    def __init__(self, node: Node, worker: W) -> None:
        self._node = node
        self._worker = worker

    @property
    def uri(self) -> str:
        """The URI of the listener, with the actual port."""
        return self._worker.uri

    @property
    def address(self) -> Address:
        """The address of its worker."""
        return self._worker.address

    async def close(self) -> None:
        """Stop listening and close the accepted links. Idempotent."""
        if self._node.has(self.address):
            await self._node.stop_worker(self.address)


L = TypeVar("L", bound=Listener)


class Listeners(Generic[W, L]):
    """The table of the listeners of one transport.

    Args:
        node: The node of the listeners.
        make: Makes the handle on a worker.
    """

    def __init__(self, node: Node, make: Callable[[Node, W], L]) -> None:
        self._node = node
        self._make = make
        self._listeners: dict[Address, L] = {}

    def __iter__(self) -> Iterator[L]:
        return iter(list(self._listeners.values()))

    async def start(self, worker: W) -> L:
        """Start a worker and its listening, or stop the worker if it cannot listen.

        Raises:
            OSError: The URI cannot be listened at.
            NodeStopped: The node stopped meanwhile.
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
        """Remove a listener after its worker has ended."""
        self._listeners.pop(address, None)

    async def close(self) -> None:
        """Close all listeners."""
        for listener in self:
            await listener.close()


async def close_server(server: asyncio.Server) -> None:
    """Close a server, and any connections that it has just accepted.

    asyncio accepts a connection in one pass of the loop and calls the protocol factory in the next.
    If the server closes in between, the connection fails and its socket stays open, so the peer
    waits, and so does the caller that waits for its handshake. So accepting stops first, and the
    server is closed one pass later.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        with contextlib.suppress(NotImplementedError):
            # The event loop of Windows has no readers.
            loop.remove_reader(each.fileno())
    try:
        await asyncio.sleep(0)
    finally:
        server.close()


class Arrival(asyncio.Protocol):
    """An accepted connection, before its protocol is chosen by its source.

    Args:
        admit: Returns the protocol of the connection, or `None` to close it.
    """

    def __init__(
        self, admit: Callable[[asyncio.BaseTransport], asyncio.BaseProtocol | None]
    ) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection to its protocol, or close it."""
        protocol = self._admit(transport)
        if protocol is None:
            transport.close()
        else:
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
