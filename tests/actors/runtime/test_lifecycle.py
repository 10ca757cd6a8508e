"""How workers start, fail and are started again."""

from __future__ import annotations

import asyncio
from types import TracebackType

import pytest

from onward.actors import Node, OnFailure, Supervision, Worker
from onward.protocol import WorkerStopped
from tests.support.fixtures import Caplog
from tests.support.storied import storied
from tests.support.workers import Failing, Recorder, spawn_worker


# --- start ----------------------------------------------------------------------------
async def test_messages_wait_until_the_worker_has_started() -> None:
    story: list[str] = []
    async with Node() as node:
        node.spawn(storied("w", story), address="w")
        node.send("w", b"1")
        await asyncio.sleep(1)
        assert story == ["w starts", "w handles 1"]
    assert story[-1] == "w stops"


async def test_start_waits_for_on_start(node: Node) -> None:
    story: list[str] = []
    await node.start(storied("w", story), address="w")
    assert story == ["w starts"]


class NoStart(Recorder):
    def on_start(self) -> None:
        raise ValueError("no start")


class NoStartLater(Worker):
    async def on_start(self) -> None:
        await asyncio.sleep(0.1)
        raise ValueError("no start")

    def on_stop(self) -> None:
        raise AssertionError("it never started")


async def test_start_raises_what_on_start_raises(caplog: Caplog) -> None:
    async with Node() as node:
        for kind in (NoStart, NoStartLater):
            with pytest.raises(ValueError, match="no start"):
                await node.start(kind, address="w")
            assert not node.has("w")
    assert caplog.records == []


async def test_a_spawned_worker_that_does_not_start_is_logged(caplog: Caplog, node: Node) -> None:
    for kind in (NoStart, NoStartLater):
        node.spawn(kind, address="w")
        node.send("w", b"lost")
        await asyncio.sleep(1)
        assert not node.has("w")
    assert [record.getMessage() for record in caplog.records] == [
        "NoStart 0#w did not start",
        "NoStartLater 0#w did not start",
    ]
    assert all(record.exc_info for record in caplog.records)
    assert node.dead_letters.by_reason == {"worker stopped": 2}
    assert node.statistics().failed == 2


