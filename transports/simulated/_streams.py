"""Byte streams of the simulated network, as TCP has them, and the endpoint that opens them.

A stream keeps the order and loses nothing: a part that a fault loses, or that a partition holds up,
is sent again, and all behind it waits. So a fault is a delay here, until one side gives the other
up. `duplicate` and `reorder` change nothing. RSocket runs on these streams as it does on sockets.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from ...protocol.security import PeerIdentity
from ..streams._endpoint import Endpoint, ProtocolFactory
from ..streams._pending import PendingConnection

if TYPE_CHECKING:
    from ._network import Membership
    from ._path import NetworkPath

__all__ = ["SimulatedEndpoint", "SimulatedServer", "SimulatedStream"]

HIGH_WATER: Final = 64 * 1024
"""The default of `set_write_buffer_limits`, in bytes, as that of asyncio."""

INSIDE: Final = "unix"
"""The source of all streams: like Unix sockets, they do not leave the machine."""


class SimulatedEndpoint(Endpoint):
    """A host name of the simulated network, to listen at or to connect to.

    Args:
        place: The place of the node that listens or connects.
        host: The host name, which may be any text.
    """

    def __init__(self, place: Membership, host: str) -> None:
        self.peer = host
        self._place = place
        self._network = place.network

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a stream, which takes the latency in both directions.

        Raises:
            ConnectionRefusedError: No node listens at the host name.
            TimeoutError: A partition is in between, or all is lost.
            ConnectionAbortedError: The node has crashed meanwhile.
        """
        network, here = self._network, self._place.name
        server = network.servers.get(self.peer)
        if server is None:
            await asyncio.sleep(2 * network.faults.latency[0])  # a refusal takes that time too
            self._refuse(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
        there = server.place.name
        forth, back = network.path(here, there), network.path(there, here)
        deadline = loop.time() + network.options.connect_timeout
        await self._cross(loop, forth, deadline)
        if self._place.crashed:
            self._refuse(ConnectionAbortedError("the node has crashed"))
        if network.servers.get(self.peer) is not server:
            self._refuse(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
        near, far = SimulatedStream(self._place, forth), SimulatedStream(server.place, back)
        near.join(far)
        far.join(near)
        far.start(server.factory())
        early = PendingConnection()
        try:
            await self._cross(loop, back, deadline)
        except BaseException:
            near.abort()
            raise
        near.start(early)
        network.clockwork.note("connected", here, there)
        return early

    async def _cross(
        self, loop: asyncio.AbstractEventLoop, path: NetworkPath, deadline: float
    ) -> None:
        """Wait for one packet to cross, sent again until the deadline.

        Raises:
            TimeoutError: It does not.
        """
        while True:
            lost = path.is_lost()
            await asyncio.sleep(path.latency())
            if not lost and not path.cut_off:
                return
            if loop.time() >= deadline:
                self._refuse(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            await asyncio.sleep(self._network.options.resend)

    def _refuse(self, error: OSError) -> NoReturn:
        self._network.clockwork.note("refused", self._place.name, self.peer)
        raise error

    async def listen(
        self, loop: asyncio.AbstractEventLoop, protocol_factory: ProtocolFactory
    ) -> SimulatedServer:
        """Claim the host name, at which no stream is accepted yet.

        Raises:
            OSError: The name is in use.
        """
        servers = self._network.servers
        if self.peer in servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), self.peer)
        return SimulatedServer(loop, self._place, self.peer, protocol_factory)

    def where(self, server: asyncio.Server) -> str:
        """Return the host name."""
        return self.peer

    def identify(self, transport: asyncio.BaseTransport) -> PeerIdentity:
        """Return the name of the node at the other end."""
        return PeerIdentity(source=INSIDE, peer=transport.get_extra_info("node", ""))


class SimulatedServer(asyncio.Server):
    """The owner of a host name, without a socket.

    Args:
        loop: The event loop.
        place: The place of the node that listens.
        host: The host name.
        factory: Makes the protocols of accepted streams.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: Membership,
        host: str,
        factory: Callable[[], asyncio.Protocol],
    ) -> None:
        super().__init__(loop, [], factory, None, 0, None)
        self.place: Final = place
        self.factory: Final = factory
        self._host = host

    async def start_serving(self) -> None:
        """Accept streams."""
        self.place.network.servers[self._host] = self

    def close(self) -> None:
        """Release the host name; accepted streams stay."""
        servers = self.place.network.servers
        if servers.get(self._host) is self:
            del servers[self._host]


class SimulatedStream(asyncio.Transport):
    """One end of a byte stream.

    Bytes count as unread from `write` until the protocol at the other end has taken them. More than
    `SimulationOptions.stream_window` of them are the write buffer of this end.

    Args:
        place: The place of its node.
        path: The path to the other end.
    """

    def __init__(self, place: Membership, path: NetworkPath) -> None:
        super().__init__({"node": path.target})
        self._place = place
        self._network = place.network
        self._path = path
        self._far: SimulatedStream | None = None
        self._protocol: asyncio.Protocol | None = None
        # Parts on the way, each with the time of its arrival; `None` is the end of the stream.
        self._way: deque[tuple[float, bytes | None]] = deque()
        self._arriving = False  # parts are handed over; the next arrival is set after that
        self._not_before = 0.0
        self._unread = 0
        self._marks = HIGH_WATER // 4, HIGH_WATER
        self._full = False  # the protocol has been told to pause
        self._held = False  # reading is paused
        self._inbox: deque[bytes | None] = deque()
        self._closing = False
        self._over = False
        place.streams[self] = None

    def join(self, far: SimulatedStream) -> None:
        """Set the other end."""
        self._far = far

    def start(self, protocol: asyncio.Protocol) -> None:
        """Set the first protocol, and tell it of the connection."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read()

    # --- writing ------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put bytes on the way; a closed stream ignores them."""
        if self._closing or not data:
            return
        self._unread += len(data)
        self._launch(bytes(data))
        if not self._full and self.get_write_buffer_size() > self._marks[1]:
            self._full = True
            self._told().pause_writing()

    def _launch(self, part: bytes | None) -> None:
        now, path = self._network.clockwork.loop.time(), self._path
        path.parts += 1
        resends = 0
        while path.is_lost():
            resends += 1
            if resends > self._network.options.max_resends:
                self._break()
                return
        path.resent += resends
        when = now + path.latency() + resends * self._network.options.resend
        self._not_before = when = max(when, self._not_before)
        self._way.append((when, part))
        if len(self._way) == 1 and not self._arriving:
            self._network.clockwork.at(when, self._arrive)

    def _arrive(self) -> None:
        """Hand what is due to the other end, in order; behind a partition it is sent again."""
        clockwork, way = self._network.clockwork, self._way
        now = clockwork.now
        if not way:
            return  # the connection has broken
        if self._path.cut_off:
            self._path.resent += 1
            clockwork.at(now + self._network.options.resend, self._arrive)
            return
        self._arriving = True  # the other end makes room, in which this one may write
        try:
            while way and way[0][0] <= now:
                self._other().receive(way.popleft()[1])
        finally:
            self._arriving = False
            if way:
                clockwork.at(way[0][0], self._arrive)

    def read_by_far(self, size: int) -> None:
        """Subtract bytes that the other end has read."""
        self._unread -= size
        waiting = self.get_write_buffer_size()
        if self._full and waiting <= self._marks[0] and not self._over:
            self._full = False
            self._told().resume_writing()
        if self._closing and not waiting:
            self._lose_soon(None)

    def get_write_buffer_size(self) -> int:
        """Return the number of unread bytes above the window."""
        return max(0, self._unread - self._network.options.stream_window)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks of the write buffer, in bytes."""
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        self._marks = high // 4 if low is None else low, high

    # --- reading ------------------------------------------------------------------------------

    def receive(self, part: bytes | None) -> None:
        """Receive a part of the other end; `None` for the end of the stream."""
        if self._over:
            self._other().read_by_far(len(part or b""))
            return
        self._inbox.append(part)
        self._read()

    def _read(self) -> None:
        while self._inbox and not self._held and not self._over and self._protocol is not None:
            part = self._inbox.popleft()
            if part is None:
                if not self._protocol.eof_received():
                    self.close()
                continue
            self._protocol.data_received(part)
            self._other().read_by_far(len(part))

    def is_reading(self) -> bool:
        """Whether data is handed to the protocol."""
        return not self._held and not self._closing

    def pause_reading(self) -> None:
        """Keep arriving data, which counts for the other end's write buffer."""
        self._held = True

    def resume_reading(self) -> None:
        """Hand the kept data to the protocol in the next pass of the loop, and what comes later."""
        self._held = False
        if self._inbox:
            self._network.clockwork.loop.call_soon(self._read)

    # --- the end ------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close it once the write buffer is empty."""
        if self._closing:
            return
        self._closing = True
        self._launch(None)
        if not self.get_write_buffer_size():
            self._lose_soon(None)

    def abort(self) -> None:
        """Close it at once; what is on the way is lost, and the other end is reset."""
        if self._over:
            return
        self._closing = True
        self._way.clear()
        self._lose_soon(None)
        path, clockwork = self._path, self._network.clockwork
        clockwork.at(clockwork.loop.time() + path.latency(), self._reset)

    def _reset(self) -> None:
        """Reset the other end, once no partition is in between."""
        if self._path.cut_off:
            clockwork = self._network.clockwork
            clockwork.at(clockwork.loop.time() + self._network.options.resend, self._reset)
        else:
            self._other().lost()

    def _break(self) -> None:
        """Give the connection up at both ends: it carries nothing."""
        self._way.clear()
        for end in (self, self._other()):
            end.lost()

    def lost(self) -> None:
        """Lose the connection, if it is not closed."""
        self._closing = True
        self._way.clear()
        self._lose_soon(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def crashed(self, detected_at: float) -> None:
        """End this end with its node; the other one learns of it at a time of the loop's clock."""
        self.lost()
        self._network.clockwork.at(detected_at, self._other().detect)

    def detect(self) -> None:
        """Lose the connection, as the node at the other end has crashed."""
        if not self._over:
            self._network.clockwork.note("detected", self._path.target, self._path.source)
            self.lost()

    def _lose_soon(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        self._place.streams.pop(self, None)
        for part in self._inbox:
            self._other().read_by_far(len(part or b""))
        self._inbox.clear()
        if self._protocol is not None:
            self._network.clockwork.loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        self._told().connection_lost(error)

    # --- the rest of a transport --------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol."""
        if not isinstance(protocol, asyncio.Protocol):
            raise TypeError(f"{protocol!r} is no asyncio.Protocol")
        self._protocol = protocol

    def get_protocol(self) -> asyncio.Protocol:
        """Return the protocol."""
        return self._told()

    def can_write_eof(self) -> bool:
        """Whether one direction can be closed alone: no protocol here does that."""
        return False

    def _told(self) -> asyncio.Protocol:
        if self._protocol is None:
            raise AssertionError("the stream has no protocol yet")
        return self._protocol

    def _other(self) -> SimulatedStream:
        if self._far is None:
            raise AssertionError("the stream has no other end yet")
        return self._far
