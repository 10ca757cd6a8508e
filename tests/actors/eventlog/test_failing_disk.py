"""A recorder on a disk that fails: what it counted is in the log once, or told as lost."""

from __future__ import annotations

import errno
import random
from collections import Counter
from dataclasses import replace

import pytest

from onward.actors.eventlog import LogOptions, LogWriter, Recorder
from onward.actors.eventlog._losses import BROKEN
from onward.protocol.eventlog import EventName, Kind, Outcome, RouteEvent
from tests.actors.eventlog.logs import FOLDER, Log, options_of, records_on, sealed_on
from tests.actors.eventlog.recording import a_hop, an_event
from tests.support.log_disk import Fault, Moment, SimulatedDisk, Survival, disk_full, no_fault

OPTIONS = options_of(sample_rate=0.0, seal_seconds=20.0, retry_seconds=5.0)
QUIET = 30
"""Seconds after which all is well again, whatever was before."""


class Stepped(LogWriter):
    """A writer whose thread does nothing: a test does the work, when it says so."""

    def _run(self) -> None:
        pass

    def step(self, most: int = 1 << 30) -> None:
        """Do what waits, or so many things of it."""
        while most and not self._queue.empty():
            task = self._queue.get()
            assert task is not None
            self._guarded(self._do, task)
            most -= 1

    def end(self) -> None:
        """Do what a writer does as it is closed."""
        self._refusing = True
        self.step()
        self._end()


class Run:
    """A recorder and a writer on one disk.

    Attributes:
        given: Frames that were counted, by destination.
    """

    def __init__(self, disk: SimulatedDisk, options: LogOptions = OPTIONS) -> None:
        self.disk = disk
        now = lambda: disk.now  # noqa: E731
        self.writer = Stepped(options, files=disk, clock=now, wall_clock=now)
        epoch = self.writer.open()
        self.recorder = Recorder(
            self.writer,
            options,
            "edge",
            log_id=self.writer.log_id,
            epoch=epoch,
            clock=lambda: int(disk.now * 1e9),
            now=now,
        )
        self.recorder.begin()
        self.given: Counter[str] = Counter()

    def count(self, dest: str, frames: int) -> None:
        self.given[dest] += frames
        cell = self.recorder.flows.cell(int(Kind.MESSAGE), int(Outcome.DELIVER), dest=dest)
        cell.add(0, frames)

    def tick(self, most: int = 1 << 30) -> None:
        """Have a second pass, and the writer do so much of what it is given."""
        self.disk.now += 1.0
        self.recorder.tick()
        while self.recorder.write_flows():
            pass
        self.writer.step(most)

    def end(self) -> None:
        self.recorder.close()
        self.writer.end()
        self.recorder.ended()

    @property
    def dropped(self) -> int:
        return sum(self.recorder.statistics().dropped.values())


def found(disk: SimulatedDisk) -> Counter[str]:
    """Frames in the log, by destination."""
    counted: Counter[str] = Counter()
    for segment in sealed_on(disk):
        names = ("", *segment.names)
        for flow in segment.flows():
            counted[names[flow.dest]] += flow.frames
    return counted


def missing(disk: SimulatedDisk) -> int:
    return sum(segment.missing for segment in sealed_on(disk))


def losses(disk: SimulatedDisk) -> list[str]:
    """What the log says that it lost."""
    events: list[RouteEvent] = [event for each in sealed_on(disk) for event in each.events]
    return [event.reason for event in events if event.name is EventName.LOST]


def told(disk: SimulatedDisk) -> int:
    """How many records the log says that it lost."""
    return sum(int(reason.split()[0]) for reason in losses(disk))


def fails(name: str, moment: Moment, error: Exception | None = None) -> Fault:
    """The next operation of this name fails."""
    done = [False]

    def fault(at: int, operation: str) -> tuple[Moment, BaseException] | None:
        if done[0] or operation != name:
            return None
        done[0] = True
        return disk_full(moment) if error is None else (moment, error)

    return fault


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize(("fsync", "name"), [("seal", "write"), ("block", "fsync")])
def test_a_block_of_flows_that_the_disk_fails_with_is_written_once(
    fsync: str, name: str, moment: Moment
) -> None:
    disk = SimulatedDisk()
    run = Run(disk, replace(OPTIONS, fsync=fsync))  # type: ignore[arg-type]
    run.count("warm", 1)
    run.tick()
    run.tick()
    run.count("warm", 100)
    disk.fault = fails(name, moment)
    run.tick()
    assert run.writer.trouble() is not None
    for _ in range(12):
        run.count("later", 7)
        run.tick()
    run.end()
    assert found(disk) == run.given
    assert missing(disk) == told(disk) == run.dropped
    records_on(disk)


