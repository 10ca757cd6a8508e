from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

import pytest

from onward.actors import (
    Mailbox,
    Node,
    NodeLimits,
    OnFailure,
    Supervision,
    Worker,
    _lifecycle as lifecycle,
)
from onward.protocol import (
    Message,
    NotDelivered,
    UnknownAddress,
    WorkerFailed,
    WorkerStopped,
)
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Failing, Gate, Recorder


class Storied(Worker):
    """Writes its life into a list that all its instances share."""

    def __init__(self, name: str, story: list[str]) -> None:
        super().__init__()
        self.name = name
        self.story = story

    async def on_start(self) -> None:
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} starts")

    async def handle_message(self, message: Message) -> None:
        self.story.append(f"{self.name} handles {message.payload.decode()}")
        await asyncio.sleep(0.1)
        if message.payload.startswith(b"!"):
            raise ValueError(message.payload.decode())

    async def on_stop(self) -> None:
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} stops")

    async def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert traceback is not None
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} fails with {exception_value}")


def storied(name: str, story: list[str]) -> Callable[[], Storied]:
    return lambda: Storied(name, story)


# --- start ----------------------------------------------------------------------------


@virtual_time
async def test_messages_wait_until_the_worker_has_started() -> None:
    story: list[str] = []
    async with Node() as node:
        node.spawn(storied("w", story), address="w")
        node.send("w", b"1")
        await asyncio.sleep(1)
        assert story == ["w starts", "w handles 1"]
    assert story[-1] == "w stops"


@virtual_time
async def test_start_waits_for_on_start() -> None:
    story: list[str] = []
    async with Node() as node:
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


@virtual_time
async def test_start_raises_what_on_start_raises(caplog: pytest.LogCaptureFixture) -> None:
    async with Node() as node:
        for kind in (NoStart, NoStartLater):
            with pytest.raises(ValueError, match="no start"):
                await node.start(kind, address="w")
            assert not node.has("w")
    assert caplog.records == []


@virtual_time
async def test_a_spawned_worker_that_does_not_start_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Node() as node:
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


@virtual_time
async def test_stopping_a_worker_before_its_start_skips_both() -> None:
    async with Node() as node:
        recorder = Recorder()
        node.spawn(lambda: recorder, address="w")
        node.send("w", b"lost")
        await node.stop()
        assert recorder.events == []
        assert node.dead_letters.by_reason == {"worker stopped": 1}


@virtual_time
async def test_a_start_that_is_interrupted() -> None:
    class Forever(Worker):
        async def on_start(self) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        starting = asyncio.create_task(node.start(Forever, address="w"))
        await asyncio.sleep(0.1)
        await node.stop(timeout=1)
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert node.statistics().abandoned == 0


@virtual_time
async def test_a_start_that_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
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


@virtual_time
async def test_resume_logs_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with Node() as node:
        failing = Failing()
        node.spawn(lambda: failing, address="w")
        node.send("w", b"!1")
        node.send("w", b"2")
        await asyncio.sleep(1)
        assert failing.payloads == [b"!1", b"2"]
        [record] = caplog.records
        assert record.getMessage() == "Failing 0#w failed"
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "!1"


@virtual_time
async def test_stop_policy() -> None:
    story: list[str] = []
    async with Node() as node:
        node.spawn(storied("w", story), address="w", supervision=Supervision(OnFailure.STOP))
        node.send("w", b"!1")
        node.send("w", b"2")
        await asyncio.sleep(1)
        assert story == ["w starts", "w handles !1", "w fails with !1"]
        assert not node.has("w")
        assert node.dead_letters.by_reason == {"worker failed": 1, "worker stopped": 1}


@virtual_time
async def test_restart_keeps_address_mailbox_and_ref() -> None:
    story: list[str] = []
    async with Node() as node:
        node.spawn(storied("w", story), address="w", supervision=Supervision(OnFailure.RESTART))
        ref = node.ref("w")
        node.send("w", b"!1")
        node.send("w", b"2")
        await asyncio.sleep(1)
        assert story == [
            "w starts",
            "w handles !1",
            "w fails with !1",
            "w starts",
            "w handles 2",
        ]
        assert ref.is_alive()
        assert await ref.proxy().name == "w"
        statistics = node.statistics()
        assert (statistics.restarts, statistics.failed) == (1, 1)


