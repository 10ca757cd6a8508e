"""What takes batches: one after the other for each partition, and an answer whatever comes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors.batches import BatchTaker
from onward.protocol.batches import (
    BatchAnswer,
    BatchOptions,
    BatchRows,
    BatchStatus,
    Reason,
    RowBatch,
    decode_answer,
    encode_batch,
)


def batch(first: int, *rows: bytes, partition: int = 0, last: bool = False) -> bytes:
    return encode_batch(RowBatch("q", partition, 0, first, rows, last))


class Kept:
    """Keeps rows, and waits before it does if it is told to."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.go = asyncio.Event()
        self.go.set()
        self.began = 0
        self.fail = False

    async def __call__(self, rows: tuple[bytes, ...], _batch: BatchRows) -> None:
        self.began += 1
        await self.go.wait()
        if self.fail:
            raise RuntimeError("no room on the shelf")
        self.rows.extend(rows)


async def take(taker: BatchTaker, payload: bytes) -> BatchAnswer:
    return decode_answer(await taker.take(payload))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_rows_are_handed_on_once() -> None:
    kept = Kept()
    taker = BatchTaker(kept)
    assert await take(taker, batch(0, b"a", b"b")) == BatchAnswer(BatchStatus.ACCEPTED, 2)
    assert await take(taker, batch(0, b"a", b"b", b"c")) == BatchAnswer(BatchStatus.ACCEPTED, 3)
    assert await take(taker, batch(0, b"a")) == BatchAnswer(BatchStatus.DUPLICATE, 3)
    assert kept.rows == [b"a", b"b", b"c"]
    assert taker.statistics().rows == 3


async def test_a_plain_function_will_do() -> None:
    rows: list[bytes] = []

    def keep(new: tuple[bytes, ...], batch: BatchRows) -> None:
        rows.append(b"%d:" % batch.first + b",".join(new))

    taker = BatchTaker(keep)
    await take(taker, batch(0, b"a"))
    await take(taker, batch(0, b"a", b"b"))
    assert rows == [b"0:a", b"1:b"]


async def test_batches_of_a_partition_wait_for_one_another_and_for_no_other() -> None:
    kept = Kept()
    taker = BatchTaker(kept)
    kept.go.clear()
    tasks = [
        asyncio.ensure_future(take(taker, sent))
        for sent in (batch(0, b"a"), batch(0, b"a"), batch(1, b"b"), batch(0, b"x", partition=1))
    ]
    await settle()
    assert kept.began == 2
    kept.go.set()
    answers = await asyncio.gather(*tasks)
    assert [each.status for each in answers] == [
        BatchStatus.ACCEPTED,
        BatchStatus.DUPLICATE,
        BatchStatus.ACCEPTED,
        BatchStatus.ACCEPTED,
    ]
    assert sorted(kept.rows) == [b"a", b"b", b"x"]
    assert taker._turns == {}
    assert taker._tasks == set()


async def test_who_gives_up_does_not_stop_what_was_begun() -> None:
    kept = Kept()
    taker = BatchTaker(kept)
    kept.go.clear()
    given_up = asyncio.ensure_future(take(taker, batch(0, b"a")))
    await settle()
    given_up.cancel()
    await settle()
    kept.go.set()
    assert await take(taker, batch(0, b"a")) == BatchAnswer(BatchStatus.DUPLICATE, 1)
    assert kept.rows == [b"a"]


