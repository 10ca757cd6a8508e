"""Two ends of a pipe and an adversarial way between them, in one place and in no time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from onward.protocol import Address, Message
from onward.protocol.pipes import (
    Broken,
    End,
    Gap,
    Missed,
    OpenPipe,
    Overdue,
    PipeData,
    PipeFrameReader,
    PipeOptions,
    PipeReceiverOptions,
    Receiver,
    ReceiverState,
    Sender,
    SenderClosed,
    WindowOverflow,
)

TO = (Address(0, b"printer"),)


def message(number: int, size: int = 0) -> Message:
    """Make a message that says which it is."""
    return Message(TO, (), number.to_bytes(4) + b"x" * size)


def number_of(given: Message) -> int:
    """Say which message it is."""
    return int.from_bytes(given.payload[:4])


@dataclass
class Way:
    """What happens to frames on the way, in either direction: probabilities and seconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    delay: tuple[float, float] = (0.01, 0.01)
    cut: bool = False


@dataclass
class Pair:
    """A sender, whatever receivers there are, and the way between."""

    way: Way = field(default_factory=Way)
    seed: int = 0
    options: PipeOptions = field(default_factory=PipeOptions)
    receiver_options: PipeReceiverOptions = field(default_factory=PipeReceiverOptions)
    room: int = 1_000_000
    """Messages that the worker behind the pipe takes before it is full."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 0.0
        self.sender = Sender(self.options, self.identity)
        self.receiver: Receiver | None = None
        self.retired = set[bytes]()
        self.on_the_way: list[tuple[float, int, bool, bytes]] = []
        self.count = 0
        self.handed: list[int] = []
        self.gaps: list[tuple[int, int]] = []
        self.missed: list[int] = []
        self.in_doubt: list[int] = []
        self.unsent: list[int] = []
        self.overdue: list[int] = []
        self.overflow: list[int] = []
        self.whys: list[str] = []
        self.closed = 0
        self.lost = 0
        self.most_kept = 0

    def identity(self) -> bytes:
        return self.random.randbytes(16)

    def send(self, *numbers: int, size: int = 0) -> None:
        for number in numbers:
            self.sender.send(message(number, size))
        self.after_sender()

    def put(self, to_receiver: bool, frame: bytes) -> None:
        way = self.way
        for _ in range(2 if self.random.random() < way.duplicate else 1):
            if way.cut or self.random.random() < way.loss:
                self.lost += 1
                continue
            self.count += 1
            at = self.now + self.random.uniform(*way.delay)
            heapq.heappush(self.on_the_way, (at, self.count, to_receiver, frame))

    def after_sender(self) -> None:
        for frame in self.sender.frames(self.now):
            self.put(True, frame)
        for event in self.sender.take_events():
            match event:
                case Missed(messages):
                    self.missed += map(number_of, messages)
                case Broken(why, in_doubt, unsent):
                    self.whys.append(why)
                    self.in_doubt += map(number_of, in_doubt)
                    self.unsent += map(number_of, unsent)
                    self.after_sender()
                case Overdue(messages):
                    self.overdue += map(number_of, messages)
                case SenderClosed():
                    self.closed += 1

    def after_receiver(self, receiver: Receiver) -> None:
        count = min(len(receiver.ready), self.room)
        if count:
            self.room -= count
            self.handed += [number_of(receiver.ready[at]) for at in range(count)]
            receiver.handed_on(count)
        kept = len(receiver.ready) + len(receiver._held)
        self.most_kept = max(self.most_kept, kept, len(receiver._early))
        for frame in receiver.answers(self.now):
            self.put(False, frame)
        for event in receiver.take_events():
            match event:
                case Gap(first, last):
                    self.gaps.append((first, last))
                case WindowOverflow(messages):
                    self.overflow += map(number_of, messages)

    def make_room(self, room: int) -> None:
        self.room = room
        if self.receiver is not None:
            self.receiver.confirm_soon(self.now)
            self.after_receiver(self.receiver)

    def restart_receiver(self) -> None:
        """The receiver's node goes, with all that was in it, and comes again."""
        self.receiver = None
        self.retired.clear()

    def arrive(self, to_receiver: bool, data: bytes) -> None:
        frame = PipeFrameReader().read(data)
        if not to_receiver:
            self.sender.receive(frame, self.now)
            self.after_sender()
            return
        receiver = self.receiver
        if receiver is None or receiver.identity != frame.identity:
            opens = isinstance(frame, OpenPipe) or (
                isinstance(frame, PipeData | End) and not frame.mode.confirm
            )
            if not opens or frame.identity in self.retired:
                stranger = Receiver(
                    self.receiver_options, frame.identity, b"strange!", self.options.mode, 0
                )
                stranger.receive(frame, self.now)  # type: ignore[arg-type]
                for answer in stranger.answers(self.now):
                    self.put(False, answer)
                return
            if receiver is not None:
                self.retired.add(receiver.identity)
                receiver.close()
                self.after_receiver(receiver)
            receiver = self.receiver = Receiver(
                self.receiver_options,
                frame.identity,
                self.random.randbytes(8),
                frame.mode,  # type: ignore[union-attr]
                self.now,
            )
        receiver.receive(frame, self.now)  # type: ignore[arg-type]
        self.after_receiver(receiver)

    def times(self) -> list[float]:
        """Return when anything will happen."""
        times = [self.sender.timer()]
        if self.receiver is not None and self.receiver.state is not ReceiverState.CLOSED:
            times.append(self.receiver.timer())
        if self.on_the_way:
            times.append(self.on_the_way[0][0])
        return [each for each in times if each is not None]

    def step(self, at: float) -> None:
        """Do what comes next, at its time."""
        self.now = max(self.now, at)
        timer = self.sender.timer()
        if self.on_the_way and self.on_the_way[0][0] <= self.now:
            _, _, to_receiver, frame = heapq.heappop(self.on_the_way)
            self.arrive(to_receiver, frame)
        elif timer is not None and timer <= self.now:
            self.sender.handle_timer(self.now)
            self.after_sender()
        elif self.receiver is not None:
            self.receiver.handle_timer(self.now)
            self.after_receiver(self.receiver)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        for _ in range(1_000_000):
            times = self.times()
            if not times or min(times) > end:
                self.now = end
                return
            self.step(min(times))
        raise AssertionError("it never comes to rest")
