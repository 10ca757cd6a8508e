"""A connection in either role, without a broker or a client: time, turns, leases and the end."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from onward.protocol.rsocket import (
    Closed,
    ConnectionLimits,
    ErrorCode,
    Frame,
    FrameType,
    KeepaliveTimeout,
    PeerError,
    Role,
    Setup,
    Stream,
    StreamFailed,
)
from onward.transports.rsocket._connection import TURN, FrameReceiver, RSocketConnection
from onward.transports.rsocket._leases import Leases
from onward.transports.rsocket._options import LinkOptions
from onward.transports.rsocket._shared import Shared
from tests.support.compiled import COMPILED
from tests.support.rsocket_peer import MemoryLoop, MemoryTransport, in_memory

if COMPILED:
    pytest.skip("derives a class from a compiled one", allow_module_level=True)


class Receiver(FrameReceiver):
    """A record of the frames of the connection."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)


class End(RSocketConnection):
    """One end, with a record of all that it is told."""

    def __init__(self, role: Role) -> None:
        limits = ConnectionLimits(lease=True)
        super().__init__(asyncio.get_running_loop(), role, limits, 1000, 100, 2.0)
        self._receiver = received = Receiver()
        self.frames = received.frames
        self.closed: list[Closed] = []
        self.reads: list[int] = []
        self.read_at: list[float] = []
        self.is_blocked = False

    @property
    def blocked(self) -> bool:
        return self.is_blocked

    def data_received(self, data: bytes) -> None:
        self.reads.append(len(data))
        self.read_at.append(self.time())
        super().data_received(data)

    def _on_stream_frame(self, stream: Stream, frame: Frame) -> None:
        raise AssertionError(frame)

    def _on_stream_failed(self, event: StreamFailed) -> None:
        raise AssertionError(event)

    def _on_core_closed(self, event: Closed) -> None:
        self.closed.append(event)

    def _write(self, transport: asyncio.Transport) -> None:
        transport.write(self.core.data_to_send())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._replenish()


class Wire(MemoryTransport):
    """A socket whose bytes come out of another one."""

    other: Wire
    cut = False

    def write(self, data: Any) -> None:
        super().write(data)
        self._loop.call_soon(self._carry)

    def _carry(self) -> None:
        data = bytes(self.delivered)
        self.delivered.clear()
        if data and not self.cut:
            self.other.unread.append(data)
            self.other.feed()


class Pair:
    """Two ends that are joined, with a SETUP."""

    def __init__(self, *, keepalive_at: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MemoryLoop)
        self.loop = loop
        self.client, self.server = End(Role.CLIENT), End(Role.SERVER)
        self.wires = [Wire(loop, end, ("10.0.0.1", 1)) for end in (self.client, self.server)]
        self.wires[0].other, self.wires[1].other = self.wires[1], self.wires[0]
        for end, wire in zip((self.client, self.server), self.wires, strict=True):
            end.connection_made(wire)
        setup = Setup(keepalive=1000, lifetime=3000, lease=True)
        self.client._open_core(setup, None, keepalive_at=keepalive_at)

    async def opened(self) -> Pair:
        await self.loop.idle()
        self.server._arm()
        assert [frame.type for frame in self.server.frames] == [FrameType.SETUP]
        return self

    def cut(self) -> None:
        """Lose all that is written from now on."""
        for wire in self.wires:
            wire.cut = True

    def end(self) -> None:
        for wire in self.wires:
            wire.abort()


@in_memory
async def test_the_timer_of_a_client_keeps_both_ends_alive() -> None:
    pair = await Pair().opened()
    await asyncio.sleep(100)
    assert (pair.client.closed, pair.server.closed) == ([], [])
    assert len(pair.client.reads) == pytest.approx(100, abs=2)
    pair.end()


@in_memory
async def test_connections_that_share_a_tick_keep_alive_at_once() -> None:
    loop = asyncio.get_running_loop()
    shared = Shared(loop, LinkOptions())
    pairs: list[Pair] = []
    for _ in range(8):
        await asyncio.sleep(0.3)
        at = shared.next_tick(loop.time(), 1.0)
        assert 0 < at - loop.time() <= 1.0
        pairs.append(await Pair(keepalive_at=at).opened())
    pairs[0].cut()
    began = loop.time()
    await asyncio.sleep(10)
    # The one that is silent ends after its own lifetime, and no other with it.
    assert pairs[0].server.read_at[-1] < began
    (closed,) = pairs[0].server.closed
    assert isinstance(closed.error, KeepaliveTimeout)
    for each in pairs[1:]:
        assert (each.client.closed, each.server.closed) == ([], [])
    told = {at for each in pairs for at in each.server.read_at if at >= began}
    assert len(told) == 10
    for each in pairs[1:]:
        assert told <= set(each.server.read_at)
        each.end()


@pytest.mark.parametrize("interval", [0.5, 1.0, 20.0])
def test_the_brokers_of_a_machine_keep_alive_at_the_same_times(interval: float) -> None:
    # Their clock is one; when each has begun does not matter.
    for now in (0.0, 0.3, 19.9, 20.0, 1234.56):
        at = Shared.next_tick(now, interval)
        assert now < at <= now + interval
        assert at % interval == 0


