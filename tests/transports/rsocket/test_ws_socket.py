"""Messages to frames and back, and what a WebSocket client may do wrong after the handshake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import FlowOptions, LinkOptions, RSocketListener
from onward.transports.rsocket._connection import TURN
from tests.support.counts import times
from tests.support.rsocket_peer import *
from tests.support.websocket_peer import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    WebSocketPeer,
    close_code,
    messages,
    ws_frame,
)

URI = "rsocket+ws://127.0.0.1:0"
ASKED = asked_for("a")
NORMAL, GOING_AWAY, WRONG, UNSUPPORTED, TOO_BIG = 1000, 1001, 1002, 1003, 1009


class Web:
    """A broker with a listener for WebSockets beside the one for TCP."""

    def __init__(self, w: World, listener: RSocketListener) -> None:
        self.w = w
        self.listener = listener

    async def open(self, *first: bytes) -> WebSocketPeer:
        peer = WebSocketPeer(self.listener)
        await peer.open()
        if first:
            assert await peer.ask(*first) == []
        return peer

    async def requester(self) -> WebSocketPeer:
        return await self.open(setup())

    async def destination(self) -> WebSocketPeer:
        wanted = route_setup(self.w.new_id(), "a")
        return await self.open(setup(composite((BROKER_FRAME, wanted))))

    def nothing_kept(self) -> bool:
        """Say whether nothing is counted as unfinished."""
        unfinished = self.listener._shared.unfinished
        return unfinished.total == 0 and not unfinished._kept


@asynccontextmanager
async def web(options: LinkOptions | None = None) -> AsyncGenerator[Web]:
    async with world() as w:
        listener = await w.node.listen(URI, broker=w.broker, options=options)
        assert isinstance(listener, RSocketListener)
        made = Web(w, listener)
        yield made
        await w.settled()
        # A peer that does not answer a Close is cut.
        await listener.close()
        assert listener.statistics().connections == 0
        assert made.nothing_kept()


def answer_close(code: int) -> bytes:
    return ws_frame(CLOSE, code.to_bytes(2))


def sizes_of_calls(monkeypatch: pytest.MonkeyPatch, thing: Any, name: str) -> list[int]:
    """Note how long what a method is called with is each time."""
    sizes: list[int] = []
    method = getattr(thing, name)

    def noted(data: bytes) -> None:
        sizes.append(len(data))
        method(data)

    monkeypatch.setattr(thing, name, noted)
    return sizes


@in_memory
async def test_a_message_is_a_frame() -> None:
    async with web() as w:
        requester, destination = await w.requester(), await w.destination()
        asked = request(RR, 1, ASKED, b"x" * 300)
        assert await requester.ask(asked) == []
        assert destination.rsocket(await destination.frames()) == [restamped(asked, 2)]
        for data in (b"", b"y" * 116, b"y" * 120, b"y" * 0xFFFF, b"y" * 0x20000):
            answer = payload(2, data)
            again = request(STREAM, 3, ASKED, n=1)
            await requester.ask(again)
            (came,) = destination.rsocket(await destination.frames())
            answer = restamped(payload(2, data, C | 0x20), int.from_bytes(came[3:7]))
            assert await destination.ask(answer) == []
            assert requester.rsocket(await requester.frames()) == [restamped(answer, 3)]
        await destination.ask(payload(2, b"done", C | 0x20))
        assert elements(requester.rsocket(await requester.frames())) == [b"done"]


@in_memory
async def test_messages_of_one_read_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with web() as w:
        requester = await w.requester()
        tcp = await w.w.destination("b")
        calls = sizes_of_calls(monkeypatch, requester.protocol._connection, "data_received")
        asked = [request(RR, each, asked_for("b")) for each in range(1, 21, 2)]
        assert await requester.ask(*asked) == []
        assert calls == [sum(map(len, asked))]
        # And what is written in one turn of the loop is one write.
        writes = sizes_of_calls(monkeypatch, requester.transport, "write")
        assert len(await tcp.received()) == 10
        answers = [payload(each, b"x", C | 0x20) for each in range(2, 22, 2)]
        await tcp.ask(*answers)
        assert len(requester.rsocket(await requester.frames())) == 10
        assert len(writes) == 1
        monkeypatch.undo()


@in_memory
async def test_frames_come_byte_by_byte() -> None:
    async with web() as w:
        requester, destination = await w.open(), await w.destination()
        asked = request(RR, 1, ASKED, b"x" * 300)
        for byte in messages(setup(), asked) + ws_frame(PING, b"still there?"):
            requester.send(bytes((byte,)))
        assert await requester.frames() == [(PONG, b"still there?")]
        assert destination.rsocket(await destination.frames()) == [restamped(asked, 2)]
        await destination.ask(payload(2, b"x", C | 0x20))
        assert elements(requester.rsocket(await requester.frames())) == [b"x"]
        assert w.nothing_kept()


@settings(deadline=None, max_examples=times(10, 40))
@given(st.data())
def test_any_pieces_of_any_fragments(data: st.DataObject) -> None:
    """What arrives does not depend on how messages were cut into frames, or those into reads."""

    async def check() -> None:
        async with web() as w:
            requester, destination = await w.requester(), await w.destination()
            sizes = data.draw(st.lists(st.sampled_from([0, 1, 60, 125, 126, 70_000]), max_size=4))
            asked = [request(RR, 2 * n + 1, ASKED, b"x" * size) for n, size in enumerate(sizes)]
            stream = b""
            for each in asked:
                cuts = sorted(data.draw(st.lists(st.integers(0, len(each) - 3), max_size=3)))
                ends = [0, *cuts, len(each) - 3]
                for n, (start, end) in enumerate(pairwise(ends)):
                    stream += ws_frame(
                        CONT if n else BINARY, each[3:][start:end], fin=n == len(cuts)
                    )
                    stream += ws_frame(PONG, b"nobody asked") * data.draw(st.integers(0, 1))
            cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
            for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                requester.send(stream[start:end])
            came = destination.rsocket(await destination.frames())
            assert came == [restamped(each, 2 * n + 2) for n, each in enumerate(asked)]
            assert w.nothing_kept()
            await destination.ask(*(payload(2 * n + 2, b"x", C | 0x20) for n in range(len(asked))))
            assert len(requester.rsocket(await requester.frames())) == len(asked)

    with asyncio.Runner(loop_factory=MemoryLoop) as runner:
        runner.run(check())


FRAMES = st.builds(
    ws_frame,
    st.sampled_from([CONT, TEXT, BINARY, BINARY, CLOSE, PING, PONG, 3]),
    st.binary(max_size=140) | st.just(setup()[3:]),
    fin=st.booleans(),
    mask=st.sampled_from([b"\x01\x02\x03\x04"] * 9 + [None]),
    length=st.sampled_from([None] * 9 + [0, 5, 126, 2000, 1 << 63]),
)


@settings(deadline=None, max_examples=times(10, 40))
@given(st.lists(FRAMES | st.binary(max_size=20), max_size=12), st.integers(1, 300))
def test_any_bytes_end_in_order(pieces: list[bytes], size: int) -> None:
    """Whatever comes, in whatever pieces: it is ignored, understood, or the end."""

    async def check() -> None:
        options = LinkOptions(connection=ConnectionLimits(max_frame=1000, max_setup=500))
        async with web(options) as w:
            peer = await w.open()
            stream = b"".join(pieces)
            for at in range(0, len(stream), size):
                peer.send(stream[at : at + size])
            frames = await peer.frames()
            # The Close is the last thing said, and nothing is said when the socket is closed.
            assert CLOSE not in [opcode for opcode, _ in frames[:-1]]
            if peer.closed:
                assert frames
                assert frames[-1][0] == CLOSE
            if not peer.protocol.is_closing():
                assert peer.protocol._reader.kept <= 1000 + 14
            await asyncio.sleep(200)
            assert peer.closed, "no KEEPALIVE, or not even a SETUP"

    with asyncio.Runner(loop_factory=MemoryLoop) as runner:
        runner.run(check())


def head_of(size: int) -> bytes:
    """Return the header of a binary message, and nothing of it."""
    return ws_frame(BINARY, length=size)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (ws_frame(BINARY, b"1234", mask=None), WRONG),
        (ws_frame(BINARY, b"1" * 300, mask=None), WRONG),
        (ws_frame(BINARY, b"1" * 70_000, mask=None), WRONG),
        (ws_frame(TEXT, b"hello"), UNSUPPORTED),
        (ws_frame(TEXT, b"hello", mask=None), WRONG),
        (ws_frame(BINARY, b"1234567", reserved=4), WRONG),
        (ws_frame(3, b"1234567"), WRONG),
        (ws_frame(11, b"1234567"), WRONG),
        (ws_frame(CONT, b"1234567"), WRONG),
        (ws_frame(BINARY, b"123", fin=False) + ws_frame(BINARY, b"1234567"), WRONG),
        (ws_frame(BINARY, b"123", fin=False) + ws_frame(TEXT, b"1234567"), UNSUPPORTED),
        (ws_frame(PING, b"1" * 126), WRONG),
        (ws_frame(PING, b"1", fin=False), WRONG),
        (ws_frame(CLOSE, b"1"), WRONG),
        (ws_frame(BINARY, b"1", fin=False) + answer_close(NORMAL), WRONG),
        (head_of(2001), TOO_BIG),
        (head_of(1 << 63), TOO_BIG),
        (ws_frame(BINARY, b"1" * 1500, fin=False) + ws_frame(CONT, length=501), TOO_BIG),
        (ws_frame(BINARY, length=2001, fin=False), TOO_BIG),
    ],
)
@in_memory
async def test_what_is_no_message(wrong: bytes, code: int) -> None:
    options = LinkOptions(connection=ConnectionLimits(max_frame=2000))
    async with web(options) as w:
        peer = await w.requester()
        frames = await peer.frames(wrong)
        assert close_code(frames) == code
        (told,) = errors(peer.rsocket(frames[:-1]))
        assert told[:2] == (0, 0x101)
        assert (
            await peer.frames(ws_frame(PING), messages(frame(0, KEEPALIVE, 0x80, bytes(8)))) == []
        )
        assert not peer.closed
        peer.transport.unread.append(None)
        peer.transport.feed()
        await w.w.loop.idle()
        assert peer.closed
        assert w.listener.statistics().closed == {"broken frame": 1}


@pytest.mark.parametrize("wrong", [b"", b"\x00\x00\x00"])
@in_memory
async def test_messages_that_are_no_rsocket_frames(wrong: bytes) -> None:
    async with web() as w:
        peer = await w.requester()
        frames = await peer.frames(ws_frame(BINARY, wrong))
        assert close_code(frames) == NORMAL
        assert errors(peer.rsocket(frames[:-1]))[0][:2] == (0, 0x101)
        assert w.listener.statistics().closed == {}
        assert await peer.frames(answer_close(NORMAL)) == []
        assert w.listener.statistics().closed == {"broken frame": 1}


@in_memory
async def test_the_first_message_has_a_limit_of_its_own() -> None:
    options = LinkOptions(connection=ConnectionLimits(max_setup=200))
    async with web(options) as w:
        peer = await w.open()
        assert close_code(await peer.frames(head_of(201))) == TOO_BIG
        peer = await w.requester()
        assert await peer.frames(head_of(201)) == []
        peer.transport.lose(None)


@in_memory
async def test_a_client_says_close() -> None:
    async with web() as w:
        requester, destination = await w.requester(), await w.destination()
        asked = request(RR, 1, ASKED)
        assert await requester.ask(asked) == []
        # What comes after the Close does not count.
        frames = await requester.frames(answer_close(NORMAL), messages(request(RR, 3, ASKED)))
        assert frames == [(CLOSE, NORMAL.to_bytes(2))]
        assert requester.closed
        first, cancelled = destination.rsocket(await destination.frames())
        assert first == restamped(asked, 2)
        assert kind_of(cancelled) == 9
        assert w.listener.statistics().closed == {"by the peer": 1}
        # Without a code, the answer has none either.
        assert await destination.frames(ws_frame(CLOSE)) == [(CLOSE, b"")]


@in_memory
async def test_the_broker_says_close() -> None:
    async with web() as w:
        peers = [await w.requester() for _ in range(3)]
        closing = asyncio.ensure_future(w.listener.close())
        for peer in peers:
            frames = await peer.frames()
            assert errors(peer.rsocket(frames[:-1]))[0][2] == "the broker stops"
            assert close_code(frames) == GOING_AWAY
            assert not peer.closed
        # One answers, after a message under way that is not heard any more; one sends something
        # that cannot be read; and one nothing.
        late = messages(request(RR, 1, ASKED)) + ws_frame(PING, b"?")
        assert await peers[0].frames(late + answer_close(GOING_AWAY)) == []
        assert await peers[1].frames(ws_frame(TEXT, b"no")) == []
        assert [peer.closed for peer in peers] == [True, True, False]
        began = w.w.loop.time()
        await closing
        assert w.w.loop.time() - began == pytest.approx(2, abs=0.01)
        assert peers[2].closed
        assert w.listener.statistics().closed == {"stopped": 3}


@in_memory
async def test_what_is_under_way_when_the_broker_closes_is_not_kept() -> None:
    async with web() as w:
        one, two, three = [await w.requester() for _ in range(3)]
        big = ws_frame(BINARY, bytes(100_000))
        assert await one.frames(big[:50_000]) == []
        assert await two.frames(ws_frame(BINARY, bytes(100_000), fin=False)) == []
        assert await three.frames(b"\x88") == []
        assert not w.nothing_kept()
        closing = asyncio.ensure_future(w.listener.close())
        for peer in (one, two, three):
            assert close_code(await peer.frames()) == GOING_AWAY
        assert w.nothing_kept()
        assert one.protocol._reader.kept + two.protocol._reader.kept <= 1
        answer = answer_close(GOING_AWAY)
        # The rest of it in pieces, one more of those, and then the Close is found all the same.
        for piece in (big[50_000:70_000], big[70_000:] + big[:300], big[300:] + answer[:3]):
            assert await one.frames(piece) == []
            assert one.protocol._reader.kept < 200
        assert await one.frames(answer[3:]) == []
        for piece in (ws_frame(CONT, bytes(100_000), fin=False), ws_frame(CONT, b"1") + answer):
            assert await two.frames(piece) == []
        for piece in (answer[1:2], answer[2:]):
            assert await three.frames(piece) == []
        assert one.closed
        assert two.closed
        assert three.closed
        await closing


@in_memory
async def test_others_have_their_turn_while_one_keeps_sending() -> None:
    async with web() as w:
        hog, honest = await w.requester(), await w.requester()
        destination = await w.destination()
        asked = [request(FNF, 1 + 2 * at, ASKED, b"h") for at in range(2000)]
        hog.send(messages(*asked), ws_frame(PING, b"last"))
        honest.send(messages(request(FNF, 1, ASKED, b"!")))
        came = bytes(raw[-1] for raw in destination.rsocket(await destination.frames()))
        assert len(came) == 2001
        assert came.index(b"!") <= TURN // len(asked[0])
        assert await hog.frames() == [(PONG, b"last")]


@pytest.mark.parametrize("size", [100, 10_000, 4 * TURN])
@in_memory
async def test_messages_of_any_length_in_turns(size: int) -> None:
    async with web() as w:
        requester, destination = await w.requester(), await w.destination()
        asked = [request(FNF, 1 + 2 * at, ASKED, bytes([at]) * size) for at in range(60)]
        for at in range(0, len(asked), 20):
            requester.send(messages(*asked[at : at + 20]))
        got = destination.rsocket(await destination.frames())
        assert [raw[-1] for raw in got] == list(range(60))
        assert {len(raw) for raw in got} == {len(asked[0])}
        assert w.nothing_kept()


@in_memory
async def test_a_close_is_seen_behind_what_has_not_had_its_turn() -> None:
    async with web() as w:
        requester = await w.requester()
        pings = ws_frame(PING, b"?") * (3 * TURN // 7)
        requester.send(pings + ws_frame(CLOSE, NORMAL.to_bytes(2)))
        requester.protocol._connection.close("stopped", "the broker stops")
        frames = await requester.frames()
        assert close_code(frames) == GOING_AWAY
        assert requester.closed


@in_memory
async def test_of_many_pings_the_last_is_answered() -> None:
    async with web() as w:
        peer = await w.requester()
        pings = b"".join(ws_frame(PING, str(each).encode()) for each in range(20_000))
        assert len(pings) > 64 * 1024
        # One for what is read at once and has one turn.
        answers = await peer.frames(pings)
        assert len(answers) <= len(pings) // TURN + 1
        assert answers[-1] == (PONG, b"19999")

        # One that has answers to give is always read, and yet pongs do not pile up.
        requester, destination = await w.requester(), await w.destination()
        await requester.ask(request(STREAM, 1, ASKED, n=5))
        transport = destination.transport
        await destination.frames()
        transport.set_write_buffer_limits(1000, 100)
        transport.peer_reads = False
        transport.write(b"x" * 1001)
        for each in range(5):
            destination.send(ws_frame(PING, str(each).encode()) * 3)
        assert len(transport.waiting) == 1001
        transport.peer_reads = True
        transport.drain()
        came = await destination.raw()
        assert came[1001:] == ws_frame(PONG, b"4", mask=None)
        transport.lose(None)


@in_memory
async def test_a_message_that_takes_for_ever() -> None:
    async with web(LinkOptions(frame_timeout=5)) as w:
        keepalive = messages(setup(keepalive=600_000, lifetime=600_000))
        empty = ws_frame(CONT, b"", fin=False)
        first = ws_frame(BINARY, b"", fin=False)
        peers = [WebSocketPeer(w.listener) for _ in range(3)]
        for peer in peers:
            await peer.open()
            assert await peer.frames(keepalive) == []
        began = w.w.loop.time()
        peers[0].send(first)
        peers[1].send(first[:3])
        while not all(peer.transport.delivered for peer in peers[:2]):
            for peer, piece in zip(peers, (empty, b"", ws_frame(PING)), strict=True):
                peer.send(piece)
            await asyncio.sleep(0.5)
        assert w.w.loop.time() - began == pytest.approx(5, abs=0.6)
        for peer in peers[:2]:
            frames = await peer.frames()
            assert close_code(frames) == NORMAL
            assert errors(peer.rsocket(frames[:-1]))[0][2] == "a frame was not finished in time"
        await asyncio.sleep(3)
        assert [peer.closed for peer in peers] == [True, True, False]
        assert w.listener.statistics().closed == {"unfinished frame": 2}


@in_memory
async def test_the_time_is_that_of_the_oldest_piece() -> None:
    async with web(LinkOptions(frame_timeout=5)) as w:
        peer = await w.requester()
        keepalive = messages(frame(0, KEEPALIVE, 0, bytes(8)))
        for _ in range(8):
            # A new frame is begun each time the one before it ends.
            peer.send(keepalive[:3])
            await asyncio.sleep(4)
            peer.send(keepalive[3:] + keepalive[:2])
            await asyncio.sleep(4)
            assert await peer.frames(keepalive[2:]) == []
        assert w.nothing_kept()
        # Messages between the pieces of one do not make it any newer.
        peer.send(ws_frame(BINARY, b"1", fin=False))
        await asyncio.sleep(4)
        assert await peer.frames(ws_frame(PING, b"!")) == [(PONG, b"!")]
        await asyncio.sleep(1.1)
        assert close_code(await peer.frames()) == NORMAL


@in_memory
async def test_unfinished_messages_of_all_together() -> None:
    async with web(LinkOptions(max_unfinished=10_000)) as w:
        peers = [await w.requester() for _ in range(3)]
        for peer in peers[:2]:
            assert await peer.frames(ws_frame(BINARY, bytes(4000), fin=False)) == []
        frames = await peers[2].frames(head_of(100_000) + bytes(3000))
        assert close_code(frames) == NORMAL
        assert w.listener.statistics().connections == 3
        await asyncio.sleep(2.1)
        assert [peer.closed for peer in peers] == [False, False, True]
        assert w.listener.statistics().closed == {"unfinished frames": 1}


@in_memory
async def test_a_client_that_does_not_read() -> None:
    options = LinkOptions(flow=FlowOptions(high_water=10_000, max_pending=20_000))
    async with web(options) as w:
        requester, destination = await w.requester(), await w.w.destination()
        await requester.ask(request(STREAM, 1, ASKED, n=100))
        await destination.received()
        requester.transport.peer_reads = False
        await destination.ask(*[payload(2, bytes(1000))] * 11)
        assert requester.protocol._connection.write_paused
        assert requester.protocol.get_write_buffer_size() == 11 * (6 + 1000 + 4)
        assert not requester.transport.reading
        requester.transport.peer_reads = True
        requester.transport.drain()
        assert not requester.protocol._connection.write_paused
        await w.w.loop.idle()
        assert requester.transport.reading
        requester.transport.peer_reads = False
        await destination.ask(*[payload(2, bytes(1000))] * 21)
        await w.w.loop.idle()
        assert requester.closed
        assert w.listener.statistics().closed == {"too slow": 1}
        # Nothing goes on that was asked for after the end.
        requester.protocol.pause_reading()
        requester.protocol.resume_reading()
        requester.protocol.write(payload(1))


@in_memory
async def test_a_client_that_stops_reading_and_does_not_hear_of_the_end() -> None:
    async with web() as w:
        requester = await w.requester()
        requester.transport.peer_reads = False
        frames = await requester.frames(ws_frame(TEXT))
        assert frames == []
        await asyncio.sleep(2.1)
        assert requester.closed
        requester = await w.requester()
        requester.protocol.close()
        requester.protocol.close()
        assert requester.protocol.is_closing()
        assert close_code(await requester.frames()) == NORMAL
        requester.transport.lose(None)
        await w.w.loop.idle()


@in_memory
async def test_clients_that_go_without_a_word() -> None:
    async with web() as w:
        one, two = await w.requester(), await w.requester()
        one.transport.unread.append(None)
        one.transport.feed()
        two.transport.lose(ConnectionResetError())
        await w.w.loop.idle()
        assert one.closed
        assert w.listener.statistics().closed == {"by the peer": 2}


@in_memory
async def test_a_bulk_of_pings_lets_others_have_their_turn() -> None:
    async with web() as w:
        peer = await w.requester()
        peer.send(ws_frame(PONG, b"x" * 100) * 700)
        assert not peer.transport.reading
        await w.w.loop.idle()
        assert peer.transport.reading


@in_memory
async def test_what_is_known_of_the_socket() -> None:
    async with web() as w:
        peer = await w.requester()
        assert peer.protocol.get_extra_info("peername") == ("10.0.0.7", 7)
        assert peer.protocol.get_extra_info("cipher", "none") == "none"
        assert peer.protocol._connection.identity.peer == "10.0.0.7:7"
