"""The connection as a whole: SETUP, keepalive, closing, frames of stream 0."""

from __future__ import annotations

from math import inf

import pytest

from onward.protocol.rsocket import (
    CONNECTION_STREAM,
    IGNORE,
    METADATA,
    RESPOND,
    Closed,
    Connection,
    ConnectionLimits,
    ConnectionState,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    MalformedFrame,
    PeerError,
    RejectedResume,
    RejectedSetup,
    Role,
    RSocketError,
    Setup,
    SetupTimeout,
    UnsupportedSetup,
    error_frame,
    keepalive_frame,
    lease_frame,
    metadata_push_frame,
)
from tests.support.rsocket_core import (
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


def assert_closed_with(
    connection: Connection, events: list[Event], error: type[RSocketError], code: int
) -> RSocketError:
    """Check the last event, and that the peer is told by ERROR on stream 0."""
    closed = events[-1]
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, error)
    assert connection.error is closed.error
    assert connection.closed
    assert connection.close_expected()
    assert not connection.streams
    assert connection.get_timer() is None
    assert connection.handle_timer(1e9) == []
    last = sent(connection)[-1]
    assert (last.stream_id, last.type, last.error_code) == (0, FrameType.ERROR, code)
    assert last.error_text == closed.error.text
    # "it is assumed that … all frames will be ignored"
    assert connection.receive_data(raw(1, FrameType.REQUEST_RESPONSE), 0.0) == []
    assert connection.receive_eof() == []
    assert connection.close() == []
    assert connection.pending == 0
    return closed.error


# --- SETUP --------------------------------------------------------------------------------


def test_a_server_takes_a_setup() -> None:
    setup = Setup(metadata=b"m", data=b"d")
    connection = Connection(Role.SERVER, now=0.0)
    assert connection.setup is None
    (frame,) = frames_of(connection.receive_data(setup.serialize(), 0.0))
    assert (frame.type, frame.stream, metadata_of(frame)) == (
        FrameType.SETUP,
        CONNECTION_STREAM,
        b"m",
    )
    assert connection.setup == setup
    assert connection.state is ConnectionState.OPEN
    assert connection.pending == 0


@pytest.mark.parametrize(
    ("data", "error", "code"),
    [
        # A request before SETUP, and other frames that are not it.
        (raw(1, FrameType.REQUEST_RESPONSE), InvalidSetup, ErrorCode.INVALID_SETUP),
        (keepalive_frame(respond=True), InvalidSetup, ErrorCode.INVALID_SETUP),
        (raw(0, 0x2A, IGNORE), InvalidSetup, ErrorCode.INVALID_SETUP),
        (raw(1, FrameType.SETUP, 0, bytes(14)), InvalidSetup, ErrorCode.INVALID_SETUP),
        (raw(1, FrameType.RESUME, 0, bytes(22)), InvalidSetup, ErrorCode.INVALID_SETUP),
        # A SETUP that cannot be read.
        (raw(0, FrameType.SETUP, 0, bytes(10)), InvalidSetup, ErrorCode.INVALID_SETUP),
        (
            raw(0, FrameType.SETUP, METADATA, b"\0\1\0\0" + u32(1) + u32(1) + b"\0\0" + u24(9)),
            InvalidSetup,
            ErrorCode.INVALID_SETUP,
        ),
        (u24(5), InvalidSetup, ErrorCode.INVALID_SETUP),
        (u24(5) + bytes(6), InvalidSetup, ErrorCode.INVALID_SETUP),
        # Someone else's protocol: its first bytes are a length that is too long.
        (b"GET / HTTP/1.1\r\n\r\n", InvalidSetup, ErrorCode.INVALID_SETUP),
        # What this side does not do.
        (Setup(major=2).serialize(), UnsupportedSetup, ErrorCode.UNSUPPORTED_SETUP),
        (Setup(minor=1).serialize(), UnsupportedSetup, ErrorCode.UNSUPPORTED_SETUP),
        (Setup(major=0, minor=2).serialize(), UnsupportedSetup, ErrorCode.UNSUPPORTED_SETUP),
        (Setup(lease=True).serialize(), UnsupportedSetup, ErrorCode.UNSUPPORTED_SETUP),
        (Setup(keepalive=600_001).serialize(), UnsupportedSetup, ErrorCode.UNSUPPORTED_SETUP),
        (Setup(token=b"t").serialize(), RejectedSetup, ErrorCode.REJECTED_SETUP),
        (raw(0, FrameType.RESUME, 0, bytes(22)), RejectedResume, ErrorCode.REJECTED_RESUME),
    ],
)
def test_a_first_frame_that_is_refused(
    data: bytes, error: type[RSocketError], code: ErrorCode
) -> None:
    connection = Connection(Role.SERVER, now=0.0)
    request = raw(1, FrameType.REQUEST_RESPONSE)
    trailing = request if data[:2] == b"\0\0" and len(data) > 8 else b""
    events = connection.receive_data(data + trailing, 0.0)
    assert len(events) == 1
    assert_closed_with(connection, events, error, code)

    drip = Connection(Role.SERVER, now=0.0)
    events = [event for at in range(len(data)) for event in drip.receive_data(data[at : at + 1], 0)]
    assert len(events) == 1
    assert_closed_with(drip, events, error, code)


