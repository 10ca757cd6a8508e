"""Which rows are new: each is handed on once, in order, whatever is sent again."""

from __future__ import annotations

import pytest

from onward.protocol.batches import (
    MAX_BATCH,
    MAX_ROWS,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchRows,
    Reason,
)
from tests.protocol.batches.receiving import accepted, batch, duplicate, refused, take


def test_rows_are_handed_on_in_order_and_once() -> None:
    receiver = BatchReceiver()
    assert take(receiver, batch(0, b"a", b"b")) == ((b"a", b"b"), accepted(2))
    assert take(receiver, batch(0, b"a", b"b")) == ((), duplicate(2))
    assert take(receiver, batch(2, b"c", last=True)) == ((b"c",), accepted(3))
    assert take(receiver, batch(2, b"c", last=True)) == ((), duplicate(3))
    assert take(receiver, batch(0, b"a")) == ((), duplicate(3))


def test_of_a_batch_of_another_size_only_the_new_rows_are_handed_on() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a", b"b"))
    found = receiver.receive(batch(1, b"b", b"c", b"d"))
    assert isinstance(found, BatchRows)
    assert (found.first, found.rows) == (2, (b"c", b"d"))
    assert found.progress == BatchProgress("q", "", 0, 0, 4, finished=False, known_from=0)
    assert receiver.taken(found) == accepted(4)
    assert receiver.statistics().rows == 4
    assert receiver.statistics().duplicates == 1


def test_an_end_without_rows_ends_the_epoch() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a"))
    assert take(receiver, batch(1, last=True)) == ((), accepted(1))
    assert take(receiver, batch(1, last=True)) == ((), duplicate(1))
    assert take(receiver, batch(0, b"x", epoch=1)) == ((b"x",), accepted(1))


def test_a_gap_is_refused_and_says_what_is_expected() -> None:
    receiver = BatchReceiver()
    assert take(receiver, batch(5, b"a")) == ((), refused(Reason.GAP, 0))
    take(receiver, batch(0, b"a"))
    assert take(receiver, batch(2, b"c")) == ((), refused(Reason.GAP, 1))
    take(receiver, batch(1, b"b", last=True))
    assert take(receiver, batch(1, b"y", epoch=1)) == ((), refused(Reason.GAP, 0))
    assert receiver.statistics().refused == {"GAP": 3}


def test_rows_in_hand_hold_back_their_partition_and_no_other() -> None:
    receiver = BatchReceiver()
    found = receiver.receive(batch(0, b"a"))
    assert isinstance(found, BatchRows)
    assert receiver.receive(batch(0, b"a")) == refused(Reason.BUSY, 0)
    assert receiver.statistics().in_hand == 1
    assert take(receiver, batch(0, b"x", partition=1)) == ((b"x",), accepted(1))
    assert receiver.failed(found) == refused(Reason.FAILED, 0)
    assert take(receiver, batch(0, b"a")) == ((b"a",), accepted(1))


def test_rows_that_are_not_in_hand_cannot_be_put_down() -> None:
    receiver = BatchReceiver()
    found = receiver.receive(batch(0, b"a"))
    assert isinstance(found, BatchRows)
    receiver.taken(found)
    for again in (receiver.taken, receiver.failed, BatchReceiver().taken):
        with pytest.raises(ValueError, match="not in hand"):
            again(found)


def test_at_the_limit_the_partition_not_heard_of_for_the_longest_is_forgotten() -> None:
    receiver = BatchReceiver(BatchOptions(max_partitions=2))
    take(receiver, batch(0, b"a", partition=1))
    take(receiver, batch(0, b"a", partition=2))
    take(receiver, batch(0, b"a", partition=1))  # heard of again
    take(receiver, batch(0, b"a", partition=3))
    assert receiver.statistics().forgotten == 1
    assert take(receiver, batch(1, b"b", partition=2)) == ((), refused(Reason.GAP, 0))
    assert take(receiver, batch(0, b"a", partition=2))[0] == (b"a",)


def test_what_has_rows_in_hand_is_not_forgotten() -> None:
    receiver = BatchReceiver(BatchOptions(max_partitions=1))
    found = receiver.receive(batch(0, b"a", partition=1))
    assert isinstance(found, BatchRows)
    assert receiver.receive(batch(0, b"a", partition=2)) == refused(Reason.BUSY, 0)
    receiver.taken(found)
    assert take(receiver, batch(0, b"a", partition=2))[0] == (b"a",)


def test_who_is_given_its_progress_knows_what_it_had() -> None:
    first = BatchReceiver()
    take(first, batch(0, b"a", b"b"))
    take(first, batch(0, b"z", last=True, partition=1))
    second = BatchReceiver(progress=first.progress)
    assert second.progress == first.progress
    assert take(second, batch(0, b"a", b"b", b"c")) == ((b"c",), accepted(3))
    assert take(second, batch(0, b"z", last=True, partition=1)) == ((), duplicate(1))
    third = BatchReceiver(BatchOptions(max_partitions=1), first.progress)
    assert third.statistics().forgotten == 1
    assert [each.partition for each in third.progress] == [1]


def test_what_cannot_be_read_is_counted_as_well() -> None:
    receiver = BatchReceiver()
    assert receiver.refuse(Reason.BROKEN) == refused(Reason.BROKEN, 0)
    assert receiver.statistics().refused == {"BROKEN": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_partitions": 0},
        {"max_epochs": 0},
        {"max_ended_bytes": 63},
        {"max_rows": 0},
        {"max_rows": MAX_ROWS + 1},
        {"max_bytes": 0},
        {"max_bytes": MAX_BATCH + 1},
    ],
)
def test_limits_that_let_nothing_through_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BatchOptions(**wrong)
    assert BatchReceiver().options == BatchOptions()
