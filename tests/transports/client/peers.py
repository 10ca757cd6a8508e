"""The other side of a client: our own broker, or a peer that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from onward.actors import Node
from onward.actors.broker import (
    Answer,
    ApplicationError,
    Broker,
    BrokerOptions,
    Handlers,
    Request,
    WaitingOptions,
)
from onward.actors.security import Authentication
from onward.protocol.rsocket import Connection, ConnectionLimits, Event, Frame, Role, Setup
from onward.transports import Backoff
from onward.transports.client import ClientOptions, RetryOptions

__all__ = ["QUICK", "Peer", "Peers", "broker", "echo_handlers", "peers", "quick"]

TCP = "rsocket+tcp://127.0.0.1:0"
SOON = Backoff(first=0.001, longest=0.01)


def quick(**options: Any) -> ClientOptions:
    """Options that do not wait for long where a test would have to."""
    return replace(ClientOptions(backoff=SOON, retry=RetryOptions(backoff=SOON)), **options)


QUICK = quick()


@asynccontextmanager
async def broker(
    uri: str = TCP,
    options: BrokerOptions | None = None,
    authentication: Authentication | None = None,
) -> AsyncGenerator[tuple[str, Broker]]:
    """Start a node with a broker that listens; give its real URI."""
    async with Node("edge") as node:
        made = await Broker.attach(
            node, options or BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
        )
        listener = await node.listen(uri, broker=made, authentication=authentication)
        yield listener.uri, made


def echo_handlers() -> Handlers:
    """Handlers that say what they got, by route."""
    handlers = Handlers(max_handling=50)

    @handlers.response
    async def echo(request: Request) -> Answer:
        return Answer(request.data, request.metadata)

    @handlers.response("fail")
    async def fail(request: Request) -> bytes:
        raise ApplicationError(int(request.data, 16), "as told")

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield b"%d" % number

    @handlers.channel
    async def shout(_request: Request, incoming: Any) -> AsyncGenerator[Answer]:
        async for data in incoming:
            yield Answer(data.upper(), incoming.metadata)

    return handlers


class Peer(asyncio.Protocol):
    """A connection of a client, seen from the other end, with no will of its own.

    Attributes:
        core: The state machine; what it is told is sent by `flush`.
        setup: What the client asked for, once it has come.
        held: Whether nothing is written, so that not even a KEEPALIVE is answered.
    """

    def __init__(self, owner: Peers) -> None:
        self._owner = owner
        limits = ConnectionLimits(lease=True)
        self.core = Connection(Role.SERVER, limits, now=asyncio.get_running_loop().time())
        self.setup: Setup | None = None
        self.held = owner.held
        self.made = False
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.lost = asyncio.Event()
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.made = True

    def data_received(self, data: bytes) -> None:
        for event in self.core.receive_data(data, asyncio.get_running_loop().time()):
            if isinstance(event, Frame) and self.setup is None:
                self.setup = Setup.parse(event)
                self._owner.came.put_nowait(self)
            else:
                self._events.put_nowait(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def flush(self) -> None:
        """Write what the state machine has to say."""
        if not self.held and not self.transport.is_closing():
            self.transport.write(self.core.data_to_send())
            if self.core.close_expected():
                self.transport.close()

    async def next(self) -> Any:
        """Return the next event."""
        async with asyncio.timeout(5):
            return await self._events.get()

    def raw(self, data: bytes) -> None:
        """Write bytes that the state machine would not."""
        self.transport.write(data)


class Peers:
    """A socket that listens, and the clients that have come.

    Attributes:
        came: Each peer whose SETUP has come.
        all: Each peer.
        held: Whether new peers are held at first.
    """

    def __init__(self) -> None:
        self.came: asyncio.Queue[Peer] = asyncio.Queue()
        self.all: list[Peer] = []
        self.held = False
        self.uri = ""

    def make(self) -> Peer:
        peer = Peer(self)
        self.all.append(peer)
        return peer

    async def next(self) -> Peer:
        """Return the next client."""
        async with asyncio.timeout(5):
            return await self.came.get()


@asynccontextmanager
async def peers() -> AsyncGenerator[Peers]:
    """Listen."""
    made = Peers()
    server = await asyncio.get_running_loop().create_server(made.make, "127.0.0.1", 0)
    made.uri = f"rsocket+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for peer in made.all:
            if peer.made:  # one that connects at this very moment has no socket yet
                peer.transport.abort()
        await server.wait_closed()
