"""How workers and Pykka's own actors live together; the rest is in `tests/pykka`."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pykka
import pytest
from pykka import messages

from onward.actors import LoopFuture, Node, ThreadWorker, Worker, WouldDeadlock
from onward.actors.pykka import _inbox as _pykka
from onward.protocol import Message, UnknownAddress
from tests.support.fixtures import Caplog, Patch
from tests.support.workers import Echo, Recorder, start_worker


class Doubling(Worker):
    factor = 2

    def on_receive(self, message: int) -> int:
        return message * self.factor


class PykkaDoubling(pykka.ThreadingActor):
    def on_receive(self, message: int) -> int:
        return message * 2


@pytest.fixture
def stopped() -> Iterator[list[pykka.ActorRef[Any]]]:
    """Stop these and only these: other tests of this process have actors too."""
    refs: list[pykka.ActorRef[Any]] = []
    yield refs
    for ref in refs:
        ref.stop()


def test_start_as_in_pykka(stopped: list[pykka.ActorRef[Any]]) -> None:
    ref = Doubling.start()
    stopped.append(ref)
    assert ref.is_alive()
    assert ref.ask(4) == 8
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is ref
    proxy = ref.proxy()
    proxy.factor = 3
    assert ref.ask(messages.ProxyGetAttr(("factor",))) == 3
    assert ref.ask(4) == 12
    assert "Doubling" in str(ref)
    assert ref.stop() is True
    assert ref.stop() is False
    assert not ref.is_alive()
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is None
    with pytest.raises(pykka.ActorDeadError):
        ref.ask(4)


def test_nobody_else_has_to_keep_it_alive(stopped: list[pykka.ActorRef[Any]]) -> None:
    ref = Doubling.start()
    stopped.append(ref)
    gc.collect()
    assert ref.proxy().factor.get() == 2


def test_a_stopped_worker_is_freed() -> None:
    ref = Doubling.start()
    worker = ref._actor_weakref
    assert isinstance(worker, weakref.ref)
    ref.stop()
    del ref
    gc.collect()
    assert worker() is None


def test_actors_on_threads_and_workers_ask_each_other(stopped: list[pykka.ActorRef[Any]]) -> None:
    class Asking(pykka.ThreadingActor):
        def on_receive(self, message: int) -> Any:
            return loop_worker.ask(message)

    class AskingFromLoop(Worker):
        async def on_receive(self, message: int) -> Any:
            return await asyncio.to_thread(thread_actor.ask, message)

    loop_worker = Doubling.start()
    thread_actor = PykkaDoubling.start()
    asking = Asking.start()
    asking_from_loop = AskingFromLoop.start()
    stopped += [asking, asking_from_loop, loop_worker, thread_actor]
    assert asking.ask(5) == 10
    assert asking_from_loop.ask(6) == 12


def test_blocking_on_the_loop_is_an_error_of_the_caller(stopped: list[pykka.ActorRef[Any]]) -> None:
    class Careless(Worker):
        def on_receive(self, message: pykka.ActorRef[Any]) -> Any:
            return message.ask(1)

        def stop_other(self, other: pykka.ActorRef[Any]) -> Any:
            return other.stop()

        def set_other(self, other: pykka.ActorRef[Any]) -> None:
            other.proxy().factor = 7

        async def careful(self, other: pykka.ActorRef[Any]) -> list[Any]:
            asked = await other.ask(3, block=False)
            return [asked, await other.stop(block=False), await other.stop(block=False)]

    careless, other = Careless.start(), Doubling.start()
    stopped += [careless, other]
    for call in (
        careless.ask(other, block=False),
        careless.proxy().stop_other(other),
        careless.proxy().set_other(other),
    ):
        with pytest.raises(WouldDeadlock):
            call.get(timeout=10)
    assert careless.proxy().careful(other).get(timeout=10) == [6, True, False]


def test_a_thread_worker_may_block(stopped: list[pykka.ActorRef[Any]]) -> None:
    class Blocking(ThreadWorker):
        def on_receive(self, message: pykka.ActorRef[Any]) -> Any:
            return message.ask(21)

    blocking, other = Blocking.start(), Doubling.start()
    stopped += [blocking, other]
    assert blocking.ask(other) == 42


def test_what_a_worker_tells_itself_before_it_starts(stopped: list[pykka.ActorRef[Any]]) -> None:
    class Early(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.got: list[str] = []
            self.actor_ref.tell("first")
            assert not self.actor_inbox.empty()

        def on_start(self) -> None:
            assert not self.actor_inbox.empty()
            self.got.append("started")

        def on_receive(self, message: str) -> list[str]:
            self.got.append(message)
            return self.got

    ref = Early.start()
    stopped.append(ref)
    assert ref.ask("second") == ["started", "first", "second"]
    assert ref.actor_inbox.empty()
    with pytest.raises(RuntimeError, match="taken by its turns"):
        ref.actor_inbox.get()


def test_system_exit_stops_all_and_the_loop_goes_on() -> None:
    """In a process of its own it would stop every actor there; the registry is watched."""

    class Exiting(Worker):
        def on_receive(self, message: object) -> object:
            if message == "later":
                return self.exit()
            raise SystemExit

        async def exit(self) -> None:
            await asyncio.sleep(0)
            raise SystemExit

        def on_stop(self) -> None:
            ended.set()

    for message in ("now", "later"):
        ended = threading.Event()
        bystander = Doubling.start()
        exiting = Exiting.start()
        exiting.tell(message)
        assert ended.wait(10)
        assert bystander.actor_stopped.wait(10)
        assert pykka.ActorRegistry.get_all() == []
    again = Doubling.start()
    assert again.ask(1) == 2
    again.stop()


async def test_workers_of_a_node_are_not_in_the_registry(node: Node) -> None:
    node.spawn(Doubling, address="w")
    ref = node.ref("w")
    assert await ref.ask(4, block=False) == 8
    assert ref not in pykka.ActorRegistry.get_all()
    assert await ref.stop(block=False) is True
    assert not ref.is_alive()
    with pytest.raises(UnknownAddress):
        node.ref("w")


async def test_on_node_stop_those_who_asked_are_answered() -> None:
    class Waiting(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        node.spawn(Waiting, address="w")
        ref = node.ref("w")
        node.send("w", b"")
        await asyncio.sleep(0.1)
        asked = ref.ask("?", block=False)
        ref.tell("!")
        stopping = ref.stop(block=False)
    with pytest.raises(pykka.ActorDeadError):
        await asked
    assert await stopping is True
    assert node.dead_letters.by_reason == {"worker failed": 1, "worker stopped": 1}


async def test_the_parts_of_an_actor_come_into_being_together_and_late(node: Node) -> None:
    recorder = await start_worker(node, Recorder(), "w")
    assert recorder._identity is None
    await node.stop_worker("w")
    assert recorder._identity is None
    # Asked for only after the end: then it says so.
    assert recorder.actor_stopped.is_set()
    assert recorder.actor_ref.actor_urn == recorder.actor_urn
    assert str(recorder) == f"Recorder ({recorder.actor_urn})"


def test_many_threads_get_the_same_ref() -> None:
    worker = Recorder()
    refs: list[object] = []
    barrier = threading.Barrier(8)

    def get() -> None:
        barrier.wait()
        refs.append(worker.actor_ref)

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ref is refs[0] for ref in refs)


def test_what_pykka_asks_of_a_kind_of_actor() -> None:
    assert isinstance(Worker._create_future(), LoopFuture)
    assert Worker._create_actor_inbox().empty()
    assert issubclass(Echo, pykka.Actor)


def test_a_failing_tell_stops_a_worker_started_as_in_pykka(caplog: Caplog) -> None:
    failures: list[BaseException | None] = []

    class Unlucky(Worker):
        def on_receive(self, message: str) -> None:
            raise ValueError(message)

        def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            failures.append(exception_value)
            failed.set()

    failed = threading.Event()
    ref = Unlucky.start()
    ref.tell("no")
    assert failed.wait(10)
    assert not ref.is_alive()
    assert [str(failure) for failure in failures] == ["no"]
    assert "Unhandled exception in Unlucky" in caplog.text


def test_two_threads_make_one_identity(monkeypatch: Patch) -> None:
    worker = Recorder()

    class Racing:
        """A lock that another thread had before."""

        def __enter__(self) -> None:
            monkeypatch.undo()
            self.ref = worker.actor_ref

        def __exit__(self, *_exc_info: object) -> None: ...

    racing = Racing()
    monkeypatch.setattr(_pykka, "_lock", racing)
    assert worker.actor_ref is racing.ref
