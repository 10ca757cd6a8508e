from __future__ import annotations

import asyncio
import threading

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits, Overflow, TooManyRequests, Worker
from onward.actors.routing._table import RandomAddresses
from onward.protocol import (
    Address,
    Context,
    InDoubt,
    LinkLost,
    MailboxFull,
    Message,
    NodeStopped,
    NotDelivered,
    PayloadTooBig,
    RequestTimeout,
    UnknownAddress,
)
from tests.support.loops import LoopFactory, on_both_loops, on_each_loop, run_on
from tests.support.workers import Echo, Forwarder, Gate, Recorder, spawn_worker, start_worker


def test_random_addresses() -> None:
    take = RandomAddresses().take
    taken = [take() for _ in range(1000)]
    assert len(set(taken)) == 1000
    for address in taken:
        assert type(address) is Address
        assert address.type == 0
        assert len(address.value) == 32
        assert bytes.fromhex(address.value.decode())


@on_both_loops
async def test_request_and_answer(node: Node) -> None:

    node.spawn(Echo, address="echo")
    node.spawn(Forwarder, address="forwarder")
    answer = await node.request("forwarder => echo", b"hi")
    assert answer.payload == b"hi"
    assert [str(step) for step in answer.return_route] == ["0#forwarder", "0#echo"]
    assert node.statistics().requests == 0


async def test_what_the_worker_asked_sees(node: Node) -> None:
    context = Context(trace="trace")

    class Asking(Worker):
        async def handle_message(self, message: Message) -> None:
            self.answer = await self.request("recorder", b"question", context=context)

    class Answering(Recorder):
        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            assert self.node.has(message.return_route[0])
            assert self.node.parts.table.is_request(message.return_route[0])
            self.reply(message, b"answer")

    asking = spawn_worker(node, Asking(), "asking")
    answering = spawn_worker(node, Answering(), "recorder")
    deadline = node.loop.time() + 30.0  # the default timeout
    node.send("asking", b"")
    await asyncio.sleep(1)
    [message] = answering.messages
    assert message.source == asking.address
    assert message.context is not None
    assert message.context.trace == "trace"
    assert message.context.deadline is not None
    assert deadline <= message.context.deadline <= deadline + 30.0 / 256
    [back] = message.return_route
    assert not node.parts.table.is_request(back)
    assert not node.parts.table.is_request(asking.address)
    assert asking.answer.payload == b"answer"
    assert asking.answer.source == answering.address


@on_both_loops
async def test_requests_in_a_row_leave_the_loop_its_turns(node: Node) -> None:
    passes = 0

    def count() -> None:
        nonlocal passes
        passes += 1
        node.loop.call_soon(count)

    node.spawn(Echo, address="echo")
    await node.request("echo", b"")
    count()
    for _ in range(160):
        await node.request("echo", b"")
    assert 10 <= passes <= 20


async def test_a_request_waits_its_turn_behind_what_was_sent_before(node: Node) -> None:
    recorder = await start_worker(node, Recorder(), "recorder")
    node.spawn(Echo, address="echo")
    node.send("recorder", b"1")
    await node.request("echo", b"2")
    assert recorder.payloads == [b"1"]


async def test_timeout_and_late_answer(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "silent")
    began = node.loop.time()
    with pytest.raises(RequestTimeout, match=r"no answer in time: 0#silent \(2.5 s\)") as raised:
        await node.request("silent", b"", timeout=2.5)
    assert node.loop.time() - began == pytest.approx(2.5)
    assert isinstance(raised.value, InDoubt)
    assert isinstance(raised.value, TimeoutError)

    # Whoever answers late gets no error; it would not know what to do with one.
    recorder.reply(recorder.messages[0], b"late")
    assert node.dead_letters.by_reason == {"late answer": 1}
    assert not node.parts.router.dispatch_or_lose(recorder.messages[0].reply(b"from outside"))
    assert node.dead_letters.by_reason == {"late answer": 2}


