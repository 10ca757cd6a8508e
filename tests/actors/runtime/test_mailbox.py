from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable

import pykka
import pytest
from pykka import messages
from pykka._envelope import Envelope

from onward.actors import MailboxOptions, Node, NodeLimits, Overflow, Worker
from onward.actors.runtime._mailbox import Mailbox, Target, Turn
from onward.protocol import Address, MailboxFull, Message, UnknownAddress
from tests.support.workers import Gate, Recorder, spawn_worker, start_worker


async def busy(node: Node, overflow: Overflow, limit: int = 2) -> Gate:
    """Start a worker that has one message in hand and a full mailbox."""
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(limit, overflow))
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    for number in range(limit):
        node.send("gate", b"%d" % number)
    return gate


def payloads(gate: Gate) -> list[bytes]:
    return [message.payload for message in gate.messages]


async def test_fail_gives_the_message_back(node: Node) -> None:
    gate = await busy(node, Overflow.FAIL)
    with pytest.raises(MailboxFull, match=r"mailbox full: 0#gate \(2 messages wait\)"):
        node.send("gate", b"2")
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert payloads(gate) == [b"in hand", b"0", b"1"]
    statistics = node.statistics()
    assert (statistics.refused, statistics.dropped, statistics.dead_letters) == (1, 0, 0)


async def test_drop_newest(node: Node) -> None:
    gate = await busy(node, Overflow.DROP_NEWEST)
    node.send("gate", b"2")
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert payloads(gate) == [b"in hand", b"0", b"1"]
    assert [letter.message.payload for letter in node.dead_letters.recent] == [b"2"]
    assert node.dead_letters.by_reason == {"mailbox full": 1}
    assert node.statistics().dropped == 1


async def test_drop_oldest(node: Node) -> None:
    gate = await busy(node, Overflow.DROP_OLDEST)
    node.send("gate", b"2")
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert payloads(gate) == [b"in hand", b"1", b"2"]
    assert [letter.message.payload for letter in node.dead_letters.recent] == [b"0"]


async def test_drop_oldest_leaves_timers_and_the_stop_in_their_places(node: Node) -> None:
    gate = await busy(node, Overflow.DROP_OLDEST, limit=3)
    ran: list[str] = []
    for number in range(3):
        gate.after(0.1, lambda number=number: ran.append(f"timer {number}"))  # type: ignore[misc]
    await asyncio.sleep(0.2)
    for number in range(3, 6):
        node.send("gate", b"%d" % number)
    gate.stop()
    node.send("gate", b"6")
    node.send("gate", b"7")
    node.send("gate", b"8")
    node.send("gate", b"9")
    assert node.statistics().dropped == 7
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert ran == ["timer 0", "timer 1", "timer 2"]
    assert payloads(gate) == [b"in hand"]
    assert not node.has("gate")
    # With nothing left to drop, the newest is taken all the same and then dead-lettered.
    assert node.dead_letters.by_reason == {"mailbox full": 7, "worker stopped": 3}


async def test_envelopes_of_pykka_are_dropped_with_an_answer(node: Node) -> None:
    await busy(node, Overflow.DROP_OLDEST, limit=1)
    ref = node.ref("gate")
    letters: list[Message] = []
    node.dead_letters.subscribe(lambda letter: letters.append(letter.message))
    asked = ref.ask("question", block=False)
    ref.tell("statement")
    with pytest.raises(MailboxFull):
        await asked
    node.send("gate", b"last")
    dropped = letters[-1]
    assert dropped.context is not None
    assert dropped.context.meta == "statement"


async def test_envelopes_of_pykka_are_refused(node: Node) -> None:
    await busy(node, Overflow.FAIL)
    with pytest.raises(MailboxFull):
        node.ref("gate").tell("statement")
    await busy_wait(node)
    with pytest.raises(MailboxFull):
        node.ref("other").tell("statement")


