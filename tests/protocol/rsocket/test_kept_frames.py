"""The frames that are kept to be sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from onward.protocol.rsocket import (
    BUFFER_COST,
    FrameType,
    KeptFrames,
    keepalive_frame,
    lease_frame,
    payload_frames,
    positions_in,
)
from tests.support.rsocket_core import raw

ALIVE = keepalive_frame(respond=True)


def since(kept: KeptFrames, position: int) -> list[bytes] | None:
    found = kept.since(position)
    return None if found is None else [bytes(each) for each in found]


def payload(stream_id: int, size: int) -> bytes:
    (frame,) = payload_frames(stream_id, bytes(size))
    return frame


def test_the_length_prefix_and_stream_0_have_no_position() -> None:
    frames = payload(1, 0) + ALIVE + payload(3, 10) + lease_frame(1, 1)
    assert positions_in(frames, 0, len(frames)) == 6 + 16
    assert positions_in(frames, 9, 9 + len(ALIVE)) == 0


def test_kept_is_the_buffer_itself() -> None:
    kept = KeptFrames(1000)
    written = bytearray(payload(1, 5) + payload(1, 6))
    kept.add(written)
    assert (kept.since(0) or [memoryview(b"")])[0].obj is written
    assert (kept.first, kept.end, kept.size) == (0, 23, len(written) + BUFFER_COST)
    assert since(kept, 11) == [payload(1, 6)]
    assert kept.since(23) == []


def test_frames_of_the_connection_are_left_out() -> None:
    kept = KeptFrames(1000)
    kept.add(payload(1, 1) + ALIVE + payload(1, 2) + payload(1, 3) + ALIVE)
    kept.add(ALIVE)
    kept.add(payload(1, 4))
    wanted = [payload(1, 1), payload(1, 2) + payload(1, 3), payload(1, 4)]
    assert since(kept, 0) == wanted
    assert since(kept, 7) == wanted[1:]
    assert since(kept, 15) == [payload(1, 3), payload(1, 4)]


def test_positions_within_a_frame() -> None:
    kept = KeptFrames(1000)
    kept.add(payload(1, 0))
    kept.add(ALIVE + payload(1, 4))
    borders = [position for position in range(20) if kept.since(position) is not None]
    assert borders == [0, 6, 16]


def test_trimmed_are_whole_buffers() -> None:
    kept = KeptFrames(10_000)
    kept.add(payload(1, 0) + payload(1, 0))
    kept.add(payload(1, 0))
    for position, first in ((6, 0), (11, 0), (12, 12), (17, 12), (18, 18), (99, 18)):
        kept.trim(position)
        assert kept.first == first
    assert (kept.size, kept.end, kept.drops) == (0, 18, 0)


def test_over_the_limit_the_oldest_are_dropped() -> None:
    kept = KeptFrames(2 * (9 + BUFFER_COST))
    for _ in range(2):
        kept.add(payload(1, 0))
    assert (kept.first, kept.drops) == (0, 0)
    kept.add(payload(1, 0))
    assert (kept.first, kept.end, kept.drops) == (6, 18, 1)
    assert kept.since(0) is None
    assert len(kept.since(6) or ()) == 2


def test_a_buffer_over_the_limit_leaves_nothing() -> None:
    kept = KeptFrames(200)
    kept.add(payload(1, 0))
    kept.add(payload(1, 100))
    assert (kept.first, kept.end, kept.size, kept.drops) == (112, 112, 0, 1)
    assert kept.since(112) == []


def test_all_can_be_dropped() -> None:
    kept = KeptFrames(1000)
    kept.drop_to(0)
    assert kept.drops == 0
    kept.add(payload(1, 0))
    kept.drop_to(0)
    assert (kept.first, kept.size, kept.drops) == (6, 0, 1)


@given(
    lists(
        lists(tuples(integers(0, 2), integers(0, 20)), min_size=1, max_size=4),
        min_size=1,
        max_size=6,
    ),
    integers(0, 200),
    sampled_from([300, 500, 1000]),
)
def test_what_is_kept_is_a_suffix(
    chunks: list[list[tuple[int, int]]], received: int, limit: int
) -> None:
    """From each border that is kept on, the very frames that were sent are returned."""
    kept = KeptFrames(limit)
    sent: list[tuple[int, bytes]] = []  # the position before each frame, and the frame
    position = 0
    for chunk in chunks:
        buffer = bytearray()
        for stream_id, size in chunk:
            frame = raw(stream_id, FrameType.PAYLOAD, body=bytes(size))
            buffer += frame
            if stream_id:
                sent.append((position, frame))
                position += len(frame) - 3
        kept.add(buffer)
        assert kept.size <= limit
    kept.trim(received)
    assert kept.end == position
    assert kept.first <= max(received, position)
    borders = {at for at, _ in sent} | {position}
    for at in range(position + 2):
        found = kept.since(at)
        if at < kept.first or at not in borders:
            assert found is None
        else:
            assert b"".join(found or ()) == b"".join(frame for begin, frame in sent if begin >= at)
