"""A disk that fails: what is lost is counted and told, and what is kept is whole."""

from __future__ import annotations

import errno
import os

import pytest

from onward.actors.eventlog import Fsync, LogWriter
from onward.protocol.eventlog import OPEN
from tests.actors.eventlog.logs import FOLDER, PER_SEGMENT, Log, options_of, records_on, sealed_on
from tests.support.counts import exhaustive, times
from tests.support.log_disk import Fault, Moment, SimulatedDisk, Survival, disk_full, no_fault

AFTERWARDS = 10.0
"""Seconds; more than `retry_seconds`."""


def full_from(number: int, count: int, moment: Moment, code: int = errno.ENOSPC) -> Fault:
    """So many operations fail from one on."""

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        # To look at a disk that is full, and to make room on it, works.
        if name in {"list", "read", "close", "lock", "unlink"}:
            return None
        return disk_full(moment, code) if number <= at < number + count else None

    return fault


def lost(log: Log) -> int:
    return log.count.lost_hops + log.count.lost_flows + log.count.lost_events


@pytest.mark.slow
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("count", [3, *exhaustive(1, 11)])
@pytest.mark.parametrize("fsync", ["seal", "block", "never"])
def test_wherever_it_fails_all_is_written_or_counted(
    fsync: Fsync, count: int, moment: Moment
) -> None:
    number, failures = 0, 0
    while True:
        disk = SimulatedDisk()
        log = Log(disk, options_of(fsync=fsync))
        log.open()
        disk.operations.clear()
        disk.fault = full_from(number, count, moment)
        for _ in range(3):
            log.segment()
            disk.now += AFTERWARDS
        reached = len(disk.operations) > number
        disk.fault = full_from(0, 0, moment)
        log.segment()
        assert log.segments.trouble is None
        log.close()
        found = records_on(disk)
        assert len(found) + lost(log) == log.given
        assert set(log.sealed) <= set(found)
        failures += log.count.errors
        missing = sum(segment.missing for segment in sealed_on(disk))
        assert missing == lost(log)
        assert sealed_on(disk)[-1].footer.last_seq == 4 * PER_SEGMENT
        assert disk.open_handles == 0
        if fsync != "never":
            disk.crash(Survival.NOTHING)
            assert records_on(disk) == found
        if not reached:
            break
        number += times(3, 1)
    assert failures > times(5, 10)


# --- an fsync that fails ------------------------------------------------------------------


def fsync_fails(times: int) -> Fault:
    """So many fail of those of files that are there, whatever else is done in between."""
    left = [times]

    def fault(at: int, name: str) -> tuple[Moment, BaseException] | None:
        if name != "fsync" or not left[0]:
            return None
        left[0] -= 1
        return disk_full(Moment.AMID, errno.EIO)

    return fault


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("fsync", ["seal", "block"])
def test_what_an_fsync_that_failed_gave_up_is_written_anew_before_it_is_sealed(
    fsync: Fsync, times: int
) -> None:
    # Linux takes for clean what it could not write: the file reads whole until the power is cut.
    disk = SimulatedDisk()
    log = Log(disk, options_of(fsync=fsync))
    log.open()
    log.folder.begin_epoch()
    disk.fault = fsync_fails(times)
    for _ in range(2 + times):
        log.segment()
        disk.now += AFTERWARDS
    log.close()
    found = records_on(disk)
    assert log.segments.trouble is None
    assert log.count.errors == times
    assert len(found) + lost(log) == log.given
    assert fsync == "block" or (1, 1) in found
    assert not [name for name in disk.contents(FOLDER) if name.endswith((".new", OPEN))]
    disk.crash(Survival.NOTHING)
    assert records_on(disk) == found


def test_a_start_takes_no_bytes_for_written_of_a_run_whose_fsync_failed() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.folder.begin_epoch()
    disk.fault = fsync_fails(1)
    log.segment()
    log.folder.close()  # it is killed before it can try again
    again = Log(disk)
    again.open()
    again.close()
    found = records_on(disk)
    assert len(found) == PER_SEGMENT
    disk.crash(Survival.NOTHING)
    assert records_on(disk) == found


