"""Messages that wait for room: chains that slow down, circles, stops, bytes, and turns of lines."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable

import pytest

from onward.actors import GivenUp, MailboxOptions, Node, NodeLimits, Overflow, ThreadWorker, Worker
from onward.protocol import Context, MailboxFull, Message, OnwardError, UnknownAddress
from tests.support.transports import eventually
from tests.support.workers import spawn_worker

ONE = MailboxOptions(1, Overflow.WAIT)


class Passing(Worker):
    """Passes everything on, in one of the ways there are."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def handle_message(self, message: Message) -> None:
        if self.how == "forward":
            self.forward(message)
        elif self.how == "step":
            self.step(message)
        elif self.how == "redirect":
            self.redirect(message, message.onward_route[1:2])
        else:
            onward, back, payload, _, context = message
            self.route(Message(onward[1:], back, payload, None, context))


class PassingLater(Passing):
    async def handle_message(self, message: Message) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0.01)
        super().handle_message(message)


class Slow(Worker):
    """Answers each message after a second."""

    def __init__(self, *, answers: bool = True) -> None:
        super().__init__()
        self.answers = answers
        self.payloads: list[bytes] = []

    async def handle_message(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(1)
        self.payloads.append(message.payload)
        if self.answers and message.return_route:
            self.reply(message, message.payload)


class Gate(Worker):
    """Handles nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []
        self.opened = asyncio.Event()

    async def handle_message(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        await self.opened.wait()
        self.payloads.append(message.payload)


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("kind", [Passing, PassingLater])
@pytest.mark.parametrize("how", ["forward", "step", "redirect", "route"])
async def test_a_chain_is_as_slow_as_its_slowest(how: str, kind: type[Passing], node: Node) -> None:
    slow = spawn_worker(node, Slow(), "slow", mailbox=ONE)
    names = ["a"] if how == "redirect" else ["a", "b", "c"]
    for name in names:
        node.spawn(lambda: kind(how), address=name, mailbox=ONE)
    way = [*names, "slow"]
    asked = [asyncio.create_task(node.request(way, each)) for each in numbers(10)]
    answers = [(await each).payload for each in asked]
    assert answers == slow.payloads == numbers(10)
    assert not reasons(node)
    assert node.loop.time() >= 10


async def test_answers_slow_down_to_who_takes_them(node: Node) -> None:
    class Answering(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, message.payload)

    slow = spawn_worker(node, Slow(answers=False), "slow", mailbox=ONE)
    node.spawn(Answering, address="answers", mailbox=MailboxOptions(20))
    for each in numbers(10):
        node.send("answers", each, return_route="slow")
    await asyncio.sleep(20)
    assert slow.payloads == numbers(10)
    assert not reasons(node)


class Doubling(Worker):
    """Passes each message on so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.errors: list[OnwardError] = []

    def handle_message(self, message: Message) -> None:
        for _ in range(self.times):
            try:
                self.forward(message)
            except OnwardError as error:
                self.errors.append(error)


async def test_what_one_turn_produces_waits_and_nothing_more_is_taken() -> None:
    async with Node(limits=NodeLimits(waiting_messages=3)) as node:
        gate = spawn_worker(node, Gate(), "gate", mailbox=ONE)
        doubling = spawn_worker(node, Doubling(6), "doubling", mailbox=MailboxOptions(5))
        node.send("doubling => gate", b"first")
        await asyncio.sleep(0.1)
        # One in hand would be one more, if it were taken before the turn is over.
        assert [str(error) for error in doubling.errors] == [
            "mailbox full: 0#gate (3 messages wait for room)"
        ] * 2
        node.send("doubling => gate", b"second")
        await asyncio.sleep(5)
        assert [each.state for each in node.statistics().workers] == ["busy", "busy"]
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert gate.payloads[:4] == [b"first"] * 4
        assert set(gate.payloads[4:]) == {b"second"}
        assert not reasons(node)


async def test_nothing_is_passed_on_to_a_worker_that_stops_meanwhile(node: Node) -> None:
    node.spawn(Gate, address="gate", mailbox=ONE)
    node.spawn(lambda: Passing("forward"), address="a", mailbox=MailboxOptions(9))
    for each in numbers(3):
        node.send("a => gate", each)
    asked = asyncio.create_task(node.request("a => gate", b"asked"))
    await asyncio.sleep(0.1)
    await node.stop_worker("gate", timeout=0.1)
    with pytest.raises(UnknownAddress):
        await asked
    # One in hand, one in the mailbox, one that waited, and the request.
    assert reasons(node) == {"worker failed": 1, "worker stopped": 1, "no such worker": 2}
    assert node.statistics().workers[0].state == "idle"


async def test_patience_with_a_worker_that_takes_nothing_ends() -> None:
    async with Node(limits=NodeLimits(room_timeout=7.0)) as node:
        gate = spawn_worker(node, Gate(), "gate", mailbox=ONE)
        node.spawn(lambda: Passing("forward"), address="a", mailbox=MailboxOptions(9))
        for each in numbers(2):
            node.send("a => gate", each)
        began = node.loop.time()
        with pytest.raises(MailboxFull, match="no room for 7 s"):
            await node.request("a => gate", b"asked")
        assert node.loop.time() - began == pytest.approx(7.0)
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert gate.payloads == numbers(2)


async def test_patience_lasts_as_long_as_anything_is_taken() -> None:
    async with Node(limits=NodeLimits(room_timeout=1.5)) as node:
        slow = spawn_worker(node, Slow(), "slow", mailbox=ONE)
        node.spawn(lambda: Doubling(6), address="doubling")
        node.send("doubling => slow", b"")
        await asyncio.sleep(10)
        assert len(slow.payloads) == 6
        assert not reasons(node)


async def test_workers_that_wait_for_one_another_go_on(node: Node) -> None:
    class Asking(Worker):
        """Passes on what comes from outside, and counts the answers."""

        def __init__(self) -> None:
            super().__init__()
            self.answers = 0

        def handle_message(self, message: Message) -> None:
            if len(message.onward_route) > 1:
                self.forward(message)
            else:
                self.answers += 1

    class Answering(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, message.payload)

    asking = spawn_worker(node, Asking(), "asks", mailbox=ONE)
    node.spawn(Answering, address="answers", mailbox=ONE)
    sends = [asyncio.create_task(node.send_wait("asks => answers", b"")) for _ in range(50)]
    await asyncio.gather(*sends)
    await asyncio.sleep(1)
    assert asking.answers == 50
    assert not reasons(node)


async def test_a_circle_that_makes_more_than_it_takes_loses_the_excess_at_once(node: Node) -> None:
    for name, other in (("a", "b"), ("b", "a")):

        class Making(Worker):
            to = other

            def handle_message(self, message: Message) -> None:
                if len(message.return_route) < 8:
                    for _ in range(3):
                        self.redirect(message, self.to)

        node.spawn(Making, address=name, mailbox=MailboxOptions(4, Overflow.WAIT))
    node.send("a", b"")
    await asyncio.sleep(1)
    assert all(each.waiting <= 8 for each in node.statistics().workers)
    assert reasons(node)["mailbox full"] > 0
    assert {each.state for each in node.statistics().workers} == {"idle"}


async def test_a_node_that_stops_waits_for_no_room() -> None:
    async with Node() as node:
        node.spawn(Gate, address="gate", mailbox=ONE)
        node.spawn(lambda: Passing("forward"), address="a")
        for each in numbers(3):
            node.send("a => gate", each)
        await asyncio.sleep(0.1)
        began = node.loop.time()
    assert reasons(node)["mailbox full"] == 1
    assert node.loop.time() - began <= 6


async def test_a_worker_that_is_stopped_first_hands_over_what_waits(node: Node) -> None:
    slow = spawn_worker(node, Slow(), "slow", mailbox=ONE)
    node.spawn(lambda: Passing("forward"), address="a")
    for each in numbers(5):
        node.send("a => slow", each)
    await node.stop_worker("a", timeout=100)
    await asyncio.sleep(5)
    assert slow.payloads == numbers(5)


class Blocking(ThreadWorker):
    def handle_message(self, message: Message) -> None:
        self.forward(message)


@pytest.mark.real_time
async def test_a_worker_with_a_thread_waits_there(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=ONE)
    node.spawn(Blocking, address="a", mailbox=MailboxOptions(20))
    for each in numbers(10):
        node.send("a => gate", each)
    await eventually(lambda: node.statistics().workers[0].waiting)
    gate.opened.set()
    await eventually(lambda: len(gate.payloads) == 10)
    assert gate.payloads == numbers(10)
    assert not reasons(node)


@pytest.mark.real_time
async def test_a_worker_with_a_thread_has_no_more_patience_than_others() -> None:
    async with Node(limits=NodeLimits(room_timeout=0.05)) as node:
        gate = spawn_worker(node, Gate(), "gate", mailbox=ONE)
        node.spawn(Blocking, address="a", mailbox=MailboxOptions(20))
        for each in numbers(2):
            node.send("a => gate", each)
        with pytest.raises(MailboxFull, match=r"no room for 0\.05 s"):
            await node.request("a => gate", b"asked")
        gate.opened.set()


@pytest.mark.real_time
async def test_a_worker_with_a_thread_that_waits_can_be_stopped(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=ONE)
    node.spawn(Blocking, address="a", mailbox=MailboxOptions(20))
    for each in numbers(4):
        node.send("a => gate", each)
    await eventually(lambda: node.parts.table.cell("gate").lines)
    await node.stop_worker("a", timeout=2)
    assert node.statistics().abandoned == 0
    assert reasons(node) == {"worker failed": 1, "worker stopped": 1}
    assert not node.parts.table.cell("gate").lines
    gate.opened.set()


async def test_a_stop_while_senders_wait(caplog: pytest.LogCaptureFixture, node: Node) -> None:
    caplog.set_level(logging.CRITICAL, "onward.actors")  # records keep frames alive
    stops = weakref.ref(gate := Gate())
    node.spawn(lambda: stops() or Gate(), address="gate", mailbox=ONE)
    passing = weakref.ref(through := Passing("forward"))
    node.spawn(lambda: passing() or Passing("forward"), address="through")
    await asyncio.sleep(0.1)
    del gate, through
    waiting = [asyncio.create_task(node.send_wait("gate", each)) for each in numbers(3)]
    waiting.append(asyncio.create_task(_asked(node)))
    node.send("through => gate", b"")
    await asyncio.sleep(0.1)
    assert len(node.parts.table.cell("gate").lines or ()) == 3
    await node.stop_worker("gate", timeout=1)
    await asyncio.wait(waiting)
    assert sum(isinstance(each.exception(), OnwardError) for each in waiting) >= 2
    waiting.clear()
    await node.stop_worker("through", timeout=1)
    gc.collect()
    assert stops() is None
    assert passing() is None


async def _asked(node: Node) -> None:
    await node.request("gate", b"asked")


async def test_other_threads_are_refused(node: Node) -> None:
    worker = Passing("forward")
    node.spawn(Gate, address="gate", mailbox=ONE)
    node.spawn(lambda: worker, address="a")
    for each in numbers(2):
        node.send("gate", each)
        await asyncio.sleep(0.1)
    node.parts.run_queue.thread_id += 1  # as another thread would find it
    message = Message(worker.addresses + node.parts.table.cell("gate").addresses, (), b"")
    with pytest.raises(MailboxFull) as raised:
        worker.forward(message)
    node.parts.run_queue.thread_id -= 1
    assert raised.value.lost == message


# --- answers that are lost ------------------------------------------------------------
async def test_an_answer_that_is_lost_on_its_way_back_is_told_at_once(node: Node) -> None:
    class Answering(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"answer")

    spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(1))
    node.spawn(Answering, address="answers")
    node.spawn(lambda: Passing("step"), address="there")

    class Through(Worker):
        """Passes on; answers are to go through the gate."""

        def handle_message(self, message: Message) -> None:
            self.forward(message, node.parts.table.cell("gate").address)

    node.spawn(Through, address="through")
    for each in numbers(2):
        node.send("gate", each)
        await asyncio.sleep(0.1)
    began = node.loop.time()
    with pytest.raises(GivenUp, match="the answer was lost: mailbox full"):
        await node.request("through => answers", b"")
    assert node.loop.time() == began
    assert reasons(node) == {"mailbox full": 1}