async def test_stopping_a_worker_before_its_start_skips_both(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    node.send("w", b"lost")
    await node.stop()
    assert recorder.events == []
    assert node.dead_letters.by_reason == {"worker stopped": 1}


async def test_a_start_that_is_interrupted(node: Node) -> None:
    class Forever(Worker):
        async def on_start(self) -> None:
            await asyncio.Event().wait()

    starting = asyncio.create_task(node.start(Forever, address="w"))
    await asyncio.sleep(0.1)
    await node.stop(timeout=1)
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert node.statistics().abandoned == 0


async def test_a_start_that_is_given_up(caplog: Caplog) -> None:
    class Stubborn(Worker):
        async def on_start(self) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

    released = asyncio.Event()
    async with Node() as node:
        starting = asyncio.create_task(node.start(Stubborn, address="w"))
        await asyncio.sleep(0.1)
        await node.stop(timeout=1)
        with pytest.raises(WorkerStopped):
            await starting
        assert node.statistics().abandoned == 1
    released.set()
    await asyncio.sleep(0.1)
    assert "given up" in caplog.text


# --- failure --------------------------------------------------------------------------
async def test_resume_logs_once_and_goes_on(caplog: Caplog, node: Node) -> None:
    failing = spawn_worker(node, Failing(), "w")
    node.send("w", b"!1")
    node.send("w", b"2")
    await asyncio.sleep(1)
    assert failing.payloads == [b"!1", b"2"]
    [record] = caplog.records
    assert record.getMessage() == "Failing 0#w failed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "!1"


async def test_stop_policy(node: Node) -> None:
    story: list[str] = []
    node.spawn(storied("w", story), address="w", supervision=Supervision(OnFailure.STOP))
    node.send("w", b"!1")
    node.send("w", b"2")
    await asyncio.sleep(1)
    assert story == ["w starts", "w handles !1", "w fails with !1"]
    assert not node.has("w")
    assert node.dead_letters.by_reason == {"worker failed": 1, "worker stopped": 1}


async def test_restart_keeps_address_mailbox_and_ref(node: Node) -> None:
    story: list[str] = []
    node.spawn(storied("w", story), address="w", supervision=Supervision(OnFailure.RESTART))
    ref = node.ref("w")
    node.send("w", b"!1")
    node.send("w", b"2")
    await asyncio.sleep(1)
    assert story == ["w starts", "w handles !1", "w fails with !1", "w starts", "w handles 2"]
    assert ref.is_alive()
    assert await ref.proxy().name == "w"
    statistics = node.statistics()
    assert (statistics.restarts, statistics.failed) == (1, 1)


async def test_restart_of_plain_functions(node: Node) -> None:
    made: list[Failing] = []

    def make() -> Failing:
        made.append(Failing())
        return made[-1]

    node.spawn(make, address="w", supervision=Supervision(OnFailure.RESTART))
    node.send("w", b"!1")
    node.send("w", b"2")
    await asyncio.sleep(1)
    assert [worker.payloads for worker in made] == [[b"!1"], [b"2"]]
    assert [worker.events for worker in made] == [["start"], ["start"]]


async def test_restarts_are_limited_within_a_window(node: Node) -> None:
    supervision = Supervision(OnFailure.RESTART, max_restarts=2, within=10.0)
    node.spawn(Failing, address="w", supervision=supervision)
    for _ in range(4):
        node.send("w", b"!")
        await asyncio.sleep(6)
    assert node.has("w")
    node.send("w", b"!")
    await asyncio.sleep(1)
    node.send("w", b"!")
    await asyncio.sleep(1)
    assert not node.has("w")
    assert node.statistics().restarts == 5


async def test_an_instance_that_does_not_start_counts_as_a_restart(node: Node) -> None:
    attempts: list[int] = []

    class Fickle(Failing):
        def on_start(self) -> None:
            attempts.append(len(attempts))
            if len(attempts) > 1:
                raise ValueError("not again")

    supervision = Supervision(OnFailure.RESTART, max_restarts=3)
    node.spawn(Fickle, address="w", supervision=supervision)
    node.send("w", b"!")
    await asyncio.sleep(1)
    assert len(attempts) == 4
    assert not node.has("w")
    assert node.statistics().failed == 4


async def test_escalation_reaches_the_parent_as_its_own_failure(node: Node) -> None:
    children: list[Failing] = []

    class Parent(Failing):
        def on_start(self) -> None:
            super().on_start()
            child = Failing()
            children.append(child)
            self.spawn(lambda: child, address="child", supervision=Supervision(OnFailure.ESCALATE))

    parents: list[Parent] = []

    def make() -> Parent:
        parents.append(Parent())
        return parents[-1]

    node.spawn(make, address="parent", supervision=Supervision(OnFailure.RESTART))
    await asyncio.sleep(1)
    node.send("child", b"!")
    await asyncio.sleep(1)
    assert len(parents) == len(children) == 2
    assert node.has("child")
    assert node.statistics().restarts == 1


async def test_escalation_to_a_parent_that_resumes_ends_the_child_only(node: Node) -> None:
    class Parent(Recorder):
        def on_start(self) -> None:
            self.spawn(Failing, address="child", supervision=Supervision(OnFailure.ESCALATE))

    await node.start(Parent, address="parent")
    node.send("child", b"!")
    await asyncio.sleep(1)
    assert not node.has("child")
    assert node.has("parent")
    assert node.statistics().failed == 2


async def test_escalation_without_a_parent_stops_the_worker(caplog: Caplog, node: Node) -> None:
    node.spawn(Failing, address="w", supervision=Supervision(OnFailure.ESCALATE))
    node.send("w", b"!")
    await asyncio.sleep(1)
    assert not node.has("w")
    assert len(caplog.records) == 1


class Unlucky(Failing):
    """Fails again while it cleans up."""

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise ValueError("on_failure")

    def on_stop(self) -> None:
        raise ValueError("on_stop")


async def test_failing_last_words_are_logged(caplog: Caplog) -> None:
    class UnluckyLater(Worker):
        async def on_stop(self) -> None:
            await asyncio.sleep(0.1)
            raise ValueError("on_stop")

    async with Node() as node:
        node.spawn(Unlucky, address="a", supervision=Supervision(OnFailure.STOP))
        node.spawn(Unlucky, address="b")
        node.spawn(UnluckyLater, address="c")
        node.send("a", b"!")
        await asyncio.sleep(1)
        await node.stop_worker("b")
        await node.stop_worker("c")
    assert [record.getMessage() for record in caplog.records] == [
        "Unlucky 0#a failed and is stopped",
        "Unlucky 0#a failed to stop",
        "Unlucky 0#b failed to stop",
        "UnluckyLater 0#c failed to stop",
    ]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("when", ["start", "stop"])
def test_system_exit_in_start_or_stop_ends_the_program(when: str, *, later: bool) -> None:
    class Exiting(Recorder):
        def on_start(self) -> None:
            return self.exit() if when == "start" else None

        def on_stop(self) -> None:
            return self.exit() if when == "stop" else None

        def exit(self) -> None:
            if later:
                return self.exit_later()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
            raise SystemExit(3)

        async def exit_later(self) -> None:
            raise SystemExit(3)

    async def main() -> None:
        async with Node() as node:
            node.spawn(Exiting, address="exiting")
            if when == "stop":
                await node.stop_worker("exiting")
            await asyncio.Event().wait()

    with pytest.raises(SystemExit), asyncio.Runner() as runner:
        runner.run(main())
