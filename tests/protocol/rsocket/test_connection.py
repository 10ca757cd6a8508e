"""Receiving on streams: requests, elements, credit, fragments, what is ignored."""

from __future__ import annotations

import pytest

from onward.protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    IGNORE,
    METADATA,
    NEXT,
    Closed,
    Connection,
    ConnectionLimits,
    CreditExceeded,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    InvalidRequestN,
    MalformedFrame,
    Role,
    Setup,
    StreamFailed,
    error_frame,
    request_n_frame,
)
from tests.support.rsocket_core import (
    MAX_N,
    carry,
    client,
    data_of,
    frames_of,
    joined,
    metadata_of,
    pair,
    raw,
    sent,
    server,
    transfer,
    u24,
    u32,
)

KINDS = (
    FrameType.REQUEST_RESPONSE,
    FrameType.REQUEST_FNF,
    FrameType.REQUEST_STREAM,
    FrameType.REQUEST_CHANNEL,
)
WITH_N = (FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL)


def request(stream_id: int, kind: int, flags: int = 0, n: int = 1, body: bytes = b"") -> bytes:
    return raw(stream_id, kind, flags, (u32(n) if kind in WITH_N else b"") + body)


# --- requests -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_opens_a_stream(kind: FrameType) -> None:
    connection = server()
    data = request(1, kind, METADATA, 7, u24(1) + b"mdata")
    (frame,) = frames_of(connection.receive_data(data, 0.0))
    stream = frame.stream
    assert (stream.id, stream.kind, stream.requester) == (1, kind, False)
    assert (metadata_of(frame), data_of(frame)) == (b"m", b"data")
    assert stream.send_credit == (7 if kind in WITH_N else 0)
    # "Upon reception, the stream is terminated by the Responder."
    assert stream.closed == (kind is FrameType.REQUEST_FNF)
    assert connection.streams == ({} if stream.closed else {1: stream})


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_in_fragments_is_handed_out_as_it_comes(kind: FrameType) -> None:
    connection = server()
    data = request(1, kind, FOLLOWS, 7, b"a")
    data += raw(1, FrameType.PAYLOAD, NEXT | FOLLOWS, b"b") + raw(1, FrameType.PAYLOAD, NEXT, b"c")
    frames = frames_of(connection.receive_data(data, 0.0))
    assert [data_of(frame) for frame in frames] == [b"a", b"b", b"c"]
    assert len({frame.stream for frame in frames}) == 1
    assert frames[0].stream.closed == (kind is FrameType.REQUEST_FNF)
    # Fragments cost no credit: they are one request.
    assert frames[0].stream.receive_credit == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_cancelled_between_its_fragments(kind: FrameType) -> None:
    connection = server()
    data = request(1, kind, FOLLOWS, 7) + raw(1, FrameType.CANCEL) + raw(1, FrameType.PAYLOAD, NEXT)
    frames = frames_of(connection.receive_data(data, 0.0))
    assert [frame.type for frame in frames] == [kind, FrameType.CANCEL]
    assert frames[0].stream.closed
    assert connection.streams == {}
    assert connection.counters == {"unknown_stream": 1}


def test_a_server_is_sent_odd_ids_and_a_client_even_ones() -> None:
    for connection, wrong in ((server(), 2), (client(), 1)):
        assert connection.receive_data(request(wrong, FrameType.REQUEST_RESPONSE), 0.0) == []
        assert connection.counters == {"request_id_not_the_peers": 1}
        assert connection.receive_data(request(0, FrameType.REQUEST_RESPONSE), 0.0) == []
        assert connection.counters["request_on_stream_0"] == 1
        assert connection.pending == 0
        assert connection.streams == {}


def test_an_id_in_use_is_ignored_and_one_that_is_over_is_not() -> None:
    connection = server()
    data = request(1, FrameType.REQUEST_RESPONSE)
    (first,) = frames_of(connection.receive_data(data, 0.0))
    assert connection.receive_data(data, 0.0) == []
    assert connection.counters == {"stream_id_in_use": 1}
    assert connection.streams == {1: first.stream}
    assert connection.pending == 0
    connection.send_payload(first.stream, complete=True)
    # "A Responder MUST assume Stream IDs will be re-used."
    (second,) = frames_of(connection.receive_data(data, 0.0))
    assert second.stream is not first.stream


