"""How the rows of a task are sent: in windows, and again after trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from pyspark.sql.types import BinaryType, StructType

from onward.actors import Refused
from onward.pipeline.sink import (
    RowRefused,
    RowsInDoubt,
    RowsNotDelivered,
    SinkOptions,
    _flow,
    _sender,
    read_options,
)
from onward.pipeline.sink._connection import BatchConnection, BrokerConnection
from onward.pipeline.sink._sender import RowSender
from onward.protocol import (
    AddressError,
    LinkLost,
    MailboxFull,
    NoRoute,
    OnwardError,
    RequestTimeout,
    parse_route,
)
from onward.protocol.batches import (
    MAX_BATCH,
    BatchAnswer,
    BatchReceiver,
    Reason,
    RowBatch,
    decode_batch,
    encode_answer,
)
from onward.transports.client import RequestRejected, connect
from tests.support.counts import times
from tests.support.virtual import run_virtual


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sender, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(_flow, "FIRST_PAUSE", 0.0)


def options(**given: object) -> SinkOptions:
    asked = {"uri": "tcp://h:1", "route": "rows", "id": "q", "epoch": "0"}
    asked.update({key: str(value) for key, value in given.items()})
    return read_options(asked, StructType().add("payload", BinaryType()))


class Receiving(BatchConnection):
    """A way with a receiver at its end, and trouble where a test wants it."""

    def __init__(self, trouble: Callable[[RowBatch], OnwardError | None] | None = None) -> None:
        self.receiver = BatchReceiver()
        self.rows: dict[str, list[bytes]] = {}
        self.came: list[RowBatch] = []
        self.out = self.most_out = 0
        self._trouble = trouble

    def check(self, destination: str) -> None:
        parse_route(destination)

    async def ask(self, destination: str, payload: bytes) -> bytes:
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            await asyncio.sleep(0)
            return self.answer(decode_batch(payload))
        finally:
            self.out -= 1

    def answer(self, batch: RowBatch) -> bytes:
        self.came.append(batch)
        error = self._trouble(batch) if self._trouble is not None else None
        if error is not None and not isinstance(error, RequestTimeout):
            raise error
        found = self.receiver.receive(batch)
        if not isinstance(found, BatchAnswer):
            self.rows.setdefault(batch.to, []).extend(found.rows)
            found = self.receiver.taken(found)
        if error is not None:
            raise error  # taken, and the answer is lost
        return encode_answer(found)


class Refusing(Receiving):
    """A way whose end refuses all."""

    def __init__(self, how: Reason | OnwardError) -> None:
        super().__init__()
        self.how = how

    def answer(self, batch: RowBatch) -> bytes:
        self.came.append(batch)
        if isinstance(self.how, OnwardError):
            raise self.how
        return encode_answer(self.receiver.refuse(self.how))


async def send(
    link: BatchConnection, given: SinkOptions, rows: dict[str, list[bytes]]
) -> RowSender:
    sender = RowSender(link, given, 3, 0)
    try:
        for to, some in rows.items():
            await sender.add(to, some)
        await sender.finish()
    finally:
        await sender.cancel()
    return sender


ROWS = [b"row %d" % number for number in range(100)]


async def test_rows_are_sent_in_batches_and_a_window_at_a_time() -> None:
    link = Receiving()
    sender = await send(link, options(chunkRows=9, window=4), {"rows": ROWS})
    assert link.rows == {"rows": ROWS}
    assert (sender.rows, sender.batches, sender.again) == (100, 12, 0)
    assert link.most_out == 4
    assert [batch.last for batch in link.came] == [False] * 11 + [True]
    assert {(batch.query, batch.partition, batch.epoch) for batch in link.came} == {("q", 3, 0)}


async def test_rows_that_end_with_a_full_batch_are_ended_by_an_empty_one() -> None:
    link = Receiving()
    await send(link, options(chunkRows=50), {"rows": ROWS})
    assert [len(batch.rows) for batch in link.came] == [50, 50, 0]
    assert link.receiver.progress[0].finished


async def test_bytes_bound_a_batch_too_and_a_large_row_goes_alone() -> None:
    link = Receiving()
    rows = [b"a" * 4, b"b" * 4, b"c" * 30, b"d" * 4, b"e" * 6, b"f"]
    await send(link, options(chunkBytes=10), {"rows": rows})
    assert [len(batch.rows) for batch in link.came] == [2, 1, 2, 1]
    assert link.rows == {"rows": rows}


async def test_each_destination_has_a_count_of_its_own() -> None:
    link = Receiving()
    await send(link, options(chunkRows=7), {"a": ROWS[:20], "b": ROWS[20:30], "c": ROWS[30:31]})
    assert link.rows == {"a": ROWS[:20], "b": ROWS[20:30], "c": ROWS[30:31]}
    assert sum(batch.last for batch in link.came) == 3


async def test_what_waits_for_company_is_bounded() -> None:
    link = Receiving()
    given = options(maxBuffered=20, chunkRows=1000)
    await send(link, given, {str(number): [b"x" * 8] for number in range(5)})
    assert [len(batch.rows) for batch in link.came] == [1, 1, 1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(times(5, 20)))
async def test_over_a_bad_way_each_row_arrives_once(seed: int) -> None:
    random = Random(seed)

    def trouble(_batch: RowBatch) -> OnwardError | None:
        return random.choice(
            (None, None, None, NoRoute("rows"), RequestTimeout("rows"), LinkLost("rows"))
        )

    link = Receiving(trouble)
    sender = await send(link, options(chunkRows=3, window=5, retries=1000), {"a": ROWS, "b": ROWS})
    assert link.rows == {"a": ROWS, "b": ROWS}
    assert sender.again > 0


async def test_a_task_that_is_run_again_sends_what_is_not_there() -> None:
    left = [10]

    def trouble(_batch: RowBatch) -> OnwardError | None:
        left[0] -= 1
        return None if left[0] > 0 else NoRoute("rows", "gone")

    link = Receiving(trouble)
    with pytest.raises(
        RowsNotDelivered, match=r"rows \d+ to \d+ of partition 3, epoch 0.*no route"
    ):
        await send(link, options(chunkRows=5, retries=2), {"rows": ROWS})
    assert 0 < len(link.rows["rows"]) < 100
    left[0] = 1000
    await send(link, options(chunkRows=8), {"rows": ROWS})
    assert link.rows == {"rows": ROWS}
    assert link.receiver.statistics().duplicates > 0


async def test_what_is_in_doubt_once_is_in_doubt() -> None:
    told = iter([LinkLost("rows"), NoRoute("rows"), NoRoute("rows")])
    link = Receiving(lambda _batch: next(told))
    with pytest.raises(RowsInDoubt, match=r"may or may not have been taken.*Sent 3 times"):
        await send(link, options(retries=2), {"rows": ROWS})


async def test_a_receiver_that_has_forgotten_is_no_reason_to_go_on() -> None:
    link = Receiving()

    def forget(batch: RowBatch) -> None:
        if batch.first == 50:
            link.receiver = BatchReceiver()

    link._trouble = forget
    with pytest.raises(RowsInDoubt, match=r"expects row 0.*was restarted or has forgotten"):
        await send(link, options(chunkRows=10, window=1), {"rows": ROWS})


async def test_a_receiver_that_fails_is_asked_again_as_often_as_it_may() -> None:
    link = Refusing(Reason.FAILED)
    with pytest.raises(RowsNotDelivered, match="Sent 4 times"):
        await send(link, options(retries=3), {"rows": ROWS})
    assert len(link.came) == 4


SLOW = [
    RequestRejected(0x202, "does not keep up"),
    MailboxFull("rows"),
    Refused("rows", "mailbox full"),
    Reason.BUSY,
]


class Slow(Refusing):
    """A way whose end takes one batch in five, and not two at once."""

    asked = 0

    def answer(self, batch: RowBatch) -> bytes:
        self.asked += 1
        takes = self.out == 1 and not self.asked % 5
        return Receiving.answer(self, batch) if takes else super().answer(batch)


@pytest.mark.parametrize("how", SLOW, ids=str)
async def test_a_slow_receiver_gets_all_without_retries(how: OnwardError | Reason) -> None:
    link = Slow(how)
    sender = await send(link, options(chunkRows=5, retries=0), {"a": ROWS, "b": ROWS[:20]})
    assert link.rows == {"a": ROWS, "b": ROWS[:20]}
    assert sender.again > 0


@pytest.mark.parametrize("how", SLOW, ids=str)
def test_a_stalled_receiver_is_waited_for(
    how: OnwardError | Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_flow, "FIRST_PAUSE", 0.05)  # time passes in the pauses alone
    link = Refusing(how)

    async def stall() -> None:
        # The last pause is one second at most.
        with pytest.raises(RowsNotDelivered, match=r"None was taken for 1[01] s \(timeout\). Sent"):
            await send(link, options(timeout=10, retries=0), {"rows": ROWS})

    run_virtual(stall())
    assert len(link.came) > 1


async def test_no_answer_in_time_is_slowness_while_others_are_answered() -> None:
    class Late(Receiving):
        late = True

        def answer(self, batch: RowBatch) -> bytes:
            found = super().answer(batch)
            if batch.first == 5 and self.late:
                self.late = False
                raise RequestTimeout("rows")
            return found

    link = Late()
    sender = await send(link, options(chunkRows=5, retries=0), {"rows": ROWS})
    assert link.rows == {"rows": ROWS}
    assert (sender.again, sender.duplicates) == (1, 0)  # had by this very task
    link = Late()
    with pytest.raises(RowsInDoubt, match="rows 5 to 9 of partition 3"):
        await send(link, options(chunkRows=5, retries=0, window=1), {"rows": ROWS})


async def test_rows_that_were_had_before_are_counted() -> None:
    link = Receiving()
    first = await send(link, options(), {"rows": ROWS})
    second = await send(link, options(chunkRows=7), {"rows": ROWS})
    assert (first.duplicates, second.duplicates) == (0, 100)
    assert link.rows == {"rows": ROWS}


@pytest.mark.parametrize(
    ("rows", "said"), [(1, "row 0 of"), (50, "rows 0 to 49 of"), (0, "the end, after 50 rows, of")]
)
async def test_an_error_says_which_rows(rows: int, said: str) -> None:
    link = Receiving(lambda batch: NoRoute("rows") if len(batch.rows) == rows else None)
    with pytest.raises(RowsNotDelivered, match=said):
        await send(link, options(chunkRows=50, retries=0), {"rows": ROWS[: rows or 50]})


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason.BROKEN, "is it a BatchWorker"),
        (Reason.TOO_BIG, "make chunkRows or chunkBytes smaller"),
        (Reason.CHANGED, "same rows in the same order"),
        (Reason.FORGOTTEN, "may have had all of them: look there first"),
    ],
)
async def test_a_receiver_that_refuses_is_not_asked_again(reason: Reason, said: str) -> None:
    link = Refusing(reason)
    with pytest.raises(RowRefused, match=said):
        await send(link, options(), {"rows": ROWS})
    assert len(link.came) == 1


async def test_somebody_else_at_the_end_of_the_route_is_told_from_a_receiver() -> None:
    class Echo(Receiving):
        async def ask(self, destination: str, payload: bytes) -> bytes:
            return payload

    with pytest.raises(RowRefused, match=r"takes no batches .*route of a BatchWorker"):
        await send(Echo(), options(), {"rows": ROWS})


async def test_a_row_that_is_too_large_is_told_with_where_it_is() -> None:
    with pytest.raises(RowRefused, match=r"row 2 of partition 3.*bytes is the largest"):
        await send(Receiving(), options(), {"rows": [b"a", b"b", bytes(MAX_BATCH)]})


async def test_a_destination_that_cannot_be_read_is_told_with_its_row() -> None:
    with pytest.raises(RowRefused, match="row 1 of partition 3: '1#' is no route"):
        await send(Receiving(), options(), {"rows": [b"a"], "1#": [b"b"]})


async def test_too_many_destinations_are_refused() -> None:
    with pytest.raises(RowRefused, match="for more than 2 destinations, the next is 'c'"):
        await send(Receiving(), options(maxDestinations=2), {each: [b"1"] for each in "abc"})


def test_a_query_is_made_to_stick_unless_it_says_how_it_is_divided() -> None:
    link = BrokerConnection(connect("rsocket+tcp://127.0.0.1:1"), "k")
    for query in ("service=a", "@method=random service=a", "@shard=user service=a user=1"):
        link.check(query)
    assert list(link._queries.values()) == [
        "@sticky=onward.batch service=a onward.batch=k",
        "@sticky=onward.batch @method=random service=a onward.batch=k",
        "@shard=user service=a user=1",
    ]
    for wrong in ("@multicast service=a", "@nonsense service=a"):
        with pytest.raises(AddressError):
            link.check(wrong)