async def test_an_answer_that_a_worker_cannot_pass_on_is_told_at_once(node: Node) -> None:
    class Answering(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"answer")

    class Through(Worker):
        """Passes questions on; answers go on to a worker that there is not."""

        def handle_message(self, message: Message) -> None:
            if message.payload == b"answer":
                self.redirect(message, "nobody")
            else:
                self.forward(message)

    node.spawn(Answering, address="answers")
    node.spawn(Through, address="through")
    began = node.loop.time()
    with pytest.raises(GivenUp, match="the answer was lost: no such worker"):
        await node.request("through => answers", b"")
    assert node.loop.time() == began


# --- bytes ----------------------------------------------------------------------------
BIG = bytes(20_000)
LARGER = bytes(50_000)


async def gate_with(
    node: Node, overflow: Overflow, max_bytes: int = 60_000
) -> tuple[Gate, Callable[[bytes], None]]:
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(100, overflow, max_bytes))
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    return gate, lambda payload: node.send("gate", payload)


async def test_a_mailbox_is_bounded_in_bytes(node: Node) -> None:
    gate, send = await gate_with(node, Overflow.FAIL)
    for _ in range(3):
        send(BIG)
    with pytest.raises(MailboxFull, match="60000 bytes wait"):
        send(BIG)
    send(b"small ones are bounded by their number")
    assert node.parts.run_queue.waiting_bytes == 60_000
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", BIG, BIG, BIG, b"small ones are bounded by their number"]
    assert node.parts.run_queue.waiting_bytes == 0
    send(bytes(100_000))  # one may always wait, however large
    await asyncio.sleep(0.1)
    assert len(gate.payloads) == 6
    assert node.statistics().workers[0].handled == 6


