"""A WebSocket between a socket and a link, without a network."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from onward.protocol import LinkDown, Message, route
from onward.protocol.ockam import PREAMBLE
from onward.transports import StreamOptions
from onward.transports.node._socket import WireSocket
from onward.transports.node._ws import LinkStream
from onward.transports.streams._ws_frames import WebSocketFrameReader
from tests.support.virtual import virtual_time
from tests.support.websocket_peer import BINARY, CLOSE, PING, PONG, close_code, ws_frame, ws_split
from tests.transports.node.test_socket import Teller


class Line(asyncio.Transport):
    """The real socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.state = "open"
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"

    def is_closing(self) -> bool:
        return self.state != "open"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 3

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (9, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name


class Inner:
    """The link's socket: it notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.stream: LinkStream | None = None

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def __getattr__(self, name: str) -> Any:
        return partial(self._tell, name)

    def _tell(self, *told: object) -> None:
        self.told.append(told)

    def close(self, reason: str) -> None:
        self.told.append(("close", reason))
        assert self.stream is not None
        self.stream.write(b"what was left")
        self.stream.close()


def joined(*, client: bool = False) -> tuple[LinkStream, Line, Inner]:
    line, inner = Line(), Inner()
    inner.stream = LinkStream(line, cast(WireSocket, inner), client)
    return inner.stream, line, inner


def test_pings_are_answered_when_the_peer_reads() -> None:
    stream, line, inner = joined()
    stream.data_received(ws_frame(PING, b"1"))
    stream.pause_writing()
    stream.data_received(ws_frame(PING, b"2") + ws_frame(BINARY, b"x") + ws_frame(PING, b"3"))
    assert ws_split(line.written) == [(PONG, b"1")]
    stream.resume_writing()
    assert ws_split(line.written) == [(PONG, b"1"), (PONG, b"3")]
    assert inner.told == [("pause_writing",), b"x", ("resume_writing",)]


def test_the_peer_closes() -> None:
    stream, line, inner = joined()
    stream.data_received(ws_frame(CLOSE, (4000).to_bytes(2)) + ws_frame(BINARY, b"late"))
    stream.data_received(ws_frame(BINARY, b"later"))
    assert close_code(ws_split(line.written)) == 4000
    assert line.state == "closed"
    stream.eof_received()
    stream.connection_lost(None)
    assert inner.told == [("eof_received",), ("connection_lost", None)]


def test_we_close_and_the_peer_answers() -> None:
    stream, line, inner = joined(client=True)
    stream.pause_reading()
    stream.close()
    stream.close()
    stream.write(b"too late")
    assert line.reading
    assert (line.state, stream.is_closing()) == ("open", True)
    reader = WebSocketFrameReader(masked=True)
    assert reader.read(line.written) == []
    assert reader.closed == 1000
    # What comes before the answer is not wanted any more.
    stream.data_received(ws_frame(BINARY, b"x", mask=None) + ws_frame(PING, mask=None))
    stream.data_received(ws_frame(CLOSE, (1000).to_bytes(2), mask=None))
    assert line.state == "closed"
    assert inner.told == []


def test_what_is_wrong_is_said_once_and_nothing_follows() -> None:
    stream, line, inner = joined()
    stream.data_received(ws_frame(BINARY, b"x") + b"\xff\xff")
    assert inner.told == [b"x", ("close", "broken WebSocket: reserved bits or an unknown opcode")]
    assert close_code(ws_split(line.written)) == 1002
    assert (len(ws_split(line.written)), line.state) == (1, "closed")


def test_the_stream_ends_without_a_close() -> None:
    stream, _, inner = joined()
    assert not stream.eof_received()
    stream.abort()
    assert stream.is_closing()
    assert inner.told == [("eof_received",)]


def test_what_is_asked_of_it_is_asked_of_the_socket() -> None:
    stream, line, _ = joined()
    stream.set_write_buffer_limits(9)
    stream.pause_reading()
    assert not line.reading
    stream.resume_reading()
    assert line.reading
    assert stream.get_write_buffer_size() == 3
    assert stream.get_extra_info("peername") == "peername"
    assert not stream.is_closing()
    line.close()
    assert stream.is_closing()


class Plain(Line):
    """One of which nothing is known."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


@virtual_time
async def test_who_breaks_the_rules_and_does_not_read_has_so_long() -> None:
    for broken in (b"\xff\xff", ws_frame(CLOSE, (1000).to_bytes(2))):
        line, owner = Plain(), Teller()
        options = StreamOptions(write_timeout=3.0, high_water=9)
        wire_socket = WireSocket(owner, options, asyncio.get_running_loop())
        stream = LinkStream(line, wire_socket, client=False)
        wire_socket.connection_made(stream)
        stream.data_received(ws_frame(BINARY, PREAMBLE) + broken)
        assert line.state == "closed"
        with pytest.raises(LinkDown):
            wire_socket.send(Message(route("x"), (), b""))
        await asyncio.sleep(2.9)
        assert line.state == "closed"
        await asyncio.sleep(0.2)
        assert line.state == "aborted"
        stream.connection_lost(None)
        assert len(owner.closed) == 1
