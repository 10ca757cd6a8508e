from __future__ import annotations

import pytest

from onward.protocol.broker import (
    HEADER_SIZE,
    MAX_TIMESTAMP,
    BadText,
    BrokerFrameError,
    Dialect,
    FieldTooLong,
    FrameTruncated,
    FrameType,
    TrailingBytes,
    UnexpectedFrameType,
    UnsupportedVersion,
    frame_type,
)
from onward.protocol.broker._fields import (
    check_header,
    expect_end,
    header,
    read_id,
    read_name,
    read_timestamp,
    write_id,
    write_name,
    write_timestamp,
)

ID = bytes(range(16))


@pytest.mark.parametrize("kind", FrameType)
@pytest.mark.parametrize("flags", [0, 0x080, 0x3FF])
def test_a_header_is_read_as_it_is_written(kind: FrameType, flags: int) -> None:
    data = header(kind, flags)
    assert len(data) == HEADER_SIZE
    assert frame_type(data) is kind
    assert check_header(data, kind, Dialect.SPECIFICATION) == flags
    assert check_header(data + b"more", kind, Dialect.REFERENCE) == flags


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_a_header_is_missing(size: int) -> None:
    data = header(FrameType.ADDRESS)[:size]
    with pytest.raises(FrameTruncated):
        frame_type(data)
    with pytest.raises(FrameTruncated):
        check_header(data, FrameType.ADDRESS, Dialect.SPECIFICATION)


def test_the_type_is_checked_before_the_version() -> None:
    data = bytes.fromhex("000900090400")
    with pytest.raises(UnexpectedFrameType):
        check_header(data, FrameType.ADDRESS, Dialect.SPECIFICATION)
    with pytest.raises(UnsupportedVersion):
        check_header(data, FrameType.ROUTE_SETUP, Dialect.SPECIFICATION)
    assert check_header(data, FrameType.ROUTE_SETUP, Dialect.REFERENCE) == 0


def test_an_id() -> None:
    assert read_id(b"xx" + ID + b"yy", 2, "route id") == (ID, 18)
    assert write_id(ID, "route id") is ID
    with pytest.raises(FrameTruncated) as caught:
        read_id(ID, 1, "route id")
    assert (caught.value.field, caught.value.size, caught.value.left) == ("route id", 16, 15)


@pytest.mark.parametrize("timestamp", [1, 1_700_000_000_000, MAX_TIMESTAMP])
def test_a_timestamp(timestamp: int) -> None:
    data = write_timestamp(timestamp)
    assert read_timestamp(b"x" + data + b"y", 1) == (timestamp, 9)
    for size in range(8):
        with pytest.raises(FrameTruncated):
            read_timestamp(data[:size], 0)


@pytest.mark.parametrize("timestamp", [-1, 0, MAX_TIMESTAMP + 1, 2**64])
def test_a_timestamp_out_of_range(timestamp: int) -> None:
    with pytest.raises(BrokerFrameError, match="timestamp"):
        write_timestamp(timestamp)


@pytest.mark.parametrize("name", ["", "pong", "n" * 255, "é" * 127])
def test_a_service_name(name: str) -> None:
    data = write_name(name)
    assert read_name(b"x" + data + b"y", 1) == (name, len(data) + 1)
    for size in range(len(data)):
        with pytest.raises(FrameTruncated):
            read_name(data[:size], 0)


def test_a_service_name_that_cannot_be() -> None:
    with pytest.raises(FieldTooLong):
        write_name("n" * 256)
    with pytest.raises(BadText):
        write_name("\udcff")
    with pytest.raises(BadText):
        read_name(b"\x01\xff", 0)


def test_the_end() -> None:
    expect_end(b"ab", 2, "ADDRESS")
    with pytest.raises(TrailingBytes) as caught:
        expect_end(b"ab", 0, "ADDRESS")
    assert (caught.value.field, caught.value.size) == ("ADDRESS", 2)