def test_an_even_id_of_our_own_is_in_use_too() -> None:
    _, right = pair()
    stream = right.open(FrameType.REQUEST_STREAM)
    assert right.receive_data(request(stream.id, FrameType.REQUEST_FNF), 0.0) == []
    assert right.counters == {"stream_id_in_use": 1}


def test_the_limit_of_streams() -> None:
    connection = server(ConnectionLimits(max_streams=1))
    data = request(1, FrameType.REQUEST_RESPONSE) + request(3, FrameType.REQUEST_RESPONSE)
    (first,) = frames_of(connection.receive_data(data, 0.0))
    (refusal,) = sent(connection)
    assert (refusal.stream_id, refusal.error_code) == (3, ErrorCode.REJECTED)
    assert refusal.error_text == "1 stream open already"
    # What follows of it is for a stream that never was.
    assert connection.receive_data(raw(3, FrameType.PAYLOAD, NEXT), 0.0) == []
    # Nothing answers a fire-and-forget.
    assert connection.receive_data(request(5, FrameType.REQUEST_FNF), 0.0) == []
    assert connection.pending == 0
    assert connection.counters == {"request_refused": 2, "unknown_stream": 1}
    connection.send_payload(first.stream, complete=True)
    assert len(frames_of(connection.receive_data(request(5, FrameType.REQUEST_FNF), 0.0))) == 1


@pytest.mark.parametrize("kind", WITH_N)
@pytest.mark.parametrize("n", [0, 1 << 31, 0xFFFFFFFF])
def test_an_initial_request_n_that_is_not_positive(kind: FrameType, n: int) -> None:
    connection = server()
    assert connection.receive_data(request(1, kind, 0, n), 0.0) == []
    (refusal,) = sent(connection)
    assert (refusal.stream_id, refusal.error_code) == (1, ErrorCode.INVALID)
    assert connection.streams == {}
    assert connection.counters == {"request_refused": 1}


def test_flags_without_a_meaning_are_ignored_and_kept() -> None:
    connection = server()
    (frame,) = frames_of(connection.receive_data(request(1, FrameType.REQUEST_RESPONSE, 0x1F), 0))
    assert frame.flags == 0x1F
    (frame,) = frames_of(connection.receive_data(raw(1, FrameType.CANCEL, 0x3FF), 0.0))
    assert frame.flags == 0x3FF
    assert frame.stream.closed


@pytest.mark.parametrize(
    "data",
    [
        request(1, FrameType.REQUEST_RESPONSE, METADATA),
        request(1, FrameType.REQUEST_FNF, METADATA, body=u24(1)),
        request(1, FrameType.REQUEST_STREAM, METADATA, body=u24(4) + b"abc"),
        request(1, FrameType.REQUEST_CHANNEL, METADATA, body=b"\0\0"),
        raw(1, FrameType.REQUEST_STREAM, 0, bytes(3)),
        raw(1, FrameType.REQUEST_CHANNEL, METADATA, b""),
        raw(9, FrameType.PAYLOAD, METADATA | NEXT, u24(1)),
        raw(9, FrameType.PAYLOAD, METADATA | NEXT, b"\0"),
        raw(9, FrameType.REQUEST_N, 0, bytes(3)),
        raw(9, FrameType.ERROR, METADATA, bytes(3)),
    ],
)
def test_lengths_that_do_not_fit(data: bytes) -> None:
    def opened() -> Connection:
        made = server()
        made.receive_data(request(9, FrameType.REQUEST_CHANNEL), 0.0)
        made.send_request_n(made.streams[9], 5)
        made.data_to_send()
        return made

    connection = opened()
    (event,) = connection.receive_data(data, 0.0)
    assert isinstance(event, Closed)
    assert isinstance(event.error, MalformedFrame)
    assert [stream.id for stream in event.streams] == [9]
    assert connection.streams == {}
    (error,) = sent(connection)
    assert (error.stream_id, error.error_code) == (0, ErrorCode.CONNECTION_ERROR)
    # "… unless the frame's IGNORE flag is set."
    spared = bytearray(data)
    spared[7] |= IGNORE >> 8
    connection = opened()
    stream = connection.streams[9]
    before = stream.state, stream.receive_credit
    assert connection.receive_data(bytes(spared), 0.0) == []
    assert connection.counters == {"malformed_ignored": 1}
    assert (stream.state, stream.receive_credit) == before
    assert connection.streams == {9: stream}