def test_what_is_written_anew_and_fails_leaves_its_room_to_others() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.folder.begin_epoch()
    disk.fault = fsync_fails(1)
    log.segment()
    disk.now += AFTERWARDS
    disk.fault = lambda at, name: disk_full() if name == "write" else None
    for _ in range(3):
        log.segment()
        disk.now += AFTERWARDS
        names = set(disk.contents(FOLDER))
        assert names == {".lock", "log", "epoch", "00000001-0000000000000001.open"}
    disk.fault = no_fault
    log.segment()
    log.close()
    assert not [name for name in disk.contents(FOLDER) if name.endswith(".new")]
    assert records_on(disk)[0] == (1, 1)
    assert len(records_on(disk)) + lost(log) == log.given


# --- what is left alone, and what is taken up again ------------------------------------------


def test_a_failing_disk_is_left_alone_for_a_while() -> None:
    disk = SimulatedDisk()
    log = Log(disk, options_of(retry_seconds=5.0))
    log.open()
    log.segment()
    log.begin()
    disk.fault = full_from(0, 1 << 30, Moment.AMID)
    log.write()
    assert log.segments.trouble == f"cannot write {FOLDER}: No space left on device"
    log.seq += PER_SEGMENT
    before = len(disk.operations)
    for _ in range(3):
        disk.now += 1.0
        assert not log.begin()
    assert len(disk.operations) == before
    disk.now += 3.0
    assert not log.begin()
    assert len(disk.operations) > before
    disk.fault = full_from(0, 0, Moment.AMID)
    disk.now += 5.0
    log.segment()
    assert log.segments.trouble is None
    assert [segment.missing for segment in sealed_on(disk)] == [0, PER_SEGMENT, 0]


def test_a_disk_that_stays_full_to_the_end_leaves_what_a_start_recovers() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.begin()
    disk.operations.clear()
    disk.fault = full_from(3, 1 << 30, Moment.AMID)
    log.write()
    log.close()
    assert log.segments.trouble is not None
    disk.fault = full_from(0, 0, Moment.AMID)
    again = Log(disk)
    again.open()
    assert again.count.recovered == 1
    assert records_on(disk) == log.written
    assert len(log.written) == 3


@pytest.mark.parametrize("moment", Moment)
def test_a_start_that_fails_lets_the_folder_go_and_may_be_tried_again(moment: Moment) -> None:
    number = 0
    while True:
        disk = SimulatedDisk()
        log = Log(disk)
        log.open()
        log.begin()
        log.write()
        log.folder.close()
        disk.operations.clear()
        disk.fault = lambda at, name: (
            disk_full(moment) if at == number and name not in {"close", "lock"} else None  # noqa: B023
        )
        again = Log(disk)
        try:
            again.open()
        except OSError:
            pass
        else:
            again.folder.close()
            if len(disk.operations) <= number:
                break
        disk.fault = full_from(0, 0, moment)
        third = Log(disk)
        third.open()
        assert records_on(disk) == log.written
        third.folder.close()
        number += 1
    assert number > 10


# --- a start on a full disk ---------------------------------------------------------------


def left_open(disk: SimulatedDisk) -> Log:
    """A run that was killed: three segments that are sealed, and one that is not."""
    log = Log(disk)
    log.open()
    for _ in range(3):
        log.segment()
    log.begin()
    log.write()
    log.folder.close()
    disk.operations.clear()
    return log


