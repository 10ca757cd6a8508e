"""RSocket peers without sockets: frames by hand, an event loop with virtual time, and a broker.

Everything on the wire is put together here byte by byte from the specifications, and not with
Onward's codecs, so that a mistake of those cannot hide itself. What the broker writes is kept
frame by frame as bytes.

The servers of a `MemoryLoop` take connections from `Peer`s in the same process, through a
transport that behaves as asyncio's do, and whose other end can stop reading.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, cast
from uuid import UUID

from onward.actors import Node, NodeLimits
from onward.actors.broker import Broker, BrokerOptions, RouteStatistics
from onward.actors.cluster import PeerHandlers
from onward.actors.security import Authentication, Authorization
from onward.protocol.rsocket import Setup
from onward.protocol.security import read_rules
from onward.transports.rsocket import LinkOptions, RSocketListener
from onward.transports.rsocket._link import Link
from tests.support.rsocket_opened import opened_link
from tests.support.virtual import VirtualLoop

__all__ = [
    "BROKER_FRAME",
    "CANCEL",
    "CHANNEL",
    "COMPOSITE",
    "ENCRYPTED",
    "ERROR",
    "FNF",
    "FORWARDING",
    "IS_IT_ALIVE",
    "KEEPALIVE",
    "LEASE",
    "MULTICAST",
    "PAYLOAD",
    "PUSH",
    "REQUEST_N",
    "ROUTING_FRAME",
    "RR",
    "SERVICE_NAME",
    "SETUP",
    "SHARD",
    "STREAM",
    "UNICAST",
    "C",
    "F",
    "I",
    "M",
    "MemoryLoop",
    "MemoryTransport",
    "N",
    "Peer",
    "World",
    "address",
    "asked_for",
    "cancel",
    "composite",
    "elements",
    "error",
    "errors",
    "frame",
    "in_memory",
    "in_world",
    "kind_of",
    "lists_of_tags",
    "payload",
    "push",
    "request",
    "request_n",
    "restamped",
    "route_setup",
    "setup",
    "split",
    "stream_of",
    "with_n",
    "world",
]

SETUP, LEASE, KEEPALIVE, RR, FNF, STREAM, CHANNEL = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
REQUEST_N, CANCEL, PAYLOAD, ERROR, PUSH = 0x08, 0x09, 0x0A, 0x0B, 0x0C
I, M, F, C, N = 0x200, 0x100, 0x080, 0x040, 0x020  # noqa: E741 - the specification's letters

COMPOSITE = b"message/x.rsocket.composite-metadata.v0"
BROKER_FRAME = b"message/x.rsocket.broker.frame.v0"
ROUTING_FRAME = b"message/x.rsocket.routing.frame.v0"
FORWARDING = b"message/x.rsocket.forwarding"

INSTANT = 1e-6
"""Virtual seconds that pass when all that is to be done at a time has been done."""

UNICAST, MULTICAST, SHARD, ENCRYPTED = 0x080, 0x040, 0x020, 0x100
SERVICE_NAME = 1


# --- frames ---------------------------------------------------------------------------------
def frame(stream_id: int, kind: int, flags: int = 0, body: bytes = b"") -> bytes:
    """Return a frame made of its fields, right or wrong, with its length before it."""
    head = stream_id.to_bytes(4) + (kind << 10 | flags).to_bytes(2)
    return (len(head) + len(body)).to_bytes(3) + head + body


IS_IT_ALIVE = frame(0, KEEPALIVE, 0x80, bytes(8))
"""The KEEPALIVE that the broker sends to a quiet destination with a request."""


def _body(fixed: bytes, metadata: bytes | None, data: bytes) -> bytes:
    middle = b"" if metadata is None else len(metadata).to_bytes(3) + metadata
    return fixed + middle + data


def _m(metadata: bytes | None) -> int:
    return 0 if metadata is None else M


def setup(
    metadata: bytes | None = None,
    *,
    mime: bytes = COMPOSITE,
    version: tuple[int, int] = (1, 0),
    keepalive: int = 20_000,
    lifetime: int = 90_000,
    flags: int = 0,
) -> bytes:
    fixed = b"".join(
        (
            version[0].to_bytes(2),
            version[1].to_bytes(2),
            keepalive.to_bytes(4),
            lifetime.to_bytes(4),
            bytes((len(mime),)),
            mime,
            b"\x18application/octet-stream",
        )
    )
    return frame(0, SETUP, flags | _m(metadata), _body(fixed, metadata, b""))


def request(
    kind: int,
    stream_id: int,
    metadata: bytes | None,
    data: bytes = b"",
    *,
    n: int | None = None,
    flags: int = 0,
) -> bytes:
    fixed = b"" if n is None else n.to_bytes(4)
    return frame(stream_id, kind, flags | _m(metadata), _body(fixed, metadata, data))


def payload(
    stream_id: int, data: bytes = b"", flags: int = N, metadata: bytes | None = None
) -> bytes:
    return frame(stream_id, PAYLOAD, flags | _m(metadata), _body(b"", metadata, data))


def request_n(stream_id: int, n: int) -> bytes:
    return frame(stream_id, REQUEST_N, 0, n.to_bytes(4))


def cancel(stream_id: int) -> bytes:
    return frame(stream_id, CANCEL)


def error(stream_id: int, code: int, text: bytes = b"", flags: int = 0) -> bytes:
    return frame(stream_id, ERROR, flags, code.to_bytes(4) + text)


def push(metadata: bytes, flags: int = 0) -> bytes:
    return frame(0, PUSH, M | flags, metadata)


def split(data: bytes | bytearray) -> tuple[list[bytes], bytes]:
    """Return the whole frames in some bytes, each with its length, and the rest."""
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 3:
        end = at + 3 + int.from_bytes(data[at : at + 3])
        if end > len(data):
            break
        found.append(bytes(data[at:end]))
        at = end
    return found, bytes(data[at:])


def stream_of(raw: bytes) -> int:
    return int.from_bytes(raw[3:7])


def kind_of(raw: bytes) -> int:
    return raw[7] >> 2


def restamped(raw: bytes, stream_id: int) -> bytes:
    """Return the same frame on another stream: all that a relay may change."""
    return raw[:3] + stream_id.to_bytes(4) + raw[7:]


def with_n(raw: bytes, n: int) -> bytes:
    """Return the same request with another initial n."""
    return raw[:9] + n.to_bytes(4) + raw[13:]


def errors(frames: list[bytes]) -> list[tuple[int, int, str]]:
    """Return the ERROR frames as (stream, code, text)."""
    return [
        (stream_of(raw), int.from_bytes(raw[9:13]), raw[13:].decode())
        for raw in frames
        if kind_of(raw) == ERROR
    ]


def elements(frames: list[bytes]) -> list[bytes]:
    """Return the data of the PAYLOAD frames without metadata."""
    return [raw[9:] for raw in frames if kind_of(raw) == PAYLOAD]


# --- what is in metadata --------------------------------------------------------------------
def composite(*entries: tuple[bytes, bytes]) -> bytes:
    """Return composite metadata of (MIME type, content)."""
    return b"".join(
        bytes((len(mime) - 1,)) + mime + len(content).to_bytes(3) + content
        for mime, content in entries
    )


def lists_of_tags(tags: Mapping[int | str, str]) -> bytes:
    """Return a tag list: keys are well-known numbers or texts."""
    out = bytearray()
    for left, (key, value) in zip(range(len(tags) - 1, -1, -1), tags.items(), strict=True):
        name = bytes((0x80 | key,)) if isinstance(key, int) else _short(key)
        text = value.encode()
        out += name + bytes(((0x80 if left else 0) | len(text),)) + text
    return bytes(out)


def _short(text: str) -> bytes:
    return bytes((len(text.encode()),)) + text.encode()


def route_setup(route_id: UUID, service: str, tags: Mapping[int | str, str] | None = None) -> bytes:
    head = bytes.fromhex("0000 0001 0400") + route_id.bytes
    return head + _short(service) + lists_of_tags(tags or {})


def address(
    tags: Mapping[int | str, str] | str,
    flags: int = UNICAST,
    *,
    mime: bytes = BROKER_FRAME,
    origin: bytes = bytes(range(16)),
    wrapped: bytes = b"",
) -> bytes:
    """Return an ADDRESS frame; a text is the service name."""
    if isinstance(tags, str):
        tags = {SERVICE_NAME: tags}
    middle = b"\x80\x00" if mime == FORWARDING else b""
    head = bytes.fromhex("0000 0001") + (0x05 << 10 | flags).to_bytes(2) + origin
    return head + middle + lists_of_tags(tags) + wrapped


def asked_for(tags: Mapping[int | str, str] | str, flags: int = UNICAST) -> bytes:
    """Return composite metadata that asks for a service, or for tags."""
    return composite((BROKER_FRAME, address(tags, flags)))


# --- the loop -------------------------------------------------------------------------------
class MemoryLoop(VirtualLoop):
    """An event loop with virtual time, whose servers are reached by `Peer`s."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[int, Callable[[], asyncio.BaseProtocol]] = {}
        self._ports = iter(range(1, 65536))

    async def idle(self) -> None:
        """Wait until nothing is left to do at this time."""
        await asyncio.sleep(INSTANT)

    async def create_server(self, protocol_factory: Any, *_args: Any, **_options: Any) -> Any:
        port = next(self._ports)
        self.servers[port] = protocol_factory
        return _MemoryServer(self, port)

    def remove_reader(self, fd: Any) -> bool:
        return fd != -1 and super().remove_reader(fd)  # servers are none


