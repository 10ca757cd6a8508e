"""A power cut at each operation on the disk: what was sealed is there, and nothing twice."""

from __future__ import annotations

from contextlib import suppress

import pytest

from onward.actors.eventlog import Fsync
from onward.protocol.eventlog import OPEN
from tests.actors.eventlog.logs import FOLDER, Log, options_of, records_on
from tests.support.counts import exhaustive, times
from tests.support.log_disk import (
    Crash,
    Fault,
    Moment,
    SimulatedDisk,
    Survival,
    disk_full,
    no_fault,
)

SEGMENTS = 2


def crash_at(number: int, moment: Moment) -> Fault:
    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        return (moment, Crash()) if at == number else None

    return fault


def run(log: Log) -> None:
    log.open()
    for _ in range(SEGMENTS):
        log.segment()
    log.close()


def run_until(disk: SimulatedDisk, fsync: Fsync, fault: Fault) -> tuple[Log, bool]:
    """Run a log; say whether the power went."""
    log = Log(disk, options_of(fsync=fsync))
    disk.fault = fault
    try:
        run(log)
    except Crash:
        return log, True
    return log, False


def operations(disk: SimulatedDisk, fsync: Fsync) -> int:
    """How many operations a run takes."""
    run(Log(disk, options_of(fsync=fsync)))
    return len(disk.operations)


def check(disk: SimulatedDisk, promised: list[tuple[int, int]]) -> None:
    """Check that after another start what was promised is there, and all is in order."""
    log = Log(disk)
    log.open()
    found = records_on(disk)
    assert set(promised) <= set(found)
    assert not [name for name in disk.contents(FOLDER) if name.endswith((OPEN, ".new"))]
    assert all(epoch < log.folder.epoch for epoch, _ in found)
    assert epochs_on(disk) == set(range(1, log.folder.epoch)), "an epoch of which nothing is there"
    log.segment()
    log.close()
    assert records_on(disk) == sorted(found + log.sealed)
    assert disk.open_handles == 0


def epochs_on(disk: SimulatedDisk) -> set[int]:
    """The epochs that there is a file of."""
    names = [name.partition(".")[0] for name in disk.contents(FOLDER)]
    return {int(name[:8], 16) for name in names if len(name) == len("00000001-0000000000000001")}


@pytest.mark.slow
@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("fsync", ["seal", *exhaustive("block")])
def test_a_power_cut_anywhere_loses_nothing_that_was_to_last(
    fsync: Fsync, survival: Survival
) -> None:
    total = operations(SimulatedDisk(), fsync)
    crashes = 0
    numbers = range(0, total, times(3, 1))
    for number in numbers:
        for moment in Moment:
            disk = SimulatedDisk()
            log, crashed = run_until(disk, fsync, crash_at(number, moment))
            crashes += crashed
            disk.crash(survival)
            lasting = fsync == "block" or survival is Survival.EVERYTHING
            check(disk, log.written if lasting else log.sealed)
    assert crashes > 2 * len(numbers)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("survival", Survival)
def test_a_power_cut_during_recovery_loses_nothing_either(survival: Survival) -> None:
    first = operations(SimulatedDisk(), "seal")
    for number in range(first // 2, first, 9):
        again = SimulatedDisk()
        log, _ = run_until(again, "seal", crash_at(number, Moment.AMID))
        again.crash(Survival.EVERYTHING)
        for second in range(operations_of_start(number)):
            for moment in (Moment.AMID, Moment.AFTER):
                disk = SimulatedDisk()
                log, _ = run_until(disk, "seal", crash_at(number, Moment.AMID))
                disk.crash(Survival.EVERYTHING)
                disk.fault = crash_at(second, moment)
                with suppress(Crash):
                    Log(disk).open()
                # What was recovered and sealed lasts from then on, as what was sealed before.
                disk.crash(survival)
                check(disk, log.sealed)


def operations_of_start(number: int) -> int:
    disk = SimulatedDisk()
    run_until(disk, "seal", crash_at(number, Moment.AMID))
    disk.crash(Survival.EVERYTHING)
    Log(disk).open()
    return len(disk.operations)


def test_a_process_that_is_killed_loses_nothing_that_was_written() -> None:
    disk = SimulatedDisk()
    log = Log(disk, options_of(fsync="never"))
    log.open()
    log.segment()
    log.begin()
    log.write()
    disk.crash(Survival.EVERYTHING)
    check(disk, log.written)


def test_an_epoch_never_comes_twice_even_if_all_its_segments_are_gone() -> None:
    disk = SimulatedDisk()
    for epoch in range(1, 5):
        log = Log(disk)
        log.open()
        assert log.folder.epoch == epoch
        log.segment()
        log.close()
        for name in disk.contents(FOLDER):
            if name.endswith(".seg"):
                disk.unlink(FOLDER / name)


def test_an_epoch_is_told_by_its_segments_where_its_file_is_lost() -> None:
    disk = SimulatedDisk()
    for damage in (b"", b"x", b"9" * 40, b"-1", str(1 << 31).encode()):
        log = Log(disk)
        log.open()
        epoch = log.folder.epoch
        log.segment()
        log.close()
        disk.put(FOLDER / "epoch", damage)
        log = Log(disk)
        log.open()
        assert log.folder.epoch == epoch + 1
        log.close()


def test_a_run_that_writes_nothing_leaves_no_epoch_out() -> None:
    disk = SimulatedDisk()
    for epoch in (1, 2):
        for _ in range(2):
            log = Log(disk)
            log.open()
            assert log.folder.epoch == epoch
            log.close()
        log = Log(disk)
        log.open()
        log.segment()
        log.close()
    assert epochs_on(disk) == {1, 2}


def test_an_epoch_that_cannot_be_noted_is_not_written_in() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    disk.operations.clear()
    disk.fault = lambda at, name: disk_full() if name == "rename" else None
    log.segment()
    assert (log.sealed, log.segments.trouble is None) == ([], False)
    disk.fault = no_fault
    disk.now += 10.0
    log.segment()
    log.close()
    assert disk.contents(FOLDER)["epoch"] == b"1"
    assert records_on(disk) == log.sealed