def test_a_first_frame_over_its_own_limit() -> None:
    limits = ConnectionLimits(max_setup=64)
    for data in (Setup(data=bytes(64)).serialize(), Setup(data=bytes(64)).serialize()[:20]):
        connection = Connection(Role.SERVER, limits, now=0.0)
        events = connection.receive_data(data, 0.0)
        assert_closed_with(connection, events, InvalidSetup, ErrorCode.INVALID_SETUP)
    # It holds for the first frame only.
    connection = server(limits, Setup(metadata_mime="m", data_mime="d"))
    (frame,) = frames_of(connection.receive_data(metadata_push_frame(bytes(200)), 0.0))
    assert frame.end - frame.start == 206


def test_requests_may_follow_setup_in_the_same_bytes() -> None:
    connection = Connection(Role.SERVER, now=0.0)
    data = Setup().serialize() + raw(1, FrameType.REQUEST_RESPONSE)
    frames = frames_of(connection.receive_data(data, 0.0))
    assert [frame.type for frame in frames] == [FrameType.SETUP, FrameType.REQUEST_RESPONSE]


def test_a_second_setup_is_ignored() -> None:
    connection = server()
    before = connection.setup
    for stream_id, counter in ((0, "setup_ignored"), (3, "control_frame_on_stream")):
        data = bytearray(Setup(major=9).serialize())
        data[6] = stream_id
        assert connection.receive_data(bytes(data), 0.0) == []
        assert connection.counters[counter] == 1
    assert connection.setup is before
    assert connection.state is ConnectionState.OPEN


def test_a_client_ignores_a_setup() -> None:
    connection = client()
    assert connection.receive_data(Setup().serialize(), 0.0) == []
    assert connection.counters == {"setup_ignored": 1}


def test_a_client_sends_setup_once() -> None:
    connection = Connection(Role.CLIENT, now=0.0)
    assert connection.get_timer() is None
    connection.send_setup(Setup(data=b"d"))
    assert connection.data_to_send() == Setup(data=b"d").serialize()
    with pytest.raises(LocalProtocolError, match="no SETUP from a client that is OPEN"):
        connection.send_setup(Setup())
    with pytest.raises(LocalProtocolError, match="no SETUP from a server"):
        Connection(Role.SERVER, now=0.0).send_setup(Setup())


def test_a_server_that_speaks_before_the_client() -> None:
    connection = Connection(Role.CLIENT, now=0.0)
    events = connection.receive_data(raw(2, FrameType.REQUEST_FNF), 0.0)
    assert_closed_with(connection, events, InvalidSetup, ErrorCode.INVALID_SETUP)


