from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from onward.protocol import (
    Address,
    AddressError,
    BadPreamble,
    Context,
    FrameTooBig,
    LinkDown,
    MalformedMessage,
    Message,
    PayloadNotBytes,
    PayloadTooBig,
    RouteTooLong,
    route,
)
from onward.protocol.ockam import (
    HEARTBEAT,
    MAX_FRAME,
    PREAMBLE,
    WireConnection,
    WireLimits,
    encode_message,
)

HELLO = Message(route("echoer"), route("app"), b"\x05hello")
HELLO_FRAME = bytes.fromhex("0000001a 84 81 8200466563686f6572 81 820043617070 46 0568656c6c6f f6")


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def greeted(limits: WireLimits | None = None) -> WireConnection:
    wire = WireConnection(limits) if limits else WireConnection()
    assert wire.receive_data(PREAMBLE) == []
    assert wire.data_to_send() == PREAMBLE
    return wire


def test_the_preamble_is_the_first_thing_sent_and_is_sent_once() -> None:
    wire = WireConnection()
    assert wire.send(HELLO) == len(HELLO_FRAME)
    assert wire.data_to_send() == PREAMBLE + HELLO_FRAME
    wire.send(HELLO)
    assert wire.data_to_send() == HELLO_FRAME
    assert wire.data_to_send() == b""
    assert wire.sent == 2


def test_a_tracing_context_is_sent_and_received() -> None:
    ours, theirs = WireConnection(), WireConnection()
    traced = HELLO._replace(context=Context(trace="{}"))
    ours.send(traced)
    local = HELLO._replace(context=Context(deadline=1.0, meta=object()))
    ours.send(local)
    assert theirs.receive_data(ours.data_to_send()) == [traced, HELLO]


STREAM = PREAMBLE + HELLO_FRAME + frame(encode_message(HEARTBEAT)) + HELLO_FRAME * 2


def test_a_stream_whole() -> None:
    wire = WireConnection()
    assert wire.receive_data(STREAM) == [HELLO] * 3
    assert (wire.received, wire.heartbeats, wire.greeted) == (3, 1, True)
    wire.receive_eof()
    assert wire.closed
    assert wire.error is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 29, 31, 50])
def test_a_stream_in_pieces(size: int) -> None:
    wire = WireConnection()
    messages: list[Message] = []
    for start in range(0, len(STREAM), size):
        messages += wire.receive_data(STREAM[start : start + size])
    assert messages == [HELLO] * 3
    assert (wire.received, wire.heartbeats) == (3, 1)
    wire.receive_eof()
    assert wire.error is None


def test_messages_of_any_shape_with_the_same_routes() -> None:
    own = route("link")[0]
    ours, theirs = WireConnection(), WireConnection(own=own)
    payloads = [b"", b"x" * 23, b"x" * 24, b"x" * 255, b"x" * 256, b"x" * 70_000, b"\xf6"]
    contexts = [None, Context(trace="t")]
    sent = [HELLO._replace(payload=each, context=c) for each in payloads for c in contexts]
    for message in sent:
        ours.send(message)
    traced = [each._replace(return_route=(own, *each.return_route), source=own) for each in sent]
    assert theirs.receive_data(ours.data_to_send()) == traced


def test_messages_of_which_one_route_or_both_are_those_of_the_one_before() -> None:
    own = route("link")[0]
    ours, theirs = WireConnection(), WireConnection(own=own)
    onwards = route("a"), route("a => b"), route("a => c"), route("d => c")
    backs = (), route("x"), route("x => y"), route("x => z")
    pairs = [(onward, back) for onward in onwards for back in backs]
    pairs += [(onward, back) for back in backs for onward in onwards]
    sent = [Message(onward, back, b"1") for onward, back in pairs]
    frames = PREAMBLE
    for message in sent:
        ours.send(message)
        with pytest.raises(AddressError):
            ours.send(message._replace(onward_route=(Address(0, b""),)))
        with pytest.raises(AddressError):
            ours.send(
                message._replace(onward_route=route("e => f"), return_route=(own, Address(0, b"")))
            )
        frames += frame(encode_message(message))
    data = ours.data_to_send()
    assert data == frames
    traced = [each._replace(return_route=(own, *each.return_route), source=own) for each in sent]
    assert theirs.receive_data(data) == traced


