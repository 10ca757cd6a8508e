"""Waits before restarts, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from onward.actors import MailboxOptions, Node, OnFailure, RestartBackoff, Supervision, Worker
from onward.protocol import MailboxFull, Message, WorkerStopped

Story: TypeAlias = list[tuple[float, str]]

STEADY = RestartBackoff(first=1.0, longest=5.0, jitter=0.0)
SUPERVISION = Supervision(OnFailure.RESTART, max_restarts=100, within=60.0, backoff=STEADY)


class Database(Worker):
    """Starts only while `up`, and fails with each message that begins with an exclamation mark."""

    up = True

    def __init__(self, story: Story) -> None:
        super().__init__()
        self.story = story

    def _tell(self, event: str) -> None:
        self.story.append((asyncio.get_running_loop().time() - 1000, event))

    async def on_start(self) -> None:
        self._tell("start")
        if not self.up:
            raise ConnectionError("it is down")

    def handle_message(self, message: Message) -> None:
        self._tell(message.payload.decode())
        if message.payload.startswith(b"!"):
            raise ValueError(message.payload)
        if message.return_route:
            self.reply(message, message.payload)

    def on_stop(self) -> None:
        self._tell("stop")

    def on_failure(self, *_exc_info: Any, **_named: Any) -> None:
        self._tell("failed")


@pytest.fixture
def story() -> Iterator[Story]:
    Database.up = True
    yield []
    Database.up = True


def started(story: Story) -> list[float]:
    """Return the times at which an instance was started."""
    return [at for at, event in story if event == "start"]


def test_a_wait_grows_up_to_its_limit() -> None:
    waits = [RestartBackoff(jitter=0.0).wait(each) for each in (0, 1, 2, 8, 9, 10_000)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 25.6, 30.0, 30.0])
    assert RestartBackoff(first=4.0, random=lambda: 0.5).wait(0) == pytest.approx(3.6)
    assert RestartBackoff(first=9.0, longest=2.0, jitter=0.0).wait(0) == 2.0


async def test_waits_grow_until_the_worker_starts_and_messages_wait_meanwhile(story: Story) -> None:
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=SUPERVISION)
        await asyncio.sleep(10)
        Database.up = False
        node.send("db", b"!")
        request = asyncio.ensure_future(node.request("db", b"asked", timeout=60))
        await asyncio.sleep(0.5)
        [worker] = node.statistics().workers
        assert worker.state == "waiting to restart"
        assert worker.waiting == 1
        await asyncio.sleep(12)
        Database.up = True
        assert (await request).payload == b"asked"
    assert started(story) == [0, 11, 13, 17, 22, 27]
    assert story[-2:] == [(27, "asked"), (27, "stop")]
    assert [event for _, event in story].count("failed") == 5


async def test_the_waits_begin_anew_after_a_time_without_failures(story: Story) -> None:
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=SUPERVISION)
        for pause in (10, 10, 70, 0):
            node.send("db", b"!")
            await asyncio.sleep(pause)
        await asyncio.sleep(10)
    assert started(story) == [0, 1, 12, 24, 91]


async def test_waits_do_not_change_the_limit_of_restarts(story: Story) -> None:
    Database.up = True
    supervision = Supervision(OnFailure.RESTART, max_restarts=2, backoff=STEADY)
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=supervision)
        await asyncio.sleep(1)
        Database.up = False
        node.send("db", b"!")
        await asyncio.sleep(30)
        assert not node.has("db")
    assert started(story) == [0, 2, 4]


async def test_a_mailbox_stays_bounded_and_a_stop_handles_it_first(story: Story) -> None:
    async with Node() as node:
        box = MailboxOptions(limit=2)
        node.spawn(lambda: Database(story), address="db", mailbox=box, supervision=SUPERVISION)
        await asyncio.sleep(1)
        node.send("db", b"!")
        await asyncio.sleep(0.5)
        node.send("db", b"1")
        node.send("db", b"2")
        with pytest.raises(MailboxFull):
            node.send("db", b"3")
        # A stop after the waiting messages restarts the worker at once.
        await node.stop_worker("db")
    assert story[2:] == [(1, "failed"), (1.5, "start"), (1.5, "1"), (1.5, "2"), (1.5, "stop")]


async def test_a_stop_ends_the_wait_at_once(story: Story) -> None:
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=SUPERVISION)
        node.spawn(lambda: Database(story), address="idle", supervision=SUPERVISION)
        await asyncio.sleep(1)
        node.send("db", b"!")
        node.send("idle", b"!")
        await asyncio.sleep(0.5)
        request = asyncio.ensure_future(node.request("db", b"asked"))
        await asyncio.sleep(0)
        await node.stop_worker("idle")
        await node.stop()
        assert asyncio.get_running_loop().time() == 1001.5
        with pytest.raises(WorkerStopped):
            await request
    assert [event for _, event in story] == ["start"] * 2 + ["!"] * 2 + ["failed"] * 2


class Slow(Database):
    """Takes two seconds to clean up after a failure."""

    async def on_failure(self, *_exc_info: Any, **_named: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(2)
        self._tell("failed")


async def test_a_stop_while_the_failed_instance_ends(story: Story) -> None:
    async with Node() as node:
        node.spawn(lambda: Slow(story), address="db", supervision=SUPERVISION)
        node.spawn(lambda: Slow(story), address="cut", supervision=SUPERVISION)
        await asyncio.sleep(1)
        node.send("db", b"!")
        node.send("db", b"1")
        await asyncio.sleep(1)
        await node.stop_worker("db", timeout=10)
        node.send("cut", b"!")
        await asyncio.sleep(1)
        await node.stop(timeout=1)
    assert story[2:] == [(1, "!"), (3, "failed"), (3, "start"), (3, "1"), (3, "stop"), (3, "!")]


class Reminded(Database):
    """Sets a timer when it fails."""

    def on_failure(self, *_exc_info: Any, **_named: Any) -> None:
        self.after(0.5, lambda: self._tell("reminded"))


async def test_a_timer_of_the_failed_instance_ends_with_it(story: Story) -> None:
    async with Node() as node:
        node.spawn(lambda: Reminded(story), address="db", supervision=SUPERVISION)
        await asyncio.sleep(1)
        node.send("db", b"!")
        await asyncio.sleep(5)
    assert story == [(0, "start"), (1, "!"), (2, "start"), (6, "stop")]


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("by_pykka", [False, True])
async def test_a_waiting_worker_stops_at_once(story: Story, by_pykka: bool, waiting: bool) -> None:
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=SUPERVISION)
        await asyncio.sleep(1)
        worker = node.parts.table.cell("db").worker
        node.send("db", b"!")
        await asyncio.sleep(0.5)
        if waiting:
            node.send("db", b"1")
        if by_pykka:
            assert await worker.actor_ref.stop(block=False)
        else:
            worker.stop()
        await asyncio.sleep(0.1)
        assert not node.has("db")
    handled = ["start", "1", "stop"] if waiting else []
    assert [event for _, event in story] == ["start", "!", "failed", *handled]


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_stop_ahead_of_a_failure_saves_the_wait(story: Story, waiting: bool) -> None:
    async with Node() as node:
        node.spawn(lambda: Database(story), address="db", supervision=SUPERVISION)
        await asyncio.sleep(1)
        node.send("db", b"!")
        if waiting:
            node.send("db", b"1")
        node.parts.table.cell("db").worker.stop()
        await asyncio.sleep(0.1)
        assert not node.has("db")
    handled = ["start", "1", "stop"] if waiting else []
    assert [event for _, event in story] == ["start", "!", "failed", *handled]
