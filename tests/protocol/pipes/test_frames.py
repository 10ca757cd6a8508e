"""Frames of pipes: their bytes, and that nothing else is read as one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import Address, Context, EmptyRoute, Message, Route, RouteTooLong, route
from onward.protocol.pipes import (
    MAX_WINDOW,
    Abort,
    Confirm,
    End,
    Ended,
    Frame,
    Hello,
    Mode,
    OpenPipe,
    Ordering,
    PipeData,
    PipeFrameError,
    PipeFrameReader,
    PipeOpened,
    PipeRefusal,
    PipeRefused,
    Unknown,
    Welcome,
    decode_frame,
    encode_frame,
    frame_identity,
    message_size,
)
from onward.protocol.pipes._frames import RouteWriter

ID = bytes(range(16))
EPOCH = b"epoch!!!"
STRICT = Mode()
HEAD = ID.hex()
FRAMES: list[tuple[Frame, str]] = [
    (OpenPipe(ID, STRICT), f"01 01 {HEAD} 06"),
    (OpenPipe(ID, Mode(Ordering.NONE, False)), f"01 01 {HEAD} 00"),
    (PipeOpened(ID, EPOCH, 300, 5, 1000), f"01 02 {HEAD} {EPOCH.hex()} ac02 05 e807"),
    (PipeData(ID, EPOCH, STRICT, 3, 7, ()), f"01 03 {HEAD} {EPOCH.hex()} 06 03 07 00"),
    (
        PipeData(ID, EPOCH, STRICT, 1, 1, (Message(route("me"), route("me"), b"HI"),)),
        f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 0a 01 00 02 6d65 01 00 02 6d65 02 4849",
    ),
    (
        PipeData(
            ID, EPOCH, STRICT, 1, 1, (Message(route("me"), (), b"", None, Context(trace="é")),)
        ),
        f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 09 01 00 02 6d65 00 02 c3a9 00",
    ),
    (Confirm(ID, EPOCH, 5), f"01 04 {HEAD} {EPOCH.hex()} 05 00 00"),
    (
        Confirm(ID, EPOCH, 5, ((7, 8), (10, 10)), ((1, 1), (4, 5))),
        f"01 04 {HEAD} {EPOCH.hex()} 05 02 01 02 01 01 02 00 01 02 02",
    ),
    (End(ID, EPOCH, STRICT, 9), f"01 05 {HEAD} {EPOCH.hex()} 06 09"),
    (Ended(ID, EPOCH), f"01 06 {HEAD} {EPOCH.hex()}"),
    (Abort(ID, EPOCH), f"01 07 {HEAD} {EPOCH.hex()}"),
    (Unknown(ID, EPOCH), f"01 08 {HEAD} {EPOCH.hex()}"),
    (Hello(ID, 9), f"01 09 {HEAD} 09"),
    (Welcome(ID, 300), f"01 0a {HEAD} ac02"),
    (PipeRefused(ID, PipeRefusal.FULL), f"01 0b {HEAD} 01"),
    (PipeRefused(ID, PipeRefusal.PEER_FULL), f"01 0b {HEAD} 02"),
]


@pytest.mark.parametrize(("frame", "text"), FRAMES)
def test_a_frame_has_these_bytes(frame: Frame, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_frame(frame) == data
    assert decode_frame(data) == frame
    assert frame_identity(data) == ID


@pytest.mark.parametrize("frame", [frame for frame, _ in FRAMES])
def test_a_frame_that_is_cut_short_or_longer_is_refused(frame: Frame) -> None:
    data = encode_frame(frame)
    for size in range(len(data)):
        with pytest.raises(PipeFrameError):
            decode_frame(data[:size])
    with pytest.raises(PipeFrameError):
        decode_frame(data + b"\0")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"02 01 {HEAD} 06", "version 2, not 1"),
        (f"01 0c {HEAD}", "there is no kind 12"),
        (f"01 0b {HEAD} 03", "there is no reason 3"),
        (f"01 01 {HEAD} 03", "there is no mode 3"),
        (f"01 03 {HEAD} {EPOCH.hex()} 06 00 01 00", "messages from 1 on, of those from 0 on"),
        (f"01 03 {HEAD} {EPOCH.hex()} 06 02 01 00", "messages from 1 on, of those from 2 on"),
        (f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 05 00", "5 messages in 1 byte"),
        (
            f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 02 00 00 00 00 00 00",
            "a message without an onward route",
        ),
        (
            f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 05 41 00 00 00 00 00",
            "a route of 65 addresses, over 64",
        ),
        (f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 05 01 00 00 00 00 00", "an address of 0 bytes"),
        (f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 01 01 00 00 00 00 00", "it is cut short"),
        (
            f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 06 01 00 01 78 00 00 00",
            "a tracing text of 0 bytes",
        ),
        (
            f"01 03 {HEAD} {EPOCH.hex()} 06 01 01 01 07 01 00 01 78 00 01 ff 00",
            "a tracing text that is no UTF-8",
        ),
        (f"01 04 {HEAD} {EPOCH.hex()} 05 00 01 00 06", "what is not dealt with cannot"),
        (f"01 04 {HEAD} {EPOCH.hex()} 05 02 01 01 00 01 00", "ranges that touch, or are empty"),
        (f"01 04 {HEAD} {EPOCH.hex()} 05 01 01 00 00", "ranges that touch, or are empty"),
        (f"01 04 {HEAD} {EPOCH.hex()} 05 818004", "65537 ranges"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(PipeFrameError, match=f"^no frame of a pipe: {reason}"):
        decode_frame(bytes.fromhex(text))
    assert MAX_WINDOW == 65_536


def test_long_routes_and_payloads_have_longer_lengths() -> None:
    long = Address(1, b"h" * 300)
    messages = (
        Message((long, long), (long,), b"p" * 200),
        Message((long, long), (long,), b""),
        Message((long,), (), b"p" * 127),
    )
    frame = PipeData(ID, EPOCH, STRICT, 1, 1, messages)
    assert decode_frame(encode_frame(frame)) == frame


def test_what_is_read_has_the_source_and_the_trace_it_should() -> None:
    me, inner = Address(0, b"me"), Address(0, b"inner")
    reader = PipeFrameReader(me, inner)
    sent = Message(route("echo"), route("app"), b"hi")
    data = encode_frame(PipeData(ID, EPOCH, STRICT, 1, 1, (sent, sent)))
    read = reader.read(data)
    assert isinstance(read, PipeData)
    assert read.messages == (Message(route("echo"), (inner, *route("app")), b"hi", me),) * 2


def test_routes_are_remembered_as_far_as_they_may_be() -> None:
    writer, reader = RouteWriter(), PipeFrameReader()
    for number in range(600):
        to = (Address(0, b"%d" % number),)
        sent = Message(to, (), b"")
        assert writer.write(sent) == writer.write(sent)
        frame = PipeData(ID, EPOCH, STRICT, 1, 1, (sent,))
        assert reader.read(encode_frame(frame)) == frame
    assert len(writer._known) <= 256
    assert len(reader._known) <= 256


def test_long_routes_are_not_all_remembered() -> None:
    writer, reader = RouteWriter(), PipeFrameReader()
    for number in range(100):
        to = (Address(0, b"%03d" % number + b"x" * 1000),) * 10
        sent = Message(to, (), b"")
        writer.write(sent)
        reader.read(encode_frame(PipeData(ID, EPOCH, STRICT, 1, 1, (sent,))))
    assert sum(map(len, writer._known.values())) <= 256 * 1024
    assert sum(map(len, reader._known)) <= 256 * 1024
    assert 0 < len(reader._known) < 30


def test_a_tracing_text_that_is_too_long_is_left_out() -> None:
    def written(text: str) -> bytes:
        return RouteWriter().write(Message(route("me"), (), b"", None, Context(trace=text)))

    assert written("x" * 4097) == written("")
    assert len(written("x" * 4096)) > 4096


def test_routes_that_cannot_go_through_a_pipe_are_refused() -> None:
    a = Address(0, b"a")

    def write(onward: Route, back: Route, behind: int = 0) -> bytes:
        return RouteWriter().write(Message(onward, back, b""), behind)

    assert write((a, a), (), 1) == write((a,), ())
    with pytest.raises(EmptyRoute):
        write((a,), (), 1)
    with pytest.raises(RouteTooLong):
        write((a,) * 65, ())
    with pytest.raises(RouteTooLong):
        write((a,), (a,) * 64)
    write((a,) * 64, (a,) * 63)


def _traced(text: str) -> Context:
    return Context(trace=text)


addresses = st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=200))
routes = st.lists(addresses, max_size=4).map(tuple)
messages = st.builds(
    Message,
    st.lists(addresses, min_size=1, max_size=4).map(tuple),
    routes,
    st.binary(max_size=300),
    st.none(),
    st.none() | st.builds(_traced, st.text(min_size=1, max_size=200)),
)


@given(st.lists(messages, max_size=5).map(tuple), st.integers(1, 2**40))
def test_whatever_is_written_is_read(sent: tuple[Message, ...], first: int) -> None:
    frame = PipeData(ID, EPOCH, STRICT, 1, first, sent)
    read = decode_frame(encode_frame(frame))
    assert read == frame
    assert isinstance(read, PipeData)
    assert read.size == sum(map(message_size, sent))


@given(st.binary(max_size=80), st.integers(1, 11))
def test_any_bytes_are_a_frame_or_refused(data: bytes, kind: int) -> None:
    data = bytes((1, kind)) + ID + data
    try:
        frame = decode_frame(data)
    except PipeFrameError:
        return
    assert encode_frame(frame) == data
