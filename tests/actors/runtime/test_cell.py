from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Awaitable
from functools import partial

import pytest

from onward.actors import Instrument, MailboxOptions, Node, NodeLimits, TracedMessage, Worker
from onward.actors.testing import Probe
from onward.protocol import (
    Address,
    Context,
    InDoubt,
    Message,
    NotDelivered,
    RequestTimeout,
    WorkerFailed,
    WorkerStopped,
    read_error_reply,
)
from tests.support.fixtures import Caplog
from tests.support.loops import LoopFactory, on_each_loop, run_on
from tests.support.workers import Echo, Failing, Gate, Recorder, spawn_worker


async def test_messages_are_handled_in_order_and_counted(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder")
    for number in range(200):
        node.send("recorder", b"%d" % number)
    await asyncio.sleep(1)
    assert recorder.payloads == [b"%d" % number for number in range(200)]
    assert node.statistics().handled == 200


async def test_no_message_is_handled_while_a_coroutine_runs(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    node.send("gate", b"1")
    node.send("gate", b"2")
    await asyncio.sleep(1)
    assert len(gate.messages) == 1
    worker = node.statistics().workers[0]
    assert (worker.state, worker.waiting) == ("busy", 1)
    gate.opened.set()
    await asyncio.sleep(1)
    assert len(gate.messages) == 2
    assert node.statistics().workers[0].state == "idle"


@on_each_loop
def test_workers_take_turns(loop_factory: LoopFactory) -> None:
    order: list[str] = []

    class Named(Worker):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def handle_message(self, message: Message) -> None:
            order.append(self.name)

    async def main() -> None:
        limits = NodeLimits(batch=2, drain=5)
        async with Node(limits=limits) as node:
            node.spawn(lambda: Named("a"), address="a")
            node.spawn(lambda: Named("b"), address="b")
            node.spawn(Echo, address="echo")
            for name in "ab":
                for _ in range(5):
                    node.send(name, b"")
            loop_went_on = asyncio.Event()
            node.loop.call_soon(loop_went_on.set)
            await loop_went_on.wait()
            assert len(order) < 10
            await node.request("echo", b"everything before this has been handled")

    run_on(loop_factory, main())
    assert "".join(order) == "aabbaabbab"


async def test_cancelling_a_handler_fails_that_one_message(caplog: Caplog, node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    spawn_worker(node, Recorder(), "bystander")
    node.send("gate", b"1")
    node.send("gate", b"2")
    await asyncio.sleep(1)
    assert gate._cell is not None
    assert gate._cell.task is not None
    gate._cell.task.cancel()
    await asyncio.sleep(1)
    assert len(gate.messages) == 2
    assert node.statistics().failed == 1
    assert node.has("bystander")
    assert len(caplog.records) == 1
    gate.opened.set()


async def test_a_plain_handler_that_raises_cancelled_error_fails_one_message(node: Node) -> None:
    class Odd(Recorder):
        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            raise asyncio.CancelledError

    odd = spawn_worker(node, Odd(), "odd")
    node.send("odd", b"1")
    node.send("odd", b"2")
    await asyncio.sleep(1)
    assert len(odd.messages) == 2
    assert node.statistics().failed == 2


async def test_coroutine_handlers_see_the_worker_s_own_context() -> None:
    seen: list[str] = []
    variable = contextvars.ContextVar("variable", default="unset")

    class Setting(Worker):
        async def on_start(self) -> None:
            variable.set("mine")

        async def handle_message(self, message: Message) -> None:
            seen.append(variable.get())
            assert asyncio.current_task() is not None
            async with asyncio.timeout(1):
                await asyncio.sleep(0)

    class Other(Worker):
        async def handle_message(self, message: Message) -> None:
            seen.append(variable.get())

    async with Node() as node:
        await node.start(Setting, address="setting")
        await node.start(Other, address="other")
        variable.set("the sender's")
        node.send("setting", b"")
        node.send("other", b"")
        await asyncio.sleep(1)
    assert seen == ["mine", "unset"]


async def test_what_a_handler_returns_is_nothing_unless_a_coroutine(node: Node) -> None:
    class Returning(Recorder):
        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            return 5  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    returning = spawn_worker(node, Returning(), "returning")
    node.send("returning", b"1")
    node.send("returning", b"2")
    await asyncio.sleep(1)
    assert returning.payloads == [b"1", b"2"]


async def test_ask_and_tell(node: Node) -> None:
    class Adding(Worker):
        def on_receive(self, message: int) -> int:
            if message < 0:
                raise ValueError(message)
            return message + 1

        async def later(self, message: int) -> int:
            await asyncio.sleep(1)
            return self.on_receive(message)

    node.spawn(Adding, address="adding")
    ref = node.ref("adding")
    proxy = ref.proxy()
    assert await ref.ask(1, block=False) == 2
    assert await proxy.later(2) == 3
    with pytest.raises(ValueError, match="-1"):
        await ref.ask(-1, block=False)
    with pytest.raises(ValueError, match="-2"):
        await proxy.later(-2)
    assert node.statistics().failed == 2

    # Nobody waits for an answer: then it is a failure of the worker, which resumes.
    ref.tell(-3)
    proxy.later.defer(-4)
    proxy.later.defer(5)
    await asyncio.sleep(5)
    assert node.statistics().failed == 4
    assert await ref.ask(1, block=False) == 2


async def test_ask_of_a_handler_that_is_cancelled(node: Node) -> None:
    class Waiting(Worker):
        async def on_receive(self, message: object) -> None:
            await asyncio.Event().wait()

    waiting = spawn_worker(node, Waiting(), "waiting")
    asked = node.ref("waiting").ask("?", block=False)
    await asyncio.sleep(1)
    assert waiting._cell is not None
    assert waiting._cell.task is not None
    waiting._cell.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert node.has("waiting")


@on_each_loop
@pytest.mark.parametrize("in_task", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_system_exit(loop_factory: LoopFactory, *, in_task: bool, asked: bool | None) -> None:
    """By a routed message, by `tell` and by `ask`; plain and in a coroutine."""

    class Exiting(Worker):
        def handle_message(self, message: Message) -> None:
            return self.on_receive(message)

        def on_receive(self, message: object) -> None:
            if in_task:
                return self.exit()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
            raise SystemExit(3)

        async def exit(self) -> None:
            await asyncio.sleep(0)
            raise SystemExit(3)

    async def main() -> None:
        node = Node()
        await node.__aenter__()
        node.spawn(Exiting, address="exiting")
        if asked is None:
            node.send("exiting", b"")
        elif asked:
            with pytest.raises(SystemExit):
                await node.ref("exiting").ask("?", block=False)
        else:
            node.ref("exiting").tell("!")
        try:
            await asyncio.Event().wait()
        finally:
            await node.stop()
            assert not node.has("exiting")

    with pytest.raises(SystemExit):
        run_on(loop_factory, main())


async def test_statistics_of_a_worker(node: Node) -> None:
    failing = Failing()
    address = node.spawn(lambda: failing, address="failing", mailbox=MailboxOptions(7))
    node.send("failing", b"!")
    failing.spawn(Echo)
    failing.after(10, failing.stop)
    starting = node.statistics().workers[0]
    await asyncio.sleep(1)
    after = node.statistics().workers[0]
    assert (starting.state, starting.waiting) == ("starting", 1)
    assert after.address == address == Address(0, b"failing")
    assert (after.kind, after.state, after.waiting, after.limit) == ("Failing", "idle", 0, 7)
    assert (after.handled, after.failed, after.children, after.timers) == (1, 1, 1, 1)


async def test_a_message_dropped_by_another_thread_in_the_middle_of_a_turn(node: Node) -> None:
    class Popping(Recorder):
        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            assert self._cell is not None
            assert self._cell.queue is not None
            self._cell.queue.clear()

    popping = spawn_worker(node, Popping(), "popping")
    for _ in range(3):
        node.send("popping", b"")
    await asyncio.sleep(1)
    assert len(popping.messages) == 1
    assert node.statistics().handled == 1
    node.send("popping", b"")
    await asyncio.sleep(1)
    assert len(popping.messages) == 2


async def test_a_second_place_in_the_run_queue_does_no_harm(node: Node) -> None:
    """Two threads that see an idle worker at the same time both put it there."""
    recorder = spawn_worker(node, Recorder(), "recorder")
    gate = spawn_worker(node, Gate(), "gate")
    await asyncio.sleep(0.1)
    for worker in (recorder, gate):
        assert worker._cell is not None
        node.route(Message((worker.address,), (), b"1"))
        node.parts.run_queue.schedule(worker._cell)
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"1"]
    assert len(gate.messages) == 1
    gate.opened.set()


class Racing(deque[object]):
    """A queue that looks empty once; then another thread has appended to it."""

    late: object = None

    def __bool__(self) -> bool:
        if self.late is not None and not len(self):
            self.append(self.late)
            self.late = None
            return False
        return len(self) > 0


async def test_what_is_appended_while_a_worker_falls_asleep_is_handled(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    await asyncio.sleep(0.1)
    cell = recorder._cell
    assert cell is not None
    cell.queue = queue = Racing()
    queue.late = Message((recorder.address,), (), b"2")
    node.send("w", b"1")
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"1", b"2"]


async def test_what_is_appended_while_a_worker_stops_is_a_dead_letter(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    await asyncio.sleep(0.1)
    cell = recorder._cell
    assert cell is not None
    cell.queue = queue = Racing()
    node.loop.call_soon(setattr, queue, "late", Message((recorder.address,), (), b"late"))
    await asyncio.sleep(0.1)
    await node.stop()
    await asyncio.sleep(0.1)
    assert node.dead_letters.by_reason == {"worker stopped": 1}


async def test_an_answer_to_somebody_who_asked_a_worker_that_was_given_up(node: Node) -> None:
    released = asyncio.Event()

    class Stubborn(Worker):
        async def on_receive(self, message: object) -> object:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return message

    node.spawn(Stubborn, address="w")
    asked = node.ref("w").ask("question", block=False)
    await asyncio.sleep(0.1)
    await node.stop(timeout=1)
    assert node.statistics().abandoned == 1
    released.set()
    assert await asked == "question"


async def test_a_message_whose_deadline_has_passed_is_not_handled(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    recorder = spawn_worker(node, Recorder(), "recorder")
    now = node.loop.time()
    node.send("gate", b"first")
    node.send("gate", b"late", context=Context(now + 2))
    node.send("gate", b"in time", context=Context(now + 60))
    await asyncio.sleep(3)
    gate.opened.set()
    await asyncio.sleep(1)
    assert [message.payload for message in gate.messages] == [b"first", b"in time"]
    assert node.dead_letters.by_reason == {"expired": 1}
    node.send("recorder", b"at once", context=Context(node.loop.time()))
    await asyncio.sleep(1)
    assert recorder.messages == []
    figures = node.statistics()
    assert (figures.handled, figures.dropped, figures.failed) == (2, 2, 0)


async def test_a_forwarder_passes_nothing_on_that_nobody_waits_for(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    spawn_worker(node, Recorder(), "echo")
    node.send("gate", b"")
    # Held up behind the gate for longer than the request lasts.
    with pytest.raises(RequestTimeout):
        await node.request("gate", b"", timeout=1)
    await asyncio.sleep(2)
    gate.opened.set()
    await asyncio.sleep(1)
    assert len(gate.messages) == 1
    assert node.dead_letters.by_reason == {"expired": 1}


class Follows(Instrument):
    """Notes what it is given, and marks it as seen."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def message_traced(self, worker: Worker, traced: TracedMessage) -> None:
        self.seen.append(f"{worker.address} {traced.message.payload.decode()}")
        assert traced.replace({"seen": "yes"})


async def test_an_instrument_is_given_what_has_a_tracing_text(node: Node) -> None:
    tracer = Follows()
    node.add_instrument(tracer)
    recorder, gate, failing = Recorder(), Gate(), Failing()
    for name, worker in (("recorder", recorder), ("gate", gate), ("failing", failing)):
        node.spawn(partial(_same, worker), address=name)
    traced = Context(trace="{}")
    node.send("recorder", b"plain")
    node.send("recorder", b"deadline", context=Context(node.loop.time() + 9))
    node.send("recorder", b"traced", context=traced)
    node.send("gate", b"awaits", context=traced)
    node.send("failing", b"!", context=traced)
    await asyncio.sleep(1)
    assert sorted(tracer.seen) == ["0#failing !", "0#gate awaits", "0#recorder traced"]
    assert recorder.messages[-1].context == Context(trace='{"seen":"yes"}')
    assert node.statistics().failed == 1
    # What it has in hand, and what becomes a dead letter, is the message as it came.
    (letter,) = node.dead_letters.recent
    assert letter.reason == "worker failed"
    node.remove_instrument(tracer)
    node.send("recorder", b"untraced", context=traced)
    await asyncio.sleep(1)
    assert recorder.messages[-1].context == traced
    gate.opened.set()


def _same(worker: Worker) -> Worker:
    return worker


class Looks(Instrument):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def worker_suspended(self, worker: Worker) -> None:
        self.heard.append(f"{worker.address} suspended")

    def worker_resumed(self, worker: Worker) -> None:
        self.heard.append(f"{worker.address} resumed")

    def mailbox_nearly_full(self, worker: Worker, waiting: int) -> None:
        self.heard.append(f"{worker.address} {waiting}")


async def test_an_instrument_hears_who_awaits_and_whose_mailbox_is_nearly_full(node: Node) -> None:
    looks = Looks()
    node.add_instrument(looks)
    gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(5))
    for _ in range(4):
        node.send("gate", b"")
    await asyncio.sleep(1)
    gate.opened.set()
    await asyncio.sleep(1)
    assert looks.heard[:3] == ["0#gate 4", "0#gate suspended", "0#gate resumed"]
    assert looks.heard[3:] == ["0#gate suspended", "0#gate resumed"] * 3


async def test_an_instrument_hears_of_nothing_it_has_no_method_for(node: Node) -> None:
    node.add_instrument(Instrument())
    node.spawn(Gate, address="gate", mailbox=MailboxOptions(2))
    node.send("gate", b"")
    with pytest.raises(RequestTimeout):
        await node.request("gate", b"", timeout=1)
    assert node.instruments is not None
    node.instruments.long_route(Message((), (), b""))


class Doubtful(Worker):
    """Fails at once or later, or is stopped with a message in hand, as it is told."""

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        if message.payload == b"later":
            return self._later()
        if message.payload == b"never":
            return asyncio.sleep(1000)
        raise ValueError(message.payload)

    async def _later(self) -> None:
        await asyncio.sleep(1)
        raise ValueError("later")


@pytest.mark.parametrize("payload", [b"now", b"later", b"never"])
async def test_a_request_that_was_being_handled_is_in_doubt(payload: bytes) -> None:
    async with Node(error_replies=True) as node:
        probe = await Probe.on(node, "probe")
        node.spawn(Doubtful, address="doubtful")
        node.send("doubtful", payload, return_route="probe")
        asked = asyncio.ensure_future(node.request("doubtful", payload, timeout=2000))
        await asyncio.sleep(3)
        await node.stop_worker("doubtful", timeout=1)
        if payload == b"never":  # the first was in hand, the second was not taken up
            with pytest.raises(WorkerStopped):
                await asked
        else:
            with pytest.raises(InDoubt) as raised:
                await asked
            assert not isinstance(raised.value, NotDelivered)
        reply = read_error_reply(await probe.next())
        assert reply is not None
        assert not reply.certain


async def test_a_worker_that_is_busy_again_and_again_counts_each_message_once(node: Node) -> None:
    class Sleepy(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1)
            if message.payload == b"!":
                raise ValueError("awake")

    node.spawn(Sleepy, address="sleepy")
    for number in range(1, 8):
        node.send("sleepy", b"!" if number % 3 == 0 else b"")
    for number in range(1, 8):
        await asyncio.sleep(0.5)
        worker = node.statistics().workers[0]
        # The one in hand counts as handled: it was taken from the mailbox.
        assert (worker.handled, worker.waiting) == (number, 7 - number)
        await asyncio.sleep(0.5)
    await node.stop_worker("sleepy")
    assert node.statistics().handled == 7


async def test_a_request_in_the_hands_of_a_worker_that_is_given_up_is_in_doubt(node: Node) -> None:
    class Stubborn(Worker):
        async def handle_message(self, message: Message) -> None:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()

    released = asyncio.Event()
    node.spawn(Stubborn, address="stubborn")
    asked = asyncio.ensure_future(node.request("stubborn", b"", timeout=2000))
    await asyncio.sleep(1)
    await node.stop_worker("stubborn", timeout=1)
    assert node.statistics().abandoned == 1
    with pytest.raises(WorkerFailed, match="it was stopped"):
        await asked
    released.set()
    await asyncio.sleep(1)
