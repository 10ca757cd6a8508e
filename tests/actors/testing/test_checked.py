from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.actors import OnFailure, Supervision, Worker
from onward.actors.testing import Probe, checked_node, run_virtual
from onward.protocol import Message, counted, route

STOP = Supervision(on_failure=OnFailure.STOP)
GONE = Message(route("gone"), (), b"")


class Faulty(Worker):
    def handle_message(self, message: Message) -> None:
        raise ValueError(message.payload)


async def test_all_is_well() -> None:
    async with checked_node("good") as node:
        probe = await Probe.on(node, "probe")
        node.send("probe", b"")
        await probe.next()
        assert node.name == "good"


async def test_a_dead_letter_is_a_fault() -> None:
    async def body() -> None:
        async with checked_node("bad") as node:
            node.dead_letter(GONE, "no such worker")
            node.dead_letter(GONE, "expired")

    with pytest.raises(AssertionError) as caught:
        await body()
    text = str(caught.value)
    assert "on the node 'bad'" in text
    assert "'expired': 1" in text
    assert "'no such worker': 1" in text
    assert "gone" in text


async def test_a_dead_letter_that_is_expected() -> None:
    async with checked_node(allow=["expired"]) as node:
        node.dead_letter(GONE, "expired")


async def test_a_failure_is_a_fault() -> None:
    async def body() -> None:
        async with checked_node() as node:
            await node.start(Faulty, address="faulty")
            await Probe.on(node, "unhurt")
            node.send("faulty", b"x")

    with pytest.raises(AssertionError, match=r"workers failed: 1 time\n.*Faulty 0#faulty: 1"):
        await body()


async def test_a_failure_that_is_expected() -> None:
    async with checked_node(allow=["worker failed"], allow_failures=True) as node:
        await node.start(Faulty, address="faulty")
        node.send("faulty", b"x")


class Late(Worker):
    """Fails, after a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(self._seconds)
        raise ValueError(message.payload)


class Passer(Worker):
    async def handle_message(self, message: Message) -> None:
        self.forward(message)


async def late(seconds: float, messages: int, **options: Any) -> None:
    """Have a worker fail late."""
    async with checked_node(**options) as node:
        await node.start(lambda: Late(seconds), address="late")
        for _ in range(messages):
            node.send("late", b"")


@pytest.mark.parametrize(
    ("seconds", "messages", "failures"),
    [(0, 1, 1), (0, 100, 100), (0.4, 2, 2), (3, 1, 1)],
    ids=["at once", "many", "waiting", "while the node stops"],
)
def test_workers_are_let_finish(seconds: float, messages: int, failures: int) -> None:
    text = rf"workers failed: {counted(failures, 'time')}\n.*Late 0#late: {failures}\b"
    with pytest.raises(AssertionError, match=text):
        run_virtual(late(seconds, messages))


def test_how_long_they_are_let_finish() -> None:
    with pytest.raises(AssertionError, match="workers failed: 4 times"):
        run_virtual(late(3, 4, settle=20))
    run_virtual(late(30, 4))  # cut off by the stop


async def test_messages_are_followed_to_their_end() -> None:
    async def body() -> None:
        async with checked_node() as node:
            for name in "abc":
                await node.start(Passer, address=name)
            node.send("a => b => c => nobody", b"")

    with pytest.raises(AssertionError, match="no such worker: "):
        await body()


async def test_a_worker_that_fails_to_stop() -> None:
    class Clinging(Worker):
        def on_stop(self) -> None:
            raise ValueError

    async def body() -> None:
        async with checked_node() as node:
            await node.start(Clinging, address="clinging")

    with pytest.raises(AssertionError, match=r"Clinging 0#clinging: 1"):
        await body()


async def test_a_worker_that_failed_and_has_gone() -> None:
    async def body() -> None:
        async with checked_node(allow=["worker failed"]) as node:
            await node.start(Faulty, address="faulty", supervision=STOP)
            node.send("faulty", b"")

    with pytest.raises(AssertionError, match=r"workers failed: 1 time$"):
        await body()


async def test_what_the_body_raises_is_raised() -> None:
    async def body() -> None:
        async with checked_node() as node:
            node.dead_letter(GONE, "expired")
            raise KeyError

    with pytest.raises(KeyError):
        await body()


async def test_what_the_stop_leaves_undone_is_no_fault() -> None:
    class Stuck(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1000)

    async with checked_node() as node:
        await node.start(Stuck, address="stuck")
        for _ in range(3):
            node.send("stuck", b"")
    assert node.dead_letters.total == 3
