"""The event log as a worker: its start, its ticks, its end, and what it says of itself."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from onward.actors import LimitReached, Node
from onward.actors.broker import Broker
from onward.actors.eventlog import EventLog, LogInUse, LogOptions, LogWriter, Recorder
from onward.actors.eventlog.storage._files import Chunk, DiskFiles
from onward.actors.routing._given import as_route
from onward.protocol import AddressInUse, Context, MailboxFull, Message, UnknownAddress
from onward.protocol.eventlog import (
    EventLogError,
    EventName,
    Kind,
    LogMark,
    Outcome,
    Segment,
    read_segment,
    with_log_mark,
)
from tests.support.workers import Echo


def options(folder: Path, **given: object) -> LogOptions:
    return LogOptions(folder, "log", sample_rate=1.0, **given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def segments(folder: Path) -> list[Segment]:
    return [read_segment(file.read_bytes()) for file in sorted((folder / "log").glob("*.seg"))]


async def sealed(log: EventLog, count: int) -> None:
    """Wait until so many segments have been sealed; the log's own clock says when."""
    begun = asyncio.Event()
    recorder = log.recorder
    begin = recorder._output._sink.begin

    def noted(started_us: int, last_seq: int) -> bool:
        if recorder.statistics().segments > count:
            begun.set()
        return begin(started_us, last_seq)

    log._writer.begin = noted  # type: ignore[method-assign]
    await asyncio.wait_for(begun.wait(), 20)
    assert await asyncio.to_thread(log._writer.flush, 20)


async def test_what_happens_on_a_node_is_on_the_disk_when_it_has_stopped(tmp_path: Path) -> None:
    async with Node("n") as node:
        log = await EventLog.attach(node, options(tmp_path))
        await node.start(Echo, address="echo")
        for _ in range(3):
            await node.request("echo", b"hi")
        assert log.recorder is node.find_instrument(Recorder)
        assert log.statistics().recorder.hops == 6
        assert log.statistics().trouble == ""
    assert node.find_instrument(Recorder) is None
    (segment,) = segments(tmp_path)
    outcomes = [Outcome(hop.outcome) for hop in segment.hops()]
    assert sorted(outcomes) == [Outcome.DELIVER] * 3 + [Outcome.RETURN] * 3
    assert log.statistics().writer.segments == 1


async def test_it_goes_on_by_itself_and_an_idle_one_is_alive(tmp_path: Path) -> None:
    async with Node("n") as node:
        log = await EventLog.attach(
            node, options(tmp_path, flush_seconds=0.01, window_seconds=0.05, seal_seconds=0.05)
        )
        await sealed(log, 3)
    found = segments(tmp_path)
    for before, after in pairwise(found):
        assert after.header.first_seq == before.footer.last_seq + 1
    assert EventName.IDLE in {event.name for segment in found for event in segment.events}


async def test_a_run_after_another_has_the_next_epoch(tmp_path: Path) -> None:
    for _ in range(2):
        async with Node("n") as node:
            await EventLog.attach(node, options(tmp_path))
    assert [segment.header.epoch for segment in segments(tmp_path)] == [1, 2]


async def test_two_logs_cannot_have_one_name(tmp_path: Path) -> None:
    async with Node("a") as one, Node("b") as two:
        await EventLog.attach(one, options(tmp_path))
        with pytest.raises(LogInUse):
            await EventLog.attach(two, options(tmp_path))
        assert two.find_instrument(Recorder) is None


async def test_a_log_that_begins_after_the_broker_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node("a") as node:
        await EventLog.attach(node, options(tmp_path))
        await Broker.attach(node)
    assert caplog.text == ""
    async with Node("b") as node:
        await Broker.attach(node)
        await EventLog.attach(node, LogOptions(tmp_path, "late"))
    assert "the event log late begins after the broker" in caplog.text
    assert "attach it first" in caplog.text


async def test_a_node_has_one_log(tmp_path: Path) -> None:
    async with Node("a") as node:
        first = await EventLog.attach(node, options(tmp_path))
        with pytest.raises(AddressInUse):
            await EventLog.attach(node, LogOptions(tmp_path, "second"))
        second = EventLog(LogOptions(tmp_path, "second"))
        with pytest.raises(LimitReached):
            await node.start(lambda: second, address="second")
        with pytest.raises(AssertionError):
            _ = second.recorder
        assert node.find_instrument(Recorder) is first.recorder