@virtual_time
async def test_restart_of_plain_functions() -> None:
    made: list[Failing] = []

    def make() -> Failing:
        made.append(Failing())
        return made[-1]

    async with Node() as node:
        node.spawn(make, address="w", supervision=Supervision(OnFailure.RESTART))
        node.send("w", b"!1")
        node.send("w", b"2")
        await asyncio.sleep(1)
        assert [worker.payloads for worker in made] == [[b"!1"], [b"2"]]
        assert [worker.events for worker in made] == [["start"], ["start"]]


@virtual_time
async def test_restarts_are_limited_within_a_window() -> None:
    async with Node() as node:
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


@virtual_time
async def test_an_instance_that_does_not_start_counts_as_a_restart() -> None:
    attempts: list[int] = []

    class Fickle(Failing):
        def on_start(self) -> None:
            attempts.append(len(attempts))
            if len(attempts) > 1:
                raise ValueError("not again")

    async with Node() as node:
        supervision = Supervision(OnFailure.RESTART, max_restarts=3)
        node.spawn(Fickle, address="w", supervision=supervision)
        node.send("w", b"!")
        await asyncio.sleep(1)
        assert len(attempts) == 4
        assert not node.has("w")
        assert node.statistics().failed == 4


@virtual_time
async def test_escalation_reaches_the_parent_as_its_own_failure() -> None:
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

    async with Node() as node:
        node.spawn(make, address="parent", supervision=Supervision(OnFailure.RESTART))
        await asyncio.sleep(1)
        node.send("child", b"!")
        await asyncio.sleep(1)
        assert len(parents) == len(children) == 2
        assert node.has("child")
        assert node.statistics().restarts == 1


@virtual_time
async def test_escalation_to_a_parent_that_resumes_ends_the_child_only() -> None:
    class Parent(Recorder):
        def on_start(self) -> None:
            self.spawn(Failing, address="child", supervision=Supervision(OnFailure.ESCALATE))

    async with Node() as node:
        await node.start(Parent, address="parent")
        node.send("child", b"!")
        await asyncio.sleep(1)
        assert not node.has("child")
        assert node.has("parent")
        assert node.statistics().failed == 2


@virtual_time
async def test_escalation_without_a_parent_stops_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Node() as node:
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


@virtual_time
async def test_failing_last_words_are_logged(caplog: pytest.LogCaptureFixture) -> None:
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


# --- stop -----------------------------------------------------------------------------


@virtual_time
async def test_stop_handles_what_waits_first() -> None:
    story: list[str] = []
    async with Node() as node:
        worker = Storied("w", story)
        await node.start(lambda: worker, address="w")
        node.send("w", b"1")
        node.send("w", b"2")
        worker.stop()
        node.send("w", b"3")
        worker.stop()
        await asyncio.sleep(2)
        assert story == ["w starts", "w handles 1", "w handles 2", "w stops"]
        assert not node.has("w")
        assert node.dead_letters.by_reason == {"worker stopped": 1}


@virtual_time
async def test_stop_worker_waits_for_the_end() -> None:
    story: list[str] = []
    async with Node() as node:
        await node.start(storied("w", story), address=["w", "also"])
        node.send("w", b"1")
        await node.stop_worker("also")
        assert story == ["w starts", "w handles 1", "w stops"]
        assert not node.has("w")
        assert not node.has("also")
        with pytest.raises(UnknownAddress):
            await node.stop_worker("w")
        with pytest.raises(NotDelivered):
            node.send("w", b"2")


@virtual_time
async def test_two_stops_at_the_same_time() -> None:
    story: list[str] = []
    async with Node() as node:
        await node.start(storied("w", story), address="w")
        await asyncio.gather(node.stop_worker("w"), node.stop_worker("w"))
    assert story == ["w starts", "w stops"]


@virtual_time
async def test_children_stop_before_their_parents_and_the_youngest_first() -> None:
    story: list[str] = []

    class Parent(Storied):
        async def on_start(self) -> None:
            await super().on_start()
            await self.start_child(storied("elder", story))
            await self.start_child(storied("younger", story))

    async with Node() as node:
        await node.start(storied("first", story))
        await node.start(lambda: Parent("parent", story))
        await node.start(storied("last", story))
    assert story[5:] == [
        "last stops",
        "younger stops",
        "elder stops",
        "parent stops",
        "first stops",
    ]