class _MemoryServer:
    """What `asyncio.Server` is to a listener."""

    def __init__(self, loop: MemoryLoop, port: int) -> None:
        self._loop = loop
        self._port = port

    @property
    def sockets(self) -> tuple[_MemoryServer]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)

    def fileno(self) -> int:
        return -1

    async def start_serving(self) -> None:
        pass

    def close(self) -> None:
        self._loop.servers.pop(self._port, None)


_Parameters = ParamSpec("_Parameters")


def in_memory(
    test: Callable[_Parameters, Coroutine[Any, Any, None]],
) -> Callable[_Parameters, None]:
    """Run a coroutine function on a `MemoryLoop` of its own."""

    @functools.wraps(test)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
        with asyncio.Runner(loop_factory=MemoryLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


# --- peers ----------------------------------------------------------------------------------
class MemoryTransport(asyncio.Transport):
    """The broker's side of a connection to a `Peer`, as asyncio's transport would be."""

    def __init__(self, loop: MemoryLoop, protocol: asyncio.Protocol, name: object) -> None:
        super().__init__({"peername": name})
        self._loop = loop
        self._protocol = protocol
        self._high, self._low = 64 * 1024, 16 * 1024
        self._paused = False
        self._closing = False
        self._lost = False
        self.reading = True
        self.unread: list[bytes | None] = []
        self.waiting = bytearray()
        self.delivered = bytearray()
        self.peer_reads = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        low = high // 4 if low is None else low
        assert high >= low >= 0
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: Any) -> None:
        assert not self._lost or self._closing
        if self._lost:
            return
        self.waiting += data
        if self.peer_reads:
            self.delivered += self.waiting
            self.waiting.clear()
        elif len(self.waiting) > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def drain(self, size: int | None = None) -> None:
        """Let the peer read what waits, or some of it."""
        size = len(self.waiting) if size is None else size
        self.delivered += self.waiting[:size]
        del self.waiting[:size]
        if self._paused and len(self.waiting) <= self._low:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing and not self.waiting:
            self.lose(None)

    def pause_reading(self) -> None:
        self.reading = self._closing

    def resume_reading(self) -> None:
        if not self._closing and not self.reading:
            self.reading = True
            self._loop.call_soon(self.feed)

    def feed(self) -> None:
        """Give the protocol what has come, as far as it reads."""
        while self.unread and self.reading and not self._closing:
            data = self.unread.pop(0)
            if data is not None:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.waiting:
                self.lose(None)

    def abort(self) -> None:
        self._closing = True
        self.waiting.clear()
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """End the connection, soon, as asyncio does."""
        self._closing = True
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    @property
    def lost(self) -> bool:
        return self._lost


