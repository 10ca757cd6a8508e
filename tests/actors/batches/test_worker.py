"""Batches at an address of a node, and at a service behind a broker."""

from __future__ import annotations

import uuid

import pytest

from onward.actors import Node
from onward.actors.batches import BATCHES, BatchTaker, BatchWorker, serve_batches
from onward.actors.broker import Broker, Handlers
from onward.protocol.batches import (
    BatchAnswer,
    BatchRows,
    BatchStatus,
    Reason,
    RowBatch,
    decode_answer,
    encode_batch,
)
from onward.transports.client import Client, connect
from tests.support.workers import start_worker


def batch(first: int, *rows: bytes, partition: int = 0, last: bool = False) -> bytes:
    return encode_batch(RowBatch("q", partition, 0, first, rows, last))


class Keeper(BatchWorker):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[bytes] = []

    async def handle_rows(self, rows: tuple[bytes, ...], batch: BatchRows) -> None:
        self.rows.extend(rows)


def taker_into(kept: list[bytes]) -> BatchTaker:
    def keep(rows: tuple[bytes, ...], _batch: BatchRows) -> None:
        kept.extend(rows)

    return BatchTaker(keep)


async def ask(node: Node, route: str, payload: bytes) -> BatchAnswer:
    return decode_answer((await node.request(route, payload)).payload)


async def test_a_worker_takes_each_row_once() -> None:
    keeper = Keeper()
    async with Node("n") as node:
        await node.start(lambda: keeper, address="rows")
        assert await ask(node, "rows", batch(0, b"a", b"b")) == BatchAnswer(BatchStatus.ACCEPTED, 2)
        assert await ask(node, "rows", batch(0, b"a", b"b")) == BatchAnswer(
            BatchStatus.DUPLICATE, 2
        )
        assert (await ask(node, "rows", b"?")).reason is Reason.BROKEN
        assert keeper.statistics().rows == 2
        assert keeper.progress[0].next == 2
    assert keeper.rows == [b"a", b"b"]


async def test_a_worker_may_be_a_function_and_go_on_where_another_was() -> None:
    rows: list[bytes] = []

    async def keep(new: tuple[bytes, ...], _batch: BatchRows) -> None:
        rows.extend(new)

    async with Node("n") as node:
        first = await start_worker(node, BatchWorker(keep), "first")
        await ask(node, "first", batch(0, b"a"))
        await node.start(lambda: BatchWorker(keep, progress=first.progress), address="second")
        await ask(node, "second", batch(0, b"a", b"b", last=True))
    assert rows == [b"a", b"b"]


async def test_a_worker_that_says_nothing_of_rows_takes_none() -> None:
    async with Node("n") as node:
        await node.start(BatchWorker, address="rows")
        assert (await ask(node, "rows", batch(0, b"a"))).reason is Reason.FAILED


async def test_rows_without_a_way_back_are_taken_and_the_answer_is_a_dead_letter() -> None:
    keeper = Keeper()
    async with Node("n") as node:
        await node.start(lambda: keeper, address="rows")
        node.send("rows", batch(0, b"a"))
        assert await ask(node, "rows", batch(0, b"a")) == BatchAnswer(BatchStatus.DUPLICATE, 1)
        assert node.statistics().dead_letters == 1


@pytest.mark.real_time
async def test_two_services_behind_a_broker_take_what_sticks_to_them() -> None:
    kept: dict[str, list[bytes]] = {"a": [], "b": []}

    def service(name: str) -> Handlers:
        handlers = Handlers()
        serve_batches(handlers, taker_into(kept[name]))
        return handlers

    async def send(client: Client, partition: int, first: int, row: bytes) -> BatchAnswer:
        query = f"@sticky=batch service=rows batch=q/{partition}"
        payload = batch(first, row, partition=partition)
        return decode_answer((await client.request(query, payload, route=BATCHES)).data)

    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with (
            connect(listener.uri, service="rows", handlers=service("a")),
            connect(listener.uri, service="rows", handlers=service("b")),
            connect(listener.uri) as client,
        ):
            for number in range(3):
                for partition in range(4):
                    row = b"%d/%d" % (partition, number)
                    assert (
                        await send(client, partition, number, row)
                    ).status is BatchStatus.ACCEPTED
                    again = await send(client, partition, number, row)
                    assert again.status is BatchStatus.DUPLICATE
    assert kept["a"]
    assert kept["b"]
    everything = sorted(kept["a"] + kept["b"])
    assert everything == [b"%d/%d" % (at, number) for at in range(4) for number in range(3)]


@pytest.mark.real_time
async def test_what_one_service_had_taken_the_other_does_not_know() -> None:
    # When a destination goes in the middle, the other asks for the rows from the first on.
    kept: dict[str, list[bytes]] = {"a": [], "b": []}
    taker = {name: taker_into(kept[name]) for name in kept}
    ids = [uuid.UUID(int=1), uuid.UUID(int=2)]
    query = "@sticky=batch service=rows batch=q/0"
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        services: dict[str, Client] = {}
        for name, route_id in zip(kept, ids, strict=True):
            handlers = Handlers()
            serve_batches(handlers, taker[name])
            service = connect(listener.uri, service="rows", handlers=handlers, route_ids=[route_id])
            services[name] = await service.__aenter__()
        async with connect(listener.uri) as client:
            await client.request(query, batch(0, b"r0"), route=BATCHES)
            first = "a" if kept["a"] else "b"
            other = "b" if first == "a" else "a"
            await services[first].close()
            answer = await client.request(query, batch(1, b"r1"), route=BATCHES)
            assert decode_answer(answer.data) == BatchAnswer(BatchStatus.REFUSED, 0, Reason.GAP)
            answer = await client.request(query, batch(0, b"r0", b"r1"), route=BATCHES)
            assert decode_answer(answer.data) == BatchAnswer(BatchStatus.ACCEPTED, 2)
        await services[other].close()
    assert kept == {first: [b"r0"], other: [b"r0", b"r1"]}


def test_a_route_of_batches_is_given_once() -> None:
    handlers = Handlers()
    serve_batches(handlers, BatchTaker(lambda _rows, _batch: None))
    with pytest.raises(ValueError, match="already"):
        serve_batches(handlers, BatchTaker(lambda _rows, _batch: None))
