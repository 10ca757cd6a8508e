"""Send random and mutated bytes to the decoder, the nodes and the two ends of circuits.

The invariant of a frame: it is read, or refused with `CircuitFrameError`, or `LaterVersion`, with a
short printable text; no other error is raised. What was read and written is read as the same frame.
The bytes are then given to a node and to both kinds of ends, on a simulated clock: what they send
can be read; their unsettled maps and their tables stay within the limits. It does not grow.

    python fuzz/circuits.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, drawn, run

from onward.protocol.dispatch import (
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitEnd,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitLimits,
    CircuitOpened,
    CircuitRefused,
    Circuits,
    CircuitSend,
    CircuitSide,
    CircuitTransfer,
    DetachKind,
    EndState,
    LaterVersion,
    parse_circuit_frame,
    serialize_circuit_frame,
)

KEY: Final = bytes(range(16))
LIMITS: Final = CircuitLimits(max_circuits=4, max_unsettled=4)
FRAMES: Final[list[CircuitFrame]] = [
    CircuitAttach("orders", True, KEY, b"else", 4, b"p", ((b"a", b""), (b"b", b"x"))),
    CircuitAttach("orders", False, KEY, source=bytes(8), anonymous=True),
    CircuitAttached(4),
    CircuitAttached(4, b"", ((b"a", b"x"),)),
    CircuitRefused("no-route", "none"),
    *(CircuitFlow(credit, drain) for credit in (0, 1, 5) for drain in (False, True)),
    CircuitDrained(1),
    *(CircuitTransfer(tag, b"x", more) for tag in (b"a", b"b") for more in (False, True)),
    CircuitTransfer(b"a", b"", aborted=True),
    CircuitTransfer(b"c", b"x", settled=True),
    *(CircuitDisposition(tag, b"x", done) for tag in (b"a", b"b") for done in (False, True)),
    *(CircuitDetach(how, "x", "y") for how in DetachKind),
    CircuitAlive(),
]
PIECES: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "18ff", "1affffffff", "1bffffffffffffffff", "40", "f4", "f5", "f6")
]


class Fuzzed:
    """The decoder of circuit frames, a node, and an end of each kind."""

    def __init__(self) -> None:
        self.seeds = [serialize_circuit_frame(frame) for frame in FRAMES]
        self.now = 0.0
        self.begin()

    def begin(self) -> None:
        self.node = Circuits(b"node", LIMITS)
        self.number = 0
        self.ends = [
            CircuitEnd(producer=producer, key=KEY, resumable=producer, limits=LIMITS)
            for producer in (True, False)
        ]

    def check(self, random: Random, data: bytes) -> bool:
        """Give bytes to everything; return whether they are a frame."""
        self.now += random.choice((0.0, 1.0, 20.0, 400.0))
        if random.random() < 0.05:
            self.begin()
        frame = self.read(data)
        self.check_node(random, frame, data)
        for end in self.ends:
            self.check_end(random, end, frame, data)
        return frame is not None

    def read(self, data: bytes) -> CircuitFrame | None:
        try:
            frame = parse_circuit_frame(data)
        except (CircuitFrameError, LaterVersion) as error:
            check_text_of(error)
            return None
        if parse_circuit_frame(serialize_circuit_frame(frame)) != frame:
            raise AssertionError(f"{frame} is read otherwise when it was written")
        return frame

    def check_node(self, random: Random, frame: CircuitFrame | None, data: bytes) -> None:
        if isinstance(frame, CircuitAttach):
            down = random.choice(("down", "down", None))
            result = self.node.open(frame, "up", down, self.now)
            if isinstance(result, CircuitOpened):
                self.number = result.number
                parse_circuit_frame(result.attach)
                self.readable(self.attached(random))
        else:
            side = random.choice(list(CircuitSide))
            self.readable(self.node.receive(self.number, side, data, self.now))
        if random.random() < 0.05:
            self.readable(self.node.due(self.now))
        if random.random() < 0.01:
            self.readable(self.node.link_lost("up"))
        if sum(self.node.statistics().open.values()) > LIMITS.max_circuits:
            raise AssertionError(f"{self.node.statistics()}")

    def attached(self, random: Random) -> tuple[CircuitSend, ...]:
        if random.random() < 0.2:
            return ()
        data = serialize_circuit_frame(CircuitAttached())
        return self.node.receive(self.number, CircuitSide.DOWNSTREAM, data, self.now)

    def readable(self, sends: tuple[CircuitSend, ...]) -> None:
        for send in sends:
            parse_circuit_frame(send.data)

    def check_end(
        self, random: Random, end: CircuitEnd, frame: CircuitFrame | None, data: bytes
    ) -> None:
        idle = end.state in {EndState.IDLE, EndState.SUSPENDED}
        if idle and isinstance(frame, CircuitAttach):
            if frame.key == KEY and frame.producer is not end.producer:
                end.accept(frame, self.now)
        elif idle:
            end.attach("orders", self.now)
        else:
            end.receive(data, self.now)
        if end.state is EndState.ATTACHED and not end.producer and random.random() < 0.3:
            end.grant(random.randrange(9), self.now)
        if end.can_send and random.random() < 0.3:
            tag = random.randbytes(8)
            end.send(tag, b"x", self.now)
        end.due(self.now)
        for sent in end.data_to_send():
            parse_circuit_frame(sent)
        if len(end.unsettled) > LIMITS.max_unsettled:
            raise AssertionError(f"{len(end.unsettled)} deliveries are unsettled")


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    fuzzed = Fuzzed()
    held = run(
        "circuits",
        options.count,
        options.seed,
        lambda random, _: drawn(random, fuzzed.seeds, PIECES, 0.4),
        fuzzed.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
