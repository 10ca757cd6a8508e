"""Workers that listen: started, held and closed, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors.broker import Broker
from onward.protocol import Address, Message, NodeStopped
from onward.transports import WebSocketOptions
from onward.transports.streams._listening import Listeners, ListeningWorker, WorkerListener


class Ear(ListeningWorker):
    """Listens, or does what it is told to first."""

    def __init__(
        self, on_closed: Callable[[Address], object], error: OSError | None = None
    ) -> None:
        super().__init__(on_closed)
        self.error = error

    async def listen(self) -> None:
        if self.error is not None:
            raise self.error
        self.uri = "ear://here"

    def on_stop(self) -> None:
        self._on_closed(self.address)


class StoppedMeanwhile(Ear):
    async def listen(self) -> None:
        await self.node.stop_worker(self.address)


class StoppedAtOnce(Ear):
    def on_start(self) -> None:
        self.stop()


class Gone(Ear):
    async def listen(self) -> None:
        await self.node.stop_worker(self.address)
        await super().listen()


async def test_a_worker_that_listens_is_held_until_it_is_closed() -> None:
    async with Node() as node:
        listeners = Listeners[Ear, WorkerListener[Ear]](node, WorkerListener)
        listener = await listeners.start(Ear(listeners.forget))
        assert listener.uri == "ear://here"
        assert node.has(listener.address)
        assert list(listeners) == [listener]
        await listener.close()
        await listener.close()
        assert not node.has(listener.address)
        assert list(listeners) == []


class Failing(Ear):
    def handle_message(self, message: Message) -> None:
        raise RuntimeError(message.payload.decode())


async def test_a_worker_that_fails_listens_no_more() -> None:
    closed: list[Address] = []
    async with Node() as node:
        worker = Failing(closed.append)
        supervision = Supervision(OnFailure.STOP)
        address = await node.start(lambda: worker, supervision=supervision)
        stopped = asyncio.Event()
        node.watch(address, stopped.set)
        node.send(address, b"fails")
        await stopped.wait()
        assert closed == [address]


async def test_all_of_a_transports_listeners_are_closed_together() -> None:
    async with Node() as node:
        listeners = Listeners[Ear, WorkerListener[Ear]](node, WorkerListener)
        held = [await listeners.start(Ear(listeners.forget)) for _ in range(3)]
        await listeners.close()
        assert not any(node.has(each.address) for each in held)
        assert list(listeners) == []


@pytest.mark.parametrize("kind", [Ear, Gone])
async def test_a_worker_that_cannot_listen_is_stopped(kind: type[Ear]) -> None:
    async with Node() as node:
        listeners = Listeners[Ear, WorkerListener[Ear]](node, WorkerListener)
        worker = kind(listeners.forget, OSError("the place is taken"))
        with pytest.raises(OSError, match="the place is taken"):
            await listeners.start(worker)
        assert not node.has(worker.address)
        assert list(listeners) == []


@pytest.mark.parametrize("kind", [StoppedMeanwhile, StoppedAtOnce])
async def test_a_worker_that_is_stopped_meanwhile_does_not_listen(kind: type[Ear]) -> None:
    async with Node() as node:
        listeners = Listeners[Ear, WorkerListener[Ear]](node, WorkerListener)
        with pytest.raises(NodeStopped):
            await listeners.start(kind(listeners.forget))
        assert list(listeners) == []


@pytest.fixture
def nothing_collected() -> Iterator[None]:
    """Keep garbage: to collect it would close sockets that were forgotten."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nothing_collected")
@pytest.mark.parametrize("turns", range(4))
async def test_who_is_accepted_as_a_listener_closes_is_let_go(turns: int) -> None:
    async with Node() as node:
        listener = await node.listen("tcp://127.0.0.1:0", expose=[])
        await _is_let_go(int(listener.uri.rpartition(":")[2]), turns, listener.close)


@pytest.mark.usefixtures("nothing_collected")
@pytest.mark.parametrize("scheme", ["rsocket+tcp", "rsocket+ws"])
@pytest.mark.parametrize("turns", range(4))
async def test_who_is_accepted_as_a_broker_closes_is_let_go(turns: int, scheme: str) -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        options: dict[str, Any] = {}
        if scheme == "rsocket+ws":
            options["websocket"] = WebSocketOptions(handshake_timeout=60)
        listener = await node.listen(f"{scheme}://127.0.0.1:0", broker=broker, **options)
        await _is_let_go(int(listener.uri.rpartition(":")[2]), turns, listener.close)


async def _is_let_go(port: int, turns: int, close: Callable[[], Awaitable[None]]) -> None:
    """Connect, close the listener so many turns of the loop later, and read to the end."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await close()
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.wait_for(loop.sock_recv(peer, 4096), 30):
                pass