class Enlarging(Worker):
    def handle_message(self, message: Message) -> None:
        self.forward(message._replace(payload=BIG))


async def test_what_is_made_larger_on_its_way_is_bounded_in_bytes_or_in_number(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(10, max_bytes=60_000))
    node.spawn(Enlarging, address="enlarging")
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    for _ in range(4):
        node.send("enlarging => gate", b"", context=Context())
    await asyncio.sleep(0.1)
    assert node.parts.run_queue.waiting_bytes == 60_000
    assert reasons(node) == {"mailbox full": 1}
    for _ in range(8):
        node.send("enlarging => gate", b"")
    await asyncio.sleep(0.1)
    assert reasons(node) == {"mailbox full": 2}
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", *[BIG] * 10]
    assert node.parts.run_queue.waiting_bytes == 0


async def test_the_bytes_of_all_mailboxes_are_bounded() -> None:
    async with Node(limits=NodeLimits(waiting_bytes=70_000)) as node:
        for name in ("a", "b"):
            node.spawn(Gate, address=name)
        node.send("a", b"in hand")
        await asyncio.sleep(0.1)
        node.send("a", LARGER)
        node.send("b", LARGER)  # it has none yet
        with pytest.raises(MailboxFull):
            node.send("a", BIG)
    assert node.parts.run_queue.waiting_bytes == 0


