"""Sessions that are resumed: two connections in memory, and a loss anywhere between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    booleans,
    data as draws,
    integers,
    lists,
    sampled_from,
    tuples,
)

from onward.protocol.rsocket import (
    RESUME_RULES,
    Closed,
    Connection,
    ConnectionLimits,
    ConnectionState,
    ErrorCode,
    Frame,
    FrameType,
    KeepaliveTimeout,
    KeptFrames,
    LocalProtocolError,
    MalformedFrame,
    PeerError,
    RejectedResume,
    ResumableConnection,
    Resume,
    Resumed,
    ResumeLimits,
    ResumeRefusal,
    ResumeTimeout,
    Role,
    RSocketError,
    Setup,
    Stream,
    error_frame,
    keepalive_frame,
    payload_frames,
    refusal_of,
    request_frames,
    resume_ok_frame,
)
from tests.support.rsocket_core import frames_in, raw
from tests.support.rsocket_resume import SETUP, TOKEN, Wire, answer

REQUEST = next(request_frames(FrameType.REQUEST_RESPONSE, 1, b"abc"))  # 9 bytes with a position
PAYLOAD = next(payload_frames(1, b"answer", complete=True))  # 12 bytes with a position


def server(resume: ResumeLimits | None = None) -> ResumableConnection:
    """Return a server with a session, at time 0."""
    made = ResumableConnection(Role.SERVER, None, resume or ResumeLimits(), now=0.0)
    made.receive_data(SETUP.serialize(), 0.0)
    return made


def client(resume: ResumeLimits | None = None) -> ResumableConnection:
    """Return a client with a session, at time 0."""
    made = ResumableConnection(Role.CLIENT, None, resume or ResumeLimits(), now=0.0)
    made.send_setup(SETUP)
    made.data_to_send()
    return made


def resume(last_received: int, first_available: int = 0) -> Resume:
    return Resume(token=TOKEN, last_received=last_received, first_available=first_available)


def bytes_of(written: list[bytes | memoryview]) -> bytes:
    return b"".join(written)


def asked(connection: ResumableConnection) -> Stream:
    """Have a server receive a request of 9 bytes; return its stream."""
    (frame,) = connection.receive_data(REQUEST, 0.0)
    assert isinstance(frame, Frame)
    return frame.stream


# --- both sides in memory -------------------------------------------------------------------


def run(cut_at: int = -1) -> Wire:
    """Run four interactions; lose the wire after a number of bytes."""
    wire = Wire(answer, cut_at=cut_at, limits=ConnectionLimits(mtu=64))
    kinds = (FrameType.REQUEST_RESPONSE, FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL)
    for kind in kinds:
        stream = wire.client.open(kind)
        wire.client.send_request(stream, b"x" * 100, initial_n=2)
        wire.pump()
    quiet = wire.client.open(FrameType.REQUEST_FNF)
    wire.client.send_request(quiet, b"told")
    for stream in list(wire.client.streams.values()):
        wire.client.send_request_n(stream, 1)
    wire.pump()
    return wire


def test_a_run_without_a_loss() -> None:
    wire = run()
    assert wire.losses == 0
    assert len(wire.seen[Role.SERVER]) > 7
    assert len(wire.seen[Role.CLIENT]) > 7
    assert wire.client.streams == wire.server.streams == {}
    assert wire.client.received == (wire.server.kept or KeptFrames(0)).end
    assert wire.server.received == (wire.client.kept or KeptFrames(0)).end


def test_a_loss_after_every_byte() -> None:
    """Both sides see what they see without a loss, in the same order."""
    whole = run()
    for cut_at in range(1, whole.delivered):
        wire = run(cut_at)
        assert wire.losses == 1
        assert wire.seen == whole.seen, cut_at
        assert wire.client.streams == wire.server.streams == {}


@given(draws())
def test_losses_anywhere(data: DataObject) -> None:
    """Random requests, answers and losses: each side receives what the other has sent, once."""
    wire = Wire(lambda _side, _frame: None)
    sides = (wire.client, wire.server)
    sent: dict[Role, int] = {Role.CLIENT: 0, Role.SERVER: 0}
    steps = tuples(integers(0, 1), sampled_from("sssskpl"), integers(0, 30), booleans())
    for which, step, size, fnf in data.draw(lists(steps, max_size=30)):
        side = sides[which]
        if side.suspended and step in "sk":
            continue
        if step == "s":
            kind = FrameType.REQUEST_FNF if fnf else FrameType.REQUEST_RESPONSE
            stream = side.open(kind)
            side.send_request(stream, bytes([sent[side.role] % 256]) + bytes(size))
            sent[side.role] += 1
        elif step == "k":
            side.send_keepalive()
        elif step == "p":
            wire.pump()
        else:
            wire.lose()
    wire.pump()
    for side, other in (sides, sides[::-1]):
        received = [content[0] for _, _, _, content in wire.seen[other.role]]
        assert received == [number % 256 for number in range(sent[side.role])]


# --- positions ------------------------------------------------------------------------------


def test_a_keepalive_has_the_position_before_it() -> None:
    connection = server()
    chunk = keepalive_frame(respond=True) + REQUEST + keepalive_frame(respond=True)
    connection.receive_data(chunk + raw(0, FrameType.METADATA_PUSH), 0.0)
    assert [frame.position for frame in frames_in(connection.data_to_send())] == [0, 9]
    connection.send_keepalive()
    assert [frame.position for frame in frames_in(connection.data_to_send())] == [9]
    assert connection.received == 9


def test_a_keepalive_without_a_session_has_no_position() -> None:
    connection = ResumableConnection(Role.SERVER, None, ResumeLimits(), now=0.0)
    connection.receive_data(Setup().serialize() + REQUEST, 0.0)
    connection.receive_data(keepalive_frame(respond=True, position=5), 0.0)
    assert [frame.position for frame in frames_in(connection.data_to_send())] == [0]
    assert connection.kept is None


def test_a_keepalive_trims() -> None:
    connection = server()
    stream = asked(connection)
    connection.send_payload(stream, b"answer", complete=True)
    connection.data_to_send()
    kept = connection.kept
    assert kept is not None
    assert kept.first == 0
    for position, first in ((11, 0), (12, 12)):
        connection.receive_data(keepalive_frame(respond=False, position=position), 0.0)
        assert kept.first == first
    assert not connection.counters


def test_a_position_that_was_not_reached_is_ignored() -> None:
    connection = server()
    connection.receive_data(keepalive_frame(respond=False, position=1), 0.0)
    assert connection.counters == {"position_ignored": 1}


def test_a_frame_that_is_not_whole_was_not_received() -> None:
    connection = server()
    connection.receive_data(REQUEST[:-1], 0.0)
    assert connection.suspend(0.0)
    assert connection.unfinished == 0
    assert bytes_of(connection.accept_resume(resume(0), 0.0)) == resume_ok_frame(0)
    (frame,) = connection.receive_data(REQUEST, 0.0)
    assert isinstance(frame, Frame)
    assert connection.received == 9


def test_what_was_not_written_is_sent_again() -> None:
    connection = server()
    stream = asked(connection)
    connection.send_payload(stream, b"answer", complete=True)
    assert connection.suspend(0.0)
    assert connection.data_to_send() == b""
    written = connection.accept_resume(resume(0), 0.0)
    assert bytes_of(written) == resume_ok_frame(9) + PAYLOAD


def test_what_is_sent_meanwhile_is_kept() -> None:
    connection = server()
    stream = asked(connection)
    connection.suspend(0.0)
    connection.send_payload(stream, b"answer", complete=True)
    assert connection.data_to_send() == PAYLOAD
    assert bytes_of(connection.accept_resume(resume(0), 0.0)) == resume_ok_frame(9) + PAYLOAD
    assert connection.data_to_send() == b""


def test_frames_of_the_connection_are_lost() -> None:
    connection = server()
    connection.send_keepalive()
    connection.send_metadata_push(b"lost")
    connection.suspend(0.0)
    with pytest.raises(LocalProtocolError, match="SUSPENDED"):
        connection.send_keepalive()
    with pytest.raises(LocalProtocolError, match="SUSPENDED"):
        connection.send_metadata_push(b"")
    with pytest.raises(LocalProtocolError, match="SUSPENDED"):
        connection.open(FrameType.REQUEST_FNF)
    assert bytes_of(connection.accept_resume(resume(0), 0.0)) == resume_ok_frame(0)


# --- the decision ----------------------------------------------------------------------------


def kept(*frames: bytes, trimmed: int = 0) -> KeptFrames:
    made = KeptFrames(1000)
    for frame in frames:
        made.add(frame)
    made.trim(trimmed)
    return made


@pytest.mark.parametrize(
    ("refusal", "last_received", "first_available"),
    [
        (None, 12, 0),
        (None, 12, 9),
        (None, 24, 9),
        (ResumeRefusal.CLIENT_DROPPED, 12, 10),
        (ResumeRefusal.SERVER_DROPPED, 0, 0),
        (ResumeRefusal.SERVER_DROPPED, 11, 0),
        (ResumeRefusal.NO_BORDER, 13, 0),
        (ResumeRefusal.NO_BORDER, 23, 0),
        (ResumeRefusal.NOT_SENT, 25, 0),
    ],
)
def test_positions(refusal: ResumeRefusal | None, last_received: int, first_available: int) -> None:
    frames = kept(PAYLOAD, PAYLOAD, trimmed=12)
    assert refusal_of(resume(last_received, first_available), 9, frames) is refusal


@pytest.mark.parametrize(("major", "minor"), [(0, 2), (1, 1), (2, 0)])
def test_another_version(major: int, minor: int) -> None:
    asking = Resume(token=b"", last_received=0, first_available=0, major=major, minor=minor)
    assert refusal_of(asking, 0, kept()) is ResumeRefusal.VERSION


def test_a_version_in_reverse() -> None:
    """As rsocket-js 1.0.0-alpha.3 writes it."""
    asking = Resume(token=b"", last_received=0, first_available=0, major=0, minor=1)
    assert refusal_of(asking, 0, kept()) is None


@given(lists(integers(0, 40), max_size=5), integers(0, 100), integers(0, 80), integers(0, 80))
def test_an_accepted_resume_leaves_no_gap(
    sizes: list[int], received: int, last_received: int, first_available: int
) -> None:
    """Accepted is exactly what both sides can go on from; each rule is the reason for some."""
    frames = KeptFrames(600)
    borders = [0]
    for size in sizes:
        frames.add(raw(1, FrameType.PAYLOAD, body=bytes(size)))
        borders.append(borders[-1] + 6 + size)
    fits = frames.first <= last_received and last_received in borders
    fits = fits and first_available <= received
    refusal = refusal_of(resume(last_received, first_available), received, frames)
    assert (refusal is None) == fits
    assert refusal is None or refusal in {each for each, _ in RESUME_RULES}


def test_a_refused_session_stays_suspended() -> None:
    connection = server()
    connection.suspend(0.0)
    with pytest.raises(RejectedResume, match="more is received than was sent"):
        connection.accept_resume(resume(1), 0.0)
    assert connection.suspended
    (closed,) = connection.close()
    assert isinstance(closed, Closed)


# --- the life of a session ---------------------------------------------------------------------


def test_without_a_token_there_is_no_session() -> None:
    connection = ResumableConnection(Role.SERVER, None, ResumeLimits(), now=0.0)
    assert not connection.suspend(0.0)  # before SETUP
    connection.receive_data(Setup().serialize(), 0.0)
    assert not connection.suspend(0.0)
    assert connection.state is ConnectionState.OPEN
    with pytest.raises(LocalProtocolError, match="no RESUME_OK from a server OPEN"):
        connection.accept_resume(resume(0), 0.0)
    asking = ResumableConnection(Role.CLIENT, None, ResumeLimits(), now=0.0)
    asking.send_setup(Setup())
    assert not asking.suspend(0.0)
    with pytest.raises(LocalProtocolError, match="no RESUME from a client OPEN"):
        asking.send_resume()


def test_a_connection_that_ends_is_not_suspended() -> None:
    connection = server()
    asked(connection)
    connection.close(ErrorCode.CONNECTION_CLOSE)
    assert connection.state is ConnectionState.DRAINING
    assert not connection.suspend(0.0)


def test_it_ends_when_nothing_resumes_it() -> None:
    connection = server(ResumeLimits(time=5))
    stream = asked(connection)
    connection.suspend(3.0)
    assert connection.get_timer() == 8.0
    assert connection.handle_timer(7.9) == []
    (closed,) = connection.handle_timer(8.0)
    assert isinstance(closed, Closed)
    assert closed.streams == (stream,)
    assert isinstance(closed.error, ResumeTimeout)
    assert str(closed.error) == "CONNECTION_ERROR: the session was not resumed within 5 s"
    assert connection.get_timer() is None
    assert not connection.suspend(9.0)


def test_attempts_do_not_prolong_it() -> None:
    connection = client(ResumeLimits(time=5))
    connection.suspend(3.0)
    connection.send_resume()
    assert connection.suspended
    assert connection.get_timer() == 8.0
    assert connection.suspend(7.0)
    assert connection.get_timer() == 8.0


def test_keepalive_starts_anew() -> None:
    connection = server(ResumeLimits(time=1000))
    connection.suspend(10.0)
    connection.accept_resume(resume(0), 500.0)
    assert connection.get_timer() == 590.0
    assert connection.silence(545.0) == 0.5
    assert connection.handle_timer(589.0) == []
    (closed,) = connection.handle_timer(590.0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, KeepaliveTimeout)


def test_silence_before_setup() -> None:
    assert Connection(Role.SERVER, now=0.0).silence(5.0) == 0.0


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.CONNECTION_ERROR, PeerError), (ErrorCode.REJECTED_RESUME, PeerError)],
)
def test_a_refused_resume(code: int, kind: type[RSocketError]) -> None:
    connection = client()
    connection.suspend(0.0)
    connection.send_resume()
    (closed,) = connection.receive_data(error_frame(0, code, "no"), 0.0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, kind)
    assert closed.error.code == code
    with pytest.raises(LocalProtocolError, match="CLOSED"):
        connection.send_resume()


@pytest.mark.parametrize("position", [0, 9])
def test_resume_ok(position: int) -> None:
    connection = client()
    stream = connection.open(FrameType.REQUEST_RESPONSE)
    connection.send_request(stream, b"abc")
    connection.data_to_send()
    connection.suspend(0.0)
    written = frames_in(connection.send_resume())
    assert Resume.parse(written[0]) == resume(0, 0)
    ok = resume_ok_frame(position)
    for at in range(len(ok) - 1):
        assert connection.receive_data(ok[at : at + 1], 1.0) == []
    events = connection.receive_data(ok[-1:] + PAYLOAD, 1.0)
    resumed, frame = events
    assert isinstance(resumed, Resumed)
    assert b"".join(resumed.again) == REQUEST * (position == 0)
    assert isinstance(frame, Frame)
    assert frame.stream is stream
    assert connection.received == 12
    assert connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("position", [1, 8, 10])
def test_resume_ok_with_a_wrong_position(position: int) -> None:
    connection = client()
    stream = connection.open(FrameType.REQUEST_RESPONSE)
    connection.send_request(stream, b"abc")
    connection.suspend(0.0)
    connection.send_resume()
    (closed,) = connection.receive_data(resume_ok_frame(position), 0.0)
    assert isinstance(closed, Closed)
    assert "from which no frame is kept" in str(closed.error)


@pytest.mark.parametrize(
    "first",
    [
        PAYLOAD,
        keepalive_frame(respond=True),
        raw(2, FrameType.RESUME_OK, body=bytes(8)),
        error_frame(1, ErrorCode.CANCELED, ""),
    ],
)
def test_another_answer_to_resume(first: bytes) -> None:
    connection = client()
    connection.suspend(0.0)
    connection.send_resume()
    (closed,) = connection.receive_data(first, 0.0)
    assert isinstance(closed, Closed)
    assert "is no answer to RESUME" in str(closed.error)


@pytest.mark.parametrize("first", [b"\x00\x00\x05", raw(0, FrameType.RESUME_OK, body=bytes(7))])
def test_a_broken_answer_to_resume(first: bytes) -> None:
    connection = client()
    connection.suspend(0.0)
    connection.send_resume()
    (closed,) = connection.receive_data(first + bytes(9), 0.0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, MalformedFrame)


def test_a_server_that_is_sent_resume_after_setup() -> None:
    connection = server()
    (closed,) = connection.receive_data(resume(0).serialize(), 0.0)
    assert isinstance(closed, Closed)
    assert str(closed.error) == "CONNECTION_ERROR: RESUME after SETUP"


def test_a_broken_resume() -> None:
    connection = ResumableConnection(Role.SERVER, None, ResumeLimits(), now=0.0)
    (closed,) = connection.receive_data(raw(0, FrameType.RESUME), 0.0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, RejectedResume)
    assert frames_in(connection.data_to_send())[0].error_code == ErrorCode.REJECTED_RESUME


def test_it_ends_with_a_close_meanwhile() -> None:
    connection = server()
    asked(connection)
    connection.suspend(0.0)
    (closed,) = connection.close(ErrorCode.CONNECTION_CLOSE)
    assert isinstance(closed, Closed)
    assert len(closed.streams) == 1
