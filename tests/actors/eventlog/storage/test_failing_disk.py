"""A disk that fails: what is lost is counted and told, and what is kept is whole."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from onward.actors.eventlog import Fsync, LogInUse, LogWriter
from onward.protocol.eventlog import OPEN
from tests.actors.eventlog.logs import FOLDER, PER_SEGMENT, Log, options_of, records_on, sealed_on
from tests.actors.eventlog.recorded import a_hop, an_event
from tests.actors.eventlog.runs import OPTIONS, QUIET, Run, found, missing, told
from tests.support.counts import exhaustive, times
from tests.support.log_disk import Fault, Moment, SimulatedDisk, Survival, disk_full, no_fault

AFTERWARDS = 10.0
"""Seconds; more than `retry_seconds`."""
READS = {"list", "read", "close", "lock", "unlink"}
"""To look at a disk that is full, and to make room on it, works."""


def fails_from(number: int, count: int = 1 << 30, moment: Moment = Moment.AMID) -> Fault:
    """So many operations fail from one on."""

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        return disk_full(moment) if name not in READS and number <= at < number + count else None

    return fault


def fails_at(name: str, count: int, moment: Moment = Moment.AMID) -> Fault:
    """The next operations of this name fail."""
    left = [count]

    def fault(at: int, operation: str) -> tuple[Moment, BaseException] | None:
        if operation != name or not left[0]:
            return None
        left[0] -= 1
        return disk_full(moment, errno.EIO)

    return fault


def started(disk: SimulatedDisk, fsync: Fsync = "seal") -> Log:
    log = Log(disk, options_of(fsync=fsync))
    log.open()
    return log


@pytest.mark.slow
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("count", [3, *exhaustive(1, 11)])
@pytest.mark.parametrize("fsync", ["seal", "block", "never"])
def test_wherever_it_fails_all_is_written_or_counted(
    fsync: Fsync, count: int, moment: Moment
) -> None:
    number, reached, failures = 0, True, 0
    while reached:
        disk = SimulatedDisk()
        log = started(disk, fsync)
        disk.operations.clear()
        disk.fault = fails_from(number, count, moment)
        for _ in range(3):
            log.segment()
            disk.now += AFTERWARDS
        reached = len(disk.operations) > number
        disk.fault = no_fault
        log.segment()
        assert log.segments.trouble is None
        log.close()
        there = records_on(disk)
        assert set(log.sealed) <= set(there)
        failures += log.count.errors
        assert sum(segment.missing for segment in sealed_on(disk)) == log.count.lost
        assert len(there) + log.count.lost == log.given
        assert sealed_on(disk)[-1].footer.last_seq == 4 * PER_SEGMENT
        assert disk.open_handles == 0
        assert not [name for name in disk.contents(FOLDER) if name.endswith((".new", OPEN))]
        if fsync != "never":
            disk.crash(Survival.NOTHING)
            assert records_on(disk) == there
        number += times(3, 1)
    assert failures > times(5, 10)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("fsync", ["seal", "block"])
def test_what_an_fsync_that_failed_gave_up_is_written_anew_before_it_is_sealed(
    fsync: Fsync, count: int
) -> None:
    # Linux takes for clean what it could not write: the file reads whole until the power is cut.
    disk = SimulatedDisk()
    log = started(disk, fsync)
    log.segment()
    disk.fault = fails_at("fsync", count)
    for _ in range(1 + count):
        log.segment()
        disk.now += AFTERWARDS
    log.close()
    there = records_on(disk)
    assert log.segments.trouble is None
    assert log.count.errors == count
    assert len(there) + log.count.lost == log.given
    assert not [name for name in disk.contents(FOLDER) if name.endswith((".new", OPEN))]
    disk.crash(Survival.NOTHING)
    assert records_on(disk) == there


def test_a_start_takes_no_bytes_for_written_of_a_run_whose_fsync_failed() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.folder.begin_epoch()
    disk.fault = fails_at("fsync", 1)
    log.segment()
    log.folder.close()  # it is killed before it can try again
    started(disk).close()
    there = records_on(disk)
    assert len(there) == PER_SEGMENT
    disk.crash(Survival.NOTHING)
    assert records_on(disk) == there


def test_a_failing_disk_is_left_alone_for_a_while() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.segment()
    log.begin()
    disk.fault = fails_from(0)
    log.write()
    assert log.segments.trouble == f"cannot write {FOLDER}: No space left on device"
    log.seq += PER_SEGMENT
    before = len(disk.operations)
    for pause, tries in ((1.0, False), (3.0, False), (1.5, True)):
        disk.now += pause
        log.begin()
        assert (len(disk.operations) > before) == tries
    disk.fault = no_fault
    disk.now += 5.0
    log.segment()
    assert log.segments.trouble is None
    assert [segment.missing for segment in sealed_on(disk)] == [0, PER_SEGMENT]


def test_a_disk_that_stays_full_to_the_end_leaves_what_a_start_recovers() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.begin()
    disk.operations.clear()
    disk.fault = fails_from(3)
    log.write()
    log.close()
    assert log.segments.trouble is not None
    disk.fault = no_fault
    assert started(disk).count.recovered == 1
    assert records_on(disk) == log.written
    assert len(log.written) == 3


# --- a start on a disk that fails ---------------------------------------------------------


def left_open(disk: SimulatedDisk) -> Log:
    """A run that was killed: three segments that are sealed, and one that is not."""
    log = started(disk)
    for _ in range(3):
        log.segment()
    log.begin()
    log.write()
    log.folder.close()
    disk.operations.clear()
    return log


@pytest.mark.parametrize("number", range(1, 20))
def test_a_start_on_a_full_disk_begins_in_trouble_and_goes_on_when_there_is_room(
    number: int,
) -> None:
    disk = SimulatedDisk()
    before = left_open(disk)
    disk.fault = fails_from(number)
    log = started(disk)
    assert log.folder.epoch == 2
    log.segment()
    assert log.segments.trouble is not None
    assert log.count.lost == PER_SEGMENT
    disk.now += AFTERWARDS
    log.segment()
    disk.fault = no_fault
    disk.now += AFTERWARDS
    log.segment()
    assert log.segments.trouble is None
    assert records_on(disk) == sorted(before.written + log.sealed)
    assert len(log.sealed) == PER_SEGMENT
    assert log.count.lost == 2 * PER_SEGMENT
    log.close()


@pytest.mark.parametrize("name", ["make_folder", "lock", "list"])
def test_a_folder_that_cannot_be_used_is_an_error_at_the_start_and_is_let_go(name: str) -> None:
    disk = SimulatedDisk()
    writer = LogWriter(options_of(), files=disk)
    for after in (0, 1) if name == "list" else (0,):
        seen: list[int] = []

        def fault(
            at: int, operation: str, seen: list[int] = seen, after: int = after
        ) -> tuple[Moment, OSError] | None:
            seen += [at] if operation == name else []
            fails = operation == name and len(seen) > after
            return disk_full(code=errno.EACCES) if fails else None

        disk.fault = fault
        with pytest.raises(OSError, match="Permission denied"):
            writer.open()
        assert disk.open_handles == 0
    disk.fault = no_fault
    assert writer.open() == 1
    with pytest.raises(LogInUse):
        Log(disk).open()
    writer.close(30.0)


def test_what_is_too_old_is_deleted_before_anything_is_written() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    disk.fault = fails_from(1)
    writer = LogWriter(options_of(max_bytes=1), files=disk, wall_clock=lambda: disk.now)
    assert writer.open() == 2
    assert writer.trouble() is not None
    assert writer.statistics().deleted == 2
    disk.fault = no_fault
    writer.close(30.0)


@pytest.mark.parametrize("gone", [True, False])
def test_what_others_delete_is_lost_and_counted(gone: bool) -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.begin()
    log.write()
    log.seq += PER_SEGMENT
    if gone:
        disk.remove_folder(FOLDER)
    else:
        disk.unlink(FOLDER / "00000001-0000000000000001.open")
    log.segments.seal(log.seq - 1, 0)
    assert log.segments.trouble == f"cannot write {FOLDER}: No such file or directory"
    disk.now += AFTERWARDS
    log.segment()
    if gone:
        assert not disk.contents(FOLDER)
        assert log.segments.trouble is not None
    else:
        assert log.count.lost == PER_SEGMENT
        assert [segment.missing for segment in sealed_on(disk)] == [PER_SEGMENT]


# --- what callers leave out ---------------------------------------------------------------


def test_a_segment_without_an_end_is_sealed_when_the_next_begins() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.begin()
    log.write()
    log.seq += PER_SEGMENT + 4
    log.segment()
    log.begin()
    log.write()
    log.close()
    assert [segment.missing for segment in sealed_on(disk)] == [4, 0, 0]


def test_a_segment_without_a_number_is_deleted_and_one_without_a_record_is_not() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.begin()
    for _ in range(2):
        log.segments.seal(0, 0)
    assert not sealed_on(disk)
    log.begin()
    log.segments.seal(5, 0)
    assert [segment.missing for segment in sealed_on(disk)] == [5]


# --- with a recorder ----------------------------------------------------------------------


def now_and_then(chance: random.Random) -> Fault:
    """Some operations fail, each at some moment; at times all do for a while."""
    until = [0]
    code = chance.choice((errno.ENOSPC, errno.EIO))
    rate = chance.choice((0.02, 0.1, 0.3))

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        if name in {"list", "close"}:
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
    run = Run(disk, replace(OPTIONS, max_flows=limit, max_pending=room, fsync=fsync))
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
    again = started(disk)
    again.close()
    lost = run.numbers - len(records_on(disk))
    assert found(disk) <= run.given
    assert again.count.recovered == 0 or not works_at_the_end
    if works_at_the_end:
        # What is not there is missing by number, and the statistics say so.
        assert missing(disk) == lost == run.dropped
    assert not [name for name in disk.contents(FOLDER) if name.endswith((".open", ".new"))]


def test_a_defect_amid_a_block_costs_nothing_but_what_is_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.tick()
    run.count("there", 3)
    an_event(run.recorder)
    done: list[int] = []

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        if name != "write" or done:
            return None
        done.append(at)
        return Moment.AMID, RuntimeError("a defect")

    disk.fault = fault
    for _ in range(12):
        run.tick()
    run.end()
    assert found(disk) == run.given
    assert missing(disk) == told(disk) == run.dropped > 0
    assert "the event log b failed" in caplog.messages
    assert disk.open_handles == 0