@virtual_time
async def test_children_of_a_worker_that_stops_by_itself() -> None:
    story: list[str] = []

    class Parent(Storied):
        async def on_start(self) -> None:
            self.spawn(storied("child", story), address="child")

    async with Node() as node:
        parent = Parent("parent", story)
        await node.start(lambda: parent, address="parent")
        await asyncio.sleep(1)
        parent.stop()
        await asyncio.sleep(1)
        assert story == ["child starts", "child stops", "parent stops"]


@virtual_time
async def test_nothing_can_be_spawned_by_a_worker_that_stops() -> None:
    class Parent(Worker):
        def on_stop(self) -> None:
            with pytest.raises(WorkerStopped):
                self.spawn(Echo)
            self.checked = True

    async with Node() as node:
        parent = Parent()
        await node.start(lambda: parent, address="parent")
        await node.stop_worker("parent")
        assert parent.checked


@virtual_time
async def test_node_stop_turns_waiting_messages_into_dead_letters() -> None:
    async with Node() as node:
        gate = Gate()
        node.spawn(lambda: gate, address="gate")
        for number in range(3):
            node.send("gate", b"%d" % number)
        await asyncio.sleep(0.1)
        node.loop.call_later(1, gate.opened.set)
        await node.stop(timeout=5)
        assert [message.payload for message in gate.messages] == [b"0"]
        assert [letter.message.payload for letter in node.dead_letters.recent] == [b"1", b"2"]
        assert node.dead_letters.by_reason == {"worker stopped": 2}
        assert node.statistics().handled == 1


@virtual_time
async def test_a_handler_that_hangs_is_cancelled_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story: list[str] = []

    class Hanging(Storied):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        await node.start(storied("other", story))
        await node.start(lambda: Hanging("hanging", story), address="hanging")
        node.send("hanging", b"")
        await asyncio.sleep(0.1)
        began = node.loop.time()
        await node.stop(timeout=4)
        assert node.loop.time() - began < 4
        assert story[2:] == ["hanging stops", "other stops"]
        assert node.statistics().abandoned == 0
    assert "does not stop in time and is cancelled" in caplog.text


@virtual_time
async def test_last_words_that_hang_are_cancelled() -> None:
    class Hanging(Worker):
        async def on_stop(self) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        await node.start(Hanging, address="hanging")
        await node.stop(timeout=4)
        assert not node.has("hanging")
        assert node.statistics().abandoned == 0


@virtual_time
async def test_a_worker_that_cannot_be_stopped_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = asyncio.Event()

    class Stubborn(Worker):
        async def on_start(self) -> None:
            self.spawn(Echo, address="child")

        async def handle_message(self, message: Message) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            raise ValueError("too late to matter")

    async with Node() as node:
        await node.start(Stubborn, address="stubborn")
        node.send("stubborn", b"")
        node.send("stubborn", b"waiting")
        await asyncio.sleep(0.1)
        began = node.loop.time()
        await node.stop(timeout=4)
        assert node.loop.time() - began <= 4
        assert not node.has("stubborn")
        assert not node.has("child")
        statistics = node.statistics()
        assert (statistics.abandoned, statistics.worker_count) == (2, 0)
        assert statistics.dead_letter_reasons == {"worker failed": 1, "worker stopped": 1}
    released.set()
    await asyncio.sleep(0.1)
    assert "cannot be stopped and is given up" in caplog.text


@virtual_time
async def test_a_restart_that_hangs_is_ended_by_a_stop() -> None:
    class Hanging(Failing):
        async def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        node.spawn(Hanging, address="w", supervision=Supervision(OnFailure.RESTART))
        node.send("w", b"!")
        await asyncio.sleep(1)
        await node.stop(timeout=4)
        assert not node.has("w")


