"""What a killed run lost is told, however many are killed before they can tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

import pytest

from onward.actors.eventlog import Fsync
from onward.actors.eventlog.storage._unclean_runs import MAX_UNFINISHED
from onward.protocol.eventlog import EventName
from tests.actors.eventlog.logs import FOLDER, Log, options_of
from tests.actors.eventlog.runs import OPTIONS, QUIET, Run, found, losses
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

CHANGES = frozenset(("make_folder", "create", "write", "fsync", "rename", "unlink", "fsync_folder"))
"""Operations after which a disk is another than before."""

EVERY = times(3, 1)

OPEN_FILE = "{:08x}-0000000000000001.open"


def live(disk: SimulatedDisk, fsync: Fsync = "seal") -> Run:
    """Run until all that is to be told is told; what is counted last is not written."""
    run = Run(disk, replace(OPTIONS, fsync=fsync))
    run.count("written", 3)
    run.tick()
    run.tick()
    run.count("lost", 1000)
    return run


def killed(disk: SimulatedDisk, survival: Survival, fsync: Fsync = "seal") -> SimulatedDisk:
    """The disk after a run that was killed at its end."""
    live(disk, fsync)
    disk.crash(survival)
    return disk


def killed_anywhere(
    before: SimulatedDisk, survival: Survival, fsync: Fsync = "seal"
) -> Iterator[SimulatedDisk]:
    """Disks after a run on this one that was killed amid and after each of `EVERY` operations."""
    whole = deepcopy(before)
    live(whole, fsync)
    changes = [each for each in enumerate(whole.operations) if each[1] in CHANGES]
    for number, name in changes[::EVERY]:
        for moment in (Moment.AMID, Moment.AFTER) if name == "write" else (Moment.AFTER,):
            disk = deepcopy(before)
            disk.fault = killed_at(number, moment)
            # An operation that refuses is not done, and so not followed by anything.
            with suppress(Crash):
                live(disk, fsync)
            disk.crash(survival)
            yield disk


def killed_at(number: int, moment: Moment) -> Fault:
    return lambda at, name: (moment, Crash()) if at == number else None


def epochs(disk: SimulatedDisk) -> set[int]:
    """The runs that there is a file of."""
    return {
        int(name[:8], 16)
        for name in disk.contents(FOLDER)
        if re.match("[0-9a-f]{8}-[0-9a-f]{16}", name)
    }


def told(disk: SimulatedDisk) -> list[int]:
    """The runs that the log says did not end."""
    found = [re.search(r"\(epoch (\d+)\)", reason) for reason in losses(disk)]
    return [int(each[1]) for each in found if each is not None]


def check(disk: SimulatedDisk) -> None:
    """Check that a run that ends tells of all that were killed."""
    begun = epochs(disk)
    run = live(disk)
    run.end()
    epoch = run.recorder.epoch
    assert epoch not in begun, "an epoch twice"
    assert epochs(disk) == set(range(1, epoch + 1)), "an epoch left out"
    assert begun <= set(told(disk)), "a run that was killed, and nobody tells"
    names = disk.contents(FOLDER)
    assert not [name for name in names if name.endswith((".open", ".new", "untold"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "survival",
    [Survival.EVERYTHING, Survival.NOTHING, *exhaustive(Survival.NAMES, Survival.HALF)],
)
@pytest.mark.parametrize("fsync", ["seal", *exhaustive("block")])
def test_two_that_are_killed_in_a_row_are_told(fsync: Fsync, survival: Survival) -> None:
    disks = 0
    for first in killed_anywhere(SimulatedDisk(), survival, fsync):
        for second in killed_anywhere(first, survival, fsync):
            check(second)
            disks += 1
    assert disks > times(50, 500)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("survival", [Survival.EVERYTHING, Survival.NOTHING])
def test_three_that_are_killed_in_a_row_are_told(survival: Survival) -> None:
    first = killed(SimulatedDisk(), survival)
    for second in killed_anywhere(first, survival):
        for third in killed_anywhere(second, survival):
            check(third)


@pytest.mark.slow
@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("fsync", ["seal", *exhaustive("block")])
def test_one_that_is_killed_between_two_segments_is_told(fsync: Fsync, survival: Survival) -> None:
    options = replace(OPTIONS, fsync=fsync, seal_seconds=5.0)

    def long(disk: SimulatedDisk) -> Run:
        run = Run(disk, options)
        for _ in range(12):
            run.count("written", 3)
            run.tick()
        return run

    whole = SimulatedDisk()
    long(whole)
    assert sum(name == "create" for name in whole.operations) > 4
    for number in range(len(whole.operations)):
        disk = SimulatedDisk()
        disk.fault = killed_at(number, Moment.AFTER)
        with suppress(Crash):
            long(disk)
        disk.crash(survival)
        check(disk)


@pytest.mark.parametrize("killed", [True, False])
def test_one_that_can_begin_no_further_segment_and_loses_all_is_told(killed: bool) -> None:
    disk = SimulatedDisk()
    run = Run(disk)
    run.tick()
    disk.fault = lambda at, name: disk_full(Moment.BEFORE) if name == "create" else None
    for _ in range(60):
        run.count("lost", 1000)
        run.recorder.event(EventName.UP, node="edge")
        run.tick()
    assert run.dropped
    if not killed:
        run.end()
    disk.crash(Survival.EVERYTHING)
    disk.fault = no_fault
    assert not [name for name in disk.contents(FOLDER) if name.endswith(".open")]
    check(disk)
    assert told(disk) == [1]
    assert "no file of it was left open" in losses(disk)[0]


@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("name", ["rename", "fsync_folder"])
def test_what_fails_as_the_last_segment_is_sealed_loses_nothing(
    name: str, survival: Survival
) -> None:
    disk = SimulatedDisk()
    run = live(disk)
    run.tick()
    disk.fault = lambda at, each: disk_full(Moment.BEFORE) if each == name else None
    run.end()
    assert run.dropped == 0
    disk.crash(survival)
    disk.fault = no_fault
    check(disk)
    # And as many of the run that tells.
    assert found(disk)["lost"] == 2000


def test_one_that_has_sealed_all_is_not_told() -> None:
    disk = SimulatedDisk()
    for epoch in (1, 2):
        run = live(disk)
        assert disk.contents(FOLDER)["epoch"] == b"%d running" % epoch
        run.end()
        assert disk.contents(FOLDER)["epoch"] == b"%d" % epoch
    assert told(disk) == []


@pytest.mark.parametrize("fsync", ["seal", "block", "never"])
def test_one_that_is_killed_after_it_has_told_is_told_alone(fsync: Fsync) -> None:
    disk = SimulatedDisk()
    for _ in range(3):
        killed(disk, Survival.EVERYTHING, fsync)
        assert "untold" not in disk.contents(FOLDER)
    check(disk)
    assert told(disk) == [1, 2, 3]


def test_one_that_is_killed_before_it_can_tell_leaves_it_to_the_next() -> None:
    disk = killed(SimulatedDisk(), Survival.EVERYTHING)
    Run(disk)
    disk.crash(Survival.EVERYTHING)
    assert disk.contents(FOLDER)["untold"].startswith(b"00000001-0000000000000001.open the run ")
    check(disk)
    assert told(disk) == [1]


def test_of_more_than_are_told_of_each_it_is_told_that_there_are() -> None:
    disk = SimulatedDisk()
    for _ in range(MAX_UNFINISHED + 3):
        run = Run(disk)
        run.writer.step()
        disk.crash(Survival.EVERYTHING)
    live(disk).end()
    assert told(disk) == list(range(1, MAX_UNFINISHED + 1))
    (more,) = [reason for reason in losses(disk) if reason.startswith("further runs")]
    assert more[:62] == "further runs before, up to epoch 67, ended without closing; of"
    assert "untold" not in disk.contents(FOLDER)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\n",
        b"x y\n",
        b"00000001-0000000000000001.open\n",
        b"00000001-0000000000000001.open the",
        b"00000001-0000000000000001.open " + b"x" * 1024 + b"\n",
        b"".join(b"%08x-0000000000000001.open the run\n" % epoch for epoch in range(66)),
    ],
)
def test_a_file_that_is_damaged_is_told(data: bytes) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "untold", data)
    # As long as nobody can write it, it stays so.
    Run(disk)
    disk.crash(Survival.EVERYTHING)
    live(disk).end()
    reasons = [reason for reason in losses(disk) if "damaged" in reason]
    assert [reason[:22] for reason in reasons] == ["a run before ended wit"]
    assert "untold" not in disk.contents(FOLDER)


def test_a_file_that_cannot_be_deleted_at_once_is_deleted_with_the_next_segment() -> None:
    disk = killed(SimulatedDisk(), Survival.EVERYTHING)
    run = Run(disk)
    run.writer.step()
    disk.fault = lambda at, name: disk_full(Moment.BEFORE) if name == "unlink" else None
    run.tick()
    assert run.writer.trouble() is None
    assert "untold" in disk.contents(FOLDER)
    disk.fault = no_fault
    for _ in range(QUIET):
        run.tick()
    assert "untold" not in disk.contents(FOLDER)
    run.end()
    assert told(disk) == [1]


@pytest.mark.parametrize("name", ["write", "fsync"])
@pytest.mark.parametrize("moment", Moment)
def test_what_the_disk_fails_with_stays_to_be_told_until_it_is(moment: Moment, name: str) -> None:
    disk = killed(SimulatedDisk(), Survival.EVERYTHING)
    run = Run(disk)
    run.writer.step()
    disk.fault = lambda at, operation: disk_full(moment) if operation == name else None
    run.tick()
    assert run.writer.trouble() is not None
    assert "untold" in disk.contents(FOLDER)
    disk.fault = no_fault
    for _ in range(QUIET):
        run.tick()
    assert "untold" not in disk.contents(FOLDER)
    run.end()
    assert told(disk) == [1]


def test_what_is_to_be_told_outlasts_a_folder_that_is_removed() -> None:
    disk = killed(SimulatedDisk(), Survival.EVERYTHING)
    run = Run(disk)
    disk.remove_folder(FOLDER)
    run.writer.step()
    assert "untold" in disk.contents(FOLDER)
    for _ in range(QUIET):
        run.tick()
    run.end()
    assert told(disk) == [1]
    assert "untold" not in disk.contents(FOLDER)


def test_it_is_noted_before_what_was_left_open_is_sealed() -> None:
    disk = killed(SimulatedDisk(), Survival.EVERYTHING)
    # There is room for all but the notice: it is the first file that a start writes.
    writes = iter(range(100))
    disk.fault = lambda at, name: disk_full() if name == "write" and next(writes) == 0 else None
    log = Log(disk, options_of())
    log.open()
    assert log.segments.trouble is not None
    assert OPEN_FILE.format(1) in disk.contents(FOLDER)
    log.close()
    check(disk)
