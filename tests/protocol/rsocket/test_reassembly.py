from __future__ import annotations

import pytest

from onward.protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    METADATA,
    NEXT,
    ErrorCode,
    FrameType,
    Reassembler,
    ReassemblyLimit,
    RequestGatherer,
    parse_frame,
    request_frames,
)
from tests.support.rsocket_core import frames_in, raw, u24, u32


def test_a_payload_in_one_frame() -> None:
    whole = Reassembler(10)
    assert whole.add(parse_frame(raw(1, FrameType.PAYLOAD, NEXT | COMPLETE, b"data")))
    assert (whole.data, whole.metadata, whole.next, whole.ends) == (b"data", None, True, True)


def test_a_completion_is_no_element() -> None:
    whole = Reassembler(10)
    assert whole.add(parse_frame(raw(1, FrameType.PAYLOAD, COMPLETE)))
    assert (whole.next, whole.ends) == (False, True)


def test_fragments_without_next() -> None:
    # Some peers set N on none of the fragments, or on the first alone.
    whole = Reassembler(10)
    assert not whole.add(parse_frame(raw(1, FrameType.PAYLOAD, FOLLOWS | METADATA, u24(1) + b"m")))
    assert not whole.add(parse_frame(raw(1, FrameType.PAYLOAD, FOLLOWS | METADATA, u24(1) + b"n")))
    assert whole.add(parse_frame(raw(1, FrameType.PAYLOAD, 0, b"data")))
    assert (whole.data, whole.metadata, whole.next, whole.ends) == (b"data", b"mn", True, False)


def test_complete_wins_over_follows_in_a_payload_only() -> None:
    assert Reassembler(10).add(parse_frame(raw(1, FrameType.PAYLOAD, FOLLOWS | COMPLETE)))
    channel = raw(1, FrameType.REQUEST_CHANNEL, FOLLOWS | COMPLETE, u32(1))
    assert not Reassembler(10).add(parse_frame(channel))


def test_empty_metadata_is_metadata() -> None:
    whole = Reassembler(0)
    whole.add(parse_frame(raw(1, FrameType.REQUEST_FNF, METADATA, u24(0))))
    assert whole.metadata == b""


def test_the_limit_of_a_payload() -> None:
    whole = Reassembler(5)
    whole.add(parse_frame(raw(1, FrameType.PAYLOAD, FOLLOWS | METADATA, u24(1) + b"mdd")))
    with pytest.raises(ReassemblyLimit) as caught:
        whole.add(parse_frame(raw(1, FrameType.PAYLOAD, NEXT, b"xyz")))
    assert (caught.value.size, caught.value.limit) == (6, 5)
    assert (caught.value.stream_id, caught.value.code) == (1, ErrorCode.INVALID)
    assert (whole.data, whole.metadata) == (b"", None)


def test_a_request_is_gathered_until_its_metadata_is_complete() -> None:
    made = b"".join(
        request_frames(FrameType.REQUEST_STREAM, 5, b"d" * 100, b"m" * 150, initial_n=7, mtu=64)
    )
    frames = frames_in(made)
    gatherer = RequestGatherer(1000)
    answers = [gatherer.add(frame) for frame in frames]
    first = answers.index(True)
    assert all(answers[first:])
    assert gatherer.metadata == b"m" * 150
    assert frames[first].data
    assert not any(frame.data for frame in frames[:first])
    # All is there to be relayed as it came, and pins no chunk of input.
    assert b"".join(frame.buffer for frame in gatherer.frames) == made


@pytest.mark.parametrize(
    "last",
    [
        raw(1, FrameType.PAYLOAD, NEXT | FOLLOWS, b"data"),
        raw(1, FrameType.PAYLOAD, NEXT | FOLLOWS),
        raw(1, FrameType.PAYLOAD, NEXT | METADATA, u24(0)),
        raw(1, FrameType.PAYLOAD, NEXT | FOLLOWS | METADATA, u24(0) + b"d"),
    ],
    ids=["no metadata", "nothing", "last frame", "data begins"],
)
def test_what_says_that_the_metadata_is_complete(last: bytes) -> None:
    gatherer = RequestGatherer(100)
    first = raw(1, FrameType.REQUEST_RESPONSE, METADATA | FOLLOWS, u24(2) + b"mm")
    assert not gatherer.add(parse_frame(first))
    assert not gatherer.complete
    assert gatherer.add(parse_frame(last))
    assert gatherer.metadata == b"mm"


def test_a_request_without_metadata() -> None:
    gatherer = RequestGatherer(100)
    assert gatherer.add(parse_frame(raw(1, FrameType.REQUEST_RESPONSE, FOLLOWS, b"d")))
    assert gatherer.metadata is None


def test_a_request_with_empty_metadata() -> None:
    gatherer = RequestGatherer(100)
    assert gatherer.add(parse_frame(raw(1, FrameType.REQUEST_RESPONSE, METADATA, u24(0))))
    assert gatherer.metadata == b""


def test_a_request_at_its_limit() -> None:
    frames = [
        parse_frame(raw(1, FrameType.REQUEST_FNF, METADATA | FOLLOWS, u24(1) + b"m")),
        parse_frame(raw(1, FrameType.PAYLOAD, NEXT, b"12345")),
    ]
    whole = sum(frame.end - frame.start for frame in frames)
    gatherer = RequestGatherer(whole)
    assert [gatherer.add(frame) for frame in frames] == [False, True]
    gatherer = RequestGatherer(whole - 1)
    gatherer.add(frames[0])
    with pytest.raises(ReassemblyLimit):
        gatherer.add(frames[1])


def test_the_limit_of_a_request() -> None:
    gatherer = RequestGatherer(20)
    gatherer.add(parse_frame(raw(1, FrameType.REQUEST_FNF, METADATA | FOLLOWS, u24(1) + b"m")))
    with pytest.raises(ReassemblyLimit):
        gatherer.add(parse_frame(raw(1, FrameType.PAYLOAD, NEXT, b"12345")))
    assert gatherer.frames == []
    assert gatherer.metadata is None