async def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    async with Node("a") as node:
        with pytest.raises(OSError, match="file"):
            await EventLog.attach(node, LogOptions(tmp_path / "file", "log"))
        assert node.find_instrument(Recorder) is None
        await EventLog.attach(node, options(tmp_path))


async def test_a_start_that_fails_lets_the_folder_go(tmp_path: Path) -> None:
    stray = tmp_path / "log" / "7fffffff-0000000000000001.seg"
    stray.parent.mkdir()
    stray.write_bytes(b"")
    async with Node("a") as node:
        for _ in range(2):
            with pytest.raises(EventLogError, match=r"has a file of epoch .* move it away"):
                await EventLog.attach(node, options(tmp_path))
        stray.unlink()
        await EventLog.attach(node, options(tmp_path))
    assert [segment.header.epoch for segment in segments(tmp_path)] == [1]


async def test_a_log_that_could_not_begin_after_it_was_open_lets_the_folder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(_: Recorder) -> None:
        raise ValueError("a defect")

    async with Node("a") as node:
        with monkeypatch.context() as patched:
            patched.setattr(Recorder, "begin", begin)
            with pytest.raises(ValueError, match="a defect"):
                await EventLog.attach(node, options(tmp_path))
        assert node.find_instrument(Recorder) is None
        await EventLog.attach(node, options(tmp_path))


async def test_of_two_logs_that_are_attached_at_once_one_is_refused_and_lets_its_folder_go(
    tmp_path: Path,
) -> None:
    first, second = (EventLog(LogOptions(tmp_path, name)) for name in ("first", "second"))
    async with Node("a") as node:
        found = await asyncio.gather(
            node.start(lambda: first, address="first"),
            node.start(lambda: second, address="second"),
            return_exceptions=True,
        )
        assert sum(isinstance(each, LimitReached) for each in found) == 1
        async with Node("b") as other:
            refused = "first" if isinstance(found[0], LimitReached) else "second"
            await EventLog.attach(other, LogOptions(tmp_path, refused))


class Slow(DiskFiles):
    """A disk whose folder takes its time to be made."""

    def __init__(self) -> None:
        self.asked, self.answers = Event(), Event()

    def make_folder(self, folder: Path) -> None:
        self.asked.set()
        assert self.answers.wait(60)
        super().make_folder(folder)