def test_an_event_lost_that_the_disk_fails_with_is_said_again() -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.tick()
    for _ in range(7):
        a_hop(run.recorder, 1 << 64)  # which cannot be packed
    run.recorder.lose("the run before did not end")
    disk.fault = fails("write", Moment.AMID)
    run.tick()
    for _ in range(12):
        run.tick()
    run.end()
    reasons = losses(disk)
    reasons.remove("the run before did not end")
    assert f"7 events: {BROKEN}" in reasons
    assert missing(disk) == run.dropped
    assert sum(int(reason.split()[0]) for reason in reasons) == run.dropped


def now_and_then(chance: random.Random) -> Fault:
    """Some operations fail, each at some moment; at times all do for a while."""
    until = [0]
    code = chance.choice((errno.ENOSPC, errno.EIO))
    rate = chance.choice((0.02, 0.1, 0.3))

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        if name in {"list", "close", "holds"}:
            return None
        if at >= until[0] and chance.random() < rate:
            until[0] = at + chance.choice((1, 1, 1, 5, 40))
        if at < until[0] and (name != "read" or chance.random() < 0.2):
            return disk_full(chance.choice(list(Moment)), code)
        return None

    return fault


def go(run: Run, chance: random.Random, seconds: int) -> None:
    """Count and record this and that for so long; the writer does not always keep up."""
    recorder = run.recorder
    for _ in range(seconds):
        for _ in range(chance.randrange(4)):
            run.count(f"to {chance.randrange(6)}", chance.randrange(1, 100))
        for _ in range(chance.randrange(3)):
            a_hop(recorder, chance.getrandbits(64 + (chance.random() < 0.05)))
        for _ in range(chance.randrange(3)):
            an_event(recorder)
        run.tick(chance.choice((1 << 30, 1 << 30, 0, 1, 2, 3)))


@pytest.mark.parametrize("fsync", ["seal", "block", "never"])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_all_is_there_once_or_told_as_lost(seed: int, fsync: str) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    limit = chance.choice((2, 65_535))
    room = chance.choice((4000, 1 << 24))
    options = replace(OPTIONS, max_flows=limit, max_pending=room)
    run = Run(disk, replace(options, fsync=fsync))  # type: ignore[arg-type]
    disk.fault = now_and_then(chance)
    for _ in range(4):
        go(run, chance, 15)
        if chance.random() < 0.5:
            disk.fault = no_fault
            go(run, chance, QUIET)
            disk.fault = now_and_then(chance)
    disk.fault = no_fault
    for _ in range(QUIET):
        run.tick()
    run.end()
    records_on(disk)
    # Under which name they are there depends on how much room there was; none is lost.
    assert found(disk).total() == run.given.total()
    assert limit == 2 or found(disk) == run.given
    assert missing(disk) == told(disk) == run.dropped
    assert sealed_on(disk)[-1].footer.last_seq == run.recorder._seq
    assert disk.open_handles == 0
    if fsync != "never":
        before = found(disk)
        disk.crash(Survival.NOTHING)
        assert found(disk) == before


@pytest.mark.parametrize("seed", range(40))
def test_a_run_that_ends_on_a_failing_disk_leaves_nothing_twice(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    run = Run(disk, replace(OPTIONS, fsync=chance.choice(("seal", "block"))))
    go(run, chance, 10)
    disk.fault = now_and_then(chance)
    go(run, chance, 20)
    works_at_the_end = chance.random() < 0.5
    if works_at_the_end:
        disk.fault = no_fault
    run.end()
    disk.fault = no_fault
    again = Log(disk)
    again.open()
    again.close()
    records_on(disk)
    counted = found(disk)
    assert counted <= run.given
    if works_at_the_end:
        # What is not there is missing by number, and the statistics say so.
        assert missing(disk) == run.dropped
        assert not again.folder.unfinished
    elif counted != run.given:
        assert run.dropped or again.folder.unfinished
    assert not [name for name in disk.contents(FOLDER) if name.endswith((".open", ".new"))]


def test_a_defect_amid_a_block_costs_nothing_but_what_is_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.tick()
    run.count("there", 3)
    disk.fault = fails("write", Moment.AMID, error=RuntimeError("a defect"))
    run.tick()
    for _ in range(12):
        run.tick()
    run.end()
    assert found(disk) == run.given
    assert missing(disk) == told(disk) == run.dropped
    assert "the event log b failed" in caplog.messages
    assert disk.open_handles == 0


def test_what_somebody_deletes_as_it_is_written_is_told() -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.count("gone", 3)
    run.tick()
    disk.remove_folder(FOLDER)
    for _ in range(2 * QUIET):
        run.count("there", 1)
        run.tick()
    run.end()
    records_on(disk)
    assert found(disk)["gone"] == 0
    # Only what was written, and so not kept here, is lost with it.
    assert run.given["there"] - found(disk)["there"] <= missing(disk) == told(disk) == run.dropped