async def busy_wait(node: Node) -> None:
    spawn_worker(node, Gate(), "other", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.send("other", b"in hand")
    await asyncio.sleep(0.1)
    node.send("other", b"1")


async def test_wait_gives_a_sender_that_does_not_await_an_error(node: Node) -> None:
    await busy(node, Overflow.WAIT)
    with pytest.raises(MailboxFull):
        node.send("gate", b"2")


async def test_wait_lets_senders_wait_in_order(node: Node) -> None:
    gate = await busy(node, Overflow.WAIT)
    senders = [asyncio.create_task(node.send_wait("gate", b"%d" % number)) for number in (2, 3, 4)]
    await asyncio.sleep(1)
    assert not any(sender.done() for sender in senders)
    gate.opened.set()
    await asyncio.gather(*senders)
    await asyncio.sleep(0.1)
    assert payloads(gate) == [b"in hand", b"0", b"1", b"2", b"3", b"4"]


async def test_send_wait_sends_at_once_where_there_is_room(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder", mailbox=MailboxOptions(2, Overflow.WAIT))
    await node.send_wait("recorder", b"1")
    await recorder.send_wait("recorder", b"2", return_route="back")
    await recorder.send_wait("recorder", b"3")
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"1", b"2", b"3"]
    assert [message.source for message in recorder.messages] == [
        None,
        recorder.address,
        recorder.address,
    ]
    assert str(recorder.messages[1].return_route[0]) == "0#back"


class Interfering(Gate):
    """Does something in the moment between waking a sender and that sender's next step."""

    interfere: Callable[[], object] | None = None

    async def handle_message(self, message: Message) -> None:
        if self.interfere is not None:
            self.interfere()
            self.interfere = None
        await super().handle_message(message)


async def interfering(node: Node) -> Interfering:
    gate = spawn_worker(node, Interfering(), "gate", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.send("gate", b"in hand")
    await asyncio.sleep(0.1)
    node.send("gate", b"0")
    return gate


async def test_no_sender_passes_one_that_waits(node: Node) -> None:
    gate = await interfering(node)
    sender = asyncio.create_task(node.send_wait("gate", b"waited"))
    await asyncio.sleep(0.1)

    def barge_in() -> None:
        with pytest.raises(MailboxFull):
            node.send("gate", b"barged in")

    gate.interfere = barge_in
    gate.opened.set()
    await sender
    await asyncio.sleep(0.1)
    assert gate.interfere is None
    assert payloads(gate) == [b"in hand", b"0", b"waited"]


async def test_the_number_of_waiting_senders_is_limited() -> None:
    async with Node(limits=NodeLimits(waiting_senders=1)) as node:
        gate = await busy(node, Overflow.WAIT)
        waiting = asyncio.create_task(node.send_wait("gate", b"2"))
        await asyncio.sleep(0.1)
        with pytest.raises(MailboxFull, match="1 sender waits"):
            await node.send_wait("gate", b"3")
        gate.opened.set()
        await waiting


async def test_a_cancelled_sender_leaves_the_line(node: Node) -> None:
    gate = await busy(node, Overflow.WAIT)
    first = asyncio.create_task(node.send_wait("gate", b"first"))
    second = asyncio.create_task(node.send_wait("gate", b"second"))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    assert first.cancelled()
    gate.opened.set()
    await second
    await asyncio.sleep(0.1)
    assert payloads(gate)[-1] == b"second"


async def test_a_sender_cancelled_after_its_message_got_room_has_sent_it(node: Node) -> None:
    gate = await interfering(node)
    first = asyncio.create_task(node.send_wait("gate", b"first"))
    second = asyncio.create_task(node.send_wait("gate", b"second"))
    await asyncio.sleep(0.1)
    gate.interfere = first.cancel
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert first.cancelled()
    assert second.done()
    assert payloads(gate) == [b"in hand", b"0", b"first", b"second"]


async def test_senders_waiting_for_a_worker_that_stops_get_an_error() -> None:
    async with Node() as node:
        gate = await busy(node, Overflow.WAIT)
        sender = asyncio.create_task(node.send_wait("gate", b"2"))
        await asyncio.sleep(0.1)
        gate.stop()
        gate.opened.set()
        # It handles what waited before the stop, so there is room first.
        await asyncio.sleep(0.1)
        assert sender.done()

        spawn_worker(node, Gate(), "other", mailbox=MailboxOptions(1, Overflow.WAIT))
        node.send("other", b"in hand")
        await asyncio.sleep(0.1)
        node.send("other", b"0")
        late = asyncio.create_task(node.send_wait("other", b"1"))
        await asyncio.sleep(0.1)
    with pytest.raises(UnknownAddress):
        await late


async def test_what_reaches_a_stopped_worker_by_an_old_way_is_not_lost(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder")
    ref = node.ref("recorder")
    await node.stop_worker("recorder")
    cell = recorder._cell
    assert cell is not None
    inbox = ref.actor_inbox

    # A sender on another thread may have looked the worker up before it stopped.
    with pytest.raises(UnknownAddress):
        cell.put(Message((Address(0, b"recorder"),), (), b"1"))
    cell.post(Message((Address(0, b"recorder"),), (), b"2"))
    await asyncio.sleep(0.1)
    assert node.dead_letters.by_reason == {"worker stopped": 1}

    answer = pykka.ThreadingFuture[object]()
    inbox.put(Envelope("question", reply_to=answer))
    with pytest.raises(pykka.ActorDeadError):
        answer.get(timeout=0)
    inbox.put(Envelope("statement"))
    inbox.put(Envelope(messages._ActorStop()))
    assert node.dead_letters.by_reason == {"worker stopped": 2}


def test_many_threads_lose_nothing() -> None:
    count = 500
    with Node.in_background() as background:
        recorder = Recorder()
        background.start(lambda: recorder, address="recorder", mailbox=MailboxOptions(100_000))

        def send(name: bytes) -> None:
            for number in range(count):
                background.send("recorder", b"%s %d" % (name, number))

        threads = [threading.Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        background.node.ref("recorder").ask("settled")

    assert len(recorder.messages) == 3 * count
    for name in (b"a", b"b", b"c"):
        of_one = [payload for payload in recorder.payloads if payload.startswith(name)]
        assert of_one == [b"%s %d" % (name, number) for number in range(count)]


def test_what_only_a_worker_has() -> None:
    target = Target()
    with pytest.raises(AssertionError):
        target.put(Message((), (), b""))
    with pytest.raises(AssertionError):
        target.turn()
    with pytest.raises(AssertionError):
        target.give_up()
    with pytest.raises((AssertionError, TypeError)):  # compiled, it looks at types
        Turn().perform(Mailbox())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_with_nothing_to_drop_the_newest_is_taken(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(1, Overflow.DROP_OLDEST))
    node.send("gate", b"in hand")
    gate.after(0, lambda: None)
    await asyncio.sleep(0.1)
    node.send("gate", b"1")
    assert node.statistics().workers[0].waiting == 2
    gate.opened.set()
    await asyncio.sleep(0.1)
    assert payloads(gate) == [b"in hand", b"1"]


async def test_two_threads_make_one_queue(node: Node) -> None:
    class Racing:
        """A lock that another thread had before."""

        def __enter__(self) -> None:
            cell.queue = queue

        def __exit__(self, *_exc_info: object) -> None: ...

    recorder = await start_worker(node, Recorder(), "w")
    assert recorder._cell is not None
    cell, queue = recorder._cell, deque([Message((recorder.address,), (), b"1")])
    run_queue = node.parts.run_queue
    lock, run_queue.lock = run_queue.lock, Racing()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    node.send("w", b"2")
    run_queue.lock = lock
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"1", b"2"]


async def test_a_stop_is_not_dropped(node: Node) -> None:
    gate = await busy(node, Overflow.DROP_OLDEST, limit=1)
    stopping = node.ref("gate").stop(block=False)
    for number in range(5):
        node.send("gate", b"%d" % number)
    gate.opened.set()
    assert await stopping is True


async def test_a_sender_cancelled_just_before_there_is_room(node: Node) -> None:
    class Cancelling(Worker):
        def handle_message(self, message: Message) -> Awaitable[None] | None:
            if message.payload == b"in hand":
                return self.wait()
            first.cancel()
            return None

        async def wait(self) -> None:
            await opened.wait()

    opened = asyncio.Event()
    node.spawn(Cancelling, address="w", mailbox=MailboxOptions(1, Overflow.WAIT))
    node.send("w", b"in hand")
    await asyncio.sleep(0.1)
    node.send("w", b"cancels")
    first = asyncio.create_task(node.send_wait("w", b"first"))
    second = asyncio.create_task(node.send_wait("w", b"second"))
    await asyncio.sleep(0.1)
    opened.set()
    await asyncio.sleep(0.1)
    assert first.cancelled()
    assert second.done()
    assert node.statistics().handled == 3