async def test_rows_on_which_the_handler_fails_come_again(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    taker = BatchTaker(kept)
    kept.fail = True
    with caplog.at_level(logging.ERROR, "onward.actors.batches"):
        answer = await take(taker, batch(0, b"a"))
    assert answer == BatchAnswer(BatchStatus.REFUSED, 0, Reason.FAILED)
    assert "rows of 'q', partition 0, epoch 0, from 0 on, were not taken" in caplog.text
    kept.fail = False
    assert (await take(taker, batch(0, b"a"))).status is BatchStatus.ACCEPTED
    assert kept.rows == [b"a"]


async def test_rows_whose_handling_is_cancelled_are_not_in_hand_for_ever() -> None:
    kept = Kept()
    taker = BatchTaker(kept)
    kept.go.clear()
    taking = asyncio.ensure_future(take(taker, batch(0, b"a")))
    await settle()
    next(iter(taker._tasks)).cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert taker.statistics().in_hand == 0
    kept.go.set()
    assert (await take(taker, batch(0, b"a"))).done


async def test_too_many_that_wait_are_refused() -> None:
    kept = Kept()
    taker = BatchTaker(kept, max_waiting=1)
    kept.go.clear()
    first = asyncio.ensure_future(take(taker, batch(0, b"a")))
    await settle()
    assert (await take(taker, batch(0, b"x", partition=1))).reason is Reason.BUSY
    kept.go.set()
    assert (await first).done
    assert (await take(taker, batch(0, b"x", partition=1))).done
    with pytest.raises(ValueError, match="max_waiting"):
        BatchTaker(kept, max_waiting=0)


async def test_too_many_bytes_that_wait_are_refused() -> None:
    kept = Kept()
    size = len(batch(0, bytes(1000)))
    options = BatchOptions(max_bytes=size)
    taker = BatchTaker(kept, options=options, max_waiting_bytes=2 * size + 10)
    kept.go.clear()
    held = [
        asyncio.ensure_future(take(taker, batch(0, bytes(1000), partition=partition)))
        for partition in (0, 0, 1)
    ]
    await settle()
    # The third is over the limit, and a small one has room all the same only if it fits.
    assert (await held[2]).reason is Reason.BUSY
    assert (await take(taker, batch(0, b"a", partition=2))).reason is Reason.BUSY
    assert taker.statistics().refused == {"BUSY": 2}
    held[1].cancel()
    await settle()
    # Who gives up does not stop it, so it has its bytes still.
    assert (await take(taker, batch(0, b"a", partition=2))).reason is Reason.BUSY
    kept.go.set()
    assert (await held[0]).done
    await settle()
    assert (await take(taker, batch(0, bytes(1000), partition=1))).done
    assert taker._bytes == 0


async def test_the_bytes_of_rows_that_were_not_taken_are_free_again() -> None:
    kept = Kept()
    options = BatchOptions(max_bytes=2000)
    taker = BatchTaker(kept, options=options, max_waiting_bytes=2000)
    kept.fail = True
    for _ in range(3):
        assert (await take(taker, batch(0, bytes(1500)))).reason is Reason.FAILED
    kept.fail = False
    kept.go.clear()
    taking = asyncio.ensure_future(take(taker, batch(0, bytes(1500))))
    await settle()
    next(iter(taker._tasks)).cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert taker._bytes == 0


def test_a_batch_that_is_taken_has_room() -> None:
    with pytest.raises(ValueError, match="at least the 4194304 of a batch"):
        BatchTaker(Kept(), max_waiting_bytes=4 * 1024 * 1024 - 1)
    BatchTaker(Kept(), max_waiting_bytes=4 * 1024 * 1024)


async def test_what_is_no_batch_or_too_big_is_answered_too() -> None:
    taker = BatchTaker(Kept(), options=BatchOptions(max_rows=1))
    assert (await take(taker, b"nonsense")).reason is Reason.BROKEN
    assert (await take(taker, batch(0, b"a", b"b"))).reason is Reason.TOO_BIG
    assert taker.statistics().refused == {"BROKEN": 1, "TOO_BIG": 1}


async def test_the_next_one_goes_on_where_it_is_told() -> None:
    kept = Kept()
    first = BatchTaker(kept)
    await take(first, batch(0, b"a"))
    second = BatchTaker(kept, progress=first.progress)
    assert await take(second, batch(0, b"a", b"b")) == BatchAnswer(BatchStatus.ACCEPTED, 2)
    assert kept.rows == [b"a", b"b"]
