from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from onward.transports.simulated import Faults, SimulatedNetwork, SimulationOptions
from onward.transports.simulated._streams import (
    SimulatedEndpoint,
    SimulatedServer,
    SimulatedStream,
)
from tests.transports.simulated.stage import kinds, simulated

SLOW = Faults(latency=(0.1, 0.1))


class End(asyncio.Protocol):
    """One end, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.data = b""
        self.lost: list[type[Exception] | None] = []
        self.at = 0.0
        self.stays_open = False
        self.answer = b""

    @property
    def stream(self) -> SimulatedStream:
        return self._stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast("SimulatedStream", transport)
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.at = asyncio.get_running_loop().time()

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self.stays_open

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")
        if self.answer:
            self._stream.write(self.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(None if exc is None else type(exc))
        self.at = asyncio.get_running_loop().time()


class Pair:
    """Two nodes, `a` with a stream to `b`."""

    near: End
    far: End
    server: SimulatedServer
    endpoint: SimulatedEndpoint

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.loop = asyncio.get_running_loop()
        self.ends: list[End] = []

    def accept(self) -> End:
        self.far = End()
        self.ends.append(self.far)
        return self.far

    async def begin(self) -> None:
        a, b = await self.network.node("a"), await self.network.node("b")
        listening = SimulatedEndpoint(self.network.place(b), "b.main")
        self.server = await listening.listen(self.loop, self.accept)
        assert listening.where(self.server) == "b.main"
        await self.server.start_serving()
        self.endpoint = SimulatedEndpoint(self.network.place(a), "b.main")

    async def open(self) -> None:
        self.near = End()
        early = await self.endpoint.open(self.loop)
        early.hand_over(self.near)


@asynccontextmanager
async def joined(network: SimulatedNetwork) -> AsyncGenerator[Pair]:
    pair = Pair(network)
    await pair.begin()
    await pair.open()
    yield pair


@simulated(faults=SLOW)
async def test_bytes_arrive_in_order_after_the_latency(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        assert pair.loop.time() == pytest.approx(1000.2)  # there and back
        began = pair.loop.time()
        for part in (b"a", bytearray(b"b"), memoryview(b"c"), b""):
            pair.near.stream.write(part)
        assert pair.far.data == b""
        await asyncio.sleep(0.2)
        assert (pair.far.data, pair.far.at) == (b"abc", began + 0.1)
        pair.far.stream.write(b"back")
        await asyncio.sleep(0.2)
        assert pair.near.data == b"back"
        # With those of the handshake, the empty one not counted.
        assert (network.traffic("a", "b").parts, network.traffic("b", "a").parts) == (3, 1)
        assert kinds(network) == ["connected"]


@simulated(faults=Faults(latency=(0.01, 0.5)))
async def test_order_is_kept_whatever_the_latency(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        for number in range(100):
            pair.near.stream.write(b"%02d" % number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert pair.far.data == b"".join(b"%02d" % number for number in range(100))


@simulated(faults=Faults(loss=0.3, duplicate=1.0, reorder=1.0))
async def test_what_is_lost_is_sent_again(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        for number in range(100):
            pair.near.stream.write(b"%02d" % number)
        await asyncio.sleep(10)
        assert pair.far.data == b"".join(b"%02d" % number for number in range(100))
        traffic = network.traffic("a", "b")
        assert traffic.parts == 100
        assert 20 < traffic.resent < 80


@simulated(options=SimulationOptions(max_resends=2))
async def test_a_stream_that_loses_all_is_reset(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        network.set_faults("a", "b", Faults(loss=1.0))
        pair.near.stream.write(b"x")
        await asyncio.sleep(1)
        assert pair.near.lost == pair.far.lost == [ConnectionResetError]
        with pytest.raises(TimeoutError):
            await pair.open()
        assert kinds(network)[-1] == "refused"


@simulated()
async def test_a_partition_holds_bytes_up(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        pair.near.stream.write(b"on the way")
        network.partition({"a"}, {"b"})
        pair.near.stream.write(b", and later")
        await asyncio.sleep(3)
        assert pair.far.data == b""
        network.heal({"a"}, {"b"})
        await asyncio.sleep(0.3)
        assert pair.far.data == b"on the way, and later"
        assert network.traffic("a", "b").resent > 10


@simulated()
async def test_connecting_through_a_partition(network: SimulatedNetwork) -> None:
    pair = Pair(network)
    await pair.begin()
    network.partition({"a"}, {"b"})
    began = pair.loop.time()
    with pytest.raises(TimeoutError):
        await pair.open()
    assert 5 <= pair.loop.time() - began < 5.5
    opening = asyncio.create_task(pair.open())
    await asyncio.sleep(2)
    network.heal()
    await opening
    assert pair.far.told == ["made"]


@simulated(faults=SLOW)
async def test_no_listener(network: SimulatedNetwork) -> None:
    pair = Pair(network)
    await pair.begin()
    opening = asyncio.create_task(pair.open())
    await asyncio.sleep(0.05)
    pair.server.close()
    with pytest.raises(ConnectionRefusedError):
        await opening
    began = pair.loop.time()
    with pytest.raises(ConnectionRefusedError):
        await pair.open()
    assert pair.loop.time() - began == pytest.approx(0.2)
    assert kinds(network) == ["refused", "refused"]


@simulated(faults=SLOW)
async def test_a_host_name_has_one_listener(network: SimulatedNetwork) -> None:
    pair = Pair(network)
    await pair.begin()
    listening = SimulatedEndpoint(network.place(network.nodes["a"]), "b.main")
    with pytest.raises(OSError, match="in use"):
        await listening.listen(pair.loop, pair.accept)
    pair.server.close()
    pair.server.close()
    other = await listening.listen(pair.loop, pair.accept)
    await other.start_serving()
    pair.server.close()
    assert network.servers == {"b.main": other}


@simulated(faults=SLOW)
async def test_the_caller_gives_up_while_it_connects(network: SimulatedNetwork) -> None:
    pair = Pair(network)
    await pair.begin()
    opening = asyncio.create_task(pair.open())
    await asyncio.sleep(0.15)
    assert pair.far.told == ["made"]
    opening.cancel()
    await asyncio.sleep(0.2)
    assert pair.far.lost == [ConnectionResetError]
    assert not network.place(network.nodes["a"]).streams


@simulated(faults=SLOW)
async def test_a_node_crashes_while_it_connects(network: SimulatedNetwork) -> None:
    pair = Pair(network)
    await pair.begin()
    opening = asyncio.create_task(pair.open())
    await asyncio.sleep(0.05)
    await network.crash("a")
    with pytest.raises(ConnectionAbortedError):
        await opening
    assert pair.ends == []


# --- the end ----------------------------------------------------------------------------------


@simulated(faults=SLOW)
async def test_closing_delivers_what_was_written(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        pair.near.stream.write(b"last")
        pair.near.stream.close()
        pair.near.stream.close()
        pair.near.stream.write(b"too late")
        assert pair.near.stream.is_closing()
        await asyncio.sleep(0)
        assert pair.near.lost == [None]
        await asyncio.sleep(0.2)
        assert pair.far.data == b"last"
        assert (pair.far.told, pair.far.lost) == (["made", "eof"], [None])
        assert not network.place(network.nodes["b"]).streams


@simulated(faults=SLOW)
async def test_an_end_that_stays_open_after_the_other_has_closed(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        pair.far.stays_open = True
        pair.near.stream.close()
        await asyncio.sleep(0.2)
        assert (pair.far.told, pair.far.lost) == (["made", "eof"], [])
        pair.far.stream.write(b"to none")
        await asyncio.sleep(0.2)
        assert pair.near.data == b""
        pair.far.stream.close()
        await asyncio.sleep(0.2)
        assert pair.far.lost == [None]


@simulated(faults=SLOW)
async def test_an_abort_resets_the_other_end(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        pair.near.stream.write(b"lost")
        network.partition({"a"}, {"b"})
        pair.near.stream.abort()
        pair.near.stream.abort()
        await asyncio.sleep(1)
        assert (pair.near.lost, pair.far.lost) == ([None], [])
        network.heal()
        await asyncio.sleep(1)
        assert (pair.far.data, pair.far.lost) == (b"", [ConnectionResetError])


@simulated()
async def test_the_other_end_detects_a_crash(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        began = pair.loop.time()
        await network.crash("b")
        pair.near.stream.write(b"x")
        await asyncio.sleep(10)
        assert (pair.near.lost, pair.near.at - began) == ([ConnectionResetError], 3.0)
        assert pair.far.data == b""
        assert network.servers == {}
        assert kinds(network) == ["connected", "crashed", "detected"]


@simulated()
async def test_an_end_that_is_closed_before_the_crash_is_detected(
    network: SimulatedNetwork,
) -> None:
    async with joined(network) as pair:
        await network.crash("b")
        pair.near.stream.abort()
        await asyncio.sleep(10)
        assert pair.near.lost == [None]
        assert kinds(network) == ["connected", "crashed"]


# --- credit -----------------------------------------------------------------------------------


@simulated(options=SimulationOptions(stream_window=100))
async def test_a_reader_that_pauses_holds_the_writer_up(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        near, far = pair.near.stream, pair.far.stream
        near.set_write_buffer_limits(50)
        far.pause_reading()
        assert not far.is_reading()
        for _ in range(5):
            near.write(bytes(40))
            await asyncio.sleep(0.1)
        assert near.get_write_buffer_size() == 100
        assert pair.near.told == ["made", "pause"]
        assert pair.far.data == b""
        near.close()  # once the buffer is empty
        await asyncio.sleep(0.1)
        assert pair.near.lost == []
        far.resume_reading()
        assert far.is_reading()
        await asyncio.sleep(0.1)
        assert len(pair.far.data) == 200
        assert pair.near.told == ["made", "pause", "resume"]
        assert pair.near.lost == [None]


@simulated(faults=SLOW, options=SimulationOptions(stream_window=10))
async def test_what_is_written_as_the_far_end_reads_is_sent_again_once_a_time(
    network: SimulatedNetwork,
) -> None:
    async with joined(network) as pair:
        near = pair.near.stream
        near.set_write_buffer_limits(0)
        near.write(bytes(20))
        pair.near.answer = b"next"
        await asyncio.sleep(0.15)
        assert pair.near.told == ["made", "pause", "resume"]
        network.partition({"a"}, {"b"})
        await asyncio.sleep(1.1)  # from 0.05 s on, each 0.2 s
        assert network.traffic("a", "b").resent == 6
        network.heal({"a"}, {"b"})
        await asyncio.sleep(0.2)
        assert pair.far.data == bytes(20) + b"next"


@simulated(options=SimulationOptions(stream_window=10))
async def test_what_is_not_read_at_the_end_is_no_backlog(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        near, far = pair.near.stream, pair.far.stream
        far.pause_reading()
        far.resume_reading()  # there is nothing yet
        far.pause_reading()
        near.write(bytes(40))
        await asyncio.sleep(0.1)
        assert near.get_write_buffer_size() == 30
        far.abort()
        near.write(bytes(40))
        assert near.get_write_buffer_size() == 40 - 10
        await asyncio.sleep(0.1)
        assert pair.near.lost == [ConnectionResetError]


@pytest.mark.parametrize(
    ("high", "low", "marks"),
    [
        (None, None, (16 * 1024, 64 * 1024)),
        (80, None, (20, 80)),
        (None, 5, (5, 20)),
        (9, 1, (1, 9)),
    ],
)
def test_water_marks(high: int | None, low: int | None, marks: tuple[int, int]) -> None:
    @simulated()
    async def scenario(network: SimulatedNetwork) -> None:
        async with joined(network) as pair:
            pair.near.stream.set_write_buffer_limits(high, low)
            assert pair.near.stream._marks == marks

    scenario()


@simulated()
async def test_the_rest_of_a_transport(network: SimulatedNetwork) -> None:
    async with joined(network) as pair:
        stream = pair.near.stream
        assert not stream.can_write_eof()
        assert stream.get_protocol() is pair.near
        assert pair.endpoint.identify(pair.far.stream).peer == "a"
        with pytest.raises(TypeError, match="no asyncio"):
            stream.set_protocol(asyncio.BufferedProtocol())
        assert stream.get_extra_info("cipher") is None
        place = network.place(network.nodes["a"])
        alone = SimulatedStream(place, network.path("a", "b"))
        with pytest.raises(AssertionError, match="no protocol"):
            alone.get_protocol()
        alone.receive(b"x")
        with pytest.raises(AssertionError, match="no other end"):
            alone.abort()
