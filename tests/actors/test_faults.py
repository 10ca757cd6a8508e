"""Whatever raises inside one turn or one dead letter costs that one message.

A fault is planted into each step, one after another; the same messages are sent with it and
without it, and what differs is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from onward.actors import DeadLetter, DiagnosticsOptions, MailboxOptions, Node, Overflow, Worker
from onward.actors.access._exposures import Exposures
from onward.actors.diagnostics._diagnostics import AwaitDiagnostics, Diagnostics
from onward.actors.routing import (
    _dead_letters as dead_letters_module,
    _undeliverable as losses_module,
)
from onward.actors.routing._dead_letters import DeadLetters
from onward.actors.routing._error_replies import ErrorReplies
from onward.actors.routing._reply import Reply
from onward.actors.routing._undeliverable import Undeliverable
from onward.actors.runtime import (
    _cell as cell_module,
    _closing as closing,
    _failures as failures,
    _lifecycle as lifecycle,
    _room_elsewhere as room_elsewhere,
    _stopping as stopping,
)
from onward.actors.runtime._cell import Cell
from onward.protocol import Context, Message, OnwardError, PayloadNotBytes, WorkerStopped, address
from tests.support.compiled import interpreted
from tests.support.planted import Planted, PlantedError, plant
from tests.support.workers import Gate, spawn_worker

pytestmark = interpreted

Step: TypeAlias = tuple[Any, str]


def steps(owner: Any, names: str) -> list[Step]:
    return [(owner, name) for name in names.split()]


def names(step: object) -> str:
    return step if isinstance(step, str) else getattr(step, "__name__", "").rpartition(".")[2]


class Mixed(Worker):
    """Answers at once or later, and fails at once or later."""

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        if message.payload.startswith(b"later"):
            return self._later(message)
        self._now(message)
        return None

    def on_start(self) -> None:
        """Have a start to go wrong."""

    async def _later(self, message: Message) -> None:
        await asyncio.sleep(0.001)
        self._now(message)

    def _now(self, message: Message) -> None:
        if message.payload == b"lost":
            self.forward(message)
        if message.payload.endswith(b"!"):
            raise ValueError("the handler's own")
        self.reply(message, message.payload)


async def outcomes(node: Node, payloads: list[bytes]) -> list[str]:
    """Ask all at once; return what came of each."""

    async def ask(payload: bytes) -> str:
        try:
            answer = await node.request("mixed", payload, timeout=5, context=Context(trace="t"))
        except (OnwardError, PlantedError) as error:
            return type(error).__name__
        return answer.payload.decode()

    return list(await asyncio.gather(*map(ask, payloads)))


ASKED = [b"1", b"!", b"later", b"later!", b"lost", b"2", b"3"]
EXPECTED = ["1", "WorkerFailed", "later", "WorkerFailed", "EmptyRoute", "2", "3"]

TURN: list[Step] = [
    *steps(lifecycle, "bound_handler"),
    *steps(failures, "task_error log_failure is_fatal"),
    *steps(Cell, "_in_context resumed raised _apply_policy settle mishandled look_again"),
    *steps(AwaitDiagnostics, "worker_suspended worker_resumed request_begun request_ended"),
    *steps(Undeliverable, "lose dead_letter return_to_sender fail_request"),
    *steps(DeadLetters, "add"),
    *steps(cell_module, "WorkerFailed"),
]


@pytest.mark.parametrize(("owner", "name"), TURN, ids=names)
async def test_a_fault_costs_one_message(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = plant(monkeypatch, owner, name)
    async with Node(diagnostics=DiagnosticsOptions(hold=5.0)) as node:
        node.spawn(Mixed, address="mixed")
        fault.arm()
        with_fault = await outcomes(node, ASKED)
        assert fault.fired
        differ = [pair for pair in zip(with_fault, EXPECTED, strict=True) if pair[0] != pair[1]]
        assert len(differ) <= 1, differ
        assert await outcomes(node, ASKED) == EXPECTED
        assert node.statistics().requests == 0


class Slow(Worker):
    """Awaits with each message, and has a fault armed as it begins with one."""

    def __init__(self, fault: Planted) -> None:
        super().__init__()
        self.fault = fault
        self.handled: list[bytes] = []

    def handle_message(self, message: Message) -> Awaitable[None]:
        if message.payload == b"fault":
            self.fault.arm()
        return self._later(message)

    async def _later(self, message: Message) -> None:
        await asyncio.sleep(0.001)
        self.handled.append(message.payload)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (asyncio.BaseEventLoop, "create_task"),
        (Cell, "resumed"),
        (Cell, "serve_lines"),
        (Diagnostics, "mailbox_nearly_full"),
    ],
    ids=names,
)
async def test_a_fault_costs_one_message_while_senders_wait_for_room(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = plant(monkeypatch, owner, name)
    async with Node(diagnostics=DiagnosticsOptions(hold=5.0)) as node:
        slow = spawn_worker(node, Slow(fault), "slow", mailbox=MailboxOptions(3, Overflow.WAIT))
        payloads = [b"1", b"2", b"fault", *(b"%d" % number for number in range(3, 12))]
        await asyncio.gather(*(node.send_wait("slow", payload) for payload in payloads))
        await node.stop_worker("slow")
        assert fault.fired
        assert len(slow.handled) >= len(payloads) - 1
        assert slow.handled == [each for each in payloads if each in slow.handled]


def failing_clock(fault: Planted) -> Callable[[], float]:
    def clock() -> float:
        fault.pass_by()
        return 0.0

    return clock


class BrokenHandler(logging.Handler):
    """A handler of `logging` that raises."""

    def __init__(self, fault: Planted) -> None:
        super().__init__(logging.DEBUG)
        self.fault = fault

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.DEBUG:
            self.fault.pass_by()


FLUSH: list[Step] = [
    *steps(Cell, "refuse mishandled"),
    *steps(Undeliverable, "lose dead_letter _answer_lost _tell _tell_sender fail_request"),
    *steps(Reply, "fail"),
    *steps(DeadLetters, "add"),
    *steps(DeadLetter, "kept"),
    *steps(ErrorReplies, "answer"),
    *steps(losses_module, "reason_text"),
    *steps(dead_letters_module, "DeadLetter"),
    *steps(stopping, "mark_stopped _begin_stop cancel_timers"),
    *steps(Exposures, "forget"),
    *steps(logging.Logger, "debug"),
    *((each, each) for each in ("clock", "logging", "subscriber")),
]


UNCOUNTED = {"refuse", "lose", "dead_letter", "mishandled", "add"}
"""Steps before the one that counts."""


@pytest.mark.parametrize(("owner", "name"), FLUSH, ids=names)
async def test_a_fault_in_a_step_of_an_end_costs_one_message(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Planted() if isinstance(owner, str) else plant(monkeypatch, owner, name)
    clock = failing_clock(fault) if owner == "clock" else None
    handler = BrokenHandler(fault)
    logger = logging.getLogger("onward.actors")
    caplog.set_level(logging.DEBUG, logger.name)
    if owner == "logging":
        logger.addHandler(handler)
    try:
        async with Node(clock=clock, error_replies=True) as node:
            if owner == "subscriber":
                node.dead_letters.subscribe(lambda _: fault.pass_by())
            spawn_worker(node, Gate(), "gate")
            asked = [asyncio.ensure_future(node.request("gate", b"%d" % n)) for n in range(6)]
            node.send("gate", b"told by an error reply", return_route="nobody")
            await asyncio.sleep(1)
            fault.arm()
            began = node.loop.time()
            await node.stop_worker("gate")
            took = node.loop.time() - began
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert fault.fired
            kinds = [type(result).__name__ for result in results]
            # The first is in hand; the others waited, and it is safe to send them again.
            expected = ["WorkerFailed", *["WorkerStopped"] * 5]
            differ = [pair for pair in zip(kinds, expected, strict=True) if pair[0] != pair[1]]
            assert len(differ) <= 1, differ
            assert took < 5
            assert not node.has("gate")
            assert node.statistics(workers=False).worker_count == 0
            # Each is counted, but for the one that was lost before it could be. The error reply
            # of the last has nowhere to go either.
            assert node.dead_letters.total >= (6 if name in UNCOUNTED else 7)
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(room_elsewhere, "wait_no_more"), (Cell, "flush"), (Cell, "serve_lines")],
    ids=names,
)
async def test_a_fault_as_a_worker_closes_keeps_nobody_waiting(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    class Starting(Worker):
        async def on_start(self) -> None:
            await asyncio.Event().wait()

    started = asyncio.ensure_future(node.start(Starting, address="w"))
    await asyncio.sleep(1)
    node.send("w", b"waits")
    cell = node.parts.table.cell(address("w"))
    fault = plant(monkeypatch, owner, name)
    fault.arm()
    closing.close(cell)
    assert fault.fired
    with pytest.raises(WorkerStopped):
        await asyncio.wait_for(started, 1)
    assert node.dead_letters.total == (0 if name == "flush" else 1)


async def test_a_dead_letter_of_anything_is_kept(node: Node) -> None:
    wrong: Any = {"a": "dict"}
    message: Any = Message((), (), wrong)
    node.dead_letter(message, "odd")
    node.dead_letter(Message((), 5, b"x"), "odd")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    node.lose(Message((), 5, b"x"), PayloadNotBytes("str"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert node.dead_letters.by_reason == {"odd": 2, "payload not bytes": 1}
    first = node.dead_letters.recent[0]
    assert (first.message.payload, first.size) == (b"", 0)
    assert "dict in place of bytes" in str(message)
