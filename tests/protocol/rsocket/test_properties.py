"""What must hold whatever two peers do.

A random walk over everything a user can ask for, in any state, with all that was sent in
between carried over or not: each call either works or raises `LocalProtocolError` and changes
nothing; what one side was let to send the other takes; closed means forgotten. And random or
damaged bytes end in the documented events, never in another exception.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from onward.protocol.rsocket import (
    Closed,
    Connection,
    ConnectionLimits,
    ConnectionState,
    Frame,
    FrameType,
    LocalProtocolError,
    Role,
    RSocketError,
    Setup,
    Stream,
    StreamFailed,
    find_entry,
    iterate_composite,
    parse_frame,
    split_frames,
)
from tests.support.counts import times
from tests.support.rsocket_core import MAX_N, carry, pair, raw, u32

KINDS = st.sampled_from(
    (
        FrameType.REQUEST_RESPONSE,
        FrameType.REQUEST_FNF,
        FrameType.REQUEST_STREAM,
        FrameType.REQUEST_CHANNEL,
    )
)
SMALL = st.binary(max_size=150)
MAYBE = st.none() | SMALL
COUNTS = st.sampled_from((1, 2, 3, MAX_N))
SIDES = st.booleans()


class TwoPeers(RuleBasedStateMachine):
    """A client and a server that do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = pair(ConnectionLimits(mtu=64, max_streams=6))
        self.known: tuple[list[Stream], list[Stream]] = ([], [])

    def attempt(self, side: bool, action: Any, *arguments: Any, **named: Any) -> Any:
        """Do it, or have it refused with nothing changed."""
        end = self.ends[side]
        before = self.picture(end)
        try:
            return action(*arguments, **named)
        except LocalProtocolError:
            assert self.picture(end) == before
            return None

    @staticmethod
    def picture(end: Connection) -> object:
        streams = [
            (number, stream.state, stream.send_credit, stream.receive_credit)
            for number, stream in end.streams.items()
        ]
        return streams, end.pending, end.state

    @rule(side=SIDES, kind=KINDS)
    def open(self, side: bool, kind: FrameType) -> None:
        stream = self.attempt(side, self.ends[side].open, kind)
        if stream is not None:
            self.known[side].append(stream)

    @rule(side=SIDES, data=st.data(), payload=SMALL, metadata=MAYBE, n=COUNTS, end=SIDES)
    def request(
        self, side: bool, data: st.DataObject, payload: bytes, metadata: Any, n: int, end: bool
    ) -> None:
        if self.known[side]:
            stream = data.draw(st.sampled_from(self.known[side]))
            action = self.ends[side].send_request
            self.attempt(side, action, stream, payload, metadata, initial_n=n, complete=end)

    @rule(side=SIDES, data=st.data(), payload=SMALL, metadata=MAYBE, item=SIDES, end=SIDES)
    def payload(
        self, side: bool, data: st.DataObject, payload: bytes, metadata: Any, item: bool, end: bool
    ) -> None:
        if self.known[side]:
            stream = data.draw(st.sampled_from(self.known[side]))
            action = self.ends[side].send_payload
            self.attempt(side, action, stream, payload, metadata, next=item, complete=end)

    @rule(side=SIDES, data=st.data(), n=COUNTS)
    def control(self, side: bool, data: st.DataObject, n: int) -> None:
        if self.known[side]:
            end = self.ends[side]
            stream = data.draw(st.sampled_from(self.known[side]))
            action, arguments = data.draw(
                st.sampled_from(
                    (
                        (end.send_request_n, (stream, n)),
                        (end.send_cancel, (stream,)),
                        (end.send_error, (stream, 0x301, "text")),
                        (end.terminate, (stream, 0x203)),
                    )
                )
            )
            self.attempt(side, action, *arguments)

    @rule(side=SIDES)
    def carry(self, side: bool) -> None:
        """Carry what one end has sent to the other, which takes all of it that still fits."""
        source, target = self.ends[side], self.ends[not side]
        for frame in carry(source, target):
            if frame.stream not in self.known[not side]:
                assert frame.stream.id not in {s.id for s in self.known[not side] if not s.closed}
                self.known[not side].append(frame.stream)

    @precondition(lambda self: not any(end.pending for end in self.ends))
    @invariant()
    def agree(self) -> None:
        """With nothing on its way, both ends know the same streams, but those not sent yet."""
        left, right = (
            {number for number, stream in end.streams.items() if "not sent" not in repr(stream)}
            for end in self.ends
        )
        assert left == right

    @invariant()
    def closed_means_forgotten(self) -> None:
        for end, known in zip(self.ends, self.known, strict=True):
            assert end.state is ConnectionState.OPEN
            assert not any(stream.closed for stream in end.streams.values())
            assert all(number == stream.id for number, stream in end.streams.items())
            for stream in known:
                assert stream.closed == (end.streams.get(stream.id) is not stream)
                assert 0 <= stream.send_credit <= MAX_N
                assert 0 <= stream.receive_credit <= MAX_N

    @invariant()
    def nothing_of_an_honest_peer_is_malformed(self) -> None:
        # What crosses on its way, or is over a limit, may be ignored; no more than that.
        expected = {"unknown_stream", "not_legal_on_stream", "request_refused"}
        for end in self.ends:
            assert end.counters.keys() <= expected