def test_nothing_is_sent_before_setup() -> None:
    for role in Role:
        connection = Connection(role, now=0.0)
        with pytest.raises(LocalProtocolError, match="AWAIT_SETUP"):
            connection.open(FrameType.REQUEST_FNF)
        with pytest.raises(LocalProtocolError, match="AWAIT_SETUP"):
            connection.send_metadata_push(b"m")
        with pytest.raises(LocalProtocolError, match="AWAIT_SETUP"):
            connection.send_keepalive()
        assert connection.pending == 0


def test_a_server_rejects_a_setup() -> None:
    left, right = pair()
    left.send_request(left.open(FrameType.REQUEST_RESPONSE), b"")
    carry(left, right)
    (closed,) = right.reject_setup("not you")
    assert isinstance(closed, Closed)
    assert closed.error is None
    assert [stream.closed for stream in closed.streams] == [True]
    assert right.close_expected()
    (event,) = transfer(right, left)
    assert isinstance(event, Closed)
    assert isinstance(event.error, PeerError)
    assert (event.error.code, event.error.text) == (ErrorCode.REJECTED_SETUP, "not you")
    assert left.pending == 0
    with pytest.raises(LocalProtocolError, match="only a server"):
        right.reject_setup("again")
    with pytest.raises(LocalProtocolError, match="only a server"):
        client().reject_setup("no")


# --- a SETUP that is held -------------------------------------------------------------------


def holding() -> Connection:
    connection = Connection(Role.SERVER, ConnectionLimits(setup_timeout=3), now=0.0)
    connection.holds = True
    return connection


@pytest.mark.parametrize("cut", range(1, 120))
def test_nothing_after_a_held_setup_is_read_until_the_peer_is_admitted(cut: int) -> None:
    setup, alive = Setup(lifetime=5000).serialize(), keepalive_frame(respond=True)
    asked = raw(1, FrameType.REQUEST_RESPONSE, body=b"x" * 300_000)
    data = setup + alive + asked
    connection = holding()
    events = connection.receive_data(data[:cut], 0.0) + connection.receive_data(data[cut:], 1.0)
    (event,) = events
    assert isinstance(event, Frame)
    assert event.type == FrameType.SETUP
    assert connection.setup == Setup(lifetime=5000)
    assert connection.state is ConnectionState.HELD
    assert connection.pending == 0
    assert connection.unfinished == len(alive + asked)
    assert connection.receive_data(alive, 2.0) == []
    with pytest.raises(LocalProtocolError, match="HELD"):
        connection.send_keepalive()
    with pytest.raises(LocalProtocolError, match="HELD"):
        connection.open(FrameType.REQUEST_FNF)
    connection.admit()
    (request,) = frames_of(connection.receive_data(b"", 2.0))
    assert bytes(request.data or b"") == b"x" * 300_000
    assert connection.data_to_send() == keepalive_frame(respond=False) * 2
    with pytest.raises(LocalProtocolError, match="no SETUP is held on a connection that is OPEN"):
        connection.admit()


@pytest.mark.parametrize("cut", range(1, 80))
def test_what_has_come_after_a_held_setup_is_read_before_the_end(cut: int) -> None:
    setup = Setup().serialize()
    data = setup + raw(1, FrameType.REQUEST_FNF) + raw(3, FrameType.REQUEST_RESPONSE)
    data = data[: len(setup) + cut]
    held, other = holding(), Connection(Role.SERVER, now=0.0)
    assert len(held.receive_data(data[:cut], 0.0) + held.receive_data(data[cut:], 0.0)) == 1
    held.admit()
    read = [(each.type, each.stream_id) for each in frames_of(held.receive_data(b"", 0.0))]
    _, *wanted = frames_of(other.receive_data(data, 0.0))
    assert read == [(each.type, each.stream_id) for each in wanted]
    ends = [(type(each.error), len(each.streams)) for each in closed_by(held)]
    assert ends == [(type(each.error), len(each.streams)) for each in closed_by(other)]
    assert len(ends) == 1
    assert held.unfinished == other.unfinished == 0


def closed_by(connection: Connection) -> list[Closed]:
    """Return what the end of the transport is to a connection."""
    return [each for each in connection.receive_eof() if isinstance(each, Closed)]