def test_metadata_that_fits_exactly() -> None:
    connection = server()
    for stream_id, kind in enumerate(KINDS):
        data = request(2 * stream_id + 1, kind, METADATA, 1, u24(2) + b"mm")
        (frame,) = frames_of(connection.receive_data(data, 0.0))
        assert (metadata_of(frame), data_of(frame)) == (b"mm", b"")


# --- a conversation of each kind ----------------------------------------------------------


@pytest.mark.parametrize("flags", [0, NEXT, COMPLETE, NEXT | COMPLETE, NEXT | COMPLETE | FOLLOWS])
def test_any_payload_is_the_answer_of_a_request_response(flags: int) -> None:
    # "If a PAYLOAD for a REQUEST_RESPONSE is received that does not have a COMPLETE flag set,
    # the implementation MUST assume it is set."
    left, _, ours, _ = joined(FrameType.REQUEST_RESPONSE)
    (frame,) = frames_of(left.receive_data(raw(1, FrameType.PAYLOAD, flags), 0.0))
    assert frame.flags == flags
    assert ours.closed
    assert left.streams == {}


def test_an_answer_in_fragments() -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_RESPONSE)
    for flags, over in ((NEXT | FOLLOWS, False), (FOLLOWS, False), (0, True)):
        assert frames_of(left.receive_data(raw(1, FrameType.PAYLOAD, flags), 0.0))
        assert ours.closed == over


def test_a_stream_from_end_to_end() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_STREAM, 2)
    right.send_payload(theirs, b"1")
    right.send_payload(theirs)
    frames = carry(right, left)
    assert [data_of(frame) for frame in frames] == [b"1", b""]
    assert (theirs.send_credit, ours.receive_credit) == (0, 0)
    left.send_request_n(ours, 3)
    carry(left, right)
    assert (theirs.send_credit, ours.receive_credit) == (3, 3)
    right.send_payload(theirs, b"3", complete=True)
    carry(right, left)
    assert ours.closed
    assert theirs.closed
    assert left.streams == right.streams == {}


def test_a_channel_from_end_to_end() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_CHANNEL, 1)
    right.send_request_n(theirs, 1)
    carry(right, left)
    assert (ours.send_credit, theirs.receive_credit) == (1, 1)
    left.send_payload(ours, b"a", complete=True)
    carry(left, right)
    assert not ours.closed
    assert not theirs.closed
    # Request-n may cross a completion that is on its way.
    right.send_request_n(theirs, 1)
    right.send_payload(theirs, b"b")
    right.send_payload(theirs, next=False, complete=True)
    carry(right, left)
    assert ours.closed
    assert theirs.closed


def test_a_responder_stops_the_requester_of_a_channel() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_CHANNEL, 5)
    right.send_cancel(theirs)
    carry(right, left)
    assert not ours.closed
    right.send_payload(theirs, b"still")
    assert [data_of(frame) for frame in carry(right, left)] == [b"still"]
    left.send_cancel(ours)
    carry(left, right)
    assert theirs.closed


@pytest.mark.parametrize("kind", [k for k in KINDS if k is not FrameType.REQUEST_FNF])
def test_errors_end_a_stream_with_any_code(kind: FrameType) -> None:
    for code in (ErrorCode.APPLICATION_ERROR, 0x301, 0xFFFFFFFE):
        left, right, ours, theirs = joined(kind)
        right.send_error(theirs, code, "oh")
        (frame,) = carry(right, left)
        assert (frame.error_code, frame.error_text, frame.stream) == (code, "oh", ours)
        assert ours.closed
        assert theirs.closed


# --- credit -------------------------------------------------------------------------------


def test_a_responder_that_sends_more_than_was_requested() -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 1)
    element = raw(1, FrameType.PAYLOAD, NEXT)
    events = left.receive_data(element * 3, 0.0)
    assert [type(event) for event in events] == [Frame, StreamFailed]
    failed = events[1]
    assert isinstance(failed, StreamFailed)
    assert failed.stream is ours
    assert isinstance(failed.error, CreditExceeded)
    assert failed.error.stream_id == 1
    assert ours.closed
    assert left.streams == {}
    assert [frame.type for frame in sent(left)] == [FrameType.CANCEL]
    assert left.counters == {"stream_failed": 1, "unknown_stream": 1}


