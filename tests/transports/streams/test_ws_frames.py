"""The frames of a WebSocket as a stream: in any pieces, right and wrong."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from websockets.frames import CloseCode, Opcode

from onward.transports.streams._ws_frames import (
    LARGEST_CONTROL,
    WebSocketFrameReader,
    close_frame,
    frame,
)
from tests.support.websocket_peer import BINARY, CLOSE, CONT, MASK, PING, PONG, TEXT, ws_frame

STREAM = [
    ws_frame(BINARY, b"one"),
    ws_frame(BINARY, bytes(range(256)) * 2, fin=False),
    ws_frame(PING, b"?"),
    ws_frame(CONT, b"", fin=False),
    ws_frame(PONG, b"!"),
    ws_frame(CONT, bytes(70_000)),
    ws_frame(BINARY, b""),
    ws_frame(BINARY, b"last"),
]
CONTENT = b"one" + bytes(range(256)) * 2 + bytes(70_000) + b"last"


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(cuts=st.lists(st.integers(0, 80_000), max_size=30), masked=st.booleans())
def test_the_content_comes_out_however_it_is_cut(cuts: list[int], masked: bool) -> None:
    frames = STREAM if masked else [frame(Opcode.BINARY, CONTENT), frame(Opcode.PING, b"?")]
    reader = WebSocketFrameReader(masked=masked)
    got = [b"".join(reader.read(piece)) for piece in in_pieces(b"".join(frames), cuts)]
    assert b"".join(got) == CONTENT
    assert reader.ping == b"?"
    assert (reader.closed, reader.error) == (None, None)
    assert not reader._kept


@given(cuts=st.lists(st.integers(0, 80_000), max_size=30))
def test_messages_come_out_whole_however_they_are_cut(cuts: list[int]) -> None:
    reader = WebSocketFrameReader(masked=True, limit=100_000)
    got = b"".join(
        part for piece in in_pieces(b"".join(STREAM), cuts) for part in reader.read(piece)
    )
    long = bytes(range(256)) * 2 + bytes(70_000)
    messages = (b"one", long, b"", b"last")
    assert got == b"".join(len(each).to_bytes(3) + each for each in messages)
    assert (reader.ping, reader.kept, reader.error) == (b"?", 0, None)


def test_a_message_over_the_limit_is_refused_by_its_header() -> None:
    for limits in ((10, 20), (20, 10)):
        reader = WebSocketFrameReader(masked=True, first_limit=limits[0], limit=limits[1])
        for limit in limits:
            assert reader.read(ws_frame(BINARY, bytes(limit)))[1] == bytes(limit)
            assert reader.error is None
        assert reader.read(ws_frame(BINARY, length=limits[1] + 1)) == []
        assert reader.error is not None
        assert reader.error[0] is CloseCode.MESSAGE_TOO_BIG


def test_nothing_is_kept_of_messages_that_nothing_awaits() -> None:
    reader = WebSocketFrameReader(masked=True, limit=100_000)
    big = ws_frame(BINARY, bytes(90_000))
    reader.read(big[:50_000])
    assert reader.kept == 50_000
    reader.discard()
    assert reader.kept == 0
    reader.read(big[50_000:] + big[:-1])
    assert reader.kept == 0
    reader.read(big[-1:] + ws_frame(CLOSE))
    assert reader.closed == 1005


def test_byte_by_byte() -> None:
    reader = WebSocketFrameReader(masked=True)
    data = b"".join((*STREAM[:5], ws_frame(CONT, b"end"), ws_frame(BINARY, bytes(300))))
    got = b"".join(part for byte in data for part in reader.read(bytes([byte])))
    assert got == b"one" + bytes(range(256)) * 2 + b"end" + bytes(300)


def test_nothing_is_kept_of_a_message_of_any_length() -> None:
    reader = WebSocketFrameReader(masked=False)
    assert reader.read(b"\x82\x7f" + (1 << 62).to_bytes(8) + b"abc") == [b"abc"]
    for _ in range(10):
        assert reader.read(bytes(100_000)) == [bytes(100_000)]
    assert reader._left == (1 << 62) - 3 - 1_000_000


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
@pytest.mark.parametrize("mask", [b"", MASK])
def test_what_is_written_can_be_read(size: int, mask: bytes) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    reader = WebSocketFrameReader(masked=bool(mask))
    got = reader.read(frame(Opcode.BINARY, content[:size], mask))
    assert b"".join(got) == content[:size]
    assert frame(Opcode.BINARY, content[:size], mask) == ws_frame(
        BINARY, content[:size], mask=mask or None
    )


@pytest.mark.parametrize("mask", [b"", MASK])
def test_a_close_ends_it(mask: bytes) -> None:
    reader = WebSocketFrameReader(masked=bool(mask))
    data = frame(Opcode.BINARY, b"x", mask) + close_frame(1001, "é" * 200, mask)
    assert reader.read(data + frame(Opcode.BINARY, b"more", mask)) == [b"x"]
    assert reader.closed == 1001
    assert reader.read(frame(Opcode.BINARY, b"more", mask)) == []


def test_a_close_without_a_code() -> None:
    reader = WebSocketFrameReader(masked=True)
    reader.read(ws_frame(CLOSE))
    assert reader.closed == 1005


WRONG = {
    "text": (ws_frame(TEXT, b"hello"), CloseCode.UNSUPPORTED_DATA, "binary"),
    "a reserved bit": (ws_frame(BINARY, b"", reserved=4), CloseCode.PROTOCOL_ERROR, "reserved"),
    "an unknown opcode": (ws_frame(3, b""), CloseCode.PROTOCOL_ERROR, "unknown"),
    "an unknown control frame": (ws_frame(11), CloseCode.PROTOCOL_ERROR, "unknown"),
    "not masked": (ws_frame(BINARY, b"", mask=None), CloseCode.PROTOCOL_ERROR, "client has to"),
    "a long ping": (ws_frame(PING, bytes(126)), CloseCode.PROTOCOL_ERROR, "control frame"),
    "a ping in parts": (ws_frame(PING, fin=False), CloseCode.PROTOCOL_ERROR, "control frame"),
    "a part of nothing": (ws_frame(CONT, b""), CloseCode.PROTOCOL_ERROR, "part of no message"),
    "a message in another": (
        ws_frame(BINARY, b"", fin=False) + ws_frame(BINARY, b""),
        CloseCode.PROTOCOL_ERROR,
        "inside another",
    ),
    "a code of one byte": (ws_frame(CLOSE, b"\x03"), CloseCode.PROTOCOL_ERROR, "no proper code"),
    "a code that none may send": (
        ws_frame(CLOSE, (1006).to_bytes(2)),
        CloseCode.PROTOCOL_ERROR,
        "no proper code",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_ends_it(name: str) -> None:
    data, code, text = WRONG[name]
    for pieces in ([data + ws_frame(BINARY, b"more")], [data[i : i + 1] for i in range(len(data))]):
        reader = WebSocketFrameReader(masked=True)
        assert [
            part for each in (ws_frame(BINARY, b"x"), *pieces) for part in reader.read(each)
        ] == [b"x"]
        assert reader.error is not None
        assert reader.error[0] is code
        assert text in reader.error[1]
        assert reader.read(ws_frame(BINARY, b"more")) == []


def test_a_server_that_masks() -> None:
    reader = WebSocketFrameReader(masked=False)
    assert reader.read(ws_frame(BINARY, b"x")) == []
    assert reader.error == (CloseCode.PROTOCOL_ERROR, "a server must not mask its frames")


@given(st.lists(st.binary(max_size=50), max_size=20), st.booleans())
def test_garbage_is_content_or_an_error(pieces: list[bytes], masked: bool) -> None:
    reader = WebSocketFrameReader(masked=masked)
    for piece in pieces:
        assert len(b"".join(reader.read(piece))) <= len(piece) + LARGEST_CONTROL
        assert len(reader._kept) <= LARGEST_CONTROL