@virtual_time
async def test_a_worker_that_keeps_itself_busy_can_be_stopped() -> None:
    class Busy(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(0.01)
            self.send((self.address,), b"again")

    async with Node() as node:
        await node.start(Busy, address="busy")
        node.send("busy", b"")
        await asyncio.sleep(1)
        await node.stop_worker("busy", timeout=4)
        assert not node.has("busy")


@virtual_time
async def test_a_child_that_hangs_leaves_time_for_its_parent() -> None:
    story: list[str] = []

    class Hanging(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    class Parent(Storied):
        async def on_start(self) -> None:
            self.spawn(Hanging, address="child")

    async with Node() as node:
        await node.start(lambda: Parent("parent", story), address="parent")
        node.send("child", b"")
        await asyncio.sleep(1)
        await node.stop(timeout=4)
        assert story == ["parent stops"]
        assert node.statistics().abandoned == 0


@virtual_time
async def test_many_workers_stop_in_order() -> None:
    order: list[int] = []

    class Numbered(Worker):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_stop(self) -> None:
            order.append(self.number)

    async with Node(limits=NodeLimits(addresses=2000)) as node:
        for number in range(1500):
            node.spawn(lambda number=number: Numbered(number))  # type: ignore[misc]
    assert order == list(reversed(range(1500)))


@virtual_time
async def test_a_mailbox_of_one_and_a_restart() -> None:
    async with Node() as node:
        supervision = Supervision(OnFailure.RESTART)
        node.spawn(Failing, address="w", mailbox=Mailbox(1), supervision=supervision)
        node.send("w", b"!")
        await asyncio.sleep(1)
        node.send("w", b"1")
        await asyncio.sleep(1)
        assert node.statistics().handled == 2


@virtual_time
async def test_a_restart_that_is_given_up() -> None:
    released = asyncio.Event()

    class Stubborn(Failing):
        async def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

    async with Node() as node:
        node.spawn(Stubborn, address="w", supervision=Supervision(OnFailure.RESTART))
        node.send("w", b"!")
        await asyncio.sleep(1)
        await node.stop(timeout=1)
        assert node.statistics().abandoned == 1
        released.set()
        await asyncio.sleep(0.1)
        assert not node.has("w")


@virtual_time
async def test_no_time_at_all() -> None:
    async with Node(limits=NodeLimits(batch=1, drain=1)) as node:
        recorder = Recorder()
        await node.start(lambda: recorder, address="w")
        for _ in range(10):
            node.send("w", b"")
        await node.stop_worker("w", timeout=0)
        assert not node.has("w")
        assert len(recorder.messages) + node.dead_letters.total == 10
        assert node.dead_letters.total > 0


@virtual_time
async def test_closing_a_worker_that_is_closed_does_nothing() -> None:
    async with Node() as node:
        recorder = Recorder()
        await node.start(lambda: recorder, address="w")
        cell = recorder._cell
        assert cell is not None
        await node.stop_worker("w")
        cell.give_up()
        await lifecycle.stop_within(cell, node.loop.time() + 1, drain=True)
        assert node.statistics().worker_count == 0


@virtual_time
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_who_asked_a_worker_that_fails_hears_of_it_at_once(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain(Worker):
        def handle_message(self, message: Message) -> None:
            raise ValueError("secret")

    class Slow(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1)
            raise ValueError("secret")

    async with Node() as node:
        node.spawn(Slow if asynchronous else Plain, address="w")
        with pytest.raises(WorkerFailed) as failed:
            await node.request("w", b"", timeout=60)
        assert isinstance(failed.value.__cause__, ValueError)
        assert "secret" not in str(failed.value)
        assert node.dead_letters.by_reason == {"worker failed": 1}
    assert "secret" in caplog.text


@virtual_time
async def test_who_asked_a_worker_that_is_stopped_hears_whether_it_was_begun() -> None:
    class Hanging(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    ended: list[str] = []
    async with Node() as node:
        node.spawn(Hanging, address="w")
        node.watch("w", lambda: ended.append("w"))
        node.watch("w", lambda: ended.append("not"))()
        begun = asyncio.ensure_future(node.request("w", b"", timeout=60))
        await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(node.request("w", b"", timeout=60))
        await asyncio.sleep(0.1)
        await node.stop_worker("w", timeout=1)
        with pytest.raises(WorkerFailed):
            await begun
        with pytest.raises(WorkerStopped):
            await waiting
        assert ended == ["w"]
        with pytest.raises(UnknownAddress):
            node.watch("w", list)
