"""The frames RESUME and RESUME_OK."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers

from onward.protocol.rsocket import (
    MAX_POSITION,
    Frame,
    FrameType,
    LocalProtocolError,
    MalformedFrame,
    RejectedResume,
    ResumableConnection,
    Resume,
    ResumeLimits,
    Role,
    check_frame,
    parse_frame,
    resume_ok_frame,
)
from tests.support.rsocket_core import frames_in, raw

TOKEN = bytes(range(16))
RESUME = Resume(token=TOKEN, last_received=0x0102030405060708, first_available=9)
BYTES = (
    b"\x00\x00\x2c"  # length
    b"\x00\x00\x00\x00"  # stream 0
    b"\x34\x00"  # RESUME
    b"\x00\x01\x00\x00"  # version 1.0
    b"\x00\x10" + TOKEN + b"\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00\x00\x00\x09"
)


def test_layout() -> None:
    assert RESUME.serialize() == BYTES
    assert Resume.parse(parse_frame(BYTES)) == RESUME


@given(binary(max_size=70), integers(0, MAX_POSITION), integers(0, MAX_POSITION))
def test_what_is_written_is_read(token: bytes, last: int, first: int) -> None:
    resume = Resume(token=token, last_received=last, first_available=first, major=2, minor=3)
    (frame,) = frames_in(resume.serialize())
    assert Resume.parse(frame) == resume


def test_a_longest_token() -> None:
    resume = Resume(token=bytes(65535), last_received=0, first_available=0)
    (frame,) = frames_in(resume.serialize())
    assert Resume.parse(frame) == resume
    with pytest.raises(LocalProtocolError, match="over 65535 bytes"):
        Resume(token=bytes(65536), last_received=0, first_available=0).serialize()


@pytest.mark.parametrize("size", range(len(BYTES) - 3 - 6))
def test_one_that_is_cut_short(size: int) -> None:
    (frame,) = frames_in(raw(0, FrameType.RESUME, body=BYTES[9 : 9 + size]))
    with pytest.raises(RejectedResume, match=f"RESUME of {6 + size} bytes"):
        Resume.parse(frame)


def test_one_with_more_bytes() -> None:
    (frame,) = frames_in(raw(0, FrameType.RESUME, body=BYTES[9:] + b"x"))
    with pytest.raises(RejectedResume, match="RESUME of 45 bytes"):
        Resume.parse(frame)


@pytest.mark.parametrize("offset", [len(BYTES) - 16, len(BYTES) - 8])
def test_a_position_with_64_bits(offset: int) -> None:
    wrong = bytearray(BYTES)
    wrong[offset] |= 0x80
    with pytest.raises(RejectedResume, match="63 bits"):
        Resume.parse(parse_frame(bytes(wrong)))


@pytest.mark.parametrize(
    "frame", [raw(2, FrameType.RESUME, body=BYTES[9:]), raw(0, FrameType.LEASE, body=bytes(8))]
)
def test_another_frame(frame: bytes) -> None:
    with pytest.raises(RejectedResume, match="no RESUME on stream 0"):
        Resume.parse(parse_frame(frame))


@pytest.mark.parametrize("first", [-1, MAX_POSITION + 1])
def test_a_position_out_of_range(first: int) -> None:
    with pytest.raises(LocalProtocolError, match="a position is"):
        Resume(token=b"", last_received=0, first_available=first).serialize()
    with pytest.raises(LocalProtocolError, match="a position is"):
        Resume(token=b"", last_received=first, first_available=0).serialize()
    with pytest.raises(LocalProtocolError, match="a position is"):
        resume_ok_frame(first)


@pytest.mark.parametrize(("major", "minor"), [(65536, 0), (1, -1)])
def test_a_version_out_of_range(major: int, minor: int) -> None:
    resume = Resume(token=b"", last_received=0, first_available=0, major=major, minor=minor)
    with pytest.raises(LocalProtocolError, match="a version is"):
        resume.serialize()


@given(integers(0, MAX_POSITION))
def test_resume_ok(position: int) -> None:
    frame = parse_frame(resume_ok_frame(position))
    assert (frame.type, frame.stream_id, frame.flags) == (FrameType.RESUME_OK, 0, 0)
    assert frame.position == position
    assert bytes(frame.raw[6:]) == position.to_bytes(8)


@pytest.mark.parametrize("size", range(8))
def test_a_resume_ok_that_is_cut_short(size: int) -> None:
    (frame,) = frames_in(raw(0, FrameType.RESUME_OK, body=bytes(size)))
    with pytest.raises(MalformedFrame):
        check_frame(frame)
    with pytest.raises(MalformedFrame):
        _ = frame.position


@pytest.mark.parametrize("trailing", [b"", b"\x00", raw(1, FrameType.CANCEL)])
def test_byte_by_byte(trailing: bytes) -> None:
    """A connection finds the RESUME in any pieces, and leaves what follows it unread."""
    connection = ResumableConnection(Role.SERVER, None, ResumeLimits(), now=0.0)
    found: list[Frame] = []
    for at in range(len(BYTES)):
        for event in connection.receive_data(BYTES[at : at + 1], 0.0):
            assert isinstance(event, Frame)
            found.append(event)
        assert bool(found) == (at == len(BYTES) - 1)
    assert [Resume.parse(each) for each in found] == [RESUME]
    assert connection.receive_data(trailing, 0.0) == []
    assert connection.unread() == trailing
    assert connection.unread() == b""