async def test_timeouts_of_every_length_at_once(node: Node) -> None:
    async def time_of(timeout: float) -> float:
        began = node.loop.time()
        with pytest.raises(RequestTimeout):
            await node.request("silent", b"", timeout=timeout)
        return node.loop.time() - began

    node.spawn(Recorder, address="silent")
    timeouts = [1.0, 3.0, 2.0, 1.0, *(4 + number / 10 for number in range(40))]
    tasks: list[asyncio.Task[float]] = []
    for timeout in timeouts:
        tasks.append(asyncio.create_task(time_of(timeout)))
        await asyncio.sleep(0.25)
    assert [await task for task in tasks] == pytest.approx(timeouts)
    # Only so many timers are shared, and those that are not are cancelled.
    assert len(node.parts.requests._patience) == 16


async def test_one_timer_serves_many_requests(node: Node) -> None:
    node.spawn(Echo, address="echo")
    node.spawn(Recorder, address="silent")
    for _ in range(5):
        await node.request("echo", b"", timeout=2.0)
        await asyncio.sleep(0.9)
    with pytest.raises(RequestTimeout):
        await node.request("silent", b"", timeout=2.0)


async def test_a_cancelled_request_is_forgotten_and_its_answer_late(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "silent")
    task = asyncio.create_task(node.request("silent", b""))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert node.statistics().requests == 0
    recorder.reply(recorder.messages[0], b"late")
    assert node.dead_letters.by_reason == {"late answer": 1}


async def test_a_failure_together_with_a_cancellation(node: Node) -> None:
    node.spawn(Recorder, address="silent")
    task = asyncio.create_task(node.request("silent", b"", timeout=1.0))
    await asyncio.sleep(0.1)
    node.loop.call_at(node.loop.time() + 0.9, task.cancel)
    with pytest.raises((asyncio.CancelledError, RequestTimeout)):
        await task


async def test_an_answer_at_the_very_moment_of_the_timeout(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "slow")
    due = node.loop.time() + 1.0
    task = asyncio.create_task(node.request("slow", b"", timeout=1.0))
    node.loop.call_at(due, lambda: recorder.reply(recorder.messages[0], b"just in time"))
    assert (await task).payload == b"just in time"


async def test_a_second_answer(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "twice")
    task = asyncio.create_task(node.request("twice", b""))
    await asyncio.sleep(0.1)
    recorder.reply(recorder.messages[0], b"first")
    # Before the one who asked has had its turn, and after.
    recorder.reply(recorder.messages[0], b"second")
    assert node.dead_letters.by_reason == {"late answer": 1}
    assert (await task).payload == b"first"
    with pytest.raises(UnknownAddress):
        recorder.reply(recorder.messages[0], b"third")


async def test_only_so_many_late_answers_are_known_as_such() -> None:
    async with Node(limits=NodeLimits(late_answers=1)) as node:
        recorder = spawn_worker(node, Recorder(), "silent")
        for _ in range(2):
            with pytest.raises(RequestTimeout):
                await node.request("silent", b"", timeout=1)
        with pytest.raises(UnknownAddress):
            recorder.reply(recorder.messages[0], b"too late")
        recorder.reply(recorder.messages[1], b"late")


async def test_the_number_of_requests_is_limited() -> None:
    async with Node(limits=NodeLimits(requests=1)) as node:
        node.spawn(Echo, address="echo")
        node.spawn(Recorder, address="silent")
        waiting = asyncio.create_task(node.request("silent", b"", timeout=1))
        await asyncio.sleep(0.1)
        assert node.statistics().requests == 1
        with pytest.raises(TooManyRequests, match="0#echo"):
            await node.request("echo", b"")
        with pytest.raises(RequestTimeout):
            await waiting
        assert (await node.request("echo", b"")).payload == b""


async def test_what_cannot_be_sent_is_raised_and_not_late() -> None:
    async with Node(limits=NodeLimits(payload=3)) as node:
        with pytest.raises(UnknownAddress):
            await node.request("nobody", b"")
        with pytest.raises(PayloadTooBig):
            await node.request("nobody", b"1234")
        assert node.statistics().requests == 0


async def test_a_request_waits_for_room(node: Node) -> None:
    class Slow(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1)
            self.reply(message, message.payload)

    node.spawn(Slow, address="slow", mailbox=MailboxOptions(1, Overflow.WAIT))
    answers = await asyncio.gather(*(node.request("slow", b"%d" % number) for number in range(4)))
    assert sorted(answer.payload for answer in answers) == [b"0", b"1", b"2", b"3"]