TestTwoPeers = TwoPeers.TestCase
TestTwoPeers.settings = settings(max_examples=times(15, 60), stateful_step_count=40, deadline=None)


IDS = st.sampled_from((0, 1, 2, 3, 5, 7, 0x80000001, 2**31 - 1))
BODIES = st.binary(max_size=24) | COUNTS.map(u32) | st.just(b"\0\0\0")
FRAMES = st.builds(raw, IDS, st.integers(0, 15) | st.just(0x3F), st.integers(0, 0x3FF), BODIES)
CHUNKS = st.integers(1, 40)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Frames of all kinds, some bytes of them changed."""
    data = bytearray(b"".join(draw(st.lists(FRAMES, max_size=12))))
    if data:
        for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


@settings(deadline=None)
@given(
    data=damaged() | st.binary(max_size=200), size=CHUNKS, role=st.sampled_from(Role), open_=SIDES
)
def test_any_bytes_end_in_documented_events(
    data: bytes, size: int, role: Role, open_: bool
) -> None:
    limits = ConnectionLimits(max_frame=200, max_setup=300, max_streams=3)
    connection = Connection(role, limits, now=0.0)
    if role is Role.CLIENT:
        connection.send_setup(Setup())
        for kind in (FrameType.REQUEST_CHANNEL, FrameType.REQUEST_STREAM):
            connection.send_request(connection.open(kind), b"", initial_n=2)
    elif open_:
        connection.receive_data(Setup().serialize(), 0.0)
    live = dict(connection.streams)
    for at in range(0, len(data), size):
        closed_before = connection.closed
        for event in connection.receive_data(data[at : at + size], 0.0):
            assert not closed_before
            if isinstance(event, Frame):
                live[event.stream.id] = event.stream
                assert event.metadata is None or len(event.metadata) <= len(event.raw)
                assert event.data is None or len(event.data) <= len(event.raw)
            elif isinstance(event, StreamFailed):
                assert event.stream.closed
            else:
                assert isinstance(event, Closed)
                assert connection.closed
                assert all(stream.closed for stream in event.streams)
        assert len(connection.streams) <= 3
        assert not any(stream.closed for stream in connection.streams.values())
    if connection.closed:
        assert not connection.streams
        assert all(stream.closed for stream in live.values())
    # Whatever was said in answer is well-formed.
    frames, rest = split_frames(b"", bytes(connection.data_to_send()))
    assert rest == b""
    assert all(parse_frame(frame.detached().buffer) for frame in frames)


@settings(deadline=None)
@given(data=damaged(), sizes=st.tuples(CHUNKS, CHUNKS))
def test_chunks_make_no_difference(data: bytes, sizes: tuple[int, int]) -> None:
    results: list[object] = []
    for size in (*sizes, len(data) or 1):
        connection = Connection(Role.SERVER, now=0.0)
        connection.receive_data(Setup().serialize(), 0.0)
        seen: list[object] = []
        for at in range(0, len(data), size):
            seen += [
                bytes(event.raw) if isinstance(event, Frame) else type(event)
                for event in connection.receive_data(data[at : at + size], 0.0)
            ]
        results.append((seen, connection.data_to_send(), connection.counters))
    assert results[0] == results[1] == results[2]


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_as_frame_or_composite_metadata(data: bytes) -> None:
    decoders: tuple[Callable[[], object], ...] = (
        lambda: parse_frame(data),
        lambda: parse_frame(len(data).to_bytes(3) + data),
        lambda: split_frames(b"", data),
        lambda: list(iterate_composite(data)),
        lambda: find_entry(data, b"text/plain"),
        lambda: Setup.parse(parse_frame(len(data).to_bytes(3) + data)),
    )
    for decode in decoders:
        with suppress(RSocketError):
            decode()
