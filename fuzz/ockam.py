"""Throw random and mutated bytes at the decoder of the node-to-node wire.

Each input is read as the body of a frame and, every `STREAM_EVERY` inputs, as part of a
stream cut at random places. The invariant: a message, or `MalformedMessage` (for a stream: kept
as the connection's error), and nothing else. The two readers agree on every input.
What was read can be written, and read again as the same. The process does not grow.

    python fuzz/ockam.py --count 10000000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random

from onward.protocol import Context, MalformedMessage, Message, route
from onward.protocol.ockam import PREAMBLE, MessageDecoder, WireConnection, encode_message
from onward.protocol.ockam._codec import _decode_any

STREAM_EVERY = 64
MAX_GROWTH = 32 * 1024 * 1024
"""Bytes the resident memory may grow after the first tenth of the inputs."""

# Headers on the edge of what the wire allows; a mutation puts one anywhere.
HEADERS = (
    *map(bytes.fromhex, ("40", "58ff", "59ffff", "5affffffff", "5bffffffffffffffff", "5f")),
    *map(bytes.fromhex, ("60", "61ff", "7f", "80", "82", "83", "84", "85", "98ff", "99ffff")),
    *map(bytes.fromhex, ("9affffffff", "9bffffffffffffffff", "9f", "a1", "bf", "c1", "c2")),
    *map(bytes.fromhex, ("bbffffffffffffffff", "d9d9f7", "f4", "f6", "f7", "f81f", "ff")),
    *map(bytes.fromhex, ("fb7ff0000000000000", "00", "17", "18ff", "190100", "20", "1c")),
    *map(bytes.fromhex, ("1bffffffffffffffff", "5c")),
)

SEEDS = [
    encode_message(message)
    for message in (
        Message(route("echoer"), route("app"), b"\x05hello"),
        Message(route("echoer"), route("app"), b"\x05hello", None, Context(trace="{}")),
        Message((), (), b""),
        Message(route("h1 => echoer"), route("0123456789abcdef0123456789abcdef"), bytes(300)),
        Message(route("1#127.0.0.1:4000", "32#service=orders"), route("a => b => c"), b"x" * 20),
        Message(route(["hop"] * 30), route(["hop"] * 30), b"loop"),
    )
] + [
    bytes.fromhex("9f9f9f004161ffff9f8300416100ff4101f6a10102ff"),
    bytes.fromhex("8681820041778082004161410163e282ac8201f4a0"),
]


def mutated(random: Random) -> bytes:
    data = bytearray(random.choice(SEEDS))
    for _ in range(1 + int(random.expovariate(1.0))):
        place = int(random.random() * (len(data) + 1))
        kind = int(random.random() * 5)
        if kind == 0 and place < len(data):
            data[place] = int(random.random() * 256)
        elif kind == 1:
            header = HEADERS[int(random.random() * len(HEADERS))]
            data[place : place + len(header)] = header
        elif kind == 2:
            data[place:place] = HEADERS[int(random.random() * len(HEADERS))]
        elif kind == 3:
            del data[place : place + 1 + int(random.random() * 4)]
        else:
            other = random.choice(SEEDS)
            data[place:] = other[int(random.random() * len(other)) :]
    return bytes(data)


def made(random: Random) -> bytes:
    if random.random() < 0.1:
        return random.randbytes(int(random.random() * 48))
    return mutated(random)


def check_body(decoder: MessageDecoder, body: bytes) -> bool:
    """Read one body with both readers; return whether it holds a message."""
    try:
        message = decoder.decode(body)
    except MalformedMessage as error:
        try:
            other = _decode_any(body)
        except MalformedMessage as second:
            if error.reason != second.reason:
                raise AssertionError(f"{error.reason!r} and {second.reason!r}") from second
            return False
        raise AssertionError(f"only one reader reads {other}") from error
    if message != _decode_any(body):
        raise AssertionError("the readers disagree")
    if decoder.decode(encode_message(message)) != message:
        raise AssertionError("reading is not the inverse of writing")
    return True


def check_stream(random: Random, bodies: list[bytes]) -> None:
    """Feed the bodies as frames, cut anywhere; a second feed in one piece must agree."""
    stream = bytearray(PREAMBLE)
    for body in bodies:
        stream += len(body).to_bytes(4) + body
    if random.random() < 0.3:
        stream[int(random.random() * len(stream))] ^= 1 << int(random.random() * 8)
    pieces, whole = WireConnection(), WireConnection()
    messages: list[Message] = []
    start = 0
    while start < len(stream):
        end = start + 1 + int(random.random() * 90)
        messages += pieces.receive_data(bytes(stream[start:end]))
        start = end
    together = whole.receive_data(bytes(stream))
    for wire in (pieces, whole):
        wire.receive_eof()
        if not wire.closed:
            raise AssertionError("open after the end of the stream")
    if messages != together or str(pieces.error) != str(whole.error):
        raise AssertionError("a stream in pieces is read differently")


def resident() -> int:
    """Bytes of memory the process has resident; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000, help="inputs to try")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    options = parser.parse_args(arguments)
    random = Random(options.seed)
    decoder = MessageDecoder()
    recent: list[bytes] = []
    accepted = 0
    before = 0
    started = time.perf_counter()
    for number in range(options.count):
        if number == options.count // 10:
            before = resident()
        body = made(random)
        recent.append(body)
        try:
            accepted += check_body(decoder, body)
            if len(recent) == STREAM_EVERY:
                check_stream(random, random.choices(recent, k=8) + SEEDS[:2])
                recent.clear()
        except Exception as error:  # noqa: BLE001 - any is a finding
            print(f"ockam: FAILED at input {number}, seed {options.seed}: {error!r}")
            print(f"input {body.hex()}")
            return 1
    grown = resident() - before
    print(
        f"ockam: {options.count} inputs, seed {options.seed}: {accepted} messages, "
        f"{options.count - accepted} refused, {grown / 1024:.0f} KiB grown, "
        f"{time.perf_counter() - started:.1f} s"
    )
    if grown > MAX_GROWTH:
        print(f"ockam: FAILED: over {MAX_GROWTH} bytes grown")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
