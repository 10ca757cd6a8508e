from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import (
    COMPOSITE_MIME,
    FrameType,
    InvalidSetup,
    LocalProtocolError,
    Setup,
    parse_frame,
    split_frames,
)
from tests.support.rsocket_core import raw, u32

TIMES = st.integers(1, 2**31 - 1)
MIMES = st.text(st.characters(max_codepoint=127), max_size=255)
SETUPS = st.builds(
    Setup,
    metadata_mime=MIMES,
    data_mime=MIMES,
    keepalive=TIMES,
    lifetime=TIMES,
    major=st.integers(0, 0xFFFF),
    minor=st.integers(0, 0xFFFF),
    token=st.none() | st.binary(max_size=50),
    lease=st.booleans(),
    metadata=st.none() | st.binary(max_size=50),
    data=st.binary(max_size=50),
)


@settings(deadline=None)
@given(SETUPS)
def test_parse_and_serialize_are_inverse(setup: Setup) -> None:
    assert Setup.parse(parse_frame(setup.serialize())) == setup


def test_the_bytes_of_a_setup() -> None:
    setup = Setup(
        metadata_mime="m", data_mime="dd", keepalive=1, lifetime=2, metadata=b"x", data=b"y"
    )
    assert setup.serialize() == bytes.fromhex(
        "00001c 00000000 0500 0001 0000 00000001 00000002 01 6d 02 6464 000001 78 79"
    )
    assert Setup().metadata_mime == COMPOSITE_MIME


def test_a_mime_type_that_is_not_ascii_survives() -> None:
    setup = Setup(data_mime=b"\xff".decode("ascii", "surrogateescape"))
    assert b"\x01\xff" in setup.serialize()
    assert Setup.parse(parse_frame(setup.serialize())) == setup


@pytest.mark.parametrize("times", [(0, 1), (1, 0), (1 << 31, 1), (1, 1 << 31)])
def test_times_must_be_positive(times: tuple[int, int]) -> None:
    body = b"\0\1\0\0" + u32(times[0]) + u32(times[1]) + b"\0\0"
    with pytest.raises(InvalidSetup, match="not positive"):
        Setup.parse(parse_frame(raw(0, FrameType.SETUP, 0, body)))
    with pytest.raises(LocalProtocolError, match="keepalive and lifetime"):
        Setup(keepalive=times[0], lifetime=times[1]).serialize()


def test_a_frame_that_is_no_setup() -> None:
    with pytest.raises(InvalidSetup, match="CANCEL"):
        Setup.parse(parse_frame(raw(0, FrameType.CANCEL)))
    ((frame,), _) = split_frames(b"", raw(0, FrameType.SETUP, 0, bytes(12)))
    with pytest.raises(InvalidSetup, match="SETUP of 18 bytes"):
        Setup.parse(frame)


@pytest.mark.parametrize(
    "setup",
    [
        Setup(data_mime="x" * 256),
        Setup(metadata_mime="x" * 256),
        Setup(data_mime="é"),
        Setup(token=bytes(0x10000)),
        Setup(major=0x10000),
        Setup(minor=-1),
    ],
)
def test_fields_out_of_range(setup: Setup) -> None:
    with pytest.raises(LocalProtocolError):
        setup.serialize()


def test_a_setup_that_is_too_big() -> None:
    for setup in (Setup(metadata=bytes(2**24)), Setup(data=bytes(2**24 - 1))):
        with pytest.raises(PayloadTooBig):
            setup.serialize()
