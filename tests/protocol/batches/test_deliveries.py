"""Each row is taken once, whatever is lost, sent again, restarted or run late."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings, strategies as st

from onward.protocol.batches import (
    BatchAnswer,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchRows,
    Reason,
    RowBatch,
)
from tests.protocol.batches.receiving import accepted, batch, duplicate, numbers, take
from tests.support.counts import times


class Trouble:
    """Senders that retry over a way that loses batches and answers, doubles and delays them.

    Attempts at an epoch begin at row 0, with batches of a size of their own, and may be given up in
    the middle; several go on side by side.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.receiver = BatchReceiver()
        self.taken: dict[int, list[bytes]] = {partition: [] for partition in range(3)}
        self.delayed: list[RowBatch] = []
        self.truth = {
            partition: [
                [b"%d/%d/%d" % (partition, epoch, row) for row in range(random.randrange(9))]
                for epoch in range(3)
            ]
            for partition in range(3)
        }

    def arrive(self, sent: RowBatch) -> BatchAnswer:
        found = self.receiver.receive(sent)
        if isinstance(found, BatchAnswer):
            return found
        if self.random.random() < 0.2:
            return self.receiver.failed(found)
        self.taken[sent.partition].extend(found.rows)
        return self.receiver.taken(found)

    def send(self, sent: RowBatch) -> BatchAnswer | None:
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
            answer = self.send(
                RowBatch("q", partition, epoch, at, tuple(rows[at : at + size]), last)
            )
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


@settings(max_examples=times(30, 150), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_row_is_handed_on_once_and_in_order_whatever_is_lost_and_sent_again(seed: int) -> None:
    trouble = Trouble(Random(seed))
    for epoch in range(3):
        trouble.run(epoch)
    for each in trouble.delayed:
        trouble.arrive(each)

    for partition, epochs in trouble.truth.items():
        assert trouble.taken[partition] == [row for rows in epochs for row in rows]
    assert trouble.receiver.statistics().in_hand == 0
    assert {each.epoch for each in trouble.receiver.progress} == {2}


@settings(max_examples=times(30, 150), deadline=None)
@given(st.integers(0, 1 << 32))
def test_with_two_receivers_all_is_taken_and_by_each_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    receivers = (BatchReceiver(), BatchReceiver())
    taken: tuple[list[bytes], list[bytes]] = ([], [])
    truth = [[b"%d/%d" % (epoch, row) for row in range(random.randrange(9))] for epoch in range(5)]
    begun: tuple[set[int], set[int]] = (set(), set())
    ended: tuple[set[int], set[int]] = (set(), set())
    late = list[tuple[int, RowBatch]]()

    def arrive(to: int, sent: RowBatch) -> None:
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
                sent = RowBatch("q", 0, epoch, at, part, last=at + size >= len(rows))
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
        self.delayed: list[RowBatch] = []
        self.forgotten: set[int] = set()
        self.forgot = 0

    def restart(self) -> None:
        self.forgot += self.receiver.statistics().forgotten_epochs
        self.receiver = BatchReceiver(self.options, self.kept)

    def arrive(self, sent: RowBatch) -> BatchAnswer:
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
            sent = RowBatch("q", 0, epoch, at, tuple(rows[at : at + size]), at + size >= len(rows))
            if random.random() < 0.2:
                self.delayed.append(sent)
            if self.delayed and random.random() < 0.2:
                self.arrive(self.delayed.pop(random.randrange(len(self.delayed))))
            if random.random() < 0.1 or not self.arrive(sent).done or random.random() < 0.05:
                return False
        return True


@settings(max_examples=times(30, 150), deadline=None)
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


@settings(max_examples=times(30, 150), deadline=None)
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
