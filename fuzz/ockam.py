"""Send random and mutated bytes to the decoder of the node-to-node wire.

Each input is read as the body of a frame and, every `STREAM_EVERY` inputs, as part of a stream cut
at random places. The invariant: a message, or `MalformedMessage` (for a stream: kept as the
connection's error); no other error is raised. The two readers agree on every input. A message that
was read is written, and read again as the same. The process does not grow.

    python fuzz/ockam.py --count 10000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random

from _fuzzing import arguments_of, mutated, noise, run

from onward.protocol import Context, MalformedMessage, Message, route
from onward.protocol.ockam import PREAMBLE, MessageDecoder, WireConnection, encode_message
from onward.protocol.ockam._codec import _decode_any

STREAM_EVERY = 64

# Headers at the limits of the wire; a mutation puts one anywhere.
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
    """Feed the bodies as frames, cut anywhere; compare with an uncut feed."""
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


def made(random: Random) -> bytes:
    if random.random() < 0.1:
        return noise(random, 48)
    return mutated(random, SEEDS, HEADERS, changes=1)


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    decoder = MessageDecoder()
    recent: list[bytes] = []

    def check(random: Random, body: bytes) -> bool:
        recent.append(body)
        accepted = check_body(decoder, body)
        if len(recent) == STREAM_EVERY:
            check_stream(random, random.choices(recent, k=8) + SEEDS[:2])
            recent.clear()
        return accepted

    held = run("ockam", options.count, options.seed, lambda random, _: made(random), check)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
