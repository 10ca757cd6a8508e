from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from onward.actors import (
    Diagnostics,
    DiagnosticsOptions,
    MailboxOptions,
    Node,
    ThreadWorker,
    Worker,
)
from onward.actors.diagnostics._diagnostics import AwaitDiagnostics
from onward.protocol import MAX_ROUTE_LENGTH, MailboxFull, Message, RequestTimeout, address
from tests.support.transports import eventually
from tests.support.virtual import Deadlock, run_virtual
from tests.support.workers import Echo, Forwarder, Gate, Recorder, spawn_worker

QUIET = DiagnosticsOptions(hold=5.0)


def watched(node: Node, options: DiagnosticsOptions = QUIET) -> AwaitDiagnostics:
    """Have a node watched."""
    diagnostics = options.instrument(node)
    assert isinstance(diagnostics, AwaitDiagnostics)
    node.add_instrument(diagnostics)
    return diagnostics


def _same(worker: Worker) -> Worker:
    return worker


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is logged of diagnostics; filled as the test goes."""
    told: list[str] = []

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    caplog.set_level(logging.WARNING, "onward.diagnostics")
    logger = logging.getLogger("onward.diagnostics")
    handler = Told()
    logger.addHandler(handler)
    yield told
    logger.removeHandler(handler)


# --- awaiting ---------------------------------------------------------------------------
async def test_a_handler_that_awaits_too_long_is_told_of_once(lines: list[str]) -> None:
    async with Node("here", diagnostics=None) as node:
        diagnostics = watched(node)
        gate = spawn_worker(node, Gate(), "gate")
        node.send("gate", b"1", return_route="app")
        node.send("gate", b"2")
        await asyncio.sleep(4.9)
        assert lines == []
        await asyncio.sleep(100)
        (line,) = lines
        assert line.startswith("node 'here': Gate 0#gate has awaited for 5 s with [0#gate] <- ")
        assert "in wait (locks.py:" in line
        assert "< handle_message (workers.py:" in line
        assert line.endswith("; 1 message waits for it")
        gate.opened.set()
        await asyncio.sleep(100)
        assert diagnostics.statistics().held == 1


async def test_each_worker_has_its_own_time(lines: list[str]) -> None:
    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        gates = {name: Gate() for name in "abc"}
        for name, gate in gates.items():
            node.spawn(partial(_same, gate), address=name)
            node.send(name, b"")
            await asyncio.sleep(2)
        gates["b"].opened.set()
        await asyncio.sleep(2.5)
        assert [line.split(" has ")[0] for line in lines] == ["node 'node': Gate 0#a"]
        await asyncio.sleep(5)
        assert [line.split(" has ")[0][-3:] for line in lines] == ["0#a", "0#c"]
        assert diagnostics.statistics().held == 2


async def test_a_timer_s_action_and_a_start_are_watched_as_well(lines: list[str]) -> None:
    class Slow(Worker):
        async def on_start(self) -> None:
            await asyncio.sleep(6)
            self.after(0, self.act)

        async def act(self) -> None:
            await asyncio.sleep(7)

    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        await node.start(Slow, address="slow")
        assert "< on_start (test_diagnostics.py:" in lines[0]
        await asyncio.sleep(6)
        # One line a minute for a worker, but each time counts.
        assert (len(lines), diagnostics.statistics().held) == (1, 2)
        await asyncio.sleep(6)


@pytest.mark.real_time
async def test_a_thread_that_blocks_holds_its_worker(lines: list[str]) -> None:
    release = threading.Event()

    class Blocks(ThreadWorker):
        def handle_message(self, message: Message) -> None:
            release.wait(30)

    async with Node(diagnostics=None) as node:
        diagnostics = watched(node, DiagnosticsOptions(hold=0.01, block=None))
        node.spawn(Blocks, address="blocks")
        node.send("blocks", b"")
        while not diagnostics.statistics().held:  # noqa: ASYNC110 - a real clock: no event says so
            await asyncio.sleep(0.001)
        assert "Blocks 0#blocks has awaited for 0.01" in lines[0]
        release.set()


async def test_a_worker_that_is_given_up_is_forgotten() -> None:
    class Stuck(Worker):
        async def handle_message(self, message: Message) -> None:
            for _ in range(3):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(20)

    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Stuck, address="stuck")
        node.send("stuck", b"")
        await node.stop_worker("stuck", timeout=1)
        await asyncio.sleep(100)
        assert diagnostics.statistics().held == 0


def test_a_wait_that_nothing_ends_is_still_found() -> None:
    async def main() -> None:
        async with Node(diagnostics=None) as node:
            watched(node)
            await node.start(Gate, address="gate")
            node.send("gate", b"")
            await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(main())


# --- await cycles -------------------------------------------------------------------------
class Asks(Worker):
    """Asks along a route for the first message, and answers it with the answer."""

    def __init__(self, route: str, timeout: float = 1.0, *, by_node: bool = False) -> None:
        super().__init__()
        self.route_to = route
        self.timeout = timeout
        self.by_node = by_node
        self.has_asked = False

    async def handle_message(self, message: Message) -> None:
        if self.has_asked:
            return
        self.has_asked = True
        try:
            by = self.node if self.by_node else self
            answer = await by.request(self.route_to, b"", timeout=self.timeout)
        except RequestTimeout:
            return
        self.reply(message, answer.payload)


@pytest.mark.parametrize("by_node", [False, True], ids=["by itself", "by its node"])
@pytest.mark.parametrize(
    ("routes", "circle"),
    [
        ({"a": "a"}, "Asks 0#a awaits Asks 0#a"),
        ({"a": "b", "b": "a"}, "Asks 0#a awaits Asks 0#b awaits Asks 0#a"),
        ({"a": "hop => b", "b": "hop => hop => a"}, "Asks 0#a awaits Asks 0#b awaits Asks 0#a"),
        ({"a": "b", "b": "c", "c": "b"}, "Asks 0#b awaits Asks 0#c awaits Asks 0#b"),
    ],
)
async def test_a_deadlock(
    routes: dict[str, str], circle: str, by_node: bool, lines: list[str]
) -> None:

    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Forwarder, address="hop")
        for name, route in routes.items():
            node.spawn(partial(Asks, route, by_node=by_node), address=name)
        with pytest.raises(RequestTimeout):
            await node.request("a", b"", timeout=3)
        assert diagnostics.statistics().await_cycles == 1
        assert lines == [f"node 'node': await cycle, which only a timeout ends: {circle}"]
        assert diagnostics._asking == {}


async def test_workers_that_await_and_are_answered_are_none(lines: list[str]) -> None:
    class Beside(Worker):
        """Asks itself, but goes on with its messages."""

        def handle_message(self, message: Message) -> None:
            if message.payload == b"ask":
                self.task = self.node.loop.create_task(self._ask(message))
            else:
                self.reply(message, b"beside")

        async def _ask(self, message: Message) -> None:
            self.reply(message, (await self.request(self.address, b"")).payload)

    class Later(Worker):
        """Asks in its own time: what it has in hand nobody waits for."""

        async def handle_message(self, message: Message) -> None:
            await self.request("echo", b"")

    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Echo, address="echo")
        node.spawn(lambda: Asks("b"), address="a")
        node.spawn(lambda: Asks("1#far => c"), address="far")
        node.spawn(lambda: Asks("echo"), address="c")
        node.spawn(lambda: Asks("echo"), address="b")
        node.spawn(Beside, address="beside")
        node.spawn(Later, address="later")
        node.add_rule(1, lambda message: message.redirect(address("hop")))
        node.spawn(Forwarder, address="hop")
        assert (await node.request("a", b"")).payload == b""
        assert (await node.request("beside", b"ask")).payload == b"beside"
        node.send("later", b"", return_route="nobody")
        node.send("later", b"")
        await asyncio.sleep(10)
        assert (await node.request("far", b"")).payload == b""
        assert diagnostics.statistics().await_cycles == 0
        assert lines == []


# --- mailboxes and routes -------------------------------------------------------------------
async def test_a_mailbox_near_its_limit(lines: list[str]) -> None:
    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Recorder, address="small", mailbox=MailboxOptions(10))
        for _ in range(7):
            node.send("small", b"")
        await asyncio.sleep(1)
        assert lines == []
        for _ in range(2):
            for _ in range(8):
                node.send("small", b"")
            await asyncio.sleep(1)
        assert lines == ["node 'node': 8 messages wait for Recorder 0#small (limit 10)"]
        assert diagnostics.statistics().nearly_full == 2


async def test_a_mailbox_that_fills_behind_a_worker_that_hangs(lines: list[str]) -> None:
    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Gate, address="hangs", mailbox=MailboxOptions(10))
        node.send("hangs", b"in hand")
        await asyncio.sleep(0)
        for _ in range(10):
            node.send("hangs", b"")
        assert diagnostics.statistics().nearly_full == 0
        for _ in range(2):
            with pytest.raises(MailboxFull):
                node.send("hangs", b"")
        assert lines == ["node 'node': 10 messages wait for Gate 0#hangs (limit 10)"]
        assert diagnostics.statistics().nearly_full == 2


def test_a_sender_on_another_thread_that_finds_no_room() -> None:
    async def main() -> Node:
        async with Node(diagnostics=None) as node:
            diagnostics = watched(node)
            gate = spawn_worker(node, Gate(), "hangs", mailbox=MailboxOptions(1))
            node.send("hangs", b"")
            await eventually(lambda: gate.messages)  # it is in hand, and leaves room for one
            node.send("hangs", b"")
            with pytest.raises(MailboxFull):
                await asyncio.to_thread(node.send, "hangs", b"")
            await asyncio.sleep(0)
            assert diagnostics.statistics().nearly_full == 1
            return node

    asyncio.run(main())


async def test_one_message_is_nothing_to_tell_of() -> None:
    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        for limit in (1, 2):
            node.spawn(Recorder, address=f"small {limit}", mailbox=MailboxOptions(limit))
            node.send(f"small {limit}", b"")
        await asyncio.sleep(0)
        assert diagnostics.statistics().nearly_full == 0
        node.send("small 2", b"")
        node.send("small 2", b"")
        await asyncio.sleep(0)
        assert diagnostics.statistics().nearly_full == 1


async def test_a_relay_chain_that_grows(lines: list[str]) -> None:
    async with Node(diagnostics=None) as node:
        diagnostics = watched(node)
        node.spawn(Forwarder, address="a")
        node.spawn(Forwarder, address="b")
        node.send(("a", "b") * (MAX_ROUTE_LENGTH // 2), b"", return_route="app")
        await asyncio.sleep(1)
        first, second = lines  # one of each relay
        assert first.startswith("node 'node': a return route of 48 addresses grows at 0#")
        assert "as when relays point at each other: 0#" in second
        assert diagnostics.statistics().long_routes == MAX_ROUTE_LENGTH - 48


# --- the event loop -------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["handler", "coroutine", "callback"])
def test_code_that_holds_the_event_loop(kind: str, lines: list[str]) -> None:
    # The code holds the loop until the thread that watches has said so.
    said = threading.Event()

    class Says(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    def hold(node: Node) -> None:
        # Watched from here on: nothing else can hold the loop for so short a time.
        watched(node, DiagnosticsOptions(hold=5.0, block=0.01, frames=3))
        assert said.wait(30)

    class Holds(Worker):
        def handle_message(self, message: Message) -> Awaitable[None] | None:
            if kind == "handler":
                hold(self.node)
                return None
            return self._hold()

        async def _hold(self) -> None:
            hold(self.node)

    async def main() -> None:
        async with Node("here", diagnostics=None) as node:
            node.spawn(Holds, address="holds")
            if kind == "callback":
                node.loop.call_soon(hold, node)
            else:
                node.send("holds", b"")
            await node.loop.run_in_executor(None, said.wait, 30)
            diagnostics = node.find_instrument(Diagnostics)
            assert diagnostics is not None
            assert diagnostics.statistics().blocked >= 1

    logger = logging.getLogger("onward.diagnostics")
    says = Says()
    logger.addHandler(says)
    try:
        asyncio.run(main())
    finally:
        logger.removeHandler(says)
    who = "no worker" if kind == "callback" else "Holds 0#holds"
    assert lines[0].startswith(
        f"node 'here': the event loop has been held for 0.01 s by {who}, in wait (threading.py:"
    )
    assert "< hold (test_diagnostics.py:" in lines[0]


@pytest.mark.parametrize("wrong", [{"hold": 0}, {"block": 0}, {"frames": 0}])
def test_options_that_leave_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"DiagnosticsOptions.{next(iter(wrong))} must be"):
        DiagnosticsOptions(**wrong)


def test_a_node_is_given_them_when_it_is_made() -> None:
    assert Node(diagnostics=None).instruments is None
    assert Node(diagnostics=QUIET).find_instrument(AwaitDiagnostics)
    with Node.in_background(diagnostics=QUIET) as background:
        assert background.node.find_instrument(Diagnostics)


async def test_a_node_has_those_that_cost_nothing(lines: list[str], node: Node) -> None:
    diagnostics = node.find_instrument(Diagnostics)
    assert type(diagnostics) is Diagnostics
    assert node.instruments is not None
    # No hook is called for a handler that awaits, or for a request.
    assert not node.instruments.asks
    assert "worker_suspended" not in vars(node.instruments)
    node.spawn(Recorder, address="worker", mailbox=MailboxOptions(5))
    for _ in range(4):
        node.send("worker", b"")
    await asyncio.sleep(1)
    assert diagnostics.statistics().nearly_full == 1
    assert lines == ["node 'node': 4 messages wait for Recorder 0#worker (limit 5)"]
