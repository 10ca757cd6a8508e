"""Send random and mutated bytes to the decoders of batches and to their receiver.

The invariant of a frame: it is read, or refused with `BatchFrameError` with a short printable text;
no other error is raised. A frame that was read is written, and read again as the same. It is then
given to a receiver with room for few partitions and epochs, which remembers no more than that. The
rows that the receiver hands on in an epoch have consecutive numbers and no duplicates, also after
the receiver was made anew from its progress. The process does not grow.

    python fuzz/batches.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, mutated, run
from pyroaring import BitMap64

from onward.protocol.batches import (
    BatchAnswer,
    BatchFrameError,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchStatus,
    Reason,
    RowBatch,
    decode_answer,
    decode_batch,
    encode_answer,
    encode_batch,
)

PARTITIONS: Final = 4
ROWS: Final = 50
EPOCHS: Final = 2
ENDED_BYTES: Final = 80

PIECES: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "17", "1818", "40", "4161", "58ff", "5a7fffffff", "80", "89", "9f")
] + [bytes.fromhex(text) for text in ("9affffffff", "a0", "c0", "f4", "f5", "ff", "1b" + "f" * 16)]

SEEDS: Final = [
    encode_batch(RowBatch("q", partition, epoch, first, rows, last, to))
    for partition in (0, 1, 9)
    for epoch in (0, 1, 2, 5, 600, 1 << 40, 3 << 40, 5 << 40)
    for first in (0, 1, 3)
    for rows in ((b"a",), (b"a", b"", b"ccc"))
    for last in (False, True)
    for to in ("", "other")
]
SEEDS.append(encode_batch(RowBatch("q", 0, 0, 1, (), True)))
ANSWERS: Final = [
    encode_answer(BatchAnswer(BatchStatus.ACCEPTED, 300)),
    encode_answer(BatchAnswer(BatchStatus.REFUSED, 3, Reason.GAP)),
]


class Batches:
    """The decoders of batches, and a receiver of decoded batches."""

    def __init__(self) -> None:
        self.receiver = BatchReceiver(
            BatchOptions(PARTITIONS, ROWS, max_epochs=EPOCHS, max_ended_bytes=ENDED_BYTES)
        )

    def check(self, random: Random, data: bytes) -> bool:
        if random.random() < 0.001:
            self.receiver = BatchReceiver(self.receiver.options, self.receiver.progress)
        self.check_answer(mutated(random, ANSWERS, PIECES))
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

    def check_receiver(self, random: Random, batch: RowBatch) -> None:
        receiver = self.receiver
        key = batch.query, batch.to, batch.partition
        before = {(each.query, each.to, each.partition): each for each in receiver.progress}
        found = receiver.receive(batch)
        if not isinstance(found, BatchAnswer):
            expected = _expected(before.get(key), batch.epoch)
            if found.first != expected or not found.rows:
                raise AssertionError(f"rows from {found.first} on, not from {expected}")
            answer = receiver.failed(found) if random.random() < 0.2 else receiver.taken(found)
            if answer.done and answer.next != batch.end:
                raise AssertionError(f"{answer} for rows up to {batch.end}")
        statistics = receiver.statistics()
        entries = max((len(each.earlier) for each in receiver.progress), default=0)
        ended = max((len(each.ended) for each in receiver.progress), default=0)
        if statistics.partitions > PARTITIONS or entries > EPOCHS or ended > ENDED_BYTES:
            raise AssertionError(f"{statistics}, {entries} epochs, {ended} bytes of ended ones")
        if statistics.in_hand:
            raise AssertionError(f"{statistics}")


def _expected(known: BatchProgress | None, epoch: int) -> int | None:
    """Return the row at which an epoch continues; `None` if it has ended or is forgotten."""
    if known is None or epoch > known.epoch:
        return 0
    if epoch == known.epoch:
        return None if known.finished else known.next
    left = next((each.next for each in known.earlier if each.epoch == epoch), None)
    if left is not None or (known.ended and epoch in BitMap64.deserialize(known.ended)):
        return left
    return None if known.known_from is None or epoch < known.known_from else 0


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    batches = Batches()
    held = run(
        "batches",
        options.count,
        options.seed,
        lambda random, _: mutated(random, SEEDS, PIECES),
        batches.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
