"""Which rows are new: each is handed on once, in order, whatever is sent again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap64

from onward.protocol.batches import (
    MAX_BATCH,
    MAX_ROWS,
    Batch,
    BatchAnswer,
    BatchEpoch,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchRows,
    Reason,
    Status,
)


def batch(
    first: int, *rows: bytes, last: bool = False, epoch: int = 0, partition: int = 0
) -> Batch:
    return Batch("q", partition, epoch, first, rows, last)


def take(receiver: BatchReceiver, sent: Batch) -> tuple[tuple[bytes, ...], BatchAnswer]:
    """Send a batch; return the rows that were handed on, and the answer."""
    found = receiver.receive(sent)
    if isinstance(found, BatchAnswer):
        return (), found
    return found.rows, receiver.taken(found)


def numbers(progress: BatchProgress) -> list[int]:
    """The epochs that have ended, before the last."""
    return list(BitMap64.deserialize(progress.ended)) if progress.ended else []


def accepted(expected: int) -> BatchAnswer:
    return BatchAnswer(Status.ACCEPTED, expected)


def duplicate(expected: int) -> BatchAnswer:
    return BatchAnswer(Status.DUPLICATE, expected)


def refused(reason: Reason, expected: int) -> BatchAnswer:
    return BatchAnswer(Status.REFUSED, expected, reason)


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


class Trouble:
    """Senders that retry over a way that loses batches and answers, doubles and delays them.

    Attempts at an epoch begin at row 0, with batches of a size of their own, and may be given up in
    the middle; several go on side by side.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.receiver = BatchReceiver()
        self.taken: dict[int, list[bytes]] = {partition: [] for partition in range(3)}
        self.delayed: list[Batch] = []
        self.truth = {
            partition: [
                [b"%d/%d/%d" % (partition, epoch, row) for row in range(random.randrange(9))]
                for epoch in range(3)
            ]
            for partition in range(3)
        }

    def arrive(self, sent: Batch) -> BatchAnswer:
        found = self.receiver.receive(sent)
        if isinstance(found, BatchAnswer):
            return found
        if self.random.random() < 0.2:
            return self.receiver.failed(found)
        self.taken[sent.partition].extend(found.rows)
        return self.receiver.taken(found)

    def send(self, sent: Batch) -> BatchAnswer | None:
        random = self.random
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            if self.delayed and random.random() < 0.3:
                self.arrive(self.delayed.pop(random.randrange(len(self.delayed))))
            if random.random() < 0.1:
                self.delayed.append(sent)
                continue
            answer = self.arrive(sent)
            if random.random() < 0.8:
                return answer
        return None

    def attempt(self, partition: int, epoch: int) -> Iterator[bool]:
        """Send an epoch; yield after each batch whether all has been answered for."""
        rows, at, size = self.truth[partition][epoch], 0, self.random.randint(1, 4)
        while True:
            last = at + size >= len(rows)
            answer = self.send(Batch("q", partition, epoch, at, tuple(rows[at : at + size]), last))
            done = answer is not None and answer.done
            yield done and last
            at += size if done else 0

    def run(self, epoch: int) -> None:
        left = {partition: [self.attempt(partition, epoch)] for partition in self.truth}
        while left:
            partition = self.random.choice(list(left))
            if self.random.random() < 0.1:
                left[partition].append(self.attempt(partition, epoch))
            elif len(left[partition]) > 1 and self.random.random() < 0.1:
                left[partition].pop(0)  # the task died
            elif next(self.random.choice(left[partition])):
                del left[partition]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_row_is_handed_on_once_and_in_order_whatever_is_lost_and_sent_again(
    seed: int,
) -> None:
    trouble = Trouble(Random(seed))
    for epoch in range(3):
        trouble.run(epoch)
    for each in trouble.delayed:
        trouble.arrive(each)

    for partition, epochs in trouble.truth.items():
        assert trouble.taken[partition] == [row for rows in epochs for row in rows]
    assert trouble.receiver.statistics().in_hand == 0
    assert {each.epoch for each in trouble.receiver.progress} == {2}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32))
def test_with_two_receivers_all_is_taken_and_by_each_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    receivers = (BatchReceiver(), BatchReceiver())
    taken: tuple[list[bytes], list[bytes]] = ([], [])
    truth = [[b"%d/%d" % (epoch, row) for row in range(random.randrange(9))] for epoch in range(5)]
    begun: tuple[set[int], set[int]] = (set(), set())
    ended: tuple[set[int], set[int]] = (set(), set())
    late = list[tuple[int, Batch]]()

    def arrive(to: int, sent: Batch) -> None:
        found = receivers[to].receive(sent)
        if isinstance(found, BatchRows):
            taken[to].extend(found.rows)
            found = receivers[to].taken(found)
        assert found.done

    for epoch, rows in enumerate(truth):
        # Attempts that end in the middle, each with the receiver that is there just then; the last
        # one is done, and then Spark never comes back to the epoch.
        for cut in (*(random.randint(0, 9) for _ in range(random.randrange(3))), 10):
            to, size = random.randrange(2), random.randint(1, 4)
            starts = range(0, max(1, len(rows)), size)
            for at in starts if cut == 10 else starts[: cut % len(starts)]:
                part = tuple(rows[at : at + size])
                sent = Batch("q", 0, epoch, at, part, last=at + size >= len(rows))
                arrive(to, sent)
                begun[to].add(epoch)
                ended[to].update([epoch] if sent.last else [])
                late.append((to, sent))
        while late and random.random() < 0.3:
            arrive(*late.pop(random.randrange(len(late))))
    everything = [row for rows in truth for row in rows]
    assert set(taken[0]) | set(taken[1]) == set(everything)
    for rows in taken:
        assert rows == sorted(set(rows), key=everything.index)
    for receiver, first, last in zip(receivers, begun, ended, strict=True):
        left = first - last - {max(first, default=0)}
        assert receiver.statistics().unfinished == len(left)


