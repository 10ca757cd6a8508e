"""Send random and mutated bytes to the reader of sealed segments and to recovery.

Most inputs are mutated block by block and get a new checksum, so that the code behind the checksums
is reached. The invariant of `read_segment`: a segment, or `EventLogError` with a short printable
text; no other error is raised. The same holds for each access to its records. The invariant of
`recover`: it never raises, and the kept bytes with the returned footer are a sealed segment. A
segment that was read is written, and read again as the same. The process does not grow.

    python fuzz/eventlog.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random
from typing import Final
from zlib import crc32

from _fuzzing import arguments_of, check_text_of, noise, run

from onward.protocol.broker import RoutingType
from onward.protocol.eventlog import (
    Asked,
    EventLogError,
    EventName,
    Flow,
    Hop,
    RouteEvent,
    Segment,
    SegmentFooter,
    SegmentHeader,
    block,
    events_block,
    flows_block,
    hops_block,
    names_block,
    read_footer,
    read_segment,
    recover,
    routes_block,
    tagsets_block,
)

HEADER: Final = SegmentHeader("broker", bytes(16), 3, 1, 1_700_000_000_000_000, 0.01)
HEAD: Final = HEADER.serialize()
TAGS: Final = ((1, "orders"), ("colour", None))
NUMBERS: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "18ff", "1a", "9b", "bb", "5f", "7f", "c1", "f6", "ff", "ff" * 8)
]


def hop(seq: int) -> Hop:
    return Hop(seq, HEADER.started_us + seq, seq * 7, 0, 2, 3, 0, 2, 1, 2, 1, 1, 250, 64, 100)


BODIES: Final = [
    names_block(["shop", "orders"]),
    routes_block([bytes(16)]),
    tagsets_block([Asked(TAGS, RoutingType.SHARD, "jump")]),
    hops_block([hop(1), hop(2)]),
    flows_block([Flow(3, HEADER.started_us, 10_000, 1, 2, 1, 1, 2, 3, 4, 500)]),
    events_block([RouteEvent(4, HEADER.started_us, EventName.UP, bytes(16), "orders", TAGS)]),
    hops_block([hop(5)]),
    SegmentFooter(3, 1, 1, 5, HEADER.started_us).serialize(),
]


def mutated(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(1 + int(random.expovariate(1.0))):
        place = int(random.random() * (len(changed) + 1))
        kind = int(random.random() * 4)
        if kind == 0 and place < len(changed):
            changed[place] = int(random.random() * 256)
        elif kind == 1:
            piece = random.choice(NUMBERS)
            changed[place : place + len(piece)] = piece
        elif kind == 2:
            changed[place:place] = random.choice(NUMBERS)
        else:
            del changed[place : place + 1 + int(random.random() * 8)]
    return bytes(changed)


def made(random: Random) -> bytes:
    """Return a segment with blocks changed, left out, repeated or moved."""
    choice = random.random()
    if choice < 0.02:
        return noise(random)
    blocks = list(BODIES)
    if choice < 0.3:
        return mutated(random, HEAD + b"".join(blocks))
    for _ in range(int(random.expovariate(1.0))):
        place = int(random.random() * len(blocks))
        if random.random() < 0.5:
            blocks.insert(place, random.choice(BODIES))
        elif len(blocks) > 1:
            del blocks[place]
    if random.random() < 0.8:
        place = int(random.random() * len(blocks))
        whole = blocks[place]
        kind = random.choice(b"NPTRFEZ") if random.random() < 0.1 else whole[0]
        blocks[place] = block(bytes([kind]), mutated(random, whole[9:]))
    head = HEAD
    if random.random() < 0.1:
        body = mutated(random, HEAD[12:])
        head = b"ONWL" + len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little") + body
    data = head + b"".join(blocks)
    return data[: int(random.random() * len(data))] if random.random() < 0.2 else data


def again(segment: Segment) -> bytes:
    """Write a segment that was read in another order: definitions first."""
    parts = [segment.header.serialize()]
    parts += [names_block(segment.names), routes_block(segment.routes)]
    parts += [tagsets_block(segment.tagsets), hops_block(list(segment.hops()))]
    parts += [flows_block(list(segment.flows())), events_block(segment.events)]
    return b"".join([*parts, segment.footer.serialize()])


def read(data: bytes) -> bool:
    try:
        segment = read_segment(data)
        segment.check()
    except EventLogError as error:
        check_text_of(error)
        return False
    if segment.missing < 0 or read_footer(data[-4096:]) != segment.footer:
        raise AssertionError("its footer does not fit")
    other = read_segment(again(segment))
    if list(other.hops()) != list(segment.hops()) or other.events != segment.events:
        raise AssertionError("it is written otherwise than it was read")
    if (other.header, other.names, other.tagsets) != (
        segment.header,
        segment.names,
        segment.tagsets,
    ):
        raise AssertionError("it is written otherwise than it was read")
    return True


def check(data: bytes) -> bool:
    taken = read(data)
    kept = recover(data)
    if kept.valid + kept.lost != len(data) or (kept.lost and not kept.reason):
        raise AssertionError(f"{kept}")
    if kept.header is not None:
        sealed = data[: kept.valid] + (b"" if kept.sealed else kept.footer.serialize())
        if read_segment(sealed).footer != kept.footer:
            raise AssertionError("what is kept is another segment")
    if taken and (not kept.sealed or kept.lost):
        raise AssertionError("only one reader reads it")
    return taken


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    held = run(
        "eventlog",
        options.count,
        options.seed,
        lambda random, _: made(random),
        lambda _, data: check(data),
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