def test_a_requester_that_sends_more_than_was_requested() -> None:
    # "A requester MUST not send PAYLOAD frames after the REQUEST_CHANNEL frame until the
    # responder sends a REQUEST_N frame."
    _, right, _, theirs = joined(FrameType.REQUEST_CHANNEL)
    (event,) = right.receive_data(raw(1, FrameType.PAYLOAD, NEXT), 0.0)
    assert isinstance(event, StreamFailed)
    assert event.stream is theirs
    (error,) = sent(right)
    assert (error.stream_id, error.error_code) == (1, ErrorCode.INVALID)
    assert not right.streams


def test_what_costs_credit() -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 2)
    fragments = (NEXT | FOLLOWS, NEXT | FOLLOWS, NEXT)
    for flags, left_over in zip(fragments, (1, 1, 1), strict=True):
        assert frames_of(left.receive_data(raw(1, FrameType.PAYLOAD, flags), 0.0))
        assert ours.receive_credit == left_over
    assert frames_of(left.receive_data(raw(1, FrameType.PAYLOAD, FOLLOWS), 0.0))
    assert ours.receive_credit == 0
    assert frames_of(left.receive_data(raw(1, FrameType.PAYLOAD, COMPLETE), 0.0))
    assert ours.closed


def test_a_completion_needs_no_credit() -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 1)
    data = raw(1, FrameType.PAYLOAD, NEXT) + raw(1, FrameType.PAYLOAD, COMPLETE)
    assert len(frames_of(left.receive_data(data, 0.0))) == 2
    assert ours.closed


def test_credit_stays_at_the_most() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_STREAM, MAX_N)
    left.send_request_n(ours, 1)
    left.send_request_n(ours, MAX_N)
    carry(left, right)
    assert theirs.send_credit == ours.receive_credit == MAX_N


@pytest.mark.parametrize("n", [0, 1 << 31])
def test_a_request_n_that_is_not_positive(n: int) -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_CHANNEL)
    for connection, stream, answer in (
        (right, theirs, FrameType.ERROR),
        (left, ours, FrameType.CANCEL),
    ):
        (event,) = connection.receive_data(request_n_frame(1, n), 0.0)
        assert isinstance(event, StreamFailed)
        assert event.stream is stream
        assert isinstance(event.error, InvalidRequestN)
        assert event.error.code == ErrorCode.INVALID
        assert stream.closed
        assert [frame.type for frame in sent(connection)] == [answer]


# --- what is ignored ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        raw(5, FrameType.PAYLOAD, NEXT),
        raw(5, FrameType.CANCEL),
        request_n_frame(5, 1),
        error_frame(5, ErrorCode.APPLICATION_ERROR, ""),
        raw(5, FrameType.PAYLOAD, METADATA | NEXT, u24(9)),
    ],
)
def test_frames_for_streams_that_are_unknown(data: bytes) -> None:
    connection = server()
    assert connection.receive_data(data, 0.0) == []
    assert connection.counters == {"unknown_stream": 1}
    assert connection.pending == 0


def test_frames_that_make_no_sense_on_a_stream() -> None:
    left, right, _, _ = joined(FrameType.REQUEST_RESPONSE)
    for connection, data in (
        (right, raw(1, FrameType.PAYLOAD, NEXT)),
        (right, request_n_frame(1, 1)),
        (right, error_frame(1, ErrorCode.APPLICATION_ERROR, "")),
        (left, raw(1, FrameType.CANCEL)),
        (left, request_n_frame(1, 1)),
        (left, raw(1, FrameType.METADATA_PUSH, METADATA)),
    ):
        assert connection.receive_data(data, 0.0) == []
        assert len(connection.streams) == 1
    assert left.counters == right.counters == {"not_legal_on_stream": 3}


def test_an_element_that_says_nothing_is_ignored() -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 1)
    assert left.receive_data(raw(1, FrameType.PAYLOAD, 0, b"data"), 0.0) == []
    assert ours.receive_credit == 1
    assert left.counters == {"not_legal_on_stream": 1}