def test_a_held_setup_and_nothing_after_it() -> None:
    connection = holding()
    assert len(connection.receive_data(Setup().serialize(), 0.0)) == 1
    assert connection.receive_data(keepalive_frame(respond=True), 0.0) == []
    assert connection.unfinished > 0
    connection.admit()
    assert connection.receive_data(keepalive_frame(respond=True), 0.0) == []
    assert connection.data_to_send() == keepalive_frame(respond=False) * 2


def test_the_ends_of_a_connection_with_a_held_setup() -> None:
    def held() -> Connection:
        connection = holding()
        connection.receive_data(Setup(lifetime=5000).serialize() + raw(1, 63), 0.0)
        return connection

    assert [type(event) for event in held().reject_setup("no")] == [Closed]
    assert [type(event) for event in held().close()] == [Closed]
    assert [type(event) for event in held().close(ErrorCode.CONNECTION_CLOSE)] == [Closed]
    assert [type(event) for event in held().receive_eof()] == [Closed]
    silent = held()
    assert silent.get_timer() == 40.0
    assert_closed_with(
        silent, silent.handle_timer(40.0), KeepaliveTimeout, ErrorCode.CONNECTION_ERROR
    )


# --- time ---------------------------------------------------------------------------------


def test_a_client_that_says_nothing() -> None:
    connection = Connection(Role.SERVER, ConnectionLimits(setup_timeout=3), now=100.0)
    assert connection.get_timer() == 103.0
    # Bytes that are no whole SETUP do not prolong it.
    assert connection.receive_data(b"\0", 102.0) == []
    assert connection.get_timer() == 103.0
    assert connection.handle_timer(102.9) == []
    events = connection.handle_timer(103.0)
    error = assert_closed_with(connection, events, SetupTimeout, ErrorCode.INVALID_SETUP)
    assert error.text == "no SETUP within 3 s"


def test_a_client_that_falls_silent() -> None:
    connection = server(setup=Setup(keepalive=100, lifetime=500))
    assert connection.get_timer() == 0.5
    assert connection.receive_data(keepalive_frame(respond=True), 0.4) == []
    assert connection.handle_timer(0.5) == []
    assert connection.get_timer() == 0.9
    sent(connection)
    events = connection.handle_timer(0.9)
    error = assert_closed_with(connection, events, KeepaliveTimeout, ErrorCode.CONNECTION_ERROR)
    assert error.text == "no keep-alive within 500 ms"


def test_the_silence_of_a_client_is_excused_while_its_frames_are_not_read() -> None:
    connection = server(setup=Setup(keepalive=100, lifetime=500))
    assert (connection.silence(0.0), connection.silence(0.25)) == (0.0, 0.5)
    connection.excuse_silence(0.75)
    assert connection.get_timer() == 0.75
    assert connection.silence(0.75) == 1.0
    # What has been accepted already is not taken back.
    connection.excuse_silence(0.5)
    assert connection.handle_timer(0.7) == []
    events = connection.handle_timer(0.75)
    assert_closed_with(connection, events, KeepaliveTimeout, ErrorCode.CONNECTION_ERROR)


@pytest.mark.parametrize(
    ("keepalive", "lifetime", "expected"),
    [(1000, 3000, 3.0), (1000, 500, 2.0), (1000, 2_000_000, 60.0), (40_000, 2_000_000, 80.0)],
)
def test_the_lifetime_of_a_client_is_bounded(
    keepalive: int, lifetime: int, expected: float
) -> None:
    limits = ConnectionLimits(max_lifetime=60.0)
    connection = server(limits, Setup(keepalive=keepalive, lifetime=lifetime))
    assert connection.get_timer() == expected


def test_a_client_keeps_alive_and_gives_up() -> None:
    connection = client(setup=Setup(keepalive=1000, lifetime=2500))
    assert connection.get_timer() == 1.0
    assert connection.handle_timer(1.0) == []
    (frame,) = sent(connection)
    assert (frame.type, frame.flags, data_of(frame)) == (FrameType.KEEPALIVE, RESPOND, b"")
    assert connection.get_timer() == 2.0
    assert connection.handle_timer(2.0) == []
    assert connection.get_timer() == 2.5
    sent(connection)
    events = connection.handle_timer(2.5)
    assert_closed_with(connection, events, KeepaliveTimeout, ErrorCode.CONNECTION_ERROR)


