"""Send random and mutated bytes to the RSocket decoders and to a connection.

Four targets, each with `--count` inputs:

- *frames*: one input is the bytes of a frame. Each field can be read, or the decoder raises
  `MalformedFrame`. A SETUP is a `Setup` that is written as it was read, or `InvalidSetup`.
- *composite*: one input is composite metadata. The functions that read all entries, find one
  and find one of several agree, or all raise `MalformedComposite`. Entries are written as read.
- *connection*: one input is a frame in a stream of bytes that is cut anywhere, fed to a server
  and relayed to another connection as a broker does. Only documented events are emitted. A
  relayed frame differs in its id and in the bits that strict peers refuse, closed streams are
  forgotten, and all frames sent are well-formed. The destination's frames are relayed back.

- *resume*: one input is a RESUME or an answer to it, whole or mutated, with random positions. A
  server accepts exactly the positions of frames that it keeps, and
  sends the frames from there on; a client goes on exactly after a RESUME_OK with such a position.

No other error is raised, and the process does not grow.

    python fuzz/rsocket.py --count 10000000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import Random

from _fuzzing import MAX_GROWTH, resident

from onward.protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    IGNORE,
    LENGTH_SIZE,
    METADATA,
    NEXT,
    Closed,
    Connection,
    ConnectionLimits,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    InvalidSetup,
    LocalProtocolError,
    MalformedComposite,
    MalformedFrame,
    RejectedResume,
    ResumableConnection,
    Resume,
    Resumed,
    ResumeLimits,
    Role,
    Setup,
    build_composite,
    cancel_frame,
    check_frame,
    entry_finder,
    error_frame,
    find_entry,
    iterate_composite,
    keepalive_frame,
    lease_frame,
    metadata_push_frame,
    parse_frame,
    payload_frames,
    request_frames,
    request_n_frame,
    resume_ok_frame,
    split_frames,
)

BATCH = 32
"""Frames that are fed to a connection as one stream of bytes."""

ALL_FLAGS = IGNORE | METADATA | FOLLOWS | COMPLETE | NEXT
MEANT: dict[int, int] = {
    FrameType.REQUEST_RESPONSE: METADATA | FOLLOWS,
    FrameType.REQUEST_FNF: METADATA | FOLLOWS,
    FrameType.REQUEST_STREAM: METADATA | FOLLOWS,
    FrameType.REQUEST_CHANNEL: METADATA | FOLLOWS | COMPLETE,
    FrameType.REQUEST_N: 0,
    FrameType.CANCEL: 0,
    FrameType.PAYLOAD: METADATA | FOLLOWS | COMPLETE | NEXT,
    FrameType.ERROR: 0,
}
"""The flags that have a meaning in a frame of a stream, besides I."""
FIXED: dict[int, int] = {FrameType.REQUEST_N: 4, FrameType.CANCEL: 0}
"""The bytes after the header of frames with fixed fields only; others are not relayed."""

BROKER = "message/x.rsocket.broker.frame.v0"
ROUTING = "message/x.rsocket.routing.v0"

ENTRIES: tuple[list[tuple[str | int, bytes]], ...] = (
    [(BROKER, b"address bytes")],
    [(ROUTING, b"\x05route"), (BROKER, b"")],
    [(0x50, b"odd"), ("text/plain", b"x" * 40), (BROKER, b"a"), (BROKER, b"b")],
    [("x", b""), ("y" * 128, b"z")],
)
COMPOSITES = [build_composite(entries) for entries in ENTRIES]
SETUPS = [
    Setup().serialize(),
    Setup(metadata=COMPOSITES[0], data=b"data", lease=True, token=b"token").serialize(),
]
IDS = (1, 2, 3, 5, 7)
STREAM_FRAMES = [
    frame
    for number in IDS
    for frame in (
        *request_frames(FrameType.REQUEST_RESPONSE, number, b"data", COMPOSITES[0]),
        *request_frames(FrameType.REQUEST_FNF, number, b"data"),
        *request_frames(FrameType.REQUEST_STREAM, number, b"", b"", initial_n=3),
        *request_frames(FrameType.REQUEST_CHANNEL, number, b"x" * 90, COMPOSITES[1], mtu=64),
        *payload_frames(number, b"element"),
        *payload_frames(number, b"", b"", complete=True),
        *payload_frames(number, next=False, complete=True),
        request_n_frame(number, 2),
        cancel_frame(number),
        error_frame(number, ErrorCode.APPLICATION_ERROR, "text"),
    )
]
CONTROL_FRAMES = [
    keepalive_frame(b"ping", respond=True),
    metadata_push_frame(COMPOSITES[0]),
    lease_frame(1000, 5, b"m"),
    error_frame(0, ErrorCode.APPLICATION_ERROR, "ignored"),
]
FRAMES = STREAM_FRAMES + CONTROL_FRAMES + SETUPS
EDGES = (b"\0", b"\xff", b"\0\0\0", b"\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\x7f")


def mutated(random: Random, corpus: list[bytes]) -> bytes:
    """Return an input with about two changes, or in one of 20 cases random bytes."""
    roll = random.random
    if roll() < 0.05:
        return random.randbytes(int(roll() * 40))
    data = bytearray(corpus[int(roll() * len(corpus))])
    while True:
        place = int(roll() * (len(data) + 1))
        kind = int(roll() * 5)
        if kind <= 1:
            if place < len(data):
                data[place] = int(roll() * 256)
        elif kind == 2:
            edge = EDGES[int(roll() * len(EDGES))]
            data[place : place + len(edge)] = edge
        elif kind == 3:
            del data[place : place + 1 + int(roll() * 4)]
        else:
            data[place:place] = EDGES[int(roll() * len(EDGES))]
        if roll() < 0.5:
            return bytes(data)


# --- frames -------------------------------------------------------------------------------

FIELDS: dict[int, tuple[str, ...]] = {
    FrameType.REQUEST_STREAM: ("initial_request_n",),
    FrameType.REQUEST_CHANNEL: ("initial_request_n",),
    FrameType.REQUEST_N: ("request_n",),
    FrameType.ERROR: ("error_code", "error_text"),
    FrameType.KEEPALIVE: ("position",),
    FrameType.LEASE: ("time_to_live", "number_of_requests"),
}


def with_length(data: bytes) -> bytes:
    """Put the correct length before a body, so that not all inputs end at their length."""
    body = data[3:]
    return len(body).to_bytes(3) + body


def try_frames(random: Random, count: int) -> int:
    """Decode `count` inputs; return how many are frames."""
    accepted = 0
    for _ in range(count):
        data = mutated(random, FRAMES)
        if random.random() < 0.8:
            data = with_length(data)
        try:
            frame = parse_frame(data)
        except MalformedFrame:
            continue
        accepted += 1
        metadata, rest = frame.metadata, frame.data
        size = len(metadata or b"") + len(rest or b"")
        if size > len(data) - 9:
            raise AssertionError(f"{size} bytes in a frame of {len(data)}: {data.hex()}")
        for field in FIELDS.get(frame.type, ()):
            getattr(frame, field)
        if frame.type == FrameType.SETUP:
            check_setup(frame)
    return accepted


def check_setup(frame: Frame) -> None:
    try:
        setup = Setup.parse(frame)
    except InvalidSetup:
        return
    if Setup.parse(parse_frame(setup.serialize())) != setup:
        raise AssertionError(f"reading is not the inverse of writing: {setup}")


# --- composite metadata -------------------------------------------------------------------

find_one_of = entry_finder(ROUTING.encode(), BROKER.encode())


def try_composite(random: Random, count: int) -> int:
    """Decode `count` inputs; return how many are composite metadata."""
    accepted = 0
    for _ in range(count):
        data = mutated(random, COMPOSITES)
        name = BROKER.encode()
        try:
            entries = list(iterate_composite(data))
        except MalformedComposite:
            check_refused(data, name)
            continue
        accepted += 1
        found = find_entry(data, name)
        first = next((bytes(entry.content) for entry in entries if entry.mime == BROKER), None)
        if (None if found is None else data[found[0] : found[1]]) != first:
            raise AssertionError(f"found {found} instead of {first!r} in {data.hex()}")
        which = find_one_of(data, 0, len(data))
        if (which is None) != all(entry.mime not in (ROUTING, BROKER) for entry in entries):
            raise AssertionError(f"found {which} in {data.hex()}")
        again = build_composite(entries)
        if list(iterate_composite(again)) != entries:
            raise AssertionError(f"reading is not the inverse of writing: {data.hex()}")
    return accepted


def check_refused(data: bytes, name: bytes) -> None:
    """Check that the finders refuse broken metadata, or find an entry before the break."""
    for find in (lambda: find_entry(data, name), lambda: find_one_of(data, 0, len(data))):
        try:
            found = find()
        except MalformedComposite:
            continue
        if found is None or found[-1] > len(data):
            raise AssertionError(f"{found} in broken metadata {data.hex()}")


# --- a connection -------------------------------------------------------------------------

LIMITS = ConnectionLimits(max_frame=4096, max_streams=4, setup_timeout=1.0)


class Relay:
    """Two connections of a broker: frames that the first accepts are sent on the second."""

    def __init__(self) -> None:
        self.front = Connection(Role.SERVER, LIMITS, now=0.0)
        self.back = Connection(Role.SERVER, LIMITS, now=0.0)
        self.back.receive_data(SETUPS[0], 0.0)

    def feed(self, data: bytes) -> int:
        """Feed a chunk; return how many frames were accepted."""
        return self.take(self.front.receive_data(data, 0.0))

    def take(self, events: list[Event]) -> int:
        frames = 0
        for event in events:
            if isinstance(event, Frame):
                frames += 1
                self.pass_on(event)
            elif isinstance(event, Closed):
                self.end(event)
            elif isinstance(event, Resumed) or not event.stream.closed:
                raise AssertionError(f"unexpected {event}")
        return frames

    def pass_on(self, frame: Frame) -> None:
        check_frame(frame)
        stream = frame.stream
        if not stream.id:
            return
        if stream.peer is None:
            if frame.type not in (4, 5, 6, 7):
                return  # the request could not be relayed
            try:
                stream.peer = self.back.open(frame.type)
                stream.peer.peer = stream
            except LocalProtocolError:
                self.front.terminate(stream, ErrorCode.REJECTED, "busy")
                return
        onward = stream.peer
        before = self.back.pending
        try:
            self.back.relay(onward, frame)
        except LocalProtocolError:
            # An element needs the destination's credit; the requester had another destination's.
            self.back.terminate(onward, ErrorCode.CANCELED)
            self.front.terminate(stream, ErrorCode.CANCELED)
            return
        size = self.back.pending - before
        out = bytes(self.back.data_to_send())[-size:]
        raw = frame.buffer[frame.start - 3 : frame.end]
        if not is_relayed(raw, out, onward.id):
            raise AssertionError(f"relayed {raw.hex()} as {out.hex()}")

    def answer(self, random: Random) -> None:
        """Feed a frame from the destination on each stream, and relay it if it is accepted."""
        for stream in list(self.back.streams.values()):
            data = STREAM_FRAMES[int(random.random() * len(STREAM_FRAMES))]
            data = data[:3] + stream.id.to_bytes(4) + data[7:]
            for event in self.back.receive_data(data, 0.0):
                if isinstance(event, Closed | Resumed):
                    raise AssertionError(f"{event} after {data.hex()}")  # noqa: TRY004 - a finding
                onward = event.stream.peer
                if isinstance(event, Frame) and not onward.closed:
                    try:
                        self.front.relay(onward, event)
                        continue
                    except LocalProtocolError:
                        self.back.terminate(event.stream, ErrorCode.CANCELED)
                self.front.terminate(onward, ErrorCode.CANCELED)

    def end(self, closed: Closed) -> None:
        for stream in closed.streams:
            if not stream.closed:
                raise AssertionError(f"{stream} is live on a closed connection")
            if stream.peer is not None:
                self.back.terminate(stream.peer, ErrorCode.CANCELED)

    def check(self) -> None:
        """Check both connections after a batch."""
        for side in (self.front, self.back):
            if len(side.streams) > LIMITS.max_streams:
                raise AssertionError("more streams than the limit")
            if any(stream.closed for stream in side.streams.values()):
                raise AssertionError("a stream that is over is still known")
            frames, rest = split_frames(b"", bytes(side.data_to_send()))
            if rest:
                raise AssertionError(f"half a frame was sent: {rest.hex()}")
            for frame in frames:
                check_frame(frame)
        if self.front.closed and self.front.streams:
            raise AssertionError("streams on a closed connection")


def is_relayed(raw: bytes, out: bytes, stream_id: int) -> bool:
    """Whether frames are equal but for the stream id and the bits that strict peers refuse."""
    frame_type, flags = divmod(int.from_bytes(raw[7:9]), 1 << 10)
    out_type, out_flags = divmod(int.from_bytes(out[7:9]), 1 << 10)
    rest = raw[9:][: FIXED.get(frame_type, len(raw))]
    if out[:3] != (6 + len(rest)).to_bytes(3) or out[3:7] != stream_id.to_bytes(4):
        return False
    cleared = flags & ALL_FLAGS & ~(MEANT[frame_type] | IGNORE)
    may_set = 0
    if frame_type == FrameType.PAYLOAD:
        if flags & COMPLETE:
            cleared |= flags & FOLLOWS
        elif not out_flags & NEXT:
            return False
        may_set = NEXT | COMPLETE  # on the last fragment, as the first fragment has them
    same = out_type == frame_type and out[9:] == rest and flags & ~out_flags == cleared
    return same and not out_flags & ~flags & ~may_set


def stream_of_frames(random: Random, number: int) -> bytes:
    """Return frames of which one in twenty is mutated, as most of those close the connection."""
    roll = random.random
    parts: list[bytes] = []
    for _ in range(number):
        if roll() < 0.95:
            parts.append(FRAMES[int(roll() * len(FRAMES))])
        else:
            parts.append(with_length(b"\0\0\0" + mutated(random, FRAMES)[3:].ljust(6, b"\0")))
    if roll() < 0.02:
        parts.append(random.randbytes(20))
    return b"".join(parts)


def try_connection(random: Random, count: int) -> int:
    """Feed `count` frames, whole or not; return how many were accepted."""
    accepted = 0
    relay: Relay | None = None
    roll = random.random
    for start in range(0, count, BATCH):
        data = stream_of_frames(random, min(BATCH, count - start))
        if relay is None or relay.front.closed:
            relay = Relay()
            if roll() < 0.95:
                data = SETUPS[0] + data
        at = 0
        while at < len(data):
            size = 1 + int(roll() * roll() * 2000)
            accepted += relay.feed(data[at : at + size])
            at += size
            relay.answer(random)
        relay.check()
        if roll() < 0.02 and not relay.front.closed:
            relay.take(relay.front.handle_timer(1e9))
            relay.check()
            if not relay.front.closed:
                raise AssertionError("a silent peer was not given up")
    return accepted


TOKEN = bytes(16)


def try_resume(random: Random, count: int) -> int:
    """Resume `count` sessions of servers and clients; return how many were resumed."""
    resumed = 0
    for number in range(count):
        frames = [
            next(payload_frames(1, random.randbytes(random.randrange(40))))
            for _ in range(random.randrange(5))
        ]
        borders = [0]
        for each in frames:
            borders.append(borders[-1] + len(each) - LENGTH_SIZE)
        role = Role.SERVER if number % 2 else Role.CLIENT
        limits = ResumeLimits(max_kept=random.choice((300, 100_000)))
        side = ResumableConnection(role, LIMITS, limits, now=0.0)
        if role is Role.SERVER:
            side.receive_data(Setup(token=TOKEN).serialize(), 0.0)
        else:
            side.send_setup(Setup(token=TOKEN))
        kept = side.kept
        if kept is None:
            raise AssertionError("a token begins a session")
        for each in frames:
            kept.add(each)
        side.suspend(0.0)
        position = random.choice((*borders, random.randrange(200), random.randrange(2**63)))
        fits = position in borders and position >= kept.first
        rest = b"".join(frames)[position + LENGTH_SIZE * borders.index(position) :] if fits else b""
        resume = resume_as_server if role is Role.SERVER else resume_as_client
        resumed += resume(random, side, position, rest if fits else None)
    return resumed


def resume_as_server(
    random: Random, side: ResumableConnection, position: int, rest: bytes | None
) -> bool:
    """Send a RESUME to a new connection, and with what it reads to that of the session."""
    first = random.choice((0, 0, 1))
    data = Resume(token=TOKEN, last_received=position, first_available=first).serialize()
    if random.random() < 0.3:
        data = with_length(b"\0\0\0" + mutated(random, [data])[3:].ljust(6, b"\0"))
    entrance = ResumableConnection(Role.SERVER, LIMITS, ResumeLimits(), now=0.0)
    events = entrance.receive_data(data, 0.0)
    if not events or not isinstance(events[0], Frame) or events[0].type != FrameType.RESUME:
        return False
    asked = Resume.parse(events[0])
    if asked.serialize()[9:] != data[9:]:
        raise AssertionError(f"{data.hex()} was read as {asked}")
    whole = (asked.major, asked.minor) == (1, 0) and asked.last_received == position
    whole = whole and asked.first_available == 0
    try:
        written = side.accept_resume(asked, 0.0)
    except RejectedResume:
        if whole and rest is not None:
            raise AssertionError(f"{asked} was refused") from None
        return False
    if whole and b"".join(written[1:]) != (b"-" if rest is None else rest):
        raise AssertionError(f"{asked} got {written}")
    return True


def resume_as_client(
    random: Random, side: ResumableConnection, position: int, rest: bytes | None
) -> bool:
    """Send an answer to the RESUME of a client."""
    side.send_resume()
    data = resume_ok_frame(position)
    if changed := random.random() < 0.3:
        data = with_length(b"\0\0\0" + mutated(random, [data])[3:].ljust(6, b"\0"))
    events = side.receive_data(data, 0.0)
    resumed = bool(events) and isinstance(events[0], Resumed)
    if not changed and resumed != (rest is not None):
        raise AssertionError(f"after {data.hex()}: {events}")
    if not changed and isinstance(events[0], Resumed) and b"".join(events[0].again) != rest:
        raise AssertionError(f"after {data.hex()}: {events}")
    return resumed


# --- the command --------------------------------------------------------------------------

TARGETS: dict[str, Callable[[Random, int], int]] = {
    "frames": try_frames,
    "composite": try_composite,
    "connection": try_connection,
    "resume": try_resume,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one")
    options = parser.parse_args(arguments)
    parts: list[str] = []
    failed = ""
    for name in options.target or TARGETS:
        random = Random(f"{name} {options.seed}")
        warm_up = options.count // 10
        started = time.perf_counter()
        before = 0
        try:
            accepted = TARGETS[name](random, warm_up)
            before = resident()
            accepted += TARGETS[name](random, options.count - warm_up)
        except Exception as error:  # noqa: BLE001 - any is a finding
            print(f"rsocket: FAILED in {name}, seed {options.seed}: {error!r}")
            return 1
        seconds = time.perf_counter() - started
        grown = resident() - before
        if grown > MAX_GROWTH:
            failed = f"rsocket: FAILED: {name} grew by over {MAX_GROWTH} bytes"
        parts.append(
            f"{name} {accepted} accepted, {options.count - accepted} refused, "
            f"{grown / 1024:.0f} KiB grown, {options.count / seconds:.0f}/s"
        )
    print(f"rsocket: {options.count} inputs each, seed {options.seed}: {'; '.join(parts)}")
    if failed:
        print(failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
