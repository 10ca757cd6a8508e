"""Handlers that cannot do what their authors think: refused, or told at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from onward.actors import (
    BadHandler,
    DiagnosticsOptions,
    Node,
    OnFailure,
    Supervision,
    ThreadWorker,
    TypedWorker,
    Worker,
)
from onward.actors.diagnostics._diagnostics import Diagnostics
from onward.protocol import Message, WorkerFailed
from tests.support.fixtures import Caplog
from tests.support.workers import Echo, start_worker


def yields(_worker: Any, _message: Any = None) -> Iterator[None]:
    yield


async def yields_later(_worker: Any, _message: Any = None) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("base", [Worker, ThreadWorker])
@pytest.mark.parametrize("hook", ["handle_message", "on_start", "on_stop", "on_failure"])
@pytest.mark.parametrize("method", [yields, yields_later])
def test_a_hook_that_yields_is_refused_when_the_class_is_defined(
    base: type[Worker], hook: str, method: Callable[..., Any]
) -> None:
    with pytest.raises(BadHandler, match=rf"^Yielding\.{hook}: it yields, so that calling it runs"):
        type("Yielding", (base,), {hook: method})


@pytest.mark.parametrize("method", [yields, yields_later])
def test_a_typed_handler_that_yields_is_refused(method: Callable[..., Any]) -> None:
    with pytest.raises(BadHandler, match=r"^Yielding\.handle: it yields"):
        type("Yielding", (TypedWorker,), {"handle": method})


def test_other_methods_may_yield() -> None:
    class Helped(Worker):
        def handle(self) -> Iterator[int]:
            yield 1

    assert list(Helped().handle()) == [1]


def returning(result: Any) -> type[Worker]:
    class Returns(Worker):
        def handle_message(self, message: Message) -> Any:
            if message.payload == b"well":
                self.reply(message, b"well")
                return None
            return result

    return Returns


def returning_later(result: Any) -> type[Worker]:
    class Returns(Worker):
        async def handle_message(self, message: Message) -> Any:
            await asyncio.sleep(0)
            if message.payload == b"well":
                self.reply(message, b"well")
                return None
            return result

    return Returns


@pytest.mark.parametrize("kind", [returning, returning_later])
@pytest.mark.parametrize(
    ("result", "told"),
    [
        (b"answer", "it returned bytes, which is discarded; answer with `reply`"),
        ("answer", "it returned str, which is discarded"),
        (False, "it returned bool"),
        (yields(None), "it yields, so that calling it runs none of its code"),
        (yields_later(None), "it yields"),
    ],
)
async def test_a_handler_that_returns_something_fails_and_the_requester_is_told_at_once(
    kind: Callable[[Any], type[Worker]], result: Any, told: str, caplog: Caplog
) -> None:
    async with Node() as node:
        node.spawn(kind(result), address="worker")
        began = node.loop.time()
        with pytest.raises(WorkerFailed) as raised:
            await node.request("worker", b"hi")
        assert node.loop.time() == began
        cause = raised.value.__cause__
        assert isinstance(cause, BadHandler)
        assert isinstance(cause, TypeError)
        assert f"Returns.handle_message: {told}" in str(cause)
        assert (await node.request("worker", b"well")).payload == b"well"
        statistics = node.statistics()
        assert (statistics.failed, statistics.handled) == (1, 2)
        assert statistics.dead_letter_reasons == {"worker failed": 1}
    assert told in caplog.text


@pytest.mark.real_time
async def test_a_handler_on_a_thread_that_returns_something(node: Node) -> None:
    class Returns(ThreadWorker):
        def handle_message(self, message: Message) -> Any:
            return message.payload

    node.spawn(Returns, address="worker")
    with pytest.raises(WorkerFailed):
        await node.request("worker", b"hi")


async def test_a_handler_that_returns_something_is_restarted_by_policy(node: Node) -> None:
    policy = Supervision(OnFailure.RESTART)
    node.spawn(returning(b"answer"), address="worker", supervision=policy)
    with pytest.raises(WorkerFailed):
        await node.request("worker", b"hi")
    assert (await node.request("worker", b"well")).payload == b"well"
    assert node.statistics().restarts == 1


class Deferring(Worker):
    """Returns a future in place of a coroutine, and from its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def on_start(self) -> Awaitable[None]:
        return self._in_time("start")

    def handle_message(self, message: Message) -> Awaitable[None]:
        self.reply(message, b"begun")
        return self._in_time(message.payload.decode())

    def on_stop(self) -> Awaitable[None]:
        return self._in_time("stop")

    def _in_time(self, event: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.node.loop.create_future()

        def ended() -> None:
            self.events.append(event)
            future.set_result(None)

        self.node.loop.call_later(1.0, ended)
        return future


async def test_whatever_can_be_awaited_is_awaited() -> None:
    async with Node() as node:
        worker = await start_worker(node, Deferring(), "worker")
        assert worker.events == ["start"]
        await node.request("worker", b"1")
        began = node.loop.time()
        await node.request("worker", b"2")  # is taken up when the one before it has ended
        assert node.loop.time() == began + 1
        await node.stop_worker("worker")
    assert worker.events == ["start", "1", "2", "stop"]


async def test_a_timer_whose_action_yields_fails(caplog: Caplog) -> None:
    class Timed(Worker):
        def on_start(self) -> None:
            self.after(1, lambda: yields(None))
            self.after(2, self.later)
            self.after(3, lambda: "what an action returns is nobody's business")

        async def later(self) -> Any:
            return yields(None)

        handle_message = Echo.handle_message

    async with Node() as node:
        node.spawn(Timed, address="timed")
        await asyncio.sleep(5)
        assert node.statistics().failed == 2
        assert (await node.request("timed", b"hi")).payload == b"hi"
    assert "a timer of Timed: it yields" in caplog.text


async def test_an_answer_in_the_middle_of_a_route_is_counted_and_told(caplog: Caplog) -> None:
    async with Node(diagnostics=DiagnosticsOptions(hold=5.0)) as node:
        node.spawn(Echo, address="echo")
        node.spawn(Echo, address="further")
        for _ in range(2):
            answer = await node.request("echo => further => 1#127.0.0.1:4000", b"hi")
            assert answer.payload == b"hi"
        await node.request("echo", b"hi")
        assert node.statistics().routes_cut == 2
        diagnostics = node.find_instrument(Diagnostics)
        assert diagnostics is not None
        assert diagnostics.statistics().routes_cut == 2
    lines = [record.getMessage() for record in caplog.records]
    told = "node 'node': 0#echo answered a message before the end of its route; the rest is"
    assert lines == [f"{told} dropped: 0#further => 1#127.0.0.1:4000"]


async def test_an_answer_amid_a_route_is_counted_without_diagnostics(node: Node) -> None:
    node.spawn(Echo, address="echo")
    await node.request("echo => further", b"hi")
    assert node.statistics().routes_cut == 1