def test_a_client_may_send_keepalive_frames_by_itself() -> None:
    connection = Connection(Role.CLIENT, now=0.0)
    connection.send_setup(Setup(keepalive=1000, lifetime=2500), keepalive_at=inf)
    connection.data_to_send()
    assert connection.get_timer() == 2.5
    assert connection.handle_timer(1.5) == []
    assert connection.data_to_send() == b""
    assert isinstance(connection.handle_timer(2.5)[0], Closed)


def test_the_first_keepalive_decides_when_the_others_are_sent() -> None:
    connection = Connection(Role.CLIENT, now=10.0)
    connection.send_setup(Setup(keepalive=1000, lifetime=60_000), keepalive_at=10.25)
    connection.data_to_send()
    # Late ones do not put off those after them; those that were missed are skipped.
    for now, following in ((10.25, 11.25), (11.5, 12.25), (12.25, 13.25), (17.0, 17.25)):
        assert connection.handle_timer(now) == []
        assert [frame.type for frame in sent(connection)] == [FrameType.KEEPALIVE]
        assert connection.get_timer() == following
        # SETUP Frame: "Time (in milliseconds) between KEEPALIVE frames that the client will send."
        assert connection.handle_timer(following - 0.001) == []
        assert sent(connection) == []


def test_the_round_trip_of_a_keepalive_of_the_timer() -> None:
    setup = Setup(keepalive=1000, lifetime=9000)
    left, right = client(setup=setup), server(setup=setup)
    assert left.round_trip == 0.0
    for begun, took in ((1.0, 0.25), (2.0, 0.5)):
        left.handle_timer(begun)
        transfer(left, right)
        left.receive_data(bytes(right.data_to_send()), begun + took)
        assert left.round_trip == took
    # One that answers nothing of the timer says nothing.
    left.receive_data(keepalive_frame(b"", respond=False), 7.0)
    assert left.round_trip == 0.5


def test_the_round_trip_as_a_server_measures_it() -> None:
    setup = Setup(keepalive=1000, lifetime=9000)
    left, right = client(setup=setup), server(setup=setup)
    right.measure_every = 3.0
    for begun, measured in ((1.0, True), (2.0, False), (3.0, False), (4.0, True)):
        left.handle_timer(begun)
        right.receive_data(bytes(left.data_to_send()), begun + 0.125)
        frames = sent(right)
        # KEEPALIVE Frame: "Bit R: Respond with KEEPALIVE or not."
        assert [each.flags for each in frames] == ([0, 0x80] if measured else [0])
        for each in frames:
            left.receive_data(each.buffer, begun + 0.25)
        took = 0.25 if measured else right.round_trip
        right.receive_data(bytes(left.data_to_send()), begun + 0.125 + took)
        assert right.round_trip == took == 0.25
    left.measure_every = 3.0  # a client does so by its timer
    right.send_keepalive()
    assert [each.flags for each in sent(right)] == [0x80]
    left.receive_data(keepalive_frame(b"", respond=True), 5.0)
    assert [each.flags for each in sent(left)] == [0]


def test_keepalive_is_answered_with_its_data() -> None:
    left, right = pair()
    for one, other in ((left, right), (right, left)):
        one.send_keepalive(b"ping")
        assert transfer(one, other) == []
        (answer,) = sent(other)
        assert (answer.flags, answer.position, data_of(answer)) == (0, 0, b"ping")
        assert one.receive_data(answer.buffer, 0.0) == []
        assert one.pending == 0


def test_keepalive_data_is_bounded() -> None:
    limits = ConnectionLimits(max_keepalive_data=4)
    connection = server(limits)
    assert connection.receive_data(keepalive_frame(b"1234", respond=True), 0.0) == []
    assert len(sent(connection)) == 1
    events = connection.receive_data(keepalive_frame(b"12345", respond=False), 0.0)
    assert_closed_with(connection, events, MalformedFrame, ErrorCode.CONNECTION_ERROR)


