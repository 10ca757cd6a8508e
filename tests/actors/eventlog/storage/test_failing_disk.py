"""A recorder on a disk that fails: what it counted is in the log once, or told as lost."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from onward.actors.eventlog import Fsync
from tests.actors.eventlog.logs import FOLDER, Log, records_on, sealed_on
from tests.actors.eventlog.recorded import a_hop, an_event
from tests.actors.eventlog.runs import OPTIONS, QUIET, Run, found, missing, told
from tests.support.counts import times
from tests.support.log_disk import Fault, Moment, SimulatedDisk, Survival, disk_full, no_fault


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
def test_a_block_of_flows_that_the_disk_fails_with_is_there_once_or_told_as_lost(
    fsync: Fsync, name: str, moment: Moment
) -> None:
    disk = SimulatedDisk()
    run = Run(disk, replace(OPTIONS, fsync=fsync))
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
    assert found(disk) <= run.given
    assert missing(disk) == told(disk) == run.dropped
    records_on(disk)


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
@pytest.mark.parametrize("seed", range(times(3, 12)))
def test_whatever_fails_all_is_there_once_or_counted_as_lost(seed: int, fsync: Fsync) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    limit = chance.choice((2, 65_535))
    room = chance.choice((4000, 1 << 24))
    options = replace(OPTIONS, max_flows=limit, max_pending=room)
    run = Run(disk, replace(options, fsync=fsync))
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
    assert limit == 2 or found(disk) <= run.given
    assert found(disk).total() <= run.given.total()
    # What is missing by number is counted. An event that told of it may be missing as well.
    assert told(disk) <= missing(disk) == run.dropped
    assert sealed_on(disk)[-1].footer.last_seq == run.numbers
    assert disk.open_handles == 0
    if fsync != "never":
        before = found(disk)
        disk.crash(Survival.NOTHING)
        assert found(disk) == before


@pytest.mark.parametrize("seed", range(times(10, 40)))
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
    lost = run.numbers - len(records_on(disk))
    assert found(disk) <= run.given
    if works_at_the_end:
        # What is not there is missing by number, and the statistics say so.
        assert missing(disk) == lost == run.dropped
        assert not again.folder.unfinished
    else:
        # What was in doubt counts as lost: it may be there all the same.
        assert 0 <= lost <= run.dropped
    assert not [name for name in disk.contents(FOLDER) if name.endswith((".open", ".new"))]


@pytest.mark.parametrize("fsync", ["seal", "block", "never"])
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("which", ["hops", "flows", "events"])
def test_what_is_in_doubt_at_the_end_counts_as_lost(
    which: str, moment: Moment, fsync: Fsync
) -> None:
    disk = SimulatedDisk()
    run = Run(disk, replace(OPTIONS, fsync=fsync))

    def record() -> None:
        for number in range(20):
            if which == "flows":
                run.count(f"to {number}", 100)
            elif which == "hops":
                a_hop(run.recorder, number)
            else:
                an_event(run.recorder)

    record()
    run.tick()
    run.tick()
    record()
    broken = {"write", "create", "rename", "unlink", "reopen"}
    disk.fault = lambda at, name: disk_full(moment) if name in broken else None
    run.tick()
    run.end()
    disk.fault = no_fault
    again = Log(disk)
    again.open()
    again.close()
    # What is given later is lost as well, but is not in doubt.
    assert run.dropped == run.numbers - 20 >= 20
    there = {seq for _, seq in records_on(disk)}
    assert there == set(range(1, 21))


def test_a_segment_that_cannot_be_made_to_last_counts_as_lost_at_the_end() -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.count("in memory", 1)
    run.tick()
    run.tick()
    disk.fault = lambda at, name: disk_full() if name == "fsync" else None
    run.end()
    assert run.dropped == run.numbers > 0


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
    assert found(disk) <= run.given
    assert missing(disk) == told(disk) == run.dropped
    assert "the event log b failed" in caplog.messages
    assert disk.open_handles == 0
