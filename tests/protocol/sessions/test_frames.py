from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.bare import encode_data, encode_uint
from onward.protocol.sessions import (
    MAX_IDENTITY,
    MAX_REASON,
    Close,
    CloseAck,
    Frame,
    OpenSession,
    Ping,
    Pong,
    SessionData,
    SessionFrameError,
    SessionOpened,
    SessionRefused,
    decode_frame,
    encode_frame,
)

IDENTITY = st.binary(min_size=1, max_size=MAX_IDENTITY)
NUMBER = st.integers(0, 2**64 - 1)
REASON = st.text(st.characters(codec="utf-8"), max_size=MAX_REASON)
FRAME: st.SearchStrategy[Frame] = st.one_of(
    st.builds(OpenSession, IDENTITY, NUMBER, NUMBER, NUMBER),
    st.builds(SessionOpened, IDENTITY, NUMBER, IDENTITY),
    st.builds(SessionRefused, IDENTITY, NUMBER, st.booleans(), REASON),
    st.builds(Ping, IDENTITY, NUMBER, NUMBER),
    st.builds(Pong, IDENTITY, NUMBER, NUMBER),
    st.builds(SessionData, IDENTITY, st.binary()),
    st.builds(Close, IDENTITY, REASON),
    st.builds(CloseAck, IDENTITY),
)


@given(FRAME)
def test_reading_is_the_inverse_of_writing(frame: Frame) -> None:
    assert decode_frame(encode_frame(frame)) == frame


@given(FRAME.filter(lambda frame: not isinstance(frame, SessionData)), st.binary(min_size=1))
def test_a_frame_cut_short_or_with_something_behind_it_is_none(frame: Frame, more: bytes) -> None:
    data = encode_frame(frame)
    for cut in [data[:at] for at in range(len(data))] + [data + more]:
        with pytest.raises(SessionFrameError):
            decode_frame(cut)


@given(st.binary())
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    try:
        frame = decode_frame(data)
    except SessionFrameError:
        return
    assert encode_frame(frame) == data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (encode_uint(9) + encode_data(b"s"), "9 is no kind of frame"),
        (encode_uint(8) + encode_data(b""), "an identity of 0 bytes"),
        (encode_uint(8) + encode_data(bytes(65)), "an identity of 65 bytes"),
        (encode_uint(3) + encode_data(b"s") + b"\1\2\0", "2 is neither 0 nor 1"),
        (encode_uint(7) + encode_data(b"s") + encode_data(b"x" * 201), "a reason of 201"),
        (b"", "cut short"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, text: str) -> None:
    with pytest.raises(SessionFrameError, match=f"^not a frame of a session: .*{text}"):
        decode_frame(data)


def test_a_long_reason_is_cut() -> None:
    assert decode_frame(encode_frame(Close(b"t", "x" * 300))) == Close(b"t", "x" * MAX_REASON)


def test_the_bytes_are_these() -> None:
    assert encode_frame(OpenSession(b"ab", 1, 10_000)).hex() == "01 02 6162 01 904e 01".replace(
        " ", ""
    )
    assert encode_frame(SessionData(b"ab", b"body")) == b"\6\2abbody"