# --- closing ------------------------------------------------------------------------------


def test_the_transport_ends() -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    assert right.receive_eof() == [Closed(None, (theirs,))]
    assert theirs.closed
    assert right.close_expected()
    assert right.receive_eof() == []
    with pytest.raises(LocalProtocolError, match="closed"):
        right.send_payload(theirs)
    with pytest.raises(LocalProtocolError, match="CLOSED"):
        right.open(FrameType.REQUEST_FNF)


@pytest.mark.parametrize("code", [ErrorCode.CONNECTION_ERROR, ErrorCode.INVALID_SETUP, 0x301])
def test_closing_at_once(code: int) -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    assert right.close(code, "why") == [Closed(None, (theirs,))]
    (frame,) = sent(right)
    assert (frame.stream_id, frame.error_code, frame.error_text) == (0, code, "why")
    with pytest.raises(LocalProtocolError, match="an error code"):
        server().close(0)


def test_closing_after_the_last_stream() -> None:
    left, right, ours, theirs = joined(FrameType.REQUEST_RESPONSE)
    assert right.close(ErrorCode.CONNECTION_CLOSE, "bye") == []
    assert right.state is ConnectionState.DRAINING
    assert not right.close_expected()
    (frame,) = carry(right, left)
    assert (frame.type, frame.error_code) == (FrameType.ERROR, ErrorCode.CONNECTION_CLOSE)
    assert frame.stream is CONNECTION_STREAM
    assert left.state is ConnectionState.DRAINING
    with pytest.raises(LocalProtocolError, match="DRAINING"):
        left.open(FrameType.REQUEST_FNF)
    # A request that was under way is refused.
    assert right.receive_data(raw(3, FrameType.REQUEST_RESPONSE), 0.0) == []
    assert right.counters == {"request_refused": 1}
    (refusal,) = sent(right)
    assert (refusal.stream_id, refusal.error_code) == (3, ErrorCode.REJECTED)
    # The connection stays alive meanwhile.
    assert right.get_timer() == 90.0
    right.send_keepalive()
    right.send_metadata_push(b"m")
    right.send_payload(theirs, b"a", complete=True)
    assert right.close_expected()
    events = transfer(right, left)
    assert [type(event) for event in events] == [Frame, Frame, Closed]
    assert ours.closed
    assert events[-1] == Closed(None, ())
    assert right.receive_eof() == [Closed(None, ())]
    assert right.error is None


def test_a_close_that_is_announced_leaves_the_connection_open() -> None:
    left, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    right.announce_close("bye")
    assert right.state is ConnectionState.OPEN
    assert not right.close_expected()
    (frame,) = carry(right, left)
    assert (frame.error_code, frame.error_text) == (ErrorCode.CONNECTION_CLOSE, "bye")
    assert left.state is ConnectionState.DRAINING
    # A request that was sent before is still received, and may be refused by the caller.
    (late,) = frames_of(right.receive_data(raw(3, FrameType.REQUEST_RESPONSE), 0.0))
    right.send_error(late.stream, ErrorCode.REJECTED, "too late")
    right.send_payload(theirs, b"a", complete=True)
    assert not right.close_expected()
    assert isinstance(right.close(ErrorCode.CONNECTION_ERROR)[0], Closed)
    with pytest.raises(LocalProtocolError, match="CONNECTION_CLOSE"):
        right.announce_close("again")


def test_closing_twice() -> None:
    _, right, _, _ = joined(FrameType.REQUEST_STREAM)
    assert right.close(ErrorCode.CONNECTION_CLOSE) == []
    assert right.close(ErrorCode.CONNECTION_CLOSE) == []
    (closed,) = right.close(ErrorCode.CONNECTION_ERROR)
    assert isinstance(closed, Closed)


def test_closing_with_no_stream_is_at_once() -> None:
    left, right = pair()
    assert right.close(ErrorCode.CONNECTION_CLOSE) == [Closed(None, ())]
    events = transfer(right, left)
    assert [type(event) for event in events] == [Frame, Closed]
    fresh = Connection(Role.SERVER, now=0.0)
    assert fresh.close(ErrorCode.CONNECTION_CLOSE) == [Closed(None, ())]


