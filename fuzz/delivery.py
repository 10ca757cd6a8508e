"""Send random and mutated bytes to sessions and to the assembler of datagrams.

The decoder of session frames returns a frame, or raises `SessionFrameError` with a short printable
text. A frame has one form only, so it is written as it was read. It is then given to the state
machines of both ends. Each has a timer until it is closed, and none is due again at once. Datagrams
come from several peers, on a simulated clock. The parts of incomplete messages stay within each
limit. The process does not grow.

    python fuzz/delivery.py --count 1000000 --seed 1 --target sessions
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from _fuzzing import arguments_of, check_text_of, mutated, noise, run

from onward.protocol import MalformedMessage, Message, route
from onward.protocol.ockam import (
    Assembler,
    DatagramLimits,
    DatagramPart,
    OffsetPart,
    decode_message,
    encode_message,
    read_part,
    split_message,
)
from onward.protocol.sessions import (
    Acceptor,
    Close,
    CloseAck,
    Frame as SessionFrame,
    LivenessOptions,
    Opener,
    OpenSession,
    Ping,
    Pong,
    SessionData,
    SessionFrameError,
    SessionOpened,
    SessionRefused,
    SessionState,
    decode_frame as decode_session_frame,
    encode_frame as encode_session_frame,
)

ID: Final = bytes(range(16))
EPOCH: Final = bytes(range(8))
NUMBERS: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "02", "05", "40", "7f", "80", "8000", "8001", "ff", "ff" * 9 + "01")
]


class Target(Protocol):
    """A consumer of inputs that holds state between them."""

    seeds: list[bytes]
    pieces: list[bytes]

    def check(self, random: Random, data: bytes) -> bool:
        """Return whether an input was accepted.

        Raises:
            AssertionError: The invariant is broken.
        """
        ...


def made(random: Random, target: Target) -> bytes:
    if random.random() < 0.03:
        return noise(random)
    return mutated(random, target.seeds, target.pieces)


# --- sessions ---------------------------------------------------------------------------------


class Sessions:
    """The decoder of session frames, and the two ends of a session."""

    def __init__(self) -> None:
        body = encode_message(Message(route("echo"), route("app"), b"hi"))
        self.pieces = NUMBERS
        self.seeds = [
            encode_session_frame(frame)
            for frame in (
                OpenSession(ID, 1, 10_000),
                SessionOpened(ID, 1, EPOCH),
                SessionRefused(ID, 1, final=True, reason="too many sessions"),
                Ping(EPOCH, 1, 7),
                Pong(EPOCH, 1, 7),
                SessionData(EPOCH, body),
                SessionData(EPOCH, b""),
                Close(EPOCH, "döne"),
                CloseAck(EPOCH),
            )
        ]
        self.now = 0.0
        self.begin()

    def begin(self) -> None:
        self.opener = Opener(LivenessOptions(), random=lambda: 0.5)
        self.opener.start(self.now)
        self.acceptor = Acceptor(LivenessOptions())
        self.acceptor.opened(self.now, 1)

    def check(self, random: Random, data: bytes) -> bool:
        self.now += random.choice((0.0, 0.1, 5.0))
        try:
            frame = decode_session_frame(data)
        except SessionFrameError as error:
            check_text_of(error)
            return False
        if encode_session_frame(frame) != data:
            raise AssertionError(f"{frame} is written otherwise")
        if isinstance(frame, SessionData):
            try:
                decode_message(frame.body)
            except MalformedMessage as error:
                check_text_of(error)
        self.feed(random, frame)
        return True

    def feed(self, random: Random, frame: SessionFrame) -> None:
        """Give a frame to the end to which a worker would give it."""
        opener, acceptor = self.opener, self.acceptor
        match frame:
            case OpenSession(_, epoch, _, _):
                acceptor.opened(self.now, epoch)
            case SessionOpened(_, epoch, _):
                opener.opened(self.now, epoch)
            case SessionRefused(_, epoch, _, reason):
                opener.failed(self.now, epoch, reason)
            case Ping(_, epoch, _):
                acceptor.heard(self.now, epoch)
            case Pong():
                opener.heard()
            case Close(_, reason):
                random.choice((opener, acceptor)).told(reason)
            case CloseAck():
                random.choice((opener, acceptor)).acked()
            case SessionData():
                random.choice((opener, acceptor)).close(self.now, "done")
        self.check_ends(random)

    def check_ends(self, random: Random) -> None:
        """Check that each end has a timer until it is closed, and none is due at once."""
        opener, acceptor = self.opener, self.acceptor
        for end in (opener, acceptor):
            if random.random() < 0.5:
                end.tick(self.now)
                if end.wake_at is not None and end.wake_at <= self.now:
                    raise AssertionError(f"{end.state} is due at once again")
            if end.wake_at is None and end.state is not SessionState.CLOSED:
                raise AssertionError(f"{end.state} is never left")
        if opener.state is acceptor.state is SessionState.CLOSED:
            self.begin()


# --- datagrams --------------------------------------------------------------------------------

LIMITS: Final = DatagramLimits(
    max_message=4000, messages_of_peer=3, messages=6, max_bytes=8000, max_age=5.0
)


class Datagrams:
    """Datagrams of several peers, and the assembler of their messages."""

    def __init__(self) -> None:
        self.pieces = [
            bytes.fromhex(text)
            for text in (
                *("85", "84", "9f", "98ff", "01", "00", "1901ed", "1903da", "1a7fffffff", "f4"),
                *("1affffffff", "1bffffffffffffffff", "f5", "f6", "40", "58ff", "5affffffff", "ff"),
            )
        ]
        small = encode_message(Message(route("echo"), route("app"), b"hi"))
        large = encode_message(Message(route("echo"), route("app"), bytes(1500)))
        self.seeds = [
            *(part for number in (1, 2, 0xFFFF) for part in split_message(large, number)),
            *(part for number in (1, 9) for part in split_message(large, number, offsets=True)),
            *split_message(small, 3),
            DatagramPart(1, 2, 3, b"x" * 7).serialize(),
            DatagramPart(2, 3, 4, b"").serialize(),
            OffsetPart(1, 5, last=False, content=b"x" * 7).serialize(),
            OffsetPart(1, 493, last=True, content=b"y").serialize(),
            OffsetPart(2, 3999, last=True, content=b"z").serialize(),
        ]
        self.assembler = Assembler(LIMITS)
        self.now = 0.0

    def check(self, random: Random, data: bytes) -> bool:
        self.now += random.random() * 0.05
        try:
            part = read_part(data)
        except MalformedMessage as error:
            check_text_of(error)
        else:
            if read_part(part.serialize()) != part:
                raise AssertionError(f"{part} is read otherwise")
        assembler = self.assembler
        whole = assembler.receive(random.randrange(4), data, self.now)
        if assembler.unfinished > LIMITS.messages or assembler.held > LIMITS.max_bytes:
            raise AssertionError(f"{assembler.unfinished} messages, {assembler.held} bytes")
        if not assembler.unfinished and assembler.held:
            raise AssertionError(f"{assembler.held} bytes of nothing")
        timer = assembler.get_timer()
        if timer is not None and timer <= self.now:
            raise AssertionError("what is too old is still there")
        if whole is None:
            return False
        if not 0 < len(whole) <= LIMITS.max_message:
            raise AssertionError(f"a message of {len(whole)} bytes")
        try:
            decode_message(whole)
        except MalformedMessage as error:
            check_text_of(error)
        return True


TARGETS: Final[dict[str, Callable[[], Target]]] = {
    "datagrams": Datagrams,
    "sessions": Sessions,
}


def tried(name: str, count: int, seed: int) -> bool:
    target = TARGETS[name]()
    return run(name, count, seed, lambda random, _: made(random, target), target.check)


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this one")
    options = parser.parse_args(arguments)
    chosen = [options.target] if options.target else list(TARGETS)
    held = [tried(name, options.count, options.seed) for name in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
