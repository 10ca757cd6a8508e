"""Which epochs a receiver knows, and what it does with one that comes again, or late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyroaring import BitMap64

from onward.protocol.batches import (
    BatchEpoch,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchRows,
    Reason,
)
from tests.protocol.batches.receiving import accepted, batch, duplicate, numbers, refused, take


def test_a_new_epoch_begins_when_the_one_before_has_ended() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a"))
    take(receiver, batch(1, b"b", last=True))
    assert take(receiver, batch(0, b"x", epoch=7)) == ((b"x",), accepted(1))
    assert take(receiver, batch(0, b"a", b"b", last=True)) == ((), duplicate(2))
    assert receiver.statistics().unfinished == 0


def test_an_epoch_that_was_left_half_way_goes_on_when_its_rows_come_after_a_later_one() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a", b"b"))
    # The new one begins with its first row.
    assert take(receiver, batch(1, b"y", epoch=1)) == ((), refused(Reason.GAP, 0))
    assert receiver.statistics().unfinished == 0
    assert take(receiver, batch(0, b"x", epoch=1)) == ((b"x",), accepted(1))
    assert receiver.statistics().unfinished == 1
    # Of the one before only what was not taken is new, and a gap is one as always.
    assert take(receiver, batch(0, b"a", b"b")) == ((), duplicate(2))
    assert take(receiver, batch(3, b"d", last=True)) == ((), refused(Reason.GAP, 2))
    assert take(receiver, batch(0, b"a", last=True)) == ((), refused(Reason.CHANGED, 2))
    assert take(receiver, batch(1, b"b", b"c")) == ((b"c",), accepted(3))
    assert take(receiver, batch(3, b"d", last=True)) == ((b"d",), accepted(4))
    # Then it has ended, and the new one goes on.
    assert take(receiver, batch(2, b"c", b"d", last=True)) == ((), duplicate(4))
    assert take(receiver, batch(1, b"y", last=True, epoch=1)) == ((b"y",), accepted(2))
    assert receiver.statistics().unfinished == 1
    assert receiver.statistics().duplicates == 5


def test_an_epoch_that_never_began_is_taken_after_a_later_one() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"x", last=True, epoch=5))
    assert take(receiver, batch(1, b"b", epoch=3)) == ((), refused(Reason.GAP, 0))
    assert take(receiver, batch(0, b"a", epoch=3)) == ((b"a",), accepted(1))
    assert take(receiver, batch(1, last=True, epoch=3)) == ((), accepted(1))
    assert take(receiver, batch(0, last=True, epoch=4)) == ((), accepted(0))
    assert take(receiver, batch(0, b"a", last=True, epoch=3)) == ((), duplicate(1))
    [progress] = receiver.progress
    assert (progress.earlier, numbers(progress)) == ((), [3, 4])
    assert receiver.statistics().unfinished == 0


def test_rows_of_an_earlier_epoch_that_fail_come_again() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a"))
    take(receiver, batch(0, b"x", epoch=1))
    found = receiver.receive(batch(1, b"b"))
    assert isinstance(found, BatchRows)
    assert receiver.receive(batch(1, b"y", epoch=1)) == refused(Reason.BUSY, 1)
    assert receiver.receive(batch(1, b"b")) == refused(Reason.BUSY, 1)
    assert receiver.failed(found) == refused(Reason.FAILED, 1)
    assert take(receiver, batch(1, b"b")) == ((b"b",), accepted(2))


def test_epochs_that_have_ended_and_follow_one_another_take_few_bytes() -> None:
    receiver = BatchReceiver(BatchOptions(max_epochs=1))
    for epoch in range(100):
        take(receiver, batch(0, b"a", last=True, epoch=epoch))
    [progress] = receiver.progress
    assert progress == BatchProgress(
        "q", "", 0, 99, 1, finished=True, ended=progress.ended, known_from=0
    )
    assert (numbers(progress), len(progress.ended)) == (list(range(99)), 27)
    assert take(receiver, batch(0, b"a", last=True, epoch=7)) == ((), duplicate(1))
    assert receiver.statistics().forgotten_epochs == 0


@pytest.mark.parametrize("step", [2, 600, 86_400])
def test_epochs_that_have_ended_are_known_whatever_lies_between_them(step: int) -> None:
    receiver = BatchReceiver()
    epochs = range(100, 100 + 300 * step, step)
    for epoch in epochs:
        take(receiver, batch(0, b"a", last=True, epoch=epoch))
    assert receiver.statistics().forgotten_epochs == 0
    for epoch in epochs:
        assert take(receiver, batch(0, b"a", last=True, epoch=epoch)) == ((), duplicate(1))
        # What lies between never came, and is new.
        new = batch(0, b"b", last=True, epoch=epoch + 1)
        assert take(receiver, new) == ((b"b",), accepted(1))
        assert take(receiver, new) == ((), duplicate(1))
    # So is what lies before them all.
    assert take(receiver, batch(0, b"c", last=True, epoch=50)) == ((b"c",), accepted(1))
    assert receiver.statistics().refused == {}


def test_at_the_limit_the_oldest_epochs_that_have_ended_are_forgotten_and_refused() -> None:
    receiver = BatchReceiver(BatchOptions(max_ended_bytes=256))
    for epoch in range(0, 400, 2):
        take(receiver, batch(0, b"a", last=True, epoch=epoch))
        assert all(len(each.ended) <= 256 for each in receiver.progress)
    [progress] = receiver.progress
    first = numbers(progress)[0]
    assert first == progress.known_from
    assert 100 < len(numbers(progress)) < 199
    # An eighth at once, and not one each time.
    assert 1 <= receiver.statistics().forgotten_epochs <= 8
    for epoch in (0, first - 2, first - 1):
        assert take(receiver, batch(0, b"a", last=True, epoch=epoch)) == (
            (),
            refused(Reason.FORGOTTEN, 0),
        )
    assert take(receiver, batch(0, b"a", last=True, epoch=first)) == ((), duplicate(1))
    assert take(receiver, batch(0, b"b", last=True, epoch=first + 1)) == ((b"b",), accepted(1))


def test_the_epoch_that_has_just_ended_is_not_forgotten_though_it_be_the_oldest() -> None:
    receiver = BatchReceiver(BatchOptions(max_ended_bytes=64))
    for epoch in (1 << 41, 2 << 41, 3 << 41):
        take(receiver, batch(0, b"a", last=True, epoch=epoch))
    assert receiver.statistics().forgotten_epochs == 0
    assert take(receiver, batch(0, b"b", last=True, epoch=5)) == ((b"b",), accepted(1))
    assert take(receiver, batch(0, b"b", last=True, epoch=5)) == ((), duplicate(1))
    assert numbers(receiver.progress[0]) == [5, 2 << 41]
    assert take(receiver, batch(0, b"a", last=True, epoch=1 << 41))[1].reason is Reason.FORGOTTEN
    assert receiver.statistics().forgotten_epochs == 1


def test_at_the_limit_the_oldest_epoch_left_half_way_is_forgotten_and_refused() -> None:
    receiver = BatchReceiver(BatchOptions(max_epochs=2))
    take(receiver, batch(0, b"a", last=True, epoch=1))
    for epoch in (2, 4, 6, 8):
        assert receiver.statistics().forgotten_epochs == 0
        take(receiver, batch(0, b"a", epoch=epoch))
    assert receiver.statistics().forgotten_epochs == 1
    assert take(receiver, batch(0, b"a", epoch=2)) == ((), refused(Reason.FORGOTTEN, 0))
    # Nobody can tell it from one that nothing came of; but from one that has ended.
    assert take(receiver, batch(0, b"a", epoch=0)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(receiver, batch(0, b"a", last=True, epoch=1)) == ((), duplicate(1))
    # One that is new has room, in place of the oldest.
    assert take(receiver, batch(0, b"a", epoch=7)) == ((b"a",), accepted(1))
    assert receiver.statistics().forgotten_epochs == 2
    assert take(receiver, batch(0, b"a", epoch=4)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(receiver, batch(1, b"b", epoch=6)) == ((b"b",), accepted(2))
    assert take(receiver, batch(1, b"b", epoch=7)) == ((b"b",), accepted(2))
    assert receiver.statistics().refused == {"FORGOTTEN": 3}
    assert receiver.statistics().unfinished == 3


def test_an_epoch_before_all_that_were_left_half_way_is_taken_in_place_of_the_oldest() -> None:
    receiver = BatchReceiver(BatchOptions(max_epochs=2))
    for epoch in (2, 4, 6):
        take(receiver, batch(0, b"a", epoch=epoch))
    assert take(receiver, batch(0, b"a", epoch=1)) == ((b"a",), accepted(1))
    assert receiver.progress[0].earlier == (BatchEpoch(1, 1), BatchEpoch(4, 1))
    assert receiver.statistics().forgotten_epochs == 1
    assert take(receiver, batch(0, b"a", epoch=2)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(receiver, batch(1, b"b", epoch=1)) == ((b"b",), accepted(2))
    # Now it is the oldest itself.
    take(receiver, batch(0, b"a", epoch=8))
    assert receiver.progress[0].earlier == (BatchEpoch(4, 1), BatchEpoch(6, 1))
    assert receiver.statistics().forgotten_epochs == 2
    assert take(receiver, batch(2, b"c", epoch=1)) == ((), refused(Reason.FORGOTTEN, 0))


def test_while_rows_are_in_hand_a_forgotten_epoch_waits_as_well() -> None:
    receiver = BatchReceiver(progress=[BatchProgress("q", "", 0, 5, 1, finished=False)])
    found = receiver.receive(batch(1, b"b", epoch=5))
    assert isinstance(found, BatchRows)
    assert receiver.receive(batch(0, b"a", epoch=4)) == refused(Reason.BUSY, 0)


def test_an_epoch_of_which_nothing_was_taken_is_not_remembered() -> None:
    receiver = BatchReceiver()
    found = receiver.receive(batch(0, b"a"))
    assert isinstance(found, BatchRows)
    receiver.failed(found)
    take(receiver, batch(0, b"x", epoch=1))
    assert receiver.progress[0].earlier == ()
    assert take(receiver, batch(0, b"a", last=True)) == ((b"a",), accepted(1))


def test_rows_in_hand_of_the_epoch_before_come_first() -> None:
    receiver = BatchReceiver()
    found = receiver.receive(batch(0, b"a"))
    assert isinstance(found, BatchRows)
    assert receiver.receive(batch(0, b"x", epoch=1)) == refused(Reason.BUSY, 0)
    receiver.failed(found)
    assert take(receiver, batch(0, b"x", epoch=1)) == ((b"x",), accepted(1))
    assert receiver.statistics().unfinished == 1


def test_an_epoch_that_ends_elsewhere_is_told_from_a_duplicate() -> None:
    receiver = BatchReceiver()
    take(receiver, batch(0, b"a", b"b"))
    assert take(receiver, batch(0, b"a", last=True)) == ((), refused(Reason.CHANGED, 2))
    take(receiver, batch(2, last=True))
    assert take(receiver, batch(2, b"c")) == ((), refused(Reason.CHANGED, 2))
    assert take(receiver, batch(0, b"a", last=True)) == ((), refused(Reason.CHANGED, 2))
    assert take(receiver, batch(0, b"a", b"b", last=True)) == ((), duplicate(2))


def test_who_is_given_its_progress_knows_earlier_epochs_too() -> None:
    first = BatchReceiver()
    for epoch in (0, 1, 4, 6):
        take(first, batch(0, b"a", last=epoch < 4, epoch=epoch))
    found = first.receive(batch(1, b"b", epoch=4))
    assert isinstance(found, BatchRows)
    first.taken(found)
    assert (found.progress,) == first.progress  # also of one that came late
    second = BatchReceiver(progress=first.progress)
    assert take(second, batch(0, b"a", last=True, epoch=1)) == ((), duplicate(1))
    assert take(second, batch(1, b"b", b"c", epoch=4)) == ((b"c",), accepted(3))
    assert take(second, batch(0, b"a", epoch=5)) == ((b"a",), accepted(1))
    assert take(second, batch(1, b"b", epoch=6)) == ((b"b",), accepted(2))
    third = BatchReceiver(BatchOptions(max_epochs=1), second.progress)
    assert third.statistics().forgotten_epochs == 1
    assert take(third, batch(0, b"a", last=True, epoch=1)) == ((), duplicate(1))
    assert take(third, batch(3, b"d", epoch=4)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(third, batch(1, b"b", epoch=5)) == ((b"b",), accepted(2))


def test_of_ended_epochs_it_is_given_it_keeps_as_many_as_it_has_room_for() -> None:
    first = BatchReceiver()
    for epoch in range(0, 400, 2):
        take(first, batch(0, b"a", last=True, epoch=epoch))
    second = BatchReceiver(BatchOptions(max_ended_bytes=256), first.progress)
    assert second.statistics().forgotten_epochs == 1
    assert len(second.progress[0].ended) <= 256
    assert take(second, batch(0, b"a", last=True, epoch=0)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(second, batch(0, b"a", last=True, epoch=396)) == ((), duplicate(1))
    assert take(second, batch(0, b"b", last=True, epoch=395)) == ((b"b",), accepted(1))


def test_a_set_of_ended_epochs_may_be_empty_and_must_be_one() -> None:
    kept = BatchProgress("q", "", 0, 5, 1, finished=False, ended=BitMap64().serialize())
    receiver = BatchReceiver(BatchOptions(max_ended_bytes=64), [kept])
    assert take(receiver, batch(0, b"a", epoch=4)) == ((), refused(Reason.FORGOTTEN, 0))
    for wrong in (b"x", b"\xff" * 99, BitMap64([1, 2]).serialize()[:-1]):
        with pytest.raises(ValueError, match="`ended` is no bitmap"):
            BatchReceiver(progress=[replace(kept, ended=wrong)])


def test_who_is_given_no_more_than_the_last_epoch_refuses_those_before() -> None:
    receiver = BatchReceiver(progress=[BatchProgress("q", "", 0, 5, 1, finished=False)])
    assert take(receiver, batch(0, b"a", epoch=4)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(receiver, batch(0, b"x", epoch=7)) == ((b"x",), accepted(1))
    assert take(receiver, batch(0, b"a", epoch=4)) == ((), refused(Reason.FORGOTTEN, 0))
    assert take(receiver, batch(1, b"b", last=True, epoch=5)) == ((b"b",), accepted(2))
    assert take(receiver, batch(0, b"y", epoch=6)) == ((b"y",), accepted(1))
    assert receiver.statistics().forgotten_epochs == 0