def test_the_peer_closes() -> None:
    _, right, _, theirs = joined(FrameType.REQUEST_RESPONSE)
    data = error_frame(0, ErrorCode.CONNECTION_ERROR, "gone") + raw(3, FrameType.REQUEST_FNF)
    (event,) = right.receive_data(data, 0.0)
    assert isinstance(event, Closed)
    assert event.streams == (theirs,)
    assert str(event.error) == "CONNECTION_ERROR: gone"
    # An error is not answered with an error.
    assert right.pending == 0


# --- frames of stream 0 -------------------------------------------------------------------


@pytest.mark.parametrize("code", [*range(1, 5), *range(0x201, 0x205)])
def test_a_server_ignores_an_error_of_another_kind(code: int) -> None:
    connection = server()
    assert connection.receive_data(error_frame(0, code, ""), 0.0) == []
    assert connection.counters == {"error_ignored": 1}


def test_a_client_takes_any_error_as_an_answer_to_setup() -> None:
    for code in (ErrorCode.REJECTED_SETUP, ErrorCode.APPLICATION_ERROR, 0x301):
        connection = client()
        # An answered KEEPALIVE does not mean that the SETUP was accepted.
        assert connection.receive_data(keepalive_frame(respond=False), 0.0) == []
        (event,) = connection.receive_data(error_frame(0, code, "no"), 0.0)
        assert isinstance(event, Closed)
        assert event.error is not None
        assert event.error.code == code


def test_a_client_ignores_a_late_answer_to_setup() -> None:
    late = error_frame(0, ErrorCode.REJECTED_SETUP, "late")
    request = raw(2, FrameType.REQUEST_FNF)
    for chunks in ((request, late), (request + late,)):
        connection = client()
        events = [event for chunk in chunks for event in connection.receive_data(chunk, 0.0)]
        assert [type(event) for event in events] == [Frame]
        assert connection.counters == {"error_ignored": 1}


def test_an_application_may_close_with_a_code_of_its_own() -> None:
    connection = server()
    (event,) = connection.receive_data(error_frame(0, 0x301, "own"), 0.0)
    assert isinstance(event, Closed)
    assert str(event.error) == "0x301: own"


def test_metadata_push() -> None:
    left, right = pair()
    left.send_metadata_push(b"")
    left.send_metadata_push(b"m")
    assert [metadata_of(frame) for frame in carry(left, right)] == [b"", b"m"]
    (without_flag,) = frames_of(right.receive_data(raw(0, FrameType.METADATA_PUSH, 0, b"n"), 0.0))
    assert metadata_of(without_flag) == b"n"
    assert right.receive_data(raw(3, FrameType.METADATA_PUSH, METADATA, b"m"), 0.0) == []
    assert right.counters == {"control_frame_on_stream": 1}


def test_leases_are_ignored_where_nobody_asked_for_them() -> None:
    for connection in (server(), client(), server(ConnectionLimits(lease=True))):
        assert connection.receive_data(lease_frame(1, 1), 0.0) == []
        assert connection.counters == {"lease_ignored": 1}
    with pytest.raises(LocalProtocolError, match="not enabled"):
        server().send_lease(1, 1)


def test_leases_where_the_limits_allow_them() -> None:
    limits, setup = ConnectionLimits(lease=True), Setup(lease=True)
    left, right = client(limits, setup), server(limits, setup)
    right.send_lease(1000, 5, b"m")
    (frame,) = carry(right, left)
    assert (frame.time_to_live, frame.number_of_requests, metadata_of(frame)) == (1000, 5, b"m")
    broken = raw(0, FrameType.LEASE, IGNORE, b"x")
    assert left.receive_data(broken, 0.0) == []
    assert left.counters == {"malformed_ignored": 1}
    for numbers in ((-1, 1), (1, -1), (1 << 31, 1), (1, 1 << 31)):
        with pytest.raises(LocalProtocolError, match="a lease's numbers"):
            right.send_lease(*numbers)
    right.receive_eof()
    with pytest.raises(LocalProtocolError, match="no LEASE"):
        right.send_lease(1, 1)


