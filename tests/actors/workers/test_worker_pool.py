"""Pools: which child gets a message, restarts, replacements, and sizes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from onward.actors import (
    LimitReached,
    MailboxOptions,
    Node,
    NodeLimits,
    OnFailure,
    Overflow,
    RestartBackoff,
    Supervision,
    Worker,
)
from onward.actors.workers import REPLACE_AFTER, Spread, WorkerPool, WorkerPoolStatistics
from onward.actors.workers._worker_pool import _jump
from onward.protocol import MailboxFull, Message, WorkerFailed, WorkerStopped
from onward.protocol.payloads import PayloadError
from tests.support.fixtures import Caplog


class Cook(Worker):
    """Answers with its number after a second; told to, it fails or stops."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Cook.made += 1
        self.number = Cook.made

    async def handle_message(self, message: Message) -> None:
        if message.payload == b"fail":
            raise ValueError(message.payload)
        if message.payload == b"stop":
            self.stop()
        if not message.payload.startswith(b"quick"):
            await asyncio.sleep(100 if message.payload == b"slow" else 1)
        if message.return_route:
            self.reply(message, b"%d" % self.number)


@pytest.fixture(autouse=True)
def numbers() -> None:
    Cook.made = 0


async def start(node: Node, pool: WorkerPool) -> WorkerPool:
    await node.start(lambda: pool, address="pool")
    return pool


def last_byte(message: Message) -> bytes:
    if not message.payload:
        raise PayloadError("no key")
    return message.payload[-1:]


async def ask(node: Node, payload: bytes = b"") -> int:
    return int((await node.request("pool", payload, timeout=1000)).payload)


async def test_each_in_turn(node: Node) -> None:
    await start(node, WorkerPool(Cook, 3))
    answers = [await ask(node) for _ in range(6)]
    assert answers == [1, 2, 3, 1, 2, 3]
    assert len(node.statistics().workers) == 4


async def test_the_one_with_the_least_to_do(node: Node) -> None:
    await start(node, WorkerPool(Cook, 2, Spread.LEAST_OUTSTANDING))
    slow = asyncio.ensure_future(ask(node, b"slow"))
    await asyncio.sleep(0)
    for _ in range(3):
        assert await ask(node) == 2
        await asyncio.sleep(0)  # its handler ends after its answer
    assert await slow == 1


async def test_messages_with_the_same_key_go_to_the_same_worker(node: Node) -> None:
    pool = await start(node, WorkerPool(Cook, 4, key=last_byte))
    keys = [b"quick%c" % each for each in range(64)]
    first = {key: await ask(node, key) for key in keys}
    assert {key: await ask(node, key) for key in keys} == first
    assert set(first.values()) == {1, 2, 3, 4}
    with pytest.raises(PayloadError):
        await node.request("pool", b"")
    pool.resize(5)
    moved = [key for key in keys if await ask(node, key) != first[key]]
    assert len(moved) < 32
    assert {await ask(node, key) for key in moved} == {5}
    pool.resize(4)
    assert {key: await ask(node, key) for key in keys} == first


def test_few_keys_move_if_a_pool_grows() -> None:
    keys = [each * 2**50 for each in range(4096)]
    at = [_jump(key, 8) for key in keys]
    assert max(Counter(at).values()) < 2 * min(Counter(at).values())
    moved = [key for key, place in zip(keys, at, strict=True) if _jump(key, 9) != place]
    assert {_jump(key, 9) for key in moved} == {8}
    assert len(moved) < len(keys) // 6
    assert _jump(2**64 - 1, 1) == 0


async def test_a_failed_worker_is_restarted_and_counted(node: Node) -> None:
    pool = await start(node, WorkerPool(Cook, 2))
    with pytest.raises(WorkerFailed):
        await ask(node, b"fail")
    assert [await ask(node) for _ in range(2)] == [2, 3]
    assert pool.statistics() == WorkerPoolStatistics(
        size=2, running=2, stopping=0, waiting=0, handled=3, failed=1, restarts=1, replaced=0
    )


@pytest.mark.parametrize("payload", [b"fail", b"stop"])
async def test_a_worker_that_has_stopped_is_replaced(payload: bytes, node: Node) -> None:
    supervision = Supervision(OnFailure.STOP)
    pool = await start(node, WorkerPool(Cook, 2, supervision=supervision))
    node.send("pool", payload)
    await asyncio.sleep(REPLACE_AFTER + 0.5 if payload == b"stop" else 0.5)
    assert pool.statistics().running == 1
    assert [await ask(node, b"quick") for _ in range(3)] == [2, 2, 2]
    await asyncio.sleep(REPLACE_AFTER)
    assert {await ask(node, b"quick") for _ in range(2)} == {2, 3}
    counts = pool.statistics()
    assert (counts.running, counts.replaced, counts.handled) == (2, 1, 6)
    assert counts.failed == (payload == b"fail")


async def test_a_pool_of_stopped_workers_refuses(node: Node) -> None:
    pool = WorkerPool(Cook, 1, Spread.LEAST_OUTSTANDING, supervision=Supervision(OnFailure.STOP))
    await start(node, pool)
    node.send("pool", b"fail")
    await asyncio.sleep(0.5)
    with pytest.raises(WorkerStopped, match="its worker 1 is replaced soon"):
        await ask(node)
    await asyncio.sleep(REPLACE_AFTER)
    assert await ask(node) == 2