class Peer:
    """The other end of a connection to a listener."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], name: object) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MemoryLoop)
        self.loop = loop
        protocol = cast(asyncio.Protocol, factory())
        self.transport = MemoryTransport(loop, protocol, name)
        protocol.connection_made(self.transport)

    @property
    def link(self) -> Link:
        """The broker's half of the connection, to look into its tables."""
        protocol: object = self.transport._protocol
        assert isinstance(protocol, Link)
        return protocol

    def send(self, *frames: bytes) -> None:
        """Send bytes that arrive in one piece."""
        self.transport.unread.append(b"".join(frames))
        self.transport.feed()

    async def ask(self, *frames: bytes) -> list[bytes]:
        """Send, let everything happen, and return the frames that have come since."""
        self.send(*frames)
        return await self.received()

    async def received(self) -> list[bytes]:
        """Let everything happen, and return the frames that have come since."""
        await self.loop.idle()
        frames, rest = split(self.transport.delivered)
        self.transport.delivered = bytearray(rest)
        assert not rest or self.transport.waiting, "the broker wrote half a frame"
        return frames

    def stop_reading(self) -> None:
        self.transport.peer_reads = False

    def read_on(self) -> None:
        """Read everything that waits, and all that comes from now on."""
        self.transport.peer_reads = True
        self.transport.drain()

    def eof(self) -> None:
        """Close the connection, after what has been sent."""
        self.transport.unread.append(None)
        self.transport.feed()

    def die(self) -> None:
        """Lose the connection: what was under way in either direction is gone."""
        self.transport.unread.clear()
        self.transport.waiting.clear()
        self.transport.lose(ConnectionResetError("connection reset by peer"))

    @property
    def closed(self) -> bool:
        """Whether the broker has closed the connection."""
        return self.transport.lost

    @property
    def streams(self) -> int:
        """How many streams the broker has on this connection."""
        return len(self.link.core.streams)


