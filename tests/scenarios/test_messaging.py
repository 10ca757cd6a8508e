"""A hundred messages, and something on the way that shuffles or loses them.

Each frame of a pipe has one message here, so that what is shuffled or lost are the messages. What
shuffles or loses is on the way back too: confirmations fare no better.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from random import Random

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.pipes import (
    PipeChannel,
    PipeChannelOptions,
    PipeChannelService,
    PipeReceiver,
    PipeSender,
)
from onward.actors.testing import Probe
from onward.protocol import Message
from onward.protocol.pipes import Gap, Ordering, PipeOptions
from tests.support.virtual import virtual_time
from tests.support.workers import start_worker

MESSAGES = 100
NUMBERS = [number.to_bytes(2) for number in range(MESSAGES)]


class Shuffler(Worker):
    """Passes messages on in another order: ten at a time, or what has come in 50 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(7)
        self.held: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.held.append(message)
        if len(self.held) == 1:
            self.after(0.05, self.let_go)
        elif len(self.held) == 10:
            self.let_go()

    def let_go(self) -> None:
        held, self.held = self.held, []
        self.random.shuffle(held)
        for message in held:
            self.forward(message)


class Filter(Worker):
    """Loses one message in twenty, and passes the others on."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(7)
        self.lost = 0

    def handle_message(self, message: Message) -> None:
        if self.random.random() < 0.05:
            self.lost += 1
        else:
            self.forward(message)


async def through(
    between: Worker, ordering: Ordering, *, confirm: bool, gaps: list[Gap] | None = None
) -> list[bytes]:
    """Send the messages through a pipe with a worker on its way; return what came."""
    options = PipeOptions(ordering=ordering, confirm=confirm, frame_messages=1)
    async with Node() as node:
        sink = await Probe.on(node, "sink")
        await node.start(lambda: between, address="between")
        receiver = PipeReceiver(on_gap=gaps.append if gaps is not None else None)
        await node.start(lambda: receiver, address="receiver")
        sender = PipeSender("between => receiver", options)
        await node.start(lambda: sender, address="pipe", mailbox=MailboxOptions(MESSAGES))
        for number in NUMBERS:
            node.send("pipe => sink", number)
        await sleep(30)  # longer than everything is sent again in
        if confirm:
            await sender.end()
        return sink.payloads


async def straight_through(between: Worker) -> list[bytes]:
    """Send the messages through the worker alone; return what came."""
    async with Node() as node:
        sink = await Probe.on(node, "sink")
        await node.start(lambda: between, address="between")
        for number in NUMBERS:
            node.send("between => sink", number)
        await sleep(1)
        return sink.payloads


@virtual_time
async def test_without_a_pipe_they_come_shuffled() -> None:
    came = await straight_through(Shuffler())
    assert sorted(came) == NUMBERS
    assert came != NUMBERS


@virtual_time
@pytest.mark.parametrize("confirm", [True, False], ids=["confirmed", "by number alone"])
async def test_strict_order_through_a_shuffling_worker(confirm: bool) -> None:
    assert await through(Shuffler(), Ordering.STRICT, confirm=confirm) == NUMBERS


@virtual_time
async def test_monotonic_order_through_a_shuffling_worker_may_drop() -> None:
    gaps: list[Gap] = []
    came = await through(Shuffler(), Ordering.MONOTONIC, confirm=False, gaps=gaps)
    assert came == sorted(set(came))
    assert 0 < len(came) < MESSAGES
    # What was dropped has been reported, and nothing else.
    missed = [number for gap in gaps for number in range(gap.first, gap.last + 1)]
    last = int.from_bytes(came[-1])
    assert {number - 1 for number in missed} == set(range(last)) - {*map(int.from_bytes, came)}


@virtual_time
async def test_without_a_pipe_some_are_lost() -> None:
    lossy = Filter()
    came = await straight_through(lossy)
    assert len(came) == MESSAGES - lossy.lost < MESSAGES


@virtual_time
async def test_all_arrive_through_a_lossy_worker() -> None:
    lossy = Filter()
    came = await through(lossy, Ordering.NONE, confirm=True)
    assert lossy.lost > 0
    assert set(came) == set(NUMBERS)


@virtual_time
async def test_sent_again_and_in_order_there_are_no_duplicates() -> None:
    lossy = Filter()
    assert await through(lossy, Ordering.STRICT, confirm=True) == NUMBERS
    assert lossy.lost > 0


@virtual_time
@pytest.mark.parametrize("between", [Shuffler, Filter])
async def test_a_channel_there_and_back(between: Callable[[], Worker]) -> None:
    """Two pipes that a handshake has introduced: requests and answers come through both."""
    options = PipeChannelOptions(pipe=PipeOptions(frame_messages=1))
    async with Node() as node:
        await Probe.on(node, "echo", answer=lambda message: message.payload)
        await node.start(between, address="between")
        await start_worker(node, PipeChannelService(options), "channels")
        channel = PipeChannel("between => channels", options)
        await node.start(lambda: channel, address="channel", mailbox=MailboxOptions(MESSAGES))
        asker = await Probe.on(node, "asker")
        for number in NUMBERS:
            asker.send("channel => echo", number)
        answers = await asker.count(MESSAGES, timeout=60)
        assert [answer.payload for answer in answers] == NUMBERS
        assert {answer.return_route[0] for answer in answers} == {channel.address}
        await channel.end()
        await sleep(10)
        assert asker.payloads == NUMBERS  # and no more
