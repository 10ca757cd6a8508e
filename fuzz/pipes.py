"""Send random and mutated bytes to the decoder and the two ends of pipes.

The invariant of a frame: it is read, or refused with `PipeFrameError` with a short printable text;
no other error is raised. A frame has one form only, so it is written as it was read. A reader with
a cache of routes agrees with one without. The frame is then given to the state machines of both
ends, on a simulated clock. Their windows bound the messages they hold, and the sender accounts for
each message. The process does not grow.

    python fuzz/pipes.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, mutated, noise, run

from onward.protocol import Context, Message, route
from onward.protocol.pipes import (
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
    PipeOptions,
    PipeReceiverOptions,
    PipeRefusal,
    PipeRefused,
    Receiver,
    Sender,
    SenderState,
    Unknown,
    Welcome,
    WindowOverflow,
    decode_frame,
    encode_frame,
    frame_identity,
)

ID: Final = bytes(range(16))
EPOCH: Final = bytes(range(8))
NUMBERS: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "02", "05", "40", "7f", "80", "8000", "8001", "ff", "ff" * 9 + "01")
]


WINDOW: Final = 8
WINDOW_BYTES: Final = 64
FRAME_MESSAGES: Final = 4
MOST_IN_A_FRAME: Final = 32
"""The most messages in a frame that mutations make."""


def data_frames() -> list[bytes]:
    messages = tuple(
        Message(
            route("hop => printer"),
            route("app")[: number % 2],
            bytes(number),
            None,
            Context(trace="{}") if number == 1 else None,
        )
        for number in range(FRAME_MESSAGES)
    )
    return [
        encode_frame(PipeData(ID, EPOCH, Mode(ordering), base, first, messages[:count]))
        for ordering in Ordering
        for base, first, count in ((1, 1, 1), (1, 2, 3), (3, 7, 2), (1, 12, 4), (9, 9, 0))
    ]


FRAMES_OF_BOTH: Final = [
    encode_frame(frame)
    for frame in (
        OpenPipe(ID, Mode()),
        PipeOpened(ID, EPOCH, 5, 100, 20_000),
        Confirm(ID, EPOCH, 3, ((5, 5), (7, 9)), ((2, 3),)),
        Confirm(ID, EPOCH, 2),
        End(ID, EPOCH, Mode(), 9),
        End(ID, EPOCH, Mode(Ordering.NONE), 1 << 63),
        Ended(ID, EPOCH),
        Abort(ID, EPOCH),
        Unknown(ID, EPOCH),
        Hello(ID, 1000),
        Welcome(ID, 300),
        PipeRefused(ID, PipeRefusal.FULL),
    )
]


class Pipes:
    """The decoder of pipe frames, and the two ends of a pipe."""

    def __init__(self) -> None:
        self.pieces = NUMBERS
        self.seeds = [*data_frames(), *FRAMES_OF_BOTH]
        self.reader = PipeFrameReader()
        self.now = 0.0
        self.receiver = self.new_receiver(Mode())
        self.sender = self.new_sender()

    def new_receiver(self, mode: Mode) -> Receiver:
        options = PipeReceiverOptions(window=WINDOW, window_bytes=WINDOW_BYTES)
        return Receiver(options, ID, EPOCH, mode, self.now)

    def new_sender(self) -> Sender:
        options = PipeOptions(window=WINDOW, queue=WINDOW, frame_messages=FRAME_MESSAGES)
        return Sender(options, lambda: ID)

    def check(self, random: Random, data: bytes) -> bool:
        self.now += random.choice((0.0, 0.001, 1.0, 70.0))
        if random.random() < 0.02:
            mode = Mode(Ordering(random.randrange(3)), random.random() < 0.7)
            self.receiver, self.sender = self.new_receiver(mode), self.new_sender()
        frame = self.read(data)
        if frame is None:
            return False
        if isinstance(frame, OpenPipe | PipeData | End | Abort):
            if frame.identity == ID:
                self.check_receiver(random, frame)
        else:
            self.check_sender(random, frame)
        return True

    def read(self, data: bytes) -> Frame | None:
        """Read a frame with a cache of routes and without."""
        try:
            frame = self.reader.read(data)
        except PipeFrameError as error:
            check_text_of(error)
            try:
                decode_frame(data)
            except PipeFrameError:
                return None
            raise AssertionError("only one reader reads it") from error
        if decode_frame(data) != frame or encode_frame(frame) != data:
            raise AssertionError(f"{frame} is read or written otherwise")
        if frame_identity(data) != frame.identity:
            raise AssertionError("it has two identities")
        return frame

    def check_receiver(self, random: Random, frame: OpenPipe | PipeData | End | Abort) -> None:
        receiver = self.receiver
        if not isinstance(frame, OpenPipe) and frame.epoch == EPOCH:
            frame = replace(frame, epoch=receiver.epoch)  # a pipe without confirmation has no epoch
        receiver.receive(frame, self.now)
        self.settle_receiver()
        if receiver.ready and random.random() < 0.5:
            if random.random() < 0.2:
                receiver.refuse()
            else:
                receiver.handed_on(random.randint(1, len(receiver.ready)))
            self.settle_receiver()
        if random.random() < 0.1:
            receiver.handle_timer(self.now)
            self.settle_receiver()

    def settle_receiver(self) -> None:
        receiver = self.receiver
        for answer in receiver.answers(self.now):
            decode_frame(answer)
        for event in receiver.take_events():
            if not isinstance(event, WindowOverflow) and not 0 < event.first <= event.last:
                raise AssertionError(f"{event}")
        # A receiver without confirmation accepts a whole frame while its window is not full.
        if len(receiver._missed) > WINDOW:
            raise AssertionError(f"{len(receiver._missed)} ranges were missed, over the window")
        most = WINDOW if receiver.mode.confirm else 2 * WINDOW + MOST_IN_A_FRAME
        if receiver.held > most:
            raise AssertionError(f"{receiver.held} messages are held, over {most}")

    def check_sender(self, random: Random, frame: Frame) -> None:
        sender = self.sender
        while sender.room and random.random() < 0.6 and sender.state is not SenderState.CLOSED:
            context = Context(self.now + random.choice((0.0, 5.0)), random.choice((None, "{}")))
            payload = b"x" * random.randrange(20)
            sender.send(Message(route("printer"), (), payload, None, context))
        for sent in sender.frames(self.now):
            decode_frame(sent)
        sender.receive(frame, self.now)
        if random.random() < 0.1:
            sender.handle_timer(self.now)
        for sent in sender.frames(self.now):
            decode_frame(sent)
        sender.take_events()
        if sender.unconfirmed > WINDOW or sender.waiting > WINDOW:
            raise AssertionError(f"{sender.unconfirmed} sent and {sender.waiting} wait")
        told = sender.confirmed + sender.missed + sender.in_doubt + sender.unsent + sender.overdue
        if told + sender.unconfirmed + sender.waiting != sender.accepted:
            raise AssertionError(f"{sender.accepted} were accepted, and {told} are accounted for")


def made(random: Random, pipes: Pipes) -> bytes:
    if random.random() < 0.03:
        return noise(random)
    return mutated(random, pipes.seeds, pipes.pieces)


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    pipes = Pipes()
    held = run(
        "pipes", options.count, options.seed, lambda random, _: made(random, pipes), pipes.check
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