class World:
    """A node with a broker and a listener, and the peers connected to it."""

    def __init__(
        self, node: Node, broker: Broker, listener: RSocketListener, options: LinkOptions
    ) -> None:
        self.node = node
        self.broker = broker
        self.listener = listener
        self.options = options
        self.loop = cast(MemoryLoop, node.loop)
        self.peers: list[Peer] = []
        self._ids = 0

    def connect(self, host: str = "10.0.0.1") -> Peer:
        """Connect a peer that says nothing yet."""
        port = int(self.listener.uri.rpartition(":")[2])
        peer = Peer(self.loop.servers[port], (host, 5000 + len(self.peers)))
        self.peers.append(peer)
        return peer

    async def opened(self, sent: Setup) -> Peer:
        """Return a peer that the broker has connected to, with a SETUP that it has not read."""
        name = ("10.0.0.2", 5000 + len(self.peers))
        link = await opened_link(self.broker, sent, self.options, peer=f"{name[0]}:{name[1]}")
        peer = Peer(lambda: link, name)
        self.peers.append(peer)
        return peer

    def new_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def asks(self, service: str) -> bytes:
        """Return the metadata with which the broker's own workers ask for a service."""
        frame = address(service, origin=self.broker.broker_id.bytes)
        return composite((BROKER_FRAME, frame))

    async def requester(self, host: str = "10.0.0.1") -> Peer:
        peer = self.connect(host)
        assert await peer.ask(setup()) == []
        return peer

    def register(
        self,
        service: str = "a",
        tags: Mapping[int | str, str] | None = None,
        *,
        route_id: UUID | None = None,
    ) -> Peer:
        """Connect a destination that may have requests waiting for it."""
        peer = self.connect()
        wanted = route_setup(route_id or self.new_id(), service, tags)
        peer.send(setup(composite((BROKER_FRAME, wanted))))
        return peer

    async def destination(
        self,
        service: str = "a",
        tags: Mapping[int | str, str] | None = None,
        *,
        route_id: UUID | None = None,
    ) -> Peer:
        """Connect a destination that nothing waits for."""
        peer = self.register(service, tags, route_id=route_id)
        assert await peer.received() == []
        return peer

    async def pair(self, service: str = "a") -> tuple[Peer, Peer]:
        """Return a requester, and a destination of the service."""
        return await self.requester(), await self.destination(service)

    @asynccontextmanager
    async def held(self, peer: Peer) -> AsyncGenerator[None]:
        """Keep what is routed to a connection in its mailbox, as if it had other things to do."""
        cell = peer.link.worker._placed
        cell.scheduled = True
        yield
        await self.loop.idle()
        self.node.parts.run_queue.schedule(cell)

    def row(self, service: str = "a") -> RouteStatistics:
        (found,) = (row for row in self.broker.routes() if row.service == service)
        return found

    def services(self) -> list[str]:
        """The services in the table, without the broker's own."""
        names = (row.service for row in self.broker.routes())
        return [name for name in names if not name.startswith("onward.")]

    async def settled_after(self, peer: Peer) -> None:
        """Let a peer take what has come, then check as `settled` does."""
        await peer.received()
        await self.settled()

    async def settled(self) -> None:
        """Check that nothing is left of the requests there have been."""
        await self.loop.idle()
        for peer in self.peers:
            assert not peer.streams, peer.link.core.streams
            assert not peer.link.blocked_on_write
            if not peer.closed:
                assert not peer.link.worker.local.waiting
            assert peer.closed or peer.transport.reading
        assert [row for row in self.broker.routes() if row.outstanding] == []
        assert self.broker.statistics().waiting == 0


