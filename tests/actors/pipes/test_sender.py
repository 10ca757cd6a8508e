"""`PipeSender`: what goes in, comes out at the other end or is reported."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors import MailboxOptions, Node, Overflow, Worker
from onward.actors.pipes import PipeReceiver, PipeSender
from onward.actors.testing import Probe
from onward.protocol import Message, RouteLike
from onward.protocol.pipes import (
    Broken,
    Missed,
    PipeBroken,
    PipeClosed,
    PipeFull,
    PipeOptions,
    PipeReceiverOptions,
)
from tests.support.workers import start_worker


class Filter(Worker):
    """Forwards, unless it is told not to."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def handle_message(self, message: Message) -> None:
        if not self.closed:
            self.forward(message)


class Pipe:
    """A sender, a receiver, and a way there and back that can be cut."""

    def __init__(self, node: Node, **options: object) -> None:
        self.node = node
        self.way = Filter()
        self.broken: list[Broken] = []
        self.missed: list[Missed] = []
        refuse = bool(options.pop("refuse", False))
        self.receiver = PipeReceiver(PipeReceiverOptions(stall_timeout=5.0, gap_timeout=50.0))
        self.sender = PipeSender(
            "way => out",
            PipeOptions(**options),  # type: ignore[arg-type]
            refuse=refuse,
            on_broken=self.broken.append,
            on_missed=self.missed.append,
        )

    async def start(self, mailbox: MailboxOptions = MailboxOptions()) -> Probe:  # noqa: B008
        node = self.node
        await node.start(lambda: self.way, address="way")
        await node.start(lambda: self.receiver, address="out")
        await node.start(lambda: self.sender, address="in", mailbox=mailbox)
        return await Probe.on(node, "probe")

    def reasons(self) -> dict[str, int]:
        return dict(self.node.dead_letters.by_reason)


def send(node: Node, *payloads: bytes, to: RouteLike = "in => probe") -> None:
    for payload in payloads:
        node.send(to, payload, return_route="app")


async def test_messages_come_out_as_they_went_in(node: Node) -> None:
    pipe = Pipe(node)
    probe = await pipe.start()
    send(node, b"1", b"2", b"3")
    messages = await probe.count(3)
    assert probe.payloads == [b"1", b"2", b"3"]
    # A pipe leaves no trace: the routes are those behind it.
    assert str(messages[0]) == "[0#probe] <- [0#app] 1 byte"
    assert messages[0].source == pipe.receiver.address
    await asyncio.sleep(1)
    found = pipe.sender.statistics()
    assert (found.accepted, found.confirmed, found.frames) == (3, 3, 1)
    assert found.round_trip is not None
    assert found.state == "OPEN"
    assert pipe.receiver.statistics().handed_on == 3


async def test_what_cannot_go_through_a_pipe_is_a_dead_letter(node: Node) -> None:
    pipe = Pipe(node)
    await pipe.start()
    send(node, b"nowhere", to="in")
    await asyncio.sleep(1)
    assert pipe.reasons() == {"empty route": 1}


async def test_a_full_pipe_refuses_if_it_is_told_to(node: Node) -> None:
    pipe = Pipe(node, queue=2, refuse=True)
    probe = await pipe.start()
    send(node, b"1", b"2", b"3")
    await probe.count(2)
    assert pipe.reasons() == {PipeFull.reason: 1}


async def test_a_full_pipe_lets_its_senders_wait(node: Node) -> None:
    pipe = Pipe(node, queue=2, window=2)
    probe = await pipe.start(MailboxOptions(2, Overflow.WAIT))
    for number in range(50):
        await node.send_wait("in => probe", b"%d" % number)
    await probe.count(50)
    assert probe.payloads == [b"%d" % number for number in range(50)]
    assert pipe.reasons() == {}


async def test_a_pipe_that_breaks_tells_what_is_in_doubt_and_begins_anew(node: Node) -> None:
    pipe = Pipe(node, give_up=5.0, window=1)
    probe = await pipe.start()
    send(node, b"0")
    await probe.next()
    await asyncio.sleep(1)
    pipe.way.closed = True
    send(node, b"1", b"2")
    await asyncio.sleep(10)
    (broken,) = pipe.broken
    assert [each.payload for each in broken.in_doubt] == [b"1"]
    assert [each.payload for each in broken.unsent] == [b"2"]
    assert pipe.reasons() == {PipeBroken.reason: 1, PipeClosed.reason: 1}
    pipe.way.closed = False
    send(node, b"3")
    assert (await probe.next()).payload == b"3"


