from __future__ import annotations

import asyncio

import pytest

from onward.actors import Worker
from onward.actors.testing import Probe, checked_node, virtual_time
from onward.protocol import Message, route

GONE = Message(route("gone"), (), b"")


class Faulty(Worker):
    def handle_message(self, message: Message) -> None:
        raise ValueError(message.payload)


@virtual_time
async def test_all_is_well() -> None:
    async with checked_node("good") as node:
        probe = await Probe.on(node, "probe")
        node.send("probe", b"")
        await probe.next()
        assert node.name == "good"


@virtual_time
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


@virtual_time
async def test_a_dead_letter_that_is_expected() -> None:
    async with checked_node(allow=["expired"]) as node:
        node.dead_letter(GONE, "expired")


@virtual_time
async def test_a_failure_is_a_fault() -> None:
    async def body() -> None:
        async with checked_node(settle=1) as node:
            await node.start(Faulty, address="faulty")
            await Probe.on(node, "unhurt")
            node.send("faulty", b"x")

    with pytest.raises(AssertionError, match=r"workers failed: 1 times\n.*Faulty 0#faulty: 1"):
        await body()


@virtual_time
async def test_a_failure_that_is_expected() -> None:
    async with checked_node(allow=["worker failed"], allow_failures=True, settle=1) as node:
        await node.start(Faulty, address="faulty")
        node.send("faulty", b"x")


@virtual_time
async def test_what_the_body_raises_is_raised() -> None:
    async def body() -> None:
        async with checked_node() as node:
            node.dead_letter(GONE, "expired")
            raise KeyError

    with pytest.raises(KeyError):
        await body()


@virtual_time
async def test_what_the_stop_leaves_undone_is_no_fault() -> None:
    class Stuck(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1000)

    async with checked_node() as node:
        await node.start(Stuck, address="stuck")
        for _ in range(3):
            node.send("stuck", b"")
    assert node.dead_letters.total == 3