@pytest.mark.parametrize("code", [errno.ENOSPC, *exhaustive(errno.EDQUOT, errno.EFBIG, errno.EIO)])
@pytest.mark.parametrize("number", range(1, 24))
def test_a_start_on_a_full_disk_begins_in_trouble_and_goes_on_when_there_is_room(
    number: int, code: int
) -> None:
    disk = SimulatedDisk()
    before = left_open(disk)
    disk.fault = full_from(number, 1 << 30, Moment.AMID, code)
    log = Log(disk)
    log.open()
    assert log.folder.epoch == 2
    if not log.folder.settled:
        assert log.segments.trouble is not None
    log.segment()
    assert lost(log) == PER_SEGMENT
    disk.now += AFTERWARDS
    log.segment()
    disk.fault = full_from(0, 0, Moment.AMID)
    disk.now += AFTERWARDS
    log.segment()
    assert log.segments.trouble is None
    assert records_on(disk) == sorted(before.written + log.sealed)
    assert len(log.sealed) == PER_SEGMENT
    assert lost(log) == 2 * PER_SEGMENT
    assert [text[:26] for text in log.folder.unfinished] == ["the run before (epoch 1) e"]
    log.close()


@pytest.mark.parametrize("name", ["make_folder", "lock", "create", "rename"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOTDIR])
def test_a_folder_that_cannot_be_written_at_all_is_an_error_at_the_start(
    name: str, code: int
) -> None:
    disk = SimulatedDisk()
    disk.fault = lambda at, done: disk_full(code=code) if done == name else None
    with pytest.raises(OSError, match=os.strerror(code)):
        Log(disk).open()
    assert disk.open_handles == 0


def test_what_is_too_old_is_deleted_before_anything_is_written() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    disk.fault = full_from(1, 1 << 30, Moment.AMID)
    writer = LogWriter(options_of(max_bytes=1), files=disk, wall_clock=lambda: disk.now)
    assert writer.open() == 2
    assert writer.trouble() is not None
    assert writer.statistics().deleted_by_bytes == 2
    disk.fault = full_from(0, 0, Moment.AMID)
    writer.close(30.0)


# --- the folder is removed ----------------------------------------------------------------


def test_a_folder_that_was_removed_is_trouble_and_left_to_the_log_that_made_it_again() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.segment()
    disk.remove_folder(FOLDER)
    other = Log(disk, identity=b"o")
    other.open()
    files = set(disk.contents(FOLDER))
    for _ in range(2):
        disk.now += AFTERWARDS
        log.segment()
        assert log.segments.trouble is not None
        assert log.segments.trouble == f"cannot write {FOLDER}: No such file or directory"
    other.folder.close()
    disk.now += AFTERWARDS
    log.segment()
    assert set(disk.contents(FOLDER)) == files
    assert disk.contents(FOLDER)["log"] == b"o" * 16
    assert lost(log) == 3 * PER_SEGMENT
    log.close()


def test_a_segment_that_is_deleted_while_it_is_written_is_counted_as_lost() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.begin()
    log.write()
    disk.unlink(FOLDER / "00000001-0000000000000001.open")
    log.seq += PER_SEGMENT
    assert not log.segments.seal(log.seq - 1, 0)
    disk.now += AFTERWARDS
    log.segment()
    assert lost(log) == PER_SEGMENT
    assert [segment.missing for segment in sealed_on(disk)] == [PER_SEGMENT, 0]


# --- what callers leave out ---------------------------------------------------------------


def test_a_segment_that_nobody_sealed_is_sealed_when_the_next_begins() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.begin()
    log.write()
    log.seq += PER_SEGMENT + 4
    log.segment()
    log.begin()
    log.write()
    log.close()
    first, second, third = sealed_on(disk)
    assert (first.missing, second.missing, third.missing) == (4, 0, 0)


def test_a_segment_without_a_record_is_deleted() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.begin()
    assert not log.segments.seal(0, 0)
    assert not log.segments.seal(0, 0)
    log.segment()
    log.begin()
    log.close()
    assert len(sealed_on(disk)) == 1
    assert log.count.segments == 1


def test_a_segment_all_of_whose_records_were_refused_tells_so() -> None:
    disk = SimulatedDisk()
    log = Log(disk)
    log.open()
    log.begin()
    assert log.segments.seal(5, 0)
    assert sealed_on(disk)[0].missing == 5
