"""RSocket connections wired in memory, and frames written by hand."""

from __future__ import annotations

from onward.protocol.rsocket import (
    Connection,
    ConnectionLimits,
    Event,
    Frame,
    FrameType,
    Role,
    Setup,
    Stream,
    split_frames,
)

MAX_N = 2**31 - 1


def raw(stream_id: int, frame_type: int, flags: int = 0, body: bytes = b"") -> bytes:
    """Return a frame made from its fields, right or wrong."""
    head = stream_id.to_bytes(4) + (frame_type << 10 | flags).to_bytes(2)
    return (len(head) + len(body)).to_bytes(3) + head + body


def u24(number: int) -> bytes:
    return number.to_bytes(3)


def u32(number: int) -> bytes:
    return number.to_bytes(4)


def frames_in(data: bytes | bytearray) -> list[Frame]:
    """Return the frames of bytes that are nothing but whole frames."""
    frames, rest = split_frames(b"", bytes(data))
    assert rest == b""
    return frames


def sent(connection: Connection) -> list[Frame]:
    """Return the frames a connection has queued."""
    return frames_in(connection.data_to_send())


def server(limits: ConnectionLimits | None = None, setup: Setup | None = None) -> Connection:
    """Return a server that has accepted a SETUP at time 0."""
    made = Connection(Role.SERVER, limits, now=0.0)
    (event,) = made.receive_data((setup or Setup()).serialize(), 0.0)
    assert isinstance(event, Frame)
    assert event.type == FrameType.SETUP
    return made


def client(limits: ConnectionLimits | None = None, setup: Setup | None = None) -> Connection:
    """Return a client that has sent its SETUP at time 0."""
    made = Connection(Role.CLIENT, limits, now=0.0)
    made.send_setup(setup or Setup())
    made.data_to_send()
    return made


def pair(limits: ConnectionLimits | None = None) -> tuple[Connection, Connection]:
    """Return a client and a server, connected."""
    return client(limits), server(limits)


def transfer(source: Connection, target: Connection, now: float = 0.0) -> list[Event]:
    """Carry what one connection has queued to the other."""
    return target.receive_data(bytes(source.data_to_send()), now)


def carry(source: Connection, target: Connection) -> list[Frame]:
    """Like `transfer`, where nothing but frames is expected."""
    return frames_of(transfer(source, target))


def frames_of(events: list[Event]) -> list[Frame]:
    frames = [event for event in events if isinstance(event, Frame)]
    assert len(frames) == len(events), events
    return frames


def joined(kind: int, initial_n: int = 1) -> tuple[Connection, Connection, Stream, Stream]:
    """Return a client, a server, and both ends of a stream the client has opened."""
    left, right = pair()
    ours = left.open(kind)
    left.send_request(ours, b"", initial_n=initial_n)
    (frame,) = carry(left, right)
    return left, right, ours, frame.stream


def metadata_of(frame: Frame) -> bytes | None:
    """Return a frame's metadata as bytes, which a checker lets one compare."""
    found = frame.metadata
    return None if found is None else bytes(found)


def data_of(frame: Frame) -> bytes | None:
    """Return a frame's data as bytes, which a checker lets one compare."""
    found = frame.data
    return None if found is None else bytes(found)
