from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors import MailboxOptions, Node, OnFailure, Supervision, Worker
from onward.actors.routing._table import AddressTable
from onward.actors.runtime._cell import Cell
from onward.actors.workers import AtLimit, Spawner, SpawnerOptions, TooManyWorkers
from onward.protocol import Address, MailboxFull, Message, WorkerFailed, WorkerStopped
from onward.protocol.payloads import PayloadError
from tests.support.fixtures import Caplog, Patch
from tests.support.workers import Gate, Recorder

SECOND = SpawnerOptions(max_workers=2, idle=10)
STOP_IDLE = SpawnerOptions(max_workers=2, idle=10, at_limit=AtLimit.STOP_IDLE)


class Log(list[str]):
    """What has happened, over all workers of a test."""


class Kept(Worker):
    """Starts and stops slowly; counts its messages, and answers with key and count."""

    def __init__(self, key: bytes, log: Log) -> None:
        super().__init__()
        self.key = key.decode()
        self.log = log
        self.count = 0

    async def on_start(self) -> None:
        await asyncio.sleep(1)
        self.log.append(f"start {self.key}")

    async def handle_message(self, message: Message) -> None:
        if message.payload == b"a stop":
            self.stop()
            return
        if message.payload == b"a slow":
            await asyncio.sleep(100)
        self.count += 1
        self.log.append(message.payload.decode())
        if message.return_route:
            self.reply(message, f"{self.key}{self.count}".encode())

    async def on_stop(self) -> None:
        await asyncio.sleep(1)
        self.log.append(f"stop {self.key}")


def first_byte(message: Message) -> bytes:
    if not message.payload:
        raise PayloadError("no key")
    return message.payload[:1]


async def spawner(node: Node, log: Log, options: SpawnerOptions = SECOND) -> Spawner:
    made = Spawner(lambda key: Kept(key, log), first_byte, options=options)
    await node.start(lambda: made, address="spawner")
    return made


async def test_each_key_has_a_worker_that_answers_from_its_own_address(node: Node) -> None:
    made = await spawner(node, Log())
    answers = [await node.request("spawner", each) for each in (b"a", b"b", b"a")]
    assert [each.payload for each in answers] == [b"a1", b"b1", b"a2"]
    workers = made.workers()
    assert [each.return_route for each in answers] == [
        (workers[b"a"],),
        (workers[b"b"],),
        (workers[b"a"],),
    ]
    assert (await node.request(workers[b"a"], b"a directly")).payload == b"a3"


async def test_messages_that_come_while_it_starts_are_the_first_it_gets(node: Node) -> None:
    log = Log()
    await spawner(node, log)
    for number in range(3):
        node.send("spawner", b"a%d" % number)
    await asyncio.sleep(2)
    assert log == ["start a", "a0", "a1", "a2"]


async def test_idle_workers_are_stopped_and_busy_ones_are_not(node: Node) -> None:
    log = Log()
    made = await spawner(node, log)
    node.send("spawner", b"a slow")
    node.send("spawner", b"b")
    await asyncio.sleep(9)
    assert set(made.workers()) == {b"a", b"b"}
    await asyncio.sleep(10)
    assert set(made.workers()) == {b"a"}
    assert log == ["start a", "start b", "b", "stop b"]
    await asyncio.sleep(120)
    assert made.workers() == {}
    assert log[4:] == ["a slow", "stop a"]
    assert node.statistics().worker_count == 1


async def test_a_message_that_comes_while_it_stops_is_the_first_of_the_next(node: Node) -> None:
    log = Log()
    await spawner(node, log)
    node.send("spawner", b"a0")
    node.send("spawner", b"a stop")
    await asyncio.sleep(2.5)
    # It is stopping: until it has, the messages wait.
    for number in (1, 2):
        node.send("spawner", b"a%d" % number)
    await asyncio.sleep(5)
    assert log == ["start a", "a0", "stop a", "start a", "a1", "a2"]
    assert node.dead_letters.total == 0


async def test_a_worker_stopped_as_idle_has_a_successor_when_needed(node: Node) -> None:
    log = Log()
    made = await spawner(node, log, SpawnerOptions(idle=10, max_held=1))
    node.send("spawner", b"a0")
    await asyncio.sleep(13)
    assert log == ["start a", "a0"]
    assert made.workers() == {}
    node.send("spawner", b"a1")
    with pytest.raises(MailboxFull):
        await node.request("spawner", b"a2")
    await asyncio.sleep(5)
    assert log == ["start a", "a0", "stop a", "start a", "a1"]
    assert node.dead_letters.by_reason == {"mailbox full": 1}
    assert node.statistics().failed == 0


async def test_at_the_limit_a_new_key_is_refused(node: Node) -> None:
    await spawner(node, Log())
    for each in (b"a", b"b"):
        await node.request("spawner", each)
    with pytest.raises(TooManyWorkers) as caught:
        await node.request("spawner", b"c")
    assert str(caught.value) == "too many workers: 0#spawner (there are 2)"
    assert (await node.request("spawner", b"a")).payload == b"a2"
    assert node.statistics().failed == 0


