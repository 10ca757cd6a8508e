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


def crash_at(number: int, moment: Moment) -> Fault:
    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        return (moment, Crash()) if at == number else None

    return fault


def run(log: Log) -> None:
    log.open()
    log.segment()
    log.segment()
    log.close()


def run_until(fsync: Fsync, fault: Fault) -> Log:
    """Run a log until the power goes."""
    disk = SimulatedDisk()
    log = Log(disk, options_of(fsync=fsync))
    disk.fault = fault
    with suppress(Crash):
        run(log)
    return log


def check(disk: SimulatedDisk, promised: list[tuple[int, int]]) -> None:
    """Check that after another start what was promised is there, and all is in order."""
    log = Log(disk)
    log.open()
    found = records_on(disk)
    assert set(promised) <= set(found)
    assert not [name for name in disk.contents(FOLDER) if name.endswith(OPEN)]
    assert all(epoch < log.folder.epoch for epoch, _ in found)
    assert epochs_on(disk) == set(range(1, log.folder.epoch)), "an epoch of which nothing is there"
    log.segment()
    log.close()
    assert records_on(disk) == sorted(found + log.sealed)
    assert not [name for name in disk.contents(FOLDER) if name.endswith(".new")]
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
    total = len(run_until(fsync, no_fault).disk.operations)
    for number in range(0, total, times(3, 1)):
        for moment in Moment:
            log = run_until(fsync, crash_at(number, moment))
            log.disk.crash(survival)
            lasting = fsync == "block" or survival is Survival.EVERYTHING
            check(log.disk, log.written if lasting else log.sealed)
    assert total > 30


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("survival", Survival)
def test_a_power_cut_during_recovery_loses_nothing_either(survival: Survival) -> None:
    first = len(run_until("seal", no_fault).disk.operations)
    for number in range(first // 2, first, 9):
        second, reached = 0, True
        while reached:
            for moment in (Moment.AMID, Moment.AFTER):
                log = run_until("seal", crash_at(number, Moment.AMID))
                log.disk.crash(Survival.EVERYTHING)
                log.disk.fault = crash_at(second, moment)
                with suppress(Crash):
                    Log(log.disk).open()
                reached = len(log.disk.operations) > second
                # What was recovered and sealed lasts from then on, as what was sealed before.
                log.disk.crash(survival)
                check(log.disk, log.sealed)
            second += 1


def test_a_process_that_is_killed_loses_nothing_that_was_written() -> None:
    disk = SimulatedDisk()
    log = Log(disk, options_of(fsync="never"))
    log.open()
    log.segment()
    log.begin()
    log.write()
    disk.crash(Survival.EVERYTHING)
    check(disk, log.written)


def one_run(disk: SimulatedDisk, *, writes: bool = True) -> int:
    """Run a log, and return its epoch."""
    log = Log(disk)
    log.open()
    if writes:
        log.segment()
    log.close()
    return log.folder.epoch


def test_an_epoch_never_comes_twice_even_if_all_its_segments_are_gone() -> None:
    disk = SimulatedDisk()
    for epoch in range(1, 5):
        assert one_run(disk) == epoch
        for name in disk.contents(FOLDER):
            if name.endswith(".seg"):
                disk.unlink(FOLDER / name)


def test_an_epoch_is_told_by_its_segments_where_its_file_is_lost() -> None:
    disk = SimulatedDisk()
    for epoch, damage in enumerate((b"", b"x", b"-1"), 1):
        assert one_run(disk) == epoch
        disk.put(FOLDER / "epoch", damage)


def test_a_run_that_writes_nothing_leaves_no_epoch_out() -> None:
    disk = SimulatedDisk()
    runs = [one_run(disk, writes=writes) for writes in (False, False, True, False, True)]
    assert runs == [1, 1, 1, 2, 2]
    assert epochs_on(disk) == {1, 2}


def test_an_epoch_that_cannot_be_noted_is_not_written_in() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    disk.fault = lambda at, name: disk_full() if name == "rename" else None
    log.segment()
    assert (log.sealed, log.segments.trouble is None) == ([], False)
    disk.fault = no_fault
    disk.now += 10.0
    log.segment()
    log.close()
    assert disk.contents(FOLDER)["epoch"] == b"1"
    assert records_on(disk) == log.sealed