class Interrupted(EventLog):
    """Says when it has been opened after all."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__(options)
        self.over = asyncio.Event()

    def _opened_in_vain(self, opening: asyncio.Future[int]) -> None:
        super()._opened_in_vain(opening)
        self.over.set()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_node_that_stops_while_its_log_is_opened_lets_the_folder_go(
    tmp_path: Path, fails: bool
) -> None:
    disk = Slow()
    log = Interrupted(options(tmp_path))
    log._writer = writer = LogWriter(log.options, files=disk)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    if fails:
        (tmp_path / "log").write_bytes(b"")
    node = Node("a")
    await node.__aenter__()
    starting = asyncio.ensure_future(node.start(lambda: log, address="log"))
    assert await asyncio.to_thread(disk.asked.wait, 20)
    await node.stop(timeout=0.1)
    with pytest.raises(asyncio.CancelledError):
        await starting
    disk.answers.set()
    await asyncio.wait_for(log.over.wait(), 20)
    if not fails:
        await asyncio.to_thread(writer.close, 20)
        async with Node("b") as other:
            await EventLog.attach(other, options(tmp_path))


async def test_it_stops_last_and_hears_of_all_that_goes_before(tmp_path: Path) -> None:
    async with Node("n") as node:
        await EventLog.attach(node, options(tmp_path))
        broker = await Broker.attach(node)
        await node.start(Echo, address="echo")
        broker.register("echo", service="a")
    (segment,) = segments(tmp_path)
    names = [(event.name, event.node) for event in segment.events]
    assert names[-1][0] == EventName.DOWN
    assert (EventName.DOWN, "a") in names


class Stuck(DiskFiles):
    """A disk that does not answer any more."""

    def __init__(self) -> None:
        self.answers = Event()

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        assert self.answers.wait(60)
        super().write(handle, chunks)


async def test_a_disk_that_does_not_answer_does_not_hold_up_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Stuck()
    disk.answers.set()
    log = EventLog(options(tmp_path, close_seconds=0.01))
    log._writer = writer = LogWriter(log.options, files=disk)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    node = Node("n")
    await node.__aenter__()
    await node.start(lambda: log, address="log")
    assert await asyncio.to_thread(writer.flush, 20)
    disk.answers.clear()
    log.recorder.event(EventName.UP)
    await node.stop()
    assert not disk.answers.is_set()
    assert "does not answer" in log.statistics().trouble
    assert log.statistics().writer.pending > 0
    assert "has ended incomplete" in caplog.text
    disk.answers.set()
    await asyncio.to_thread(writer.close, 20)
    assert [len(segment.events) for segment in segments(tmp_path)] == [1]


@pytest.mark.parametrize(
    ("left", "least", "most"), [(None, 600, 600), (1000, 400, 500), (-1, 0, 1)]
)
async def test_the_disk_has_half_of_the_time_that_is_left_to_stop(
    tmp_path: Path, left: float | None, least: float, most: float
) -> None:
    async with Node("n") as node:
        log = await EventLog.attach(node, options(tmp_path, close_seconds=600))
        log._placed.deadline = None if left is None else node.loop.time() + left
        assert least <= log._left() <= most


class Failing(DiskFiles):
    fails = False

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write(handle, chunks)


async def test_a_log_that_ends_on_a_failing_disk_says_how_much_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Failing()
    log = EventLog(options(tmp_path))
    log._writer = writer = LogWriter(log.options, files=disk)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    async with Node("n") as node:
        await node.start(lambda: log, address="log")
        assert await asyncio.to_thread(writer.flush, 20)
        disk.fails = True
        log.recorder.event(EventName.UP)
        log.recorder.event(EventName.DOWN)
    lost = sum(log.statistics().recorder.dropped.values())
    assert lost >= 2
    assert f"; lost since the start: {lost} records" in caplog.text


async def test_a_log_can_be_ended_by_itself(tmp_path: Path) -> None:
    async with Node("n") as node:
        log = await EventLog.attach(node, options(tmp_path))
        await node.start(Echo, address="echo")
        await node.stop_worker(log.address)
        assert node.find_instrument(Recorder) is None
        await node.request("echo", b"hi")
    (segment,) = segments(tmp_path)
    assert [event.name for event in segment.events] == [EventName.IDLE]


async def test_many_flows_are_written_while_others_have_their_turn(tmp_path: Path) -> None:
    async with Node("n") as node:
        log = await EventLog.attach(
            node, options(tmp_path, flush_seconds=0.01, window_seconds=0.02, seal_seconds=0.2)
        )
        flows = log.recorder.flows
        for number in range(3000):
            flows.cell(Kind.MESSAGE, Outcome.DELIVER, dest=str(number)).add(1)
        await sealed(log, 1)
    counts = [flow.frames for segment in segments(tmp_path) for flow in segment.flows()]
    assert sum(counts) >= 3000


async def test_dead_letters_of_marked_messages_are_recorded_on_whatever_thread(
    tmp_path: Path,
) -> None:
    async with Node("n") as node:
        await EventLog.attach(node, options(tmp_path))
        marked = Context(trace=with_log_mark({}, LogMark(7)))
        letter = Message(as_route("nobody"), (), b"", None, marked)
        node.dead_letter(letter, UnknownAddress.reason)
        node.dead_letter(letter._replace(context=None), UnknownAddress.reason)
        await asyncio.to_thread(node.dead_letter, letter, MailboxFull.reason)
        # What other threads hand to the loop comes in order.
        done = asyncio.Event()
        await asyncio.to_thread(node.parts.run_queue.call_on_loop, done.set)
        await done.wait()
    (segment,) = segments(tmp_path)
    outcomes = [Outcome(hop.outcome) for hop in segment.hops()]
    assert outcomes == [Outcome.UNROUTABLE, Outcome.REJECTED]