@asynccontextmanager
async def world(
    broker_options: BrokerOptions | None = None,
    options: LinkOptions | None = None,
    expose: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    limits: NodeLimits | None = None,
    authentication: Authentication | None = None,
    rules: str | None = None,
    peers: Callable[[], PeerHandlers] | None = None,
) -> AsyncGenerator[World]:
    """Start a node with a broker and a listener; stop it all at the end."""
    options = options or LinkOptions()
    authorization = None if rules is None else Authorization(read_rules(rules))
    async with Node("edge", limits=limits or NodeLimits()) as node:
        broker = await Broker.attach(
            node, broker_options or BrokerOptions(), authorization=authorization
        )
        listener = await node.listen(
            "rsocket+tcp://127.0.0.1:0",
            expose=expose,
            allow=allow,
            broker=broker,
            options=options,
            authentication=authentication,
            peers=None if peers is None else peers(),
        )
        assert isinstance(listener, RSocketListener)
        made = World(node, broker, listener, options)
        yield made
    for peer in made.peers:
        assert peer.closed
        assert not peer.streams
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left


def in_world(
    broker_options: BrokerOptions | None = None,
    options: LinkOptions | None = None,
    *,
    settles: bool = True,
    **more: Any,
) -> Callable[
    [Callable[Concatenate[World, _Parameters], Coroutine[Any, Any, None]]],
    Callable[_Parameters, None],
]:
    """Run a coroutine function in a `world`, which is its first argument, as `in_memory` does.

    Args:
        broker_options: Options of the broker.
        options: Options of the listener's links.
        settles: Whether to check at the end that nothing is left of the requests there have been.
        more: Other arguments of `world`.
    """

    def decorate(
        test: Callable[Concatenate[World, _Parameters], Coroutine[Any, Any, None]],
    ) -> Callable[_Parameters, None]:
        async def started(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
            async with world(broker_options, options, **more) as w:
                await test(w, *args, **kwargs)
                if settles:
                    await w.settled()

        run = functools.update_wrapper(in_memory(started), test)
        _, *parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate
