from __future__ import annotations

import pytest

from onward.protocol.rsocket import (
    CONNECTION_STREAM,
    FOLLOWS,
    IGNORE,
    METADATA,
    NEXT,
    UNEXPECTED_PROXY_HEADER,
    Frame,
    FrameType,
    MalformedFrame,
    check_frame,
    parse_frame,
    split_frames,
)
from tests.support.rsocket_core import data_of, metadata_of, raw, u24, u32

WITH_BOTH = (
    (FrameType.REQUEST_RESPONSE, b""),
    (FrameType.REQUEST_FNF, b""),
    (FrameType.REQUEST_STREAM, u32(7)),
    (FrameType.REQUEST_CHANNEL, u32(7)),
    (FrameType.PAYLOAD, b""),
    (FrameType.SETUP, bytes(12) + b"\x01m\x02dd"),
)


@pytest.mark.parametrize(("kind", "fixed"), WITH_BOTH)
@pytest.mark.parametrize("metadata", [None, b"", b"meta"])
@pytest.mark.parametrize("data", [b"", b"data"])
def test_metadata_and_data(
    kind: FrameType, fixed: bytes, metadata: bytes | None, data: bytes
) -> None:
    flags = 0 if metadata is None else METADATA
    part = b"" if metadata is None else u24(len(metadata)) + metadata
    frame = parse_frame(raw(5, kind, flags, fixed + part + data))
    assert (frame.stream_id, frame.type, frame.flags) == (5, kind, flags)
    assert frame.has_metadata == (metadata is not None)
    assert metadata_of(frame) == metadata
    assert data_of(frame) == data
    assert frame.end - frame.data_offset == len(data)
    assert frame.stream is CONNECTION_STREAM
    assert bytes(frame.raw) == frame.buffer[3:]


def test_setup_with_a_token() -> None:
    body = bytes(12) + b"\x00\x03tok" + b"\x01m\x02dd" + b"data"
    assert data_of(parse_frame(raw(0, FrameType.SETUP, 0x080, body))) == b"data"


def test_the_numbers_of_a_frame() -> None:
    stream = parse_frame(raw(1, FrameType.REQUEST_STREAM, 0, u32(9)))
    assert stream.initial_request_n == 9
    assert parse_frame(raw(1, FrameType.REQUEST_N, 0, u32(8))).request_n == 8
    lease = parse_frame(raw(0, FrameType.LEASE, METADATA, u32(5) + u32(6) + b"m"))
    assert (lease.time_to_live, lease.number_of_requests) == (5, 6)
    assert metadata_of(lease) == b"m"
    assert data_of(lease) is None
    alive = parse_frame(raw(0, FrameType.KEEPALIVE, 0x080, bytes(7) + b"\x04" + b"data"))
    assert alive.position == 4
    assert data_of(alive) == b"data"
    assert metadata_of(alive) is None


def test_an_error() -> None:
    error = parse_frame(raw(3, FrameType.ERROR, 0, u32(0x301) + b"no \xff"))
    assert error.error_code == 0x301
    assert error.error_text == "no \ufffd"
    assert data_of(error) == b"no \xff"


def test_metadata_push_is_all_metadata() -> None:
    push = parse_frame(raw(0, FrameType.METADATA_PUSH, METADATA, b"all"))
    assert metadata_of(push) == b"all"
    assert data_of(push) is None
    assert push.data_offset == push.end


def test_types_without_metadata_ignore_the_flag() -> None:
    assert metadata_of(parse_frame(raw(1, FrameType.CANCEL, METADATA))) is None
    assert data_of(parse_frame(raw(1, FrameType.CANCEL))) is None
    assert metadata_of(parse_frame(raw(1, FrameType.ERROR, METADATA, u32(1)))) is None


@pytest.mark.parametrize(
    "data",
    [
        raw(1, FrameType.REQUEST_RESPONSE, METADATA),
        raw(1, FrameType.REQUEST_RESPONSE, METADATA, b"\0\0"),
        raw(1, FrameType.REQUEST_RESPONSE, METADATA, u24(1)),
        raw(1, FrameType.REQUEST_CHANNEL, METADATA, u32(1) + u24(5) + b"four"),
        raw(1, FrameType.PAYLOAD, METADATA, u24(2**24 - 1) + b"x"),
        raw(1, FrameType.REQUEST_STREAM, 0, b"\0\0\0"),
        raw(1, FrameType.REQUEST_N, 0, b"\0\0\0"),
        raw(1, FrameType.ERROR, 0, b"\0\0\0"),
        raw(0, FrameType.LEASE, 0, bytes(7)),
        raw(0, FrameType.KEEPALIVE, 0, bytes(7)),
        raw(0, FrameType.EXT, 0, bytes(3)),
        raw(0, FrameType.SETUP, 0, bytes(11)),
        raw(0, FrameType.SETUP, 0, bytes(12)),
        raw(0, FrameType.SETUP, 0, bytes(12) + b"\x01m"),
        raw(0, FrameType.SETUP, 0, bytes(12) + b"\x01m\x02d"),
        raw(0, FrameType.SETUP, 0x080, bytes(12)),
        raw(0, FrameType.SETUP, 0x080, bytes(12) + b"\xff\xff"),
        raw(0, FrameType.SETUP, METADATA, bytes(12) + b"\0\0" + u24(1)),
        raw(0, FrameType.SETUP, METADATA, bytes(12) + b"\0\0" + b"\0\0"),
    ],
)
def test_lengths_that_do_not_fit(data: bytes) -> None:
    frames, rest = split_frames(b"", data)
    assert rest == b""
    with pytest.raises(MalformedFrame):
        check_frame(frames[0])
    with pytest.raises(MalformedFrame):
        parse_frame(data)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (FrameType.CANCEL, "request_n"),
        (FrameType.PAYLOAD, "initial_request_n"),
        (FrameType.REQUEST_N, "error_code"),
        (FrameType.CANCEL, "error_text"),
        (FrameType.PAYLOAD, "position"),
        (FrameType.PAYLOAD, "time_to_live"),
        (0x2A, "number_of_requests"),
    ],
)
def test_a_field_the_type_does_not_have(kind: int, field: str) -> None:
    frame = parse_frame(raw(1, kind, 0, bytes(8)))
    with pytest.raises(MalformedFrame, match="has no such field"):
        getattr(frame, field)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (FrameType.REQUEST_N, "request_n"),
        (FrameType.ERROR, "error_text"),
        (FrameType.KEEPALIVE, "position"),
        (FrameType.LEASE, "number_of_requests"),
    ],
)
def test_a_field_the_frame_is_too_short_for(kind: int, field: str) -> None:
    ((frame,), _) = split_frames(b"", raw(1, kind, 0, b"abc"))
    with pytest.raises(MalformedFrame, match="of 9 bytes"):
        getattr(frame, field)


CORPUS = (
    raw(0, FrameType.SETUP, METADATA, bytes(12) + b"\x01m\x02dd" + u24(2) + b"mm" + b"data"),
    raw(1, FrameType.REQUEST_RESPONSE, METADATA, u24(0) + b"x"),
    raw(3, FrameType.REQUEST_FNF, FOLLOWS, b"x" * 300),
    raw(5, FrameType.REQUEST_STREAM, 0, u32(1)),
    raw(7, FrameType.REQUEST_CHANNEL, 0x1F, u32(1)),
    raw(1, FrameType.PAYLOAD, NEXT),
    raw(1, FrameType.CANCEL),
    raw(5, FrameType.REQUEST_N, 0, u32(1)),
    raw(5, FrameType.ERROR, 0, u32(0x201) + b"text"),
    raw(0, FrameType.KEEPALIVE, 0x080, bytes(8) + b"ping"),
    raw(0, FrameType.LEASE, 0, bytes(8)),
    raw(0, FrameType.METADATA_PUSH, METADATA, b"m"),
    raw(0, 0x2A, IGNORE, b"what"),
)


@pytest.mark.parametrize("data", CORPUS)
def test_whole_byte_by_byte_and_with_trailing_bytes(data: bytes) -> None:
    whole = parse_frame(data)
    frames: list[Frame] = []
    tail = b""
    for at in range(len(data)):
        assert not frames
        frames, tail = split_frames(tail, data[at : at + 1])
    assert tail == b""
    assert bytes(frames[0].raw) == bytes(whole.raw)
    frames, tail = split_frames(b"", data + b"\0\0")
    assert (len(frames), tail) == (1, b"\0\0")
    with pytest.raises(MalformedFrame, match="not exactly one frame"):
        parse_frame(data + b"\0")
    with pytest.raises(MalformedFrame, match="not exactly one frame"):
        parse_frame(data[:-1])


def test_many_frames_in_any_chunks() -> None:
    data = b"".join(CORPUS)
    for size in (1, 2, 3, 8, 9, 10, 64, len(data)):
        found: list[Frame] = []
        tail = b""
        for at in range(0, len(data), size):
            frames, tail = split_frames(tail, data[at : at + size])
            found += frames
        assert tail == b""
        assert [len(frame.raw) + 3 for frame in found] == [len(one) for one in CORPUS]


@pytest.mark.parametrize("length", [0, 5, 101, 2**24 - 1])
def test_a_length_out_of_bounds_is_refused_before_the_frame_is_there(length: int) -> None:
    with pytest.raises(MalformedFrame, match=str(length)):
        split_frames(b"", u24(length), 100)


@pytest.mark.parametrize("head", [b"PROXY TCP4 1.2.3.4", b"\r\n\r\n\0\r\nQUIT\n\x21"])
def test_a_proxy_header_is_told_from_a_long_frame(head: bytes) -> None:
    with pytest.raises(MalformedFrame, match=UNEXPECTED_PROXY_HEADER):
        split_frames(b"", head, 256 * 1024)


def test_the_reserved_bit_is_no_part_of_the_id() -> None:
    assert parse_frame(raw(0x80000003, FrameType.CANCEL)).stream_id == 3


def test_a_detached_frame_has_a_buffer_of_its_own() -> None:
    frames, _ = split_frames(b"", b"".join(CORPUS))
    for frame, data in zip(frames, CORPUS, strict=True):
        alone = frame.detached()
        assert alone.buffer == data
        assert alone.detached() is alone
        assert (alone.stream_id, alone.word, alone.type) == (
            frame.stream_id,
            frame.word,
            frame.type,
        )
        assert alone.stream is frame.stream


def test_a_frame_says_what_it_is() -> None:
    assert repr(parse_frame(raw(9, FrameType.PAYLOAD, NEXT, b"x"))) == (
        "<Frame PAYLOAD stream 9 flags 0x020 7 bytes>"
    )
    assert "type 0x2a" in repr(parse_frame(raw(9, 0x2A)))