@pytest.mark.parametrize("trailing", [b"\x00", b"\xf6", b"\xf6\xf6"])
def test_bytes_behind_a_message_in_its_frame_are_ignored(trailing: bytes) -> None:
    body = encode_message(HELLO)
    wire = greeted()
    assert wire.receive_data(frame(body) + frame(body + trailing) * 2) == [HELLO] * 3


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_cut_message_with_the_routes_of_the_one_before(cut: int) -> None:
    body = encode_message(HELLO)
    wire = greeted()
    assert wire.receive_data(HELLO_FRAME + frame(body[:-cut]) + HELLO_FRAME) == [HELLO]
    assert isinstance(wire.error, MalformedMessage)


@pytest.mark.parametrize("cut", range(len(HELLO_FRAME) - 4))
def test_a_cut_message_takes_nothing_of_the_frame_behind_it(cut: int) -> None:
    body = HELLO_FRAME[4:]
    wire = greeted()
    assert wire.receive_data(frame(body[:cut]) + body[cut:] + HELLO_FRAME) == []
    assert isinstance(wire.error, MalformedMessage)


@pytest.mark.parametrize("header", [b"\x58", b"\x59", b"\x59\x00", b"\x5a", b"\x5a\x00"])
def test_a_length_cut_off_at_the_end_of_what_was_read(header: bytes) -> None:
    # With the routes of the message before, whose bytes need not be read again.
    routes = HELLO_FRAME[4:-8]
    wire = greeted()
    assert wire.receive_data(HELLO_FRAME + frame(routes + header)) == [HELLO]
    assert isinstance(wire.error, MalformedMessage)


def test_nothing_is_data_too() -> None:
    wire = WireConnection()
    assert wire.receive_data(b"") == []
    assert not wire.greeted
    wire.receive_eof()
    assert wire.closed
    assert wire.error is None


@pytest.mark.parametrize("value", [0x00, 0x02, 0x16, 0xFF])
def test_another_preamble_closes(value: int) -> None:
    wire = WireConnection()
    assert wire.receive_data(bytes([value]) + HELLO_FRAME) == []
    assert wire.closed
    assert isinstance(wire.error, BadPreamble)
    assert wire.error.value == value


def test_the_largest_length_is_taken_and_one_more_is_not() -> None:
    # Vector a13.
    wire = greeted()
    assert wire.receive_data(bytes.fromhex("01000000")) == []
    assert not wire.closed
    wire = greeted()
    assert wire.receive_data(bytes.fromhex("01000001")) == []
    assert isinstance(wire.error, FrameTooBig)
    assert (wire.error.size, wire.error.limit) == (MAX_FRAME + 1, MAX_FRAME)


def test_a_frame_of_the_largest_size_crosses() -> None:
    room = MAX_FRAME - len(encode_message(HELLO._replace(payload=bytes(70_000)))) + 70_000
    biggest = HELLO._replace(payload=bytes(room))
    ours, theirs = greeted(), greeted()
    ours.send(biggest)
    data = ours.data_to_send()
    assert data[:4] == bytes.fromhex("01000000")
    messages: list[Message] = []
    for start in range(0, len(data), 1 << 18):
        messages += theirs.receive_data(data[start : start + (1 << 18)])
    assert messages == [biggest]


