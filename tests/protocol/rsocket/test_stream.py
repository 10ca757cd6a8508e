from __future__ import annotations

from onward.protocol.rsocket import CONNECTION_STREAM, FrameType
from tests.support.rsocket_core import joined


def test_a_stream_says_where_it_is() -> None:
    _, _, ours, theirs = joined(FrameType.REQUEST_STREAM, 3)
    assert repr(ours) == (
        "<Stream 1 REQUEST_STREAM as requester: requester done, responder open; "
        "credit to send 0, to receive 3>"
    )
    assert (theirs.id, theirs.kind, theirs.requester) == (1, FrameType.REQUEST_STREAM, False)
    assert (theirs.send_credit, theirs.receive_credit) == (3, 0)
    assert not theirs.closed


def test_new_streams_have_nothing_attached() -> None:
    for stream in (*joined(FrameType.REQUEST_CHANNEL)[2:], CONNECTION_STREAM):
        assert stream.peer is None
        assert stream.reserve == 0


def test_the_connections_own_stream() -> None:
    assert CONNECTION_STREAM.id == 0
    assert CONNECTION_STREAM.closed
    assert "closed" in repr(CONNECTION_STREAM)
