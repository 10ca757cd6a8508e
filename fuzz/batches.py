"""Throw random and mutated bytes at batches: at their frames, and at the receiving end.

The invariant of a frame: it is read, or refused with `BatchFrameError` with a short text of plain
characters, and nothing else; what was read is written and read as the same. What was read goes into
a receiver with room for few partitions: it remembers no more, and for each partition the rows that
are handed on have numbers without a gap and without one twice. The process does not grow.

    python fuzz/batches.py --count 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from onward.protocol.batches import (
    Batch,
    BatchAnswer,
    BatchFrameError,
    BatchOptions,
    BatchReceiver,
    Reason,
    Status,
    decode_answer,
    decode_batch,
    encode_answer,
    encode_batch,
)

MAX_ERROR_TEXT: Final = 200
MAX_GROWTH: Final = 32 * 1024 * 1024
"""Bytes the resident memory may grow after the first tenth of the inputs."""

PARTITIONS: Final = 4
ROWS: Final = 50

PIECES: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "17", "1818", "40", "4161", "58ff", "5a7fffffff", "80", "89", "9f")
] + [bytes.fromhex(text) for text in ("9affffffff", "a0", "c0", "f4", "f5", "ff", "1b" + "f" * 16)]

SEEDS: Final = [
    encode_batch(Batch("q", partition, epoch, first, rows, last, to))
    for partition in (0, 1, 9)
    for epoch in (0, 1)
    for first in (0, 1, 3)
    for rows in ((b"a",), (b"a", b"", b"ccc"))
    for last in (False, True)
    for to in ("", "other")
]
SEEDS.append(encode_batch(Batch("q", 0, 0, 1, (), True)))
ANSWERS: Final = [
    encode_answer(BatchAnswer(Status.ACCEPTED, 300)),
    encode_answer(BatchAnswer(Status.REFUSED, 3, Reason.GAP)),
]


def mutated(random: Random, seeds: list[bytes]) -> bytes:
    data = bytearray(random.choice(seeds))
    for _ in range(int(random.expovariate(1.0))):
        place = int(random.random() * (len(data) + 1))
        kind = int(random.random() * 5)
        if kind == 0 and place < len(data):
            data[place] = int(random.random() * 256)
        elif kind == 1:
            piece = random.choice(PIECES)
            data[place : place + len(piece)] = piece
        elif kind == 2:
            data[place:place] = random.choice(PIECES)
        elif kind == 3:
            del data[place : place + 1 + int(random.random() * 4)]
        else:
            other = random.choice(seeds)
            data[place:] = other[int(random.random() * len(other)) :]
    return bytes(data)


def check_text_of(error: Exception) -> None:
    text = str(error)
    if not (0 < len(text) <= MAX_ERROR_TEXT and text.isprintable()):
        raise AssertionError(f"the error's text: {text!r}")


class Batches:
    """Frames of batches, and the receiver that takes them in."""

    def __init__(self) -> None:
        self.receiver = BatchReceiver(BatchOptions(max_partitions=PARTITIONS, max_rows=ROWS))

    def check(self, random: Random, data: bytes) -> bool:
        if random.random() < 0.001:
            self.receiver = BatchReceiver(self.receiver.options, self.receiver.progress)
        self.check_answer(mutated(random, ANSWERS))
        try:
            batch = decode_batch(data, max_rows=ROWS)
        except BatchFrameError as error:
            check_text_of(error)
            return False
        if decode_batch(encode_batch(batch)) != batch:
            raise AssertionError(f"{batch} is written otherwise")
        self.check_receiver(random, batch)
        return True

    def check_answer(self, data: bytes) -> None:
        try:
            answer = decode_answer(data)
        except BatchFrameError as error:
            check_text_of(error)
            return
        if decode_answer(encode_answer(answer)) != answer:
            raise AssertionError(f"{answer} is written otherwise")

    def check_receiver(self, random: Random, batch: Batch) -> None:
        receiver = self.receiver
        key = batch.query, batch.to, batch.partition
        before = {(each.query, each.to, each.partition): each for each in receiver.progress}
        found = receiver.receive(batch)
        if not isinstance(found, BatchAnswer):
            known = before.get(key)
            expected = known.next if known is not None and known.epoch == batch.epoch else 0
            if found.first != expected or not found.rows:
                raise AssertionError(f"rows from {found.first} on, not from {expected}")
            answer = receiver.failed(found) if random.random() < 0.2 else receiver.taken(found)
            if answer.done and answer.next != batch.end:
                raise AssertionError(f"{answer} for rows up to {batch.end}")
        statistics = receiver.statistics()
        if statistics.partitions > PARTITIONS or statistics.in_hand:
            raise AssertionError(f"{statistics}")


def resident() -> int:
    """Bytes of memory the process has resident; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000, help="inputs to try")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    options = parser.parse_args(arguments)
    random, batches = Random(options.seed), Batches()
    started, before, taken = time.perf_counter(), 0, 0
    for number in range(options.count):
        if number == options.count // 10:
            before = resident()
        data = mutated(random, SEEDS)
        try:
            taken += batches.check(random, data)
        except Exception as error:  # noqa: BLE001 - any is a finding
            print(f"batches: FAILED at input {number}, seed {options.seed}: {error!r}")
            print(f"input {data.hex()}")
            return 1
    grown = resident() - before
    print(
        f"batches: {options.count} inputs, seed {options.seed}: {taken} batches, "
        f"{options.count - taken} refused, {grown / 1024:.0f} KiB grown, "
        f"{time.perf_counter() - started:.1f} s"
    )
    if grown > MAX_GROWTH:
        print(f"batches: FAILED: over {MAX_GROWTH} bytes grown")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