def test_an_announced_length_allocates_nothing() -> None:
    wire = greeted()
    tracemalloc.start()
    try:
        wire.receive_data(bytes.fromhex("00ffffff 84"))
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_what_came_before_an_error_is_given_out_and_nothing_after() -> None:
    wire = greeted()
    assert wire.receive_data(HELLO_FRAME + frame(b"\x00") + HELLO_FRAME) == [HELLO]
    assert isinstance(wire.error, MalformedMessage)
    assert wire.receive_data(HELLO_FRAME) == []
    wire.receive_eof()
    assert isinstance(wire.error, MalformedMessage)
    assert wire.received == 1


def test_a_frame_of_no_bytes_is_malformed() -> None:
    wire = greeted()
    assert wire.receive_data(bytes(4)) == []
    assert isinstance(wire.error, MalformedMessage)


@pytest.mark.parametrize("end", range(1, len(HELLO_FRAME)))
def test_a_stream_that_ends_inside_a_frame(end: int) -> None:
    wire = greeted()
    assert wire.receive_data(HELLO_FRAME[:end]) == []
    wire.receive_eof()
    assert wire.closed
    assert isinstance(wire.error, MalformedMessage)
    assert str(wire.error) == "malformed message: the stream ended inside a frame"


def test_a_message_over_the_limit_is_refused_before_anything_is_taken() -> None:
    wire = greeted(WireLimits(max_frame=100))
    overhead = len(encode_message(HELLO)) - 6 + 1  # the length takes two bytes
    wire.send(HELLO._replace(payload=bytes(100 - overhead)))
    assert wire.data_to_send()[:4] == bytes.fromhex("00000064")
    with pytest.raises(PayloadTooBig) as caught:
        wire.send(HELLO._replace(payload=bytes(100 - overhead + 1)))
    assert (caught.value.size, caught.value.limit) == (100 - overhead + 1, 100 - overhead)
    assert wire.data_to_send() == b""
    assert wire.sent == 1


def test_routes_that_leave_no_room_for_a_payload() -> None:
    wire = greeted(WireLimits(max_frame=10))
    with pytest.raises(PayloadTooBig) as caught:
        wire.send(HELLO)
    assert caught.value.limit == 0


def test_a_frame_over_a_lower_limit_is_refused_too() -> None:
    wire = greeted(WireLimits(max_frame=25))
    assert wire.receive_data(HELLO_FRAME) == []
    assert isinstance(wire.error, FrameTooBig)


def test_routes_that_cannot_be_written_leave_the_connection_open() -> None:
    wire = greeted()
    with pytest.raises(RouteTooLong):
        wire.send(HELLO._replace(return_route=route("a") * 65))
    with pytest.raises(AddressError):
        wire.send(HELLO._replace(return_route=(route("a")[0]._replace(value=b""),)))
    assert wire.data_to_send() == b""
    assert not wire.closed


def test_a_closed_connection_takes_no_message_and_keeps_what_it_took() -> None:
    wire = greeted()
    wire.send(HELLO)
    wire.close()
    with pytest.raises(LinkDown):
        wire.send(HELLO)
    assert wire.data_to_send() == HELLO_FRAME


@pytest.mark.parametrize("limit", [0, -1, MAX_FRAME + 1])
def test_a_limit_the_wire_cannot_keep(limit: int) -> None:
    with pytest.raises(ValueError, match="max_frame"):
        WireLimits(max_frame=limit)


@pytest.mark.parametrize("wrong", ["text", bytearray(b"x"), memoryview(b"x"), None])
def test_a_payload_that_is_not_bytes_is_refused_and_nothing_is_taken(wrong: Any) -> None:
    connection = WireConnection()
    connection.data_to_send()
    message = HELLO._replace(payload=wrong)
    with pytest.raises(PayloadNotBytes, match="bytes, not"):
        connection.send(message)
    with pytest.raises(PayloadNotBytes, match="bytes, not"):
        encode_message(message)
    assert not connection.data_to_send()
    connection.send(HELLO)
    assert connection.data_to_send() == HELLO_FRAME