@in_memory
async def test_silence_ends_a_connection_in_either_role() -> None:
    pair = await Pair().opened()
    began = pair.loop.time()
    pair.cut()
    await asyncio.sleep(4.5)
    for end in (pair.client, pair.server):
        (closed,) = end.closed
        assert isinstance(closed.error, KeepaliveTimeout)
        assert end._transport is None
    assert pair.loop.time() - began == pytest.approx(4.5, abs=0.01)


@in_memory
async def test_a_client_whose_caller_sends_keepalive_frames_only_watches() -> None:
    pair = await Pair(keepalive_at=inf).opened()
    for _ in range(5):
        await asyncio.sleep(2)
        assert pair.client.closed == []
        pair.client.core.send_keepalive()
        pair.client.flush_soon()
    await pair.loop.idle()
    assert len(pair.client.reads) == 5
    await asyncio.sleep(3.1)
    assert isinstance(pair.client.closed[0].error, KeepaliveTimeout | PeerError)
    pair.end()


@in_memory
async def test_a_peer_that_is_not_read_is_not_silent() -> None:
    pair = await Pair().opened()
    pair.server.is_blocked = True
    pair.cut()
    await asyncio.sleep(10)
    assert pair.server.closed == []
    pair.server.is_blocked = False
    await asyncio.sleep(2)
    assert isinstance(pair.server.closed[0].error, KeepaliveTimeout)
    pair.end()


@in_memory
async def test_a_client_that_does_not_read_goes_on_sending_keepalive_frames() -> None:
    pair = await Pair().opened()
    pair.client.is_blocked = True
    pair.wires[1].cut = True
    await asyncio.sleep(100)
    assert (pair.client.closed, pair.server.closed) == ([], [])
    assert len(pair.server.reads) == pytest.approx(100, abs=2)
    pair.client.is_blocked = False
    await asyncio.sleep(2)
    assert isinstance(pair.client.closed[0].error, KeepaliveTimeout)
    pair.end()


@in_memory
async def test_leases_are_granted_by_both_ends_until_the_end() -> None:
    pair = await Pair().opened()
    ends = (pair.client, pair.server)
    for end, other in zip(ends, reversed(ends), strict=True):
        end.leases = Leases(end, 5, 15.0, 10.0)
        await pair.loop.idle()
        lease = other.frames[-1]
        assert lease.type == FrameType.LEASE
        if other.leases is None:
            other.leases = Leases(other, 7, 15.0, 10.0)
        other.leases.on_frame(lease)
        assert other.leases.taken.available(other.time()) == 5
        assert all(end.leases.given.take(end.time()) for _ in range(5))
        assert not end.leases.given.take(end.time())
    await asyncio.sleep(10.1)
    assert all(end.leases is not None and end.leases.given.take(end.time()) for end in ends)
    pair.end()
    await asyncio.sleep(100)
    assert all(end.leases is not None and end.leases._timer is None for end in ends)


@pytest.mark.parametrize("role", list(Role))
@in_memory
async def test_one_read_of_many_frames_is_handled_in_turns(role: Role) -> None:
    pair = await Pair().opened()
    to, wire = (pair.client, pair.wires[0])
    if role is Role.SERVER:
        to, wire = pair.server, pair.wires[1]
    pushed = (14).to_bytes(3) + bytes(4) + b"\x31\x00" + b"metadata"
    to.reads.clear()
    to.frames.clear()
    turns: list[int] = []

    def look() -> None:
        turns.append(len(to.frames))
        if len(to.frames) < 5000:
            pair.loop.call_soon(look)

    pair.loop.call_soon(look)
    wire.unread.append(pushed * 5000)
    wire.feed()
    assert not wire.reading
    await pair.loop.idle()
    assert len(to.frames) == 5000
    assert wire.reading
    assert to.reads[0] == 5000 * len(pushed)
    assert max(to.reads[1:]) <= TURN
    assert len(set(turns)) >= 5000 * len(pushed) // TURN
    pair.end()


@in_memory
async def test_an_end_with_a_reason_reaches_the_other_end() -> None:
    pair = await Pair().opened()
    pair.server.close("replaced", "by another", ErrorCode.CONNECTION_ERROR)
    pair.server.close("stopped", "too late")
    await pair.loop.idle()
    assert pair.server.closed_reason == "replaced"
    assert pair.server._transport is None
    (closed,) = pair.client.closed
    assert str(closed.error).endswith("by another")
    pair.end()


@in_memory
async def test_a_peer_that_does_not_read_the_end_is_cut() -> None:
    pair = await Pair().opened()
    pair.wires[1].peer_reads = False
    pair.server.close("stopped", "the broker stops")
    await asyncio.sleep(1.9)
    assert pair.server._transport is not None
    await asyncio.sleep(0.2)
    assert pair.server._transport is None
    pair.end()


@in_memory
async def test_senders_blocked_by_a_full_socket_go_on_once() -> None:
    class Sender:
        resumed = 0

        def replenish(self) -> None:
            self.resumed += 1

    pair = await Pair().opened()
    sender, wire = Sender(), pair.wires[1]
    wire.peer_reads = False
    wire.write(bytes(1001))
    assert pair.server.write_paused
    assert pair.server.waiting == 1001
    pair.server.blocked_on_write.add(sender)
    wire.cut = True
    wire.drain()
    assert not pair.server.write_paused
    assert (sender.resumed, pair.server.blocked_on_write) == (1, set())
    pair.end()