def test_a_requester_that_completed_a_channel_says_more() -> None:
    connection = server()
    connection.receive_data(request(1, FrameType.REQUEST_CHANNEL, COMPLETE), 0.0)
    assert connection.receive_data(raw(1, FrameType.PAYLOAD, NEXT), 0.0) == []
    assert connection.counters == {"not_legal_on_stream": 1}


# --- bytes --------------------------------------------------------------------------------

CONVERSATION = (
    Setup(data=b"d").serialize(),
    request(1, FrameType.REQUEST_RESPONSE, METADATA, 1, u24(1) + b"mdata"),
    request(3, FrameType.REQUEST_CHANNEL, FOLLOWS, 9, b"part"),
    raw(3, FrameType.PAYLOAD, NEXT, b"rest"),
    raw(3, FrameType.REQUEST_N, 0, u32(5)),
    raw(0, FrameType.KEEPALIVE, 0x080, bytes(8)),
    raw(0, FrameType.METADATA_PUSH, METADATA, b"m"),
    raw(3, FrameType.CANCEL),
    request(5, FrameType.REQUEST_FNF, 0, 1, bytes(1000)),
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 10, 100, 5000])
def test_any_chunks_give_the_same(size: int) -> None:
    data = b"".join(CONVERSATION)
    connection = Connection(Role.SERVER, now=0.0)
    events: list[Event] = []
    for at in range(0, len(data), size):
        events += connection.receive_data(data[at : at + size], 0.0)
    expected = [one[3:] for one in CONVERSATION if one[7] >> 2 != FrameType.KEEPALIVE]
    assert [bytes(frame.raw) for frame in frames_of(events)] == expected
    assert [frame.type for frame in sent(connection)] == [FrameType.KEEPALIVE]
    assert list(connection.streams) == [1]
    assert not connection.counters


def test_a_frame_cut_short_by_the_end() -> None:
    connection = server()
    assert connection.receive_data(CONVERSATION[1][:-1], 0.0) == []
    assert connection.receive_eof() == [Closed(None, ())]


def test_requests_of_a_server() -> None:
    left, right = pair()
    stream = right.open(FrameType.REQUEST_STREAM)
    right.send_request(stream, b"d", initial_n=4)
    (frame,) = carry(right, left)
    assert (frame.stream.id, frame.stream.requester) == (2, False)
    left.send_payload(frame.stream, b"e", complete=True)
    assert [type(event) for event in transfer(left, right)] == [Frame]
    assert stream.closed


def test_what_is_kept_of_an_unfinished_frame_and_since_when() -> None:
    made = server()
    assert made.unfinished == 0
    whole = raw(0, FrameType.KEEPALIVE, 0, bytes(20))
    assert made.receive_data(whole + whole[:2], 1.0) == []
    assert (made.unfinished, made.unfinished_since) == (2, 1.0)
    made.receive_data(whole[2:5], 2.0)
    made.receive_data(whole[5:-1], 3.0)
    assert (made.unfinished, made.unfinished_since) == (len(whole) - 1, 1.0)
    made.receive_data(whole[-1:] + whole[:1], 4.0)
    assert (made.unfinished, made.unfinished_since) == (1, 4.0)
    made.receive_data(whole[1:], 5.0)
    assert made.unfinished == 0
    made.receive_data(whole[:9], 6.0)
    assert (made.unfinished, made.unfinished_since) == (9, 6.0)
    made.receive_eof()
    assert made.unfinished == 0


def test_how_many_bytes_belong_to_the_frame_they_begin_in() -> None:
    made = server()
    whole = raw(0, FrameType.KEEPALIVE, 0, bytes(20))
    assert made.reach(whole) == made.reach(whole + whole) == made.reach(whole[:5]) == len(whole)
    # As far as is known: the length itself is yet to come.
    assert made.reach(whole[:2]) == 3
    made.receive_data(whole[:2], 0.0)
    assert made.reach(whole[2:]) == 1
    made.receive_data(whole[2:10], 0.0)
    assert made.reach(whole[10:]) == len(whole) - 10
    made.receive_data(whole[10:], 0.0)
    assert made.reach(whole) == len(whole)