async def test_at_the_limit_the_one_left_alone_longest_makes_room(node: Node) -> None:
    log = Log()
    made = await spawner(node, log, STOP_IDLE)
    for each in (b"a", b"b", b"a"):
        await node.request("spawner", each)
    assert (await node.request("spawner", b"c")).payload == b"c1"
    assert set(made.workers()) == {b"a", b"c"}
    await asyncio.sleep(2)
    assert "stop b" in log


async def test_at_the_limit_with_nobody_idle_a_new_key_is_refused(node: Node) -> None:
    await spawner(node, Log(), STOP_IDLE)
    node.send("spawner", b"a slow")
    await node.request("spawner", b"b")
    await asyncio.sleep(0.1)
    await node.request("spawner", b"c")  # in place of b
    await asyncio.sleep(0.1)
    node.send("spawner", b"d")  # in place of c; two are stopping now
    with pytest.raises(TooManyWorkers):
        await node.request("spawner", b"e")


async def test_a_refusal_at_the_limit_looks_at_few_workers(monkeypatch: Patch, node: Node) -> None:
    looks: list[Address] = []
    idle = AddressTable.idle

    def counted(table: AddressTable, address: Address) -> Cell | None:
        looks.append(address)
        return idle(table, address)

    monkeypatch.setattr(AddressTable, "idle", counted)
    options = SpawnerOptions(max_workers=100, idle=1000, at_limit=AtLimit.STOP_IDLE)
    gates = [Gate() for _ in range(100)]
    spare = iter([*gates, Recorder()])
    made = Spawner(lambda _: next(spare), lambda each: each.payload, options=options)
    await node.start(lambda: made, address="spawner")
    for number in range(100):
        node.send("spawner", b"%d" % number)
    await asyncio.sleep(1)
    # The first looks at all of them, and those after it at the next few.
    for looked in (100, 32, 32):
        looks.clear()
        with pytest.raises(TooManyWorkers):
            await node.request("spawner", b"new")
        assert len(looks) == looked
    # One that has nothing to do is found all the same, by and by.
    gates[20].opened.set()
    await asyncio.sleep(1)
    with pytest.raises(TooManyWorkers):
        await node.request("spawner", b"new")
    assert b"20" in made.workers()
    node.send("spawner", b"new")
    await asyncio.sleep(1)
    assert b"20" not in made.workers()
    assert b"new" in made.workers()
    for gate in gates:
        gate.opened.set()


async def test_a_key_that_cannot_be_read_loses_the_message(node: Node) -> None:
    await spawner(node, Log())
    with pytest.raises(PayloadError):
        await node.request("spawner", b"")
    assert node.statistics().failed == 0


async def test_a_mailbox_of_a_worker_that_is_full(node: Node) -> None:
    made = Spawner(lambda key: Kept(key, Log()), first_byte, mailbox=MailboxOptions(1))
    await node.start(lambda: made, address="spawner")
    node.send("spawner", b"a")
    with pytest.raises(MailboxFull):
        await node.request("spawner", b"a")
    assert node.statistics().failed == 0


async def test_a_factory_that_fails_is_a_failure_of_the_spawner(caplog: Caplog, node: Node) -> None:
    broken = False

    def factory(key: bytes) -> Worker:
        if broken:
            raise ZeroDivisionError
        return Kept(key, Log())

    await node.start(lambda: Spawner(factory, first_byte), address="spawner")
    await node.request("spawner", b"a")
    node.send("spawner", b"a stop")
    await asyncio.sleep(0.5)
    broken = True
    with caplog.at_level(logging.CRITICAL):
        # It waits for the old one to stop; then there is no new one.
        with pytest.raises(WorkerFailed):
            await node.request("spawner", b"a")
        with pytest.raises(WorkerFailed):
            await node.request("spawner", b"b")
    assert node.statistics().failed == 1


async def test_when_the_spawner_stops_what_waits_is_lost(node: Node) -> None:
    log = Log()
    await spawner(node, log)
    await node.request("spawner", b"a")
    node.send("spawner", b"a stop")
    await asyncio.sleep(0.5)
    waiting = asyncio.ensure_future(node.request("spawner", b"a"))
    await asyncio.sleep(0.1)
    await node.stop_worker("spawner")
    with pytest.raises(WorkerStopped):
        await waiting
    assert log == ["start a", "a", "stop a"]
    assert node.statistics().worker_count == 0


async def test_when_the_spawner_is_restarted_its_workers_are_stopped(node: Node) -> None:
    def key(message: Message) -> bytes:
        if message.payload == b"fail":
            raise ZeroDivisionError
        return first_byte(message)

    log = Log()
    restart = Supervision(OnFailure.RESTART)
    await node.start(
        lambda: Spawner(lambda key: Kept(key, log), key), address="spawner", supervision=restart
    )
    await node.request("spawner", b"a")
    node.send("spawner", b"a stop")
    await asyncio.sleep(0.5)
    waiting = asyncio.ensure_future(node.request("spawner", b"a"))
    await asyncio.sleep(0.1)
    with pytest.raises(WorkerFailed):
        await node.request("spawner", b"fail")
    with pytest.raises(WorkerStopped):
        await waiting
    assert (await node.request("spawner", b"a")).payload == b"a1"