def test_resume_after_setup() -> None:
    connection = server()
    events = connection.receive_data(raw(0, FrameType.RESUME, 0, bytes(22)), 0.0)
    assert_closed_with(connection, events, RSocketError, ErrorCode.CONNECTION_ERROR)


def test_resume_frames_a_side_does_not_expect_are_ignored() -> None:
    for connection, kind in (
        (client(), FrameType.RESUME),
        (client(), FrameType.RESUME_OK),
        (server(), FrameType.RESUME_OK),
    ):
        assert connection.receive_data(raw(0, kind, 0, bytes(22)), 0.0) == []
        assert connection.counters == {"resume_ignored": 1}


@pytest.mark.parametrize("stream_id", [0, 1, 2])
@pytest.mark.parametrize("kind", [0x00, 0x0F, 0x2A, FrameType.EXT])
def test_unknown_types(kind: int, stream_id: int) -> None:
    _, connection, _, theirs = joined(FrameType.REQUEST_STREAM)
    assert connection.receive_data(raw(stream_id, kind, IGNORE, bytes(4)), 0.0) == []
    assert connection.counters == {"unknown_type": 1}
    assert not theirs.closed
    events = connection.receive_data(raw(stream_id, kind, 0, bytes(4)), 0.0)
    error = assert_closed_with(connection, events, MalformedFrame, ErrorCode.CONNECTION_ERROR)
    assert f"0x{kind:02x}" in error.text


@pytest.mark.parametrize(
    "data",
    [
        raw(0, FrameType.KEEPALIVE, 0, bytes(7)),
        raw(0, FrameType.ERROR, 0, bytes(3)),
        raw(0x80000001, FrameType.CANCEL),
        raw(0x80000001, FrameType.REQUEST_RESPONSE),
        raw(0x80000000, FrameType.KEEPALIVE, 0, bytes(8)),
        u24(5),
        u24(0) + bytes(6),
    ],
)
def test_a_broken_frame_ends_the_connection(data: bytes) -> None:
    connection = server()
    events = connection.receive_data(data, 0.0)
    assert_closed_with(connection, events, MalformedFrame, ErrorCode.CONNECTION_ERROR)


@pytest.mark.parametrize(
    "data",
    [raw(0, FrameType.KEEPALIVE, IGNORE, bytes(7)), raw(0, FrameType.ERROR, IGNORE, bytes(3))],
)
def test_a_broken_frame_that_may_be_ignored(data: bytes) -> None:
    connection = server()
    assert connection.receive_data(data, 0.0) == []
    assert connection.counters == {"malformed_ignored": 1}


def test_frames_of_streams_on_stream_0() -> None:
    connection = server()
    for kind in (FrameType.CANCEL, FrameType.PAYLOAD, FrameType.REQUEST_N):
        assert connection.receive_data(raw(0, kind, 0, u32(1)), 0.0) == []
    assert connection.counters == {"unknown_stream": 3}


def test_a_frame_over_the_limit_is_refused_as_soon_as_its_length_is_known() -> None:
    for data in (u24(65), raw(1, FrameType.REQUEST_FNF, 0, bytes(59))):
        connection = server(ConnectionLimits(max_frame=64))
        assert len(frames_of(connection.receive_data(raw(1, 5, 0, bytes(58)), 0.0))) == 1
        events = connection.receive_data(data, 0.0)
        error = assert_closed_with(connection, events, MalformedFrame, ErrorCode.CONNECTION_ERROR)
        assert error.text == "a frame of 65 bytes is over the limit of 64 bytes"


def test_a_frame_of_the_largest_size_in_chunks() -> None:
    connection = server()
    data = raw(1, FrameType.REQUEST_FNF, 0, bytes(2**24 - 1 - 6))
    events: list[Event] = []
    for at in range(0, len(data), 1 << 20):
        assert events == []
        events = connection.receive_data(data[at : at + (1 << 20)], 0.0)
    (frame,) = frames_of(events)
    assert frame.buffer == data
