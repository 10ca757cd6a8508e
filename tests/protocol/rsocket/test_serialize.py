from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    MAX_FRAME,
    METADATA,
    MIN_MTU,
    NEXT,
    FrameType,
    LocalProtocolError,
    Reassembler,
    cancel_frame,
    error_frame,
    keepalive_frame,
    lease_frame,
    metadata_push_frame,
    parse_frame,
    payload_frames,
    request_frames,
    request_n_frame,
)
from tests.support.rsocket_core import frames_in

KINDS = (
    FrameType.REQUEST_RESPONSE,
    FrameType.REQUEST_FNF,
    FrameType.REQUEST_STREAM,
    FrameType.REQUEST_CHANNEL,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (request_n_frame(1, 2), "00000a 00000001 2000 00000002"),
        (cancel_frame(0x7FFFFFFF), "000006 7fffffff 2400"),
        (error_frame(1, 0x202, "no"), "00000c 00000001 2c00 00000202 6e6f"),
        (keepalive_frame(b"p", respond=True), "00000f 00000000 0c80 0000000000000000 70"),
        (keepalive_frame(respond=False, position=5), "00000e 00000000 0c00 0000000000000005"),
        (metadata_push_frame(b""), "000006 00000000 3100"),
        (metadata_push_frame(b"m"), "000007 00000000 3100 6d"),
        (lease_frame(1, 2), "00000e 00000000 0800 00000001 00000002"),
        (lease_frame(1, 2, b""), "00000e 00000000 0900 00000001 00000002"),
        (lease_frame(1, 2, b"m"), "00000f 00000000 0900 00000001 00000002 6d"),
    ],
)
def test_the_bytes_of_a_frame(data: bytes, expected: str) -> None:
    assert data == bytes.fromhex(expected)


def test_metadata_that_is_empty_is_not_metadata_that_is_absent() -> None:
    assert list(payload_frames(1)) == [bytes.fromhex("000006 00000001 2820")]
    assert list(payload_frames(1, b"", b"")) == [bytes.fromhex("000009 00000001 2920 000000")]
    assert list(payload_frames(1, next=False, complete=True)) == [
        bytes.fromhex("000006 00000001 2840")
    ]


def test_a_request_in_one_frame() -> None:
    (data,) = request_frames(
        FrameType.REQUEST_CHANNEL, 3, b"d", b"m", initial_n=9, complete=True, mtu=64
    )
    assert data == bytes.fromhex("00000f 00000003 1d40 00000009 000001 6d 64")
    # C means nothing in other requests.
    (data,) = request_frames(FrameType.REQUEST_RESPONSE, 3, b"", complete=True)
    assert parse_frame(data).flags == 0


@settings(deadline=None)
@given(
    kind=st.sampled_from((*KINDS, FrameType.PAYLOAD)),
    data=st.binary(max_size=400),
    metadata=st.none() | st.binary(max_size=400),
    complete=st.booleans(),
    mtu=st.integers(MIN_MTU, 200),
)
def test_fragments_join_to_what_was_split(
    kind: FrameType, data: bytes, metadata: bytes | None, complete: bool, mtu: int
) -> None:
    if kind is FrameType.PAYLOAD:
        made = list(payload_frames(7, data, metadata, complete=complete, mtu=mtu))
    else:
        made = list(request_frames(kind, 7, data, metadata, complete=complete, mtu=mtu))
    frames = [parse_frame(one) for one in made]
    assert all(len(frame.raw) <= mtu for frame in frames)
    assert [frame.type for frame in frames] == [kind] + [FrameType.PAYLOAD] * (len(frames) - 1)
    assert all(frame.flags & FOLLOWS for frame in frames[:-1])
    assert not any(frame.flags & COMPLETE for frame in frames[:-1])
    ends = complete and kind in (FrameType.PAYLOAD, FrameType.REQUEST_CHANNEL)
    assert bool(frames[-1].flags & COMPLETE) == ends
    assert all(frame.flags & NEXT for frame in frames[1:])
    # "the Metadata MUST be transmitted completely before the Data"
    states = [bool(frame.data) for frame in frames]
    assert all(not (states[at] and frame.flags & METADATA) for at, frame in enumerate(frames[1:]))
    whole = Reassembler(1000)
    assert [whole.add(frame) for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert (whole.data, whole.metadata) == (data, metadata)
    assert (whole.next, whole.ends) == (True, ends)


def test_what_one_frame_cannot_hold_is_refused_or_split() -> None:
    data = bytes(MAX_FRAME - 6)
    (frame,) = payload_frames(1, data)
    assert frame[:3] == b"\xff\xff\xff"
    for frames in (
        payload_frames(1, data + b"x"),
        payload_frames(1, data, b""),
        request_frames(FrameType.REQUEST_STREAM, 1, data),
    ):
        with pytest.raises(PayloadTooBig) as caught:
            next(frames)
        assert caught.value.limit == MAX_FRAME
    split = list(payload_frames(1, data + b"x", mtu=MAX_FRAME))
    assert [len(one) for one in split] == [MAX_FRAME + 3, 10]
    with pytest.raises(PayloadTooBig):
        metadata_push_frame(bytes(MAX_FRAME))


def test_an_mtu_below_the_least() -> None:
    with pytest.raises(LocalProtocolError, match="at least 64"):
        next(payload_frames(1, mtu=63))


def test_text_of_an_error_is_cut_at_a_character() -> None:
    (frame,) = frames_in(error_frame(1, 0x201, "x" + "é" * 40_000))
    assert frame.error_text == "x" + "é" * 32_767
    (frame,) = frames_in(error_frame(1, 0x201, "\udc80"))
    assert frame.error_text == "?"


@pytest.mark.parametrize("code", [0, -1, 0xFFFFFFFF, 1 << 40])
def test_an_error_code_that_does_not_exist(code: int) -> None:
    with pytest.raises(LocalProtocolError, match="an error code"):
        error_frame(1, code, "")