async def test_a_request_that_finds_no_room_in_time_was_not_delivered(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    node.send("gate", b"waiting")
    with pytest.raises(MailboxFull, match="no room in time") as raised:
        await node.request("gate", b"", timeout=1)
    assert isinstance(raised.value, NotDelivered)
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert len(gate.messages) == 2


async def test_a_request_that_waits_for_room_is_not_passed(node: Node) -> None:
    refused: list[MailboxFull] = []

    class Interfering(Gate):
        async def handle_message(self, message: Message) -> None:
            if message.payload == b"waiting":
                try:
                    self.send((self.address,), b"barged in")
                except MailboxFull as error:
                    refused.append(error)
            await super().handle_message(message)
            if message.return_route and message.payload == b"question":
                self.reply(message, b"answer")

    gate = spawn_worker(node, Interfering(), "gate", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    node.send("gate", b"waiting")
    asked = asyncio.create_task(node.request("gate", b"question", timeout=10))
    await asyncio.sleep(0.1)
    gate.opened.set()
    assert (await asked).payload == b"answer"
    assert len(refused) == 1
    assert [message.payload for message in gate.messages] == [b"in hand", b"waiting", b"question"]


async def test_requests_that_wait_when_the_node_stops() -> None:
    async with Node() as node:
        node.spawn(Recorder, address="silent")
        task = asyncio.create_task(node.request("silent", b""))
        await asyncio.sleep(0.1)
    with pytest.raises(NodeStopped, match="while an answer was due"):
        await task
    with pytest.raises(NodeStopped):
        await node.request("silent", b"")


async def test_a_request_that_waits_for_room_when_the_node_stops(node: Node) -> None:
    node.spawn(Gate, address="gate", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.spawn(Recorder, address="other")
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    node.send("gate", b"waiting")
    task = asyncio.create_task(node.request("gate", b""))
    await asyncio.sleep(0.1)
    node.parts.requests.close("node")
    with pytest.raises(NodeStopped):
        await task


async def test_who_asked_is_told_that_a_message_is_lost(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    for on_thread in (False, True):
        task = asyncio.create_task(node.request("w", b""))
        await asyncio.sleep(0.1)
        lost = (recorder.messages.pop(), LinkLost("peer"))
        if on_thread:
            thread = threading.Thread(target=node.lose, args=lost)
            thread.start()
            thread.join()
        else:
            node.lose(*lost)
        with pytest.raises(LinkLost):
            await task
    node.lose(Message((recorder.address,), (recorder.address,), b""), LinkLost("peer"))
    assert node.dead_letters.by_reason == {"link lost": 3}


async def test_a_transport_can_fail_a_request(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "silent")
    task = asyncio.create_task(node.request("silent", b""))
    await asyncio.sleep(0.1)
    [back] = recorder.messages[0].return_route
    assert node.fail_request(back, LinkLost("peer"))
    assert not node.fail_request(back, LinkLost("peer"))
    assert not node.fail_request(recorder.address, LinkLost("peer"))
    with pytest.raises(LinkLost):
        await task


def test_answers_from_other_threads() -> None:
    class Threaded(Worker):
        def handle_message(self, message: Message) -> None:
            threading.Thread(target=self.reply, args=(message, b"from a thread")).start()

    with Node.in_background() as background:
        background.start(Threaded, address="threaded")
        assert background.request("threaded", b"").payload == b"from a thread"


@on_each_loop
def test_requests_from_another_loop(loop_factory: LoopFactory) -> None:
    with Node.in_background() as background:
        background.start(Echo, address="echo")
        background.start(Recorder, address="recorder")
        node = background.node

        async def main() -> None:
            assert (await node.request("echo", b"hi")).payload == b"hi"
            await node.send_wait("recorder", b"", return_route="echo")

        run_on(loop_factory, main())
    with pytest.raises(NodeStopped):
        run_on(loop_factory, main())


@on_both_loops
async def test_deadlines_of_requests_that_are_over_are_let_go_of(node: Node) -> None:

    await node.start(Echo, address="echo")
    for number in range(20):
        await node.request("echo", b"x", timeout=60)
        with pytest.raises(UnknownAddress):
            await node.request("nobody", b"%d" % number, timeout=60)
    assert [len(each.deadlines) for each in node.parts.requests._patience.values()] == [0]