class Job:
    """A job whose runs may fail in the middle and be run again, in any order, at one receiver.

    A batch may be lost or come late or twice, an answer may be lost, the handler may fail, and the
    receiver may be made anew of the progress that was kept with the rows.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.options = BatchOptions(
            max_epochs=random.randint(1, 4), max_ended_bytes=random.choice((64, 90, 4096))
        )
        self.receiver = BatchReceiver(self.options)
        self.kept: list[BatchProgress] = []
        self.taken: list[bytes] = []
        self.answered: set[bytes] = set()
        self.delayed: list[Batch] = []
        self.forgotten: set[int] = set()
        self.forgot = 0

    def restart(self) -> None:
        self.forgot += self.receiver.statistics().forgotten_epochs
        self.receiver = BatchReceiver(self.options, self.kept)

    def arrive(self, sent: Batch) -> BatchAnswer:
        found = self.receiver.receive(sent)
        if isinstance(found, BatchRows):
            if self.random.random() < 0.1:
                return self.receiver.failed(found)
            self.taken.extend(found.rows)
            self.kept = [found.progress]
            found = self.receiver.taken(found)
        if found.done:
            self.answered.update(sent.rows)
        if found.reason is Reason.FORGOTTEN:
            assert self.forgot + self.receiver.statistics().forgotten_epochs
            self.forgotten.add(sent.epoch)
        return found

    def run(self, epoch: int, rows: list[bytes]) -> bool:
        """Send an epoch from row 0 on; return whether the run ended well."""
        random, size = self.random, self.random.randint(1, 4)
        for at in range(0, max(1, len(rows)), size):
            sent = Batch("q", 0, epoch, at, tuple(rows[at : at + size]), at + size >= len(rows))
            if random.random() < 0.2:
                self.delayed.append(sent)
            if self.delayed and random.random() < 0.2:
                self.arrive(self.delayed.pop(random.randrange(len(self.delayed))))
            if random.random() < 0.1 or not self.arrive(sent).done or random.random() < 0.05:
                return False
        return True


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_a_sender_is_told_was_taken_was_taken_once_in_whatever_order_epochs_are_run(
    seed: int,
) -> None:
    random = Random(seed)
    job = Job(random)
    apart = random.choice((1, 2, 600, 1 << 41))
    numbers = [number * apart for number in random.sample(range(12), 6)]
    truth = {
        epoch: [b"%d/%d" % (epoch, row) for row in range(random.randrange(9))] for epoch in numbers
    }
    ended = set[int]()
    for _ in range(40):
        epoch = random.choice(numbers)
        if job.run(epoch, truth[epoch]):
            ended.add(epoch)
        if random.random() < 0.05:
            job.restart()
    for epoch in numbers * 200:  # a run fails by chance, and not each time
        if epoch not in ended | job.forgotten and job.run(epoch, truth[epoch]):
            ended.add(epoch)

    assert len(job.taken) == len(set(job.taken))
    assert job.answered <= set(job.taken)
    for epoch, rows in truth.items():
        mine = [row for row in job.taken if row in rows]
        assert mine == rows[: len(mine)]
        assert len(mine) == len(rows) or epoch not in ended
        assert epoch in ended or epoch in job.forgotten
    for each in job.receiver.progress:
        assert len(each.earlier) <= job.options.max_epochs
        assert len(each.ended) <= job.options.max_ended_bytes


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32))
def test_however_far_apart_epochs_are_each_is_known_as_it_is_or_refused_as_forgotten(
    seed: int,
) -> None:
    random = Random(seed)
    options = BatchOptions(
        max_epochs=random.choice((1, 3, 100)), max_ended_bytes=random.choice((64, 100, 4096))
    )
    receiver = BatchReceiver(options)
    apart, most = random.choice((1, 2, 3, 600, 60_000, 1 << 32, 1 << 50)), random.randint(2, 150)
    counts = dict[int, int]()  # how many rows were taken of each epoch, of the three it has
    rows, latest = (b"a", b"b", b"c"), -1
    for _ in range(200):
        epoch, end = random.randrange(most) * apart, random.choice((1, 2, 3, 3, 3))
        count = counts.get(epoch, 0)
        got, answer = take(receiver, batch(0, *rows[:end], last=end == 3, epoch=epoch))
        if answer.reason is Reason.FORGOTTEN:
            assert receiver.statistics().forgotten_epochs
            assert epoch < max(counts)
            assert epoch != latest
            continue
        assert got == rows[count:end]
        assert answer == (accepted(end) if got else duplicate(answer.next))
        counts[epoch] = max(count, end)
        latest = epoch
        if random.random() < 0.02:
            assert BatchReceiver(options, receiver.progress).progress == receiver.progress
    [progress] = receiver.progress
    assert len(progress.earlier) <= options.max_epochs
    assert len(progress.ended) <= options.max_ended_bytes
    if not receiver.statistics().forgotten_epochs:
        ended = sorted(epoch for epoch, count in counts.items() if count == 3)
        assert numbers(progress) == [epoch for epoch in ended if epoch < max(counts)]