async def test_a_worker_that_cannot_be_made_is_tried_again(caplog: Caplog, node: Node) -> None:
    down: list[bool] = []

    def make() -> Cook:
        if down:
            raise ConnectionError("down")
        return Cook()

    pool = await start(node, WorkerPool(make, 2, supervision=Supervision(OnFailure.STOP)))
    node.send("pool", b"fail")
    down.append(True)
    await asyncio.sleep(2.5 * REPLACE_AFTER)
    assert "cannot make another worker" in caplog.text
    assert pool.statistics().running == 1
    down.clear()
    await asyncio.sleep(REPLACE_AFTER)
    assert pool.statistics().running == 2
    assert pool.statistics().replaced == 1


async def test_a_smaller_pool_finishes_what_waits(node: Node) -> None:
    pool = await start(node, WorkerPool(Cook, 3))
    requests = [asyncio.ensure_future(ask(node)) for _ in range(6)]
    await asyncio.sleep(0.5)
    pool.resize(1)
    counts = pool.statistics()
    assert (counts.size, counts.running, counts.stopping) == (1, 1, 2)
    assert counts.waiting == 5  # three messages and two stops
    assert sorted(await asyncio.gather(*requests)) == [1, 1, 2, 2, 3, 3]
    await asyncio.sleep(1)
    counts = pool.statistics()
    assert (counts.stopping, counts.handled, counts.replaced) == (0, 6, 0)
    assert [await ask(node) for _ in range(2)] == [1, 1]
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, not 0"):
        pool.resize(0)


async def test_a_pool_made_smaller_while_a_worker_is_to_be_replaced(node: Node) -> None:
    pool = await start(node, WorkerPool(Cook, 2, supervision=Supervision(OnFailure.STOP)))
    for payload in (b"quick", b"fail"):
        node.send("pool", payload)
        await asyncio.sleep(0.1)
    pool.resize(1)
    await asyncio.sleep(2 * REPLACE_AFTER)
    counts = pool.statistics()
    assert (counts.running, counts.stopping, counts.replaced) == (1, 0, 0)
    assert await ask(node) == 1


@pytest.mark.parametrize("grow", [False, True])
async def test_full_workers(grow: bool, node: Node) -> None:
    pool = await start(node, WorkerPool(Cook, 2, mailbox=MailboxOptions(1)))
    for _ in range(4):
        node.send("pool", b"slow")
        await asyncio.sleep(0)
    if grow:
        pool.resize(3)
        assert await ask(node) == 3
    else:
        with pytest.raises(MailboxFull):
            await ask(node)


async def test_a_pool_waits_for_room(node: Node) -> None:
    box = MailboxOptions(1, Overflow.WAIT)
    await start(node, WorkerPool(Cook, 2, mailbox=box))
    answers = await asyncio.gather(*(ask(node) for _ in range(12)))
    assert Counter(answers) == {1: 6, 2: 6}
    assert node.dead_letters.total == 0


class Broken(Cook):
    """A worker that does not start if it is the second."""

    def on_start(self) -> None:
        if self.number == 2:
            raise ConnectionError("no second")


async def test_a_pool_starts_with_all_its_workers_or_not(node: Node) -> None:
    with pytest.raises(ConnectionError, match="no second"):
        await start(node, WorkerPool(Broken, 3))
    await asyncio.sleep(1)  # its children stop first
    assert node.statistics().worker_count == 0


async def test_a_pool_is_restarted_with_new_workers(node: Node) -> None:
    pool = WorkerPool(Cook, 2, supervision=Supervision(OnFailure.ESCALATE))
    await node.start(lambda: pool, address="pool", supervision=Supervision(OnFailure.RESTART))
    node.send("pool", b"fail")
    await asyncio.sleep(REPLACE_AFTER)
    assert Cook.made == 4
    assert {await ask(node) for _ in range(2)} == {3, 4}
    counts = pool.statistics()
    assert (counts.running, counts.failed, counts.replaced) == (2, 1, 0)


async def test_a_pool_that_waits_for_its_restart_leaves_no_workers_behind(node: Node) -> None:
    pools: list[WorkerPool] = []

    def make() -> WorkerPool:
        supervision = Supervision(OnFailure.ESCALATE)
        pools.append(WorkerPool(Cook, 2, supervision=supervision))
        return pools[-1]

    backoff = RestartBackoff(first=2 * REPLACE_AFTER, jitter=0.0)
    supervision = Supervision(OnFailure.RESTART, backoff=backoff)
    await node.start(make, address="pool", supervision=supervision)
    node.send("pool", b"fail")
    await asyncio.sleep(REPLACE_AFTER)
    assert node.statistics().worker_count == 1
    pools[0].resize(3)  # which comes too late
    await asyncio.sleep(4 * REPLACE_AFTER)
    assert node.statistics().worker_count == 3
    assert len(pools) == 2
    counts = pools[1].statistics()
    assert (counts.running, counts.replaced) == (2, 0)


WRONG: list[tuple[Callable[[], WorkerPool], str]] = [
    (lambda: WorkerPool(Cook, 0), "size must be a whole number of at least 1"),
    (lambda: WorkerPool(Cook, 1, mailbox=5), "mailbox"),  # type: ignore[arg-type]
    (lambda: WorkerPool(Cook, 1, supervision=5), "supervision"),  # type: ignore[arg-type]
    (lambda: WorkerPool(Cook, 1, 5), "spread"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_wrong_arguments(make: Callable[[], WorkerPool], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


async def test_the_limit_of_addresses() -> None:
    async with Node(limits=NodeLimits(addresses=3)) as node:
        pool = await start(node, WorkerPool(Cook, 2))
        with pytest.raises(LimitReached):
            pool.resize(3)