async def test_a_waiting_sender_goes_on_when_the_pipe_breaks(node: Node) -> None:
    pipe = Pipe(node, give_up=5.0, queue=1, window=1)
    await pipe.start()
    pipe.way.closed = True
    send(node, b"1", b"2", b"3")
    await asyncio.sleep(8)
    assert pipe.sender.statistics().accepted >= 2
    await node.stop_worker("in")
    assert pipe.reasons() == {PipeClosed.reason: 3}


async def test_requests_through_a_broken_pipe_end_at_once(node: Node) -> None:
    pipe = Pipe(node, give_up=5.0)
    await pipe.start()
    asking = asyncio.ensure_future(node.request("in => nobody", b"?", timeout=100))
    await asyncio.sleep(1)
    # The far end has no such worker: it was certainly not handed on.
    assert len(pipe.missed) == 1
    assert asking.done()
    assert str(asking.exception()).startswith(("no such worker", "missed by the pipe"))


async def test_the_end_waits_until_all_is_confirmed(node: Node) -> None:
    pipe = Pipe(node)
    probe = await pipe.start()
    send(node, b"1", b"2")  # they are in the mailbox still
    await pipe.sender.end()
    assert probe.payloads == [b"1", b"2"]
    await asyncio.sleep(1)
    assert not node.has("in")
    assert pipe.receiver.statistics().pipes == 1


async def test_an_end_that_takes_too_long_breaks_the_pipe(node: Node) -> None:
    pipe = Pipe(node)
    await pipe.start()
    pipe.way.closed = True
    send(node, b"1")
    await asyncio.sleep(0.1)
    with pytest.raises(PipeBroken, match="not at its end in 2 s"):
        await pipe.sender.end(timeout=2)
    assert pipe.reasons() == {PipeClosed.reason: 1}


async def test_a_route_that_leads_nowhere_counts_and_is_given_up(node: Node) -> None:
    sender = await start_worker(node, PipeSender("nobody", PipeOptions(give_up=3.0)), "in")
    send(node, b"1")
    await asyncio.sleep(5)
    assert sender.statistics().not_routed > 1
    assert sender.statistics().unsent == 1


async def test_a_frame_that_is_none_is_a_dead_letter(node: Node) -> None:
    pipe = Pipe(node)
    await pipe.start()
    send(node, b"hm", to="out")
    send(node, b"hm", to=pipe.sender._pipe.back)
    await asyncio.sleep(0.1)
    assert pipe.reasons() == {"pipe frame error": 2}


async def test_a_hook_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def hook(_: Broken) -> None:
        raise ValueError("no")

    async with Node() as node:
        sender = PipeSender("nobody", PipeOptions(give_up=1.0), on_broken=hook)
        await node.start(lambda: sender, address="in")
        with caplog.at_level(logging.ERROR, "onward"):
            send(node, b"1")
            await asyncio.sleep(3)
    assert "a hook of 0#in failed" in caplog.text


async def test_a_failure_breaks_the_pipe(node: Node) -> None:
    pipe = Pipe(node, give_up=5.0)
    await pipe.start()
    pipe.way.closed = True
    send(node, b"1")
    await asyncio.sleep(0.1)
    pipe.sender.on_failure(ValueError, ValueError(), None)
    assert pipe.reasons() == {PipeClosed.reason: 1}
    pipe.receiver.on_failure(ValueError, ValueError(), None)


def test_before_it_has_started_a_pipe_has_nothing_to_tell() -> None:
    sender, receiver = PipeSender("out"), PipeReceiver()
    with pytest.raises(RuntimeError, match="has not started yet"):
        sender.statistics()
    with pytest.raises(RuntimeError, match="has not started yet"):
        receiver.statistics()
    sender.on_stop()
    receiver.on_stop()


async def test_what_waits_for_room_is_sent_before_the_end(node: Node) -> None:
    pipe = Pipe(node, window=1, queue=1, frame_messages=1)
    probe = await pipe.start()
    payloads = [b"%d" % number for number in range(10)]
    send(node, *payloads)
    await pipe.sender.end()
    await pipe.sender.end()
    assert probe.payloads == payloads


async def test_an_end_that_is_not_reached_in_time_breaks_the_pipe(node: Node) -> None:
    pipe = Pipe(node, window=1, queue=1)
    await pipe.start()
    pipe.way.closed = True
    send(node, b"1", b"2", b"3", b"4")
    with pytest.raises(PipeBroken, match="not at its end in 2 s"):
        await pipe.sender.end(timeout=2)
    await asyncio.sleep(1)
    assert pipe.reasons() == {PipeClosed.reason: 4}
