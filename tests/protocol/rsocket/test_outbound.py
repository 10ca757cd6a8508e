"""Sending: ids, requests, elements, relayed frames, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    IGNORE,
    MAX_FRAME,
    MAX_STREAM_ID,
    METADATA,
    NEXT,
    PIN_HEAD,
    Connection,
    ConnectionLimits,
    ErrorCode,
    FrameType,
    LocalProtocolError,
    Reassembler,
    Stream,
    TooManyStreams,
    error_frame,
    parse_frame,
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
    u24,
    u32,
)

# --- ids ----------------------------------------------------------------------------------


def test_ids_go_up_by_two() -> None:
    left, right = pair()
    kind = FrameType.REQUEST_RESPONSE
    assert [left.open(kind).id for _ in range(3)] == [1, 3, 5]
    assert [right.open(kind).id for _ in range(3)] == [2, 4, 6]


@pytest.mark.parametrize(("make", "first"), [(client, 1), (server, 2)])
def test_ids_start_again_past_those_in_use(make: Callable[[], Connection], first: int) -> None:
    connection = make()
    kind = FrameType.REQUEST_RESPONSE
    held = [connection.open(kind), connection.open(kind)]
    connection._next_id = MAX_STREAM_ID - 1 + first % 2
    last = connection.open(kind)
    assert last.id in (MAX_STREAM_ID, MAX_STREAM_ID - 1)
    assert connection.open(kind).id == first + 4
    connection.send_cancel(held[0])
    connection._next_id = last.id
    assert connection.open(kind).id == first
    assert last.id in connection.streams


def test_the_limit_of_streams() -> None:
    connection = client(ConnectionLimits(max_streams=2))
    first = connection.open(FrameType.REQUEST_RESPONSE)
    connection.open(FrameType.REQUEST_RESPONSE)
    with pytest.raises(TooManyStreams, match="2 live streams"):
        connection.open(FrameType.REQUEST_RESPONSE)
    connection.send_cancel(first)
    assert connection.open(FrameType.REQUEST_RESPONSE).id == 5


@pytest.mark.parametrize("kind", [0, FrameType.PAYLOAD, FrameType.SETUP, 0x2A])
def test_only_a_request_opens_a_stream(kind: int) -> None:
    with pytest.raises(LocalProtocolError, match="opens no stream"):
        client().open(kind)


# --- our own frames -----------------------------------------------------------------------


def test_a_request_is_sent_once() -> None:
    connection = client()
    stream = connection.open(FrameType.REQUEST_CHANNEL)
    for n in (0, -1, 1 << 31):
        with pytest.raises(LocalProtocolError, match="a request-n is 1"):
            connection.send_request(stream, b"", initial_n=n)
    assert connection.pending == 0
    connection.send_request(stream, b"d", b"", initial_n=3, complete=True)
    (frame,) = sent(connection)
    assert (frame.flags, frame.initial_request_n) == (METADATA | COMPLETE, 3)
    assert (metadata_of(frame), data_of(frame)) == (b"", b"d")
    assert stream.receive_credit == 3
    with pytest.raises(LocalProtocolError, match="REQUEST_CHANNEL is not legal on stream 1"):
        connection.send_request(stream, b"")
    with pytest.raises(LocalProtocolError, match="PAYLOAD is not legal"):
        connection.send_payload(stream, b"")


def test_a_fire_and_forget_is_over_once_sent() -> None:
    connection = client()
    stream = connection.open(FrameType.REQUEST_FNF)
    connection.send_request(stream, b"d")
    assert stream.closed
    assert connection.streams == {}
    with pytest.raises(LocalProtocolError, match="CANCEL is not legal on stream 1: closed"):
        connection.send_cancel(stream)


def test_elements_cost_credit() -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_STREAM, 1)
    right.send_payload(theirs, b"1")
    with pytest.raises(LocalProtocolError, match="no credit to send an element on stream 1"):
        right.send_payload(theirs, b"2")
    with pytest.raises(LocalProtocolError, match="no credit"):
        right.send_payload(theirs, complete=True)
    assert not theirs.closed
    right.send_payload(theirs, next=False, complete=True)
    assert [frame.flags for frame in sent(right)] == [NEXT, COMPLETE]
    assert theirs.closed


def test_a_payload_must_say_something() -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_STREAM, 5)
    for arguments in ({}, {"complete": True, "data": b"x"}, {"complete": True, "metadata": b""}):
        with pytest.raises(LocalProtocolError, match="without next"):
            right.send_payload(theirs, next=False, **arguments)  # type: ignore[arg-type]
    assert right.pending == 0


def test_fragments_of_our_own() -> None:
    limits = ConnectionLimits(mtu=64)
    left, right = pair(limits)
    for kind in (FrameType.REQUEST_RESPONSE, FrameType.REQUEST_FNF, FrameType.REQUEST_CHANNEL):
        stream = left.open(kind)
        left.send_request(stream, b"d" * 100, b"m" * 100)
        frames = carry(left, right)
        assert len(frames) > 2
        whole = Reassembler(200)
        assert [whole.add(frame) for frame in frames] == [False] * (len(frames) - 1) + [True]
        assert (whole.data, whole.metadata) == (b"d" * 100, b"m" * 100)
        if kind is FrameType.REQUEST_RESPONSE:
            right.send_payload(frames[0].stream, b"a" * 100, complete=True)
            answer = carry(right, left)
            assert len(answer) == 2
            assert stream.closed
    assert list(left.streams) == list(right.streams) == [5]


def test_a_fragmented_element_costs_one_credit() -> None:
    _, right = pair(ConnectionLimits(mtu=64))
    data = raw(1, FrameType.REQUEST_STREAM, 0, u32(1))
    (frame,) = frames_of(right.receive_data(data, 0.0))
    right.send_payload(frame.stream, bytes(300))
    assert frame.stream.send_credit == 0
    right.data_to_send()
    with pytest.raises(LocalProtocolError, match="no credit"):
        right.send_payload(frame.stream, bytes(300))
    assert right.pending == 0


def test_what_is_too_big_changes_nothing() -> None:
    connection = client()
    stream = connection.open(FrameType.REQUEST_RESPONSE)
    with pytest.raises(PayloadTooBig):
        connection.send_request(stream, bytes(MAX_FRAME - 5))
    assert connection.pending == 0
    connection.send_request(stream, b"smaller")
    assert connection.pending == 16


def test_request_n_of_our_own() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_STREAM)
    for n in (0, -5, MAX_N + 1):
        with pytest.raises(LocalProtocolError, match="a request-n"):
            left.send_request_n(ours, n)
    with pytest.raises(LocalProtocolError, match="REQUEST_N is not legal"):
        right.send_request_n(theirs, 1)


def test_errors_and_cancels_of_our_own() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_STREAM)
    with pytest.raises(LocalProtocolError, match="ERROR is not legal"):
        left.send_error(ours, ErrorCode.APPLICATION_ERROR)
    with pytest.raises(LocalProtocolError, match="CANCEL is not legal"):
        right.send_cancel(theirs)
    with pytest.raises(LocalProtocolError, match="an error code"):
        right.send_error(theirs, 0)
    assert not theirs.closed
    right.send_error(theirs, 0x301)
    assert theirs.closed
    assert right.streams == {}


def test_what_was_not_sent_is_just_forgotten() -> None:
    connection = client()
    for cancel in (True, False):
        stream = connection.open(FrameType.REQUEST_RESPONSE)
        if cancel:
            connection.send_cancel(stream)
        else:
            connection.terminate(stream, ErrorCode.CANCELED)
        assert stream.closed
        assert connection.streams == {}
    assert connection.pending == 0


@pytest.mark.parametrize(
    "kind", [FrameType.REQUEST_RESPONSE, FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL]
)
def test_terminating_from_either_side(kind: FrameType) -> None:
    left, right, ours, theirs = joined(kind)
    right.terminate(theirs, ErrorCode.CANCELED, "lost")
    (frame,) = carry(right, left)
    assert (frame.error_code, frame.error_text) == (ErrorCode.CANCELED, "lost")
    right.terminate(theirs, ErrorCode.CANCELED)
    left.terminate(ours, ErrorCode.CANCELED)
    assert right.pending == left.pending == 0
    left, right, ours, theirs = joined(kind)
    left.terminate(ours, ErrorCode.CANCELED, "not sent")
    assert [frame.type for frame in carry(left, right)] == [FrameType.CANCEL]
    assert theirs.closed


def test_terminating_a_fire_and_forget_says_nothing() -> None:
    connection = server()
    data = raw(1, FrameType.REQUEST_FNF, FOLLOWS)
    (frame,) = frames_of(connection.receive_data(data, 0.0))
    connection.terminate(frame.stream, ErrorCode.CANCELED)
    assert frame.stream.closed
    assert connection.streams == {}
    assert connection.pending == 0


def test_handing_over_the_buffer() -> None:
    connection = client()
    assert connection.data_to_send() == b""
    connection.send_metadata_push(b"m")
    assert connection.pending == 10
    first = connection.data_to_send()
    assert connection.pending == 0
    connection.send_metadata_push(b"n")
    assert first == bytes.fromhex("000007 00000000 3100 6d")
    with pytest.raises(PayloadTooBig):
        connection.send_metadata_push(bytes(MAX_FRAME))


# --- relayed frames -----------------------------------------------------------------------

REQUESTS = (
    raw(1, FrameType.REQUEST_RESPONSE, METADATA | 0x1F, u24(2) + b"mmdata"),
    raw(1, FrameType.REQUEST_RESPONSE, IGNORE),
    raw(1, FrameType.REQUEST_FNF, METADATA, u24(0)),
    raw(1, FrameType.REQUEST_FNF, FOLLOWS, b"part"),
    raw(1, FrameType.REQUEST_STREAM, 0, u32(MAX_N)),
    raw(1, FrameType.REQUEST_CHANNEL, COMPLETE | FOLLOWS, u32(7) + b"part"),
)


def relay_to(target: Connection, data: bytes) -> tuple[Stream, bytes]:
    """Relay a request to a fresh stream; return it and the bytes that went out."""
    source = server()
    (frame,) = frames_of(source.receive_data(data, 0.0))
    target.open(frame.type)
    target.open(frame.type)
    stream = target.open(frame.type)
    target.relay(stream, frame)
    return stream, bytes(target.data_to_send())


@pytest.mark.parametrize("data", REQUESTS)
def test_a_relayed_request_differs_in_its_id_only(data: bytes) -> None:
    stream, out = relay_to(server(), data)
    assert out == data[:3] + u32(6) + data[7:]
    n = parse_frame(data).initial_request_n if data[7] >> 2 in (6, 7) else 0
    assert stream.receive_credit == n
    assert stream.closed == (data == REQUESTS[2])


@pytest.mark.parametrize("data", REQUESTS[4:])
def test_a_relayed_request_with_another_credit(data: bytes) -> None:
    target = server()
    (frame,) = frames_of(server().receive_data(data, 0.0))
    stream = target.open(frame.type)
    for n in (0, 1 << 31):
        with pytest.raises(LocalProtocolError, match="a request-n"):
            target.relay_request(stream, frame, n)
    target.relay_request(stream, frame, 3)
    assert target.data_to_send() == data[:3] + u32(2) + data[7:9] + u32(3) + data[13:]
    assert stream.receive_credit == 3


def test_only_some_requests_have_a_credit_to_replace() -> None:
    target = server()
    (frame,) = frames_of(server().receive_data(REQUESTS[0], 0.0))
    with pytest.raises(LocalProtocolError, match="has no initial request-n"):
        target.relay_request(target.open(frame.type), frame, 3)


@pytest.mark.parametrize("kind", [FrameType.REQUEST_RESPONSE, FrameType.REQUEST_FNF])
@pytest.mark.parametrize("flags", [0, IGNORE | 0x1F])
@pytest.mark.parametrize("metadata", [b"", b"longer than before"])
def test_a_relayed_request_with_other_metadata(
    kind: FrameType, flags: int, metadata: bytes
) -> None:
    target = server()
    before = raw(1, kind, METADATA | flags, u24(2) + b"mmdata")
    (frame,) = frames_of(server().receive_data(before + raw(3, kind, 0), 0.0))[:1]
    target.open(kind)
    stream = target.open(kind)
    made = bytes(PIN_HEAD) + u24(len(metadata)) + metadata
    target.relay_pinned(stream, frame, frame.data_offset, made)
    wanted = raw(4, kind, METADATA | flags, u24(len(metadata)) + metadata + b"data")
    assert target.data_to_send() == wanted
    assert target.sent == 1
    assert stream.closed == (kind == FrameType.REQUEST_FNF)


def test_other_metadata_that_cannot_be_relayed() -> None:
    target = server()
    made = bytes(PIN_HEAD) + u24(1) + b"m"
    (frame,) = frames_of(server().receive_data(REQUESTS[4], 0.0))
    with pytest.raises(LocalProtocolError, match="has credit as well"):
        target.relay_pinned(target.open(frame.type), frame, frame.end, made)
    (frame,) = frames_of(server().receive_data(REQUESTS[0], 0.0))
    stream = target.open(frame.type)
    with pytest.raises(PayloadTooBig):
        target.relay_pinned(stream, frame, frame.data_offset, bytes(MAX_FRAME))
    target.relay_pinned(stream, frame, frame.data_offset, made)
    with pytest.raises(LocalProtocolError):
        target.relay_pinned(stream, frame, frame.data_offset, made)
    assert target.sent == 1


def test_later_frames_of_a_stream_are_relayed_both_ways() -> None:
    """Requester - broker - destination: two connections joined by their streams."""
    requester, front = pair()
    destination, back = pair()
    asking = requester.open(FrameType.REQUEST_CHANNEL)
    requester.send_request(asking, b"q", b"", initial_n=2)
    (frame,) = carry(requester, front)
    onward = back.open(frame.type)
    onward.peer, frame.stream.peer = frame.stream, onward
    back.relay(onward, frame)
    (frame,) = carry(back, destination)
    answering = frame.stream
    destination.send_request_n(answering, 4)
    destination.send_payload(answering, b"")
    for frame in carry(destination, back):
        front.relay(frame.stream.peer, frame)
    assert [frame.type for frame in carry(front, requester)] == [
        FrameType.REQUEST_N,
        FrameType.PAYLOAD,
    ]
    assert (asking.send_credit, asking.receive_credit) == (4, 1)
    requester.send_payload(asking, b"", b"", complete=True)
    requester.send_request_n(asking, 1)
    for frame in carry(requester, front):
        back.relay(frame.stream.peer, frame)
    assert [frame.flags for frame in carry(back, destination)] == [NEXT | COMPLETE | METADATA, 0]
    destination.send_error(answering, 0x301, "own")
    for frame in carry(destination, back):
        front.relay(frame.stream.peer, frame)
    (frame,) = carry(front, requester)
    assert (frame.error_code, frame.error_text) == (0x301, "own")
    assert not any(end.streams for end in (requester, front, back, destination))


def test_relaying_accounts_for_credit() -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_STREAM, 1)
    element = parse_frame(raw(9, FrameType.PAYLOAD, NEXT | 0x1, b"e"))
    right.relay(theirs, element)
    assert theirs.send_credit == 0
    with pytest.raises(LocalProtocolError, match="no credit"):
        right.relay(theirs, element)
    assert right.data_to_send() == raw(1, FrameType.PAYLOAD, NEXT | 0x1, b"e")
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 1)
    left.relay(ours, parse_frame(request_n_frame(9, MAX_N)))
    assert ours.receive_credit == MAX_N


@pytest.mark.parametrize("more", [b"", b"what no side reads"])
def test_what_follows_the_fixed_fields_is_not_relayed(more: bytes) -> None:
    left, _, ours, _ = joined(FrameType.REQUEST_STREAM, 1)
    left.relay(ours, parse_frame(raw(9, FrameType.REQUEST_N, 0, u32(4) + more)))
    left.relay(ours, parse_frame(raw(9, FrameType.CANCEL, 0, more)))
    assert left.data_to_send() == request_n_frame(1, 4) + raw(1, FrameType.CANCEL)
    assert ours.closed


@pytest.mark.parametrize(
    "data",
    [
        raw(1, FrameType.REQUEST_FNF),
        raw(1, FrameType.CANCEL),
        request_n_frame(1, 1),
        raw(0, FrameType.KEEPALIVE, 0, bytes(8)),
    ],
)
def test_a_relayed_frame_that_is_not_legal_changes_nothing(data: bytes) -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    before = theirs.state
    with pytest.raises(LocalProtocolError, match="is not legal on stream 1"):
        right.relay(theirs, parse_frame(data))
    assert theirs.state == before
    assert right.pending == 0
    assert right.streams == {1: theirs}


def test_relaying_to_a_stream_that_is_over() -> None:
    left, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    left.send_cancel(left.streams[1])
    carry(left, right)
    answer = parse_frame(raw(1, FrameType.PAYLOAD, NEXT | COMPLETE))
    with pytest.raises(LocalProtocolError, match="closed"):
        right.relay(theirs, answer)
    right.receive_eof()
    with pytest.raises(LocalProtocolError, match="closed"):
        right.relay(theirs, parse_frame(error_frame(1, 0x201, "")))
    assert right.pending == 0


def test_relaying_a_metadata_push() -> None:
    connection = client()
    push = raw(0, FrameType.METADATA_PUSH, METADATA | IGNORE | 0x1F, b"m")
    connection.relay_metadata_push(parse_frame(push))
    assert connection.data_to_send() == push
    connection.receive_eof()
    with pytest.raises(LocalProtocolError, match="METADATA_PUSH"):
        connection.relay_metadata_push(parse_frame(push))