async def test_who_may_wait_waits_for_bytes_in_order(node: Node) -> None:
    gate, _ = await gate_with(node, Overflow.WAIT)
    node.spawn(lambda: Passing("forward"), address="a")
    sent = [BIG, BIG, LARGER, b"small", BIG]
    for each in sent:
        node.send("a => gate", each)
    await asyncio.sleep(0.1)
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", *sent]
    assert node.parts.run_queue.waiting_bytes == 0
    assert not reasons(node)


async def test_the_oldest_are_dropped_until_there_is_room_for_the_bytes(node: Node) -> None:
    gate, send = await gate_with(node, Overflow.DROP_OLDEST)
    for payload in (BIG, b"1", BIG, b"2", BIG, LARGER):
        send(payload)
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", LARGER]
    assert reasons(node) == {"mailbox full": 5}
    assert node.parts.run_queue.waiting_bytes == 0


class Answering(Worker):
    """Answers each message with a large payload."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, BIG)


async def test_answers_are_bounded_in_bytes(node: Node) -> None:
    gate, _ = await gate_with(node, Overflow.FAIL)
    node.spawn(Answering, address="answers")
    for _ in range(5):
        node.send("answers", b"", return_route="gate")
    await asyncio.sleep(0.1)
    assert node.parts.run_queue.waiting_bytes == 60_000
    assert reasons(node) == {"mailbox full": 2}
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", BIG, BIG, BIG]
    assert node.parts.run_queue.waiting_bytes == 0


async def test_answers_wait_for_bytes_in_order(node: Node) -> None:
    gate, _ = await gate_with(node, Overflow.WAIT)
    node.spawn(Answering, address="answers")
    for _ in range(10):
        node.send("answers", b"", return_route="gate")
    await asyncio.sleep(0.1)
    assert node.parts.run_queue.waiting_bytes == 60_000
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert gate.payloads == [b"in hand", *[BIG] * 10]
    assert not reasons(node)


async def test_a_large_message_that_fails_is_as_any_other(node: Node) -> None:
    class Failing(Worker):
        def handle_message(self, message: Message) -> None:
            raise ValueError(len(message.payload))

    node.spawn(Failing, address="fails")
    with pytest.raises(OnwardError, match="worker failed"):
        await node.request("fails", BIG)
    assert node.statistics().workers[0].failed == 1
    assert node.parts.run_queue.waiting_bytes == 0


# --- turns ----------------------------------------------------------------------------
async def test_senders_have_their_turns(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(2, Overflow.WAIT))
    node.spawn(lambda: Doubling(100), address="many")
    node.spawn(lambda: Doubling(2), address="few")
    node.send("many => gate", b"many")
    node.send("few => gate", b"few")
    await asyncio.sleep(0.1)
    gate.opened.set()
    await asyncio.sleep(1)
    assert len(gate.payloads) == 102
    # Two in the mailbox, one in hand, and then a turn for each.
    assert gate.payloads.index(b"few") < 25
