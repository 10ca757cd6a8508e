"""A log's folder: its lock, its identity, and what is found in it at a start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors.eventlog import LogInUse, LogOptions
from onward.actors.eventlog.storage._counts import Counts
from onward.actors.eventlog.storage._folder import LogFolder
from onward.protocol.eventlog import EventLogError, SegmentHeader, block, read_segment
from tests.actors.eventlog.logs import (
    FOLDER,
    PER_SEGMENT,
    STARTED,
    Log,
    blocks_of,
    options_of,
    records_on,
    sealed_on,
)
from tests.support.log_disk import SimulatedDisk

OWN = SegmentHeader("b", b"i" * 16, 5, 1, STARTED, 0.01)


def open_segment(header: SegmentHeader, more: bytes = b"") -> bytes:
    return b"".join([header.serialize(), *blocks_of(header.first_seq), more])


def started(disk: SimulatedDisk) -> Log:
    log = Log(disk)
    log.open()
    return log


def test_an_open_segment_is_sealed_before_a_new_epoch_begins() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    disk.put(FOLDER / "00000005-0000000000000001.open", open_segment(OWN, b"R\x40\0\0\0torn"))
    log = started(disk)
    assert log.folder.epoch == 6
    assert log.count.recovered == 1
    assert log.count.recovered_lost_bytes == 9
    segment = sealed_on(disk)[0]
    assert segment.footer.last_seq == PER_SEGMENT
    assert segment.footer.ended_us == STARTED + 10_000_000


def test_several_open_segments_of_several_epochs_are_all_sealed() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    disk.put(FOLDER / "00000005-0000000000000001.open", open_segment(OWN))
    disk.put(FOLDER / "00000003-0000000000000001.open", open_segment(replace(OWN, epoch=3)))
    assert started(disk).count.recovered == 2
    assert len(records_on(disk)) == 2 * PER_SEGMENT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ONWL",
        b"nothing of ours",
        open_segment(OWN)[:40],
        open_segment(replace(OWN, epoch=6)),
        open_segment(replace(OWN, first_seq=2)),
        open_segment(replace(OWN, log=b"o" * 16)),
        open_segment(OWN, block(b"X", b"whole, and of a type that nobody knows")),
    ],
)
def test_an_open_file_that_cannot_be_read_is_set_aside_and_never_deleted(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    name = "00000005-0000000000000001.open"
    for kept in (f"{name}.bad", f"{name}.2.bad", f"{name}.3.bad"):
        disk.put(FOLDER / name, data)
        log = started(disk)
        assert disk.contents(FOLDER)[kept] == data
        assert log.count.bad == 1
        assert log.folder.epoch == 6
        assert f"set aside as {kept}" in caplog.text
        log.close()
    assert sealed_on(disk) == []


def test_an_open_segment_that_is_sealed_already_is_set_aside() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.segment()
    log.close()
    before = records_on(disk)
    again = replace(OWN, epoch=1)
    disk.put(FOLDER / "00000001-0000000000000001.open", open_segment(again))
    assert started(disk).count.bad == 1
    assert records_on(disk) == before


def test_everything_else_in_the_folder_is_left_alone() -> None:
    disk = SimulatedDisk()
    strays = {
        "notes.txt": b"x",
        "x.open": b"x",
        "x.seg": b"x",
        "00000001-0000000000000001.seg.bad": b"x",
        ".hidden": b"x",
    }
    for name, data in strays.items():
        disk.put(FOLDER / name, data)
    log = started(disk)
    log.segment()
    log.close()
    contents = disk.contents(FOLDER)
    assert {name: contents[name] for name in strays} == strays
    assert log.folder.epoch == 2  # after the one that was set aside
    assert [info.name for info in log.folder.sealed()] == ["00000002-0000000000000001.seg"]


# --- identity -----------------------------------------------------------------------------


def test_an_identity_is_made_once() -> None:
    disk = SimulatedDisk()
    made = iter((b"1" * 16, b"2" * 16))
    for _ in range(3):
        folder = LogFolder(disk, options_of(), Counts(), lambda size: next(made))
        folder.open()
        folder.settle()
        assert folder.log_id == b"1" * 16
        folder.close()


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 17, None])
def test_an_identity_that_is_damaged_is_that_of_the_segments(damage: bytes | None) -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.segment()
    log.close()
    if damage is None:
        disk.unlink(FOLDER / "log")
    else:
        disk.put(FOLDER / "log", damage)
    disk.put(FOLDER / "00000009-0000000000000001.seg", b"nothing of ours")
    folder = LogFolder(disk, options_of(), Counts(), lambda size: b"n" * size)
    folder.open()
    folder.settle()
    assert folder.log_id == b"i" * 16
    assert disk.contents(FOLDER)["log"] == b"i" * 16


# --- epochs -------------------------------------------------------------------------------


LAST = "2147483647"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("epoch", LAST.encode()),
        ("7fffffff-0000000000000001.seg", b""),
        ("7fffffff-0000000000000001.open", b""),
        ("7fffffff-0000000000000001.open.bad", b""),
    ],
)
def test_after_the_last_epoch_there_is_none_and_who_starts_is_told_what_to_do(
    name: str, data: bytes
) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / name, data)
    with pytest.raises(EventLogError) as caught:
        started(disk)
    assert str(caught.value) == (
        f"/logs/b/{name} is of epoch {LAST}, the last there can be: if it is a stray file, move "
        "it away; else give this log another name"
    )
    assert disk.open_handles == 0
    disk.unlink(FOLDER / name)
    assert started(disk).folder.epoch == 1


def test_the_last_epoch_but_one_is_followed_by_the_last() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "epoch", b"2147483646")
    log = started(disk)
    log.segment()
    assert sealed_on(disk)[0].header.epoch == int(LAST)


@pytest.mark.parametrize("damage", [b"", b"x", b"-1", b"2147483648", b"9" * 5000])
def test_an_epoch_that_is_damaged_is_told(damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "epoch", damage)
    assert started(disk).folder.epoch == 1
    assert "/logs/b: the file epoch is damaged, and made again" in caplog.text


# --- the lock, and a disk that is one -----------------------------------------------------


def test_a_folder_has_one_writer_and_no_two() -> None:
    disk = SimulatedDisk()
    one, two = Log(disk), Log(disk)
    one.open()
    with pytest.raises(LogInUse, match="give this one another name") as caught:
        two.open()
    assert caught.value.path == str(FOLDER)
    one.close()
    two.open()


def test_a_folder_on_this_machine(tmp_path: Path) -> None:
    from onward.actors.eventlog.storage._files import DiskFiles

    path = tmp_path / "logs" / "b"
    folder = LogFolder(DiskFiles(), LogOptions(path.parent, path.name), Counts())
    folder.open()
    folder.settle()
    with pytest.raises(LogInUse):
        LogFolder(DiskFiles(), LogOptions(path.parent, path.name), Counts()).open()
    assert len(folder.log_id) == 16
    folder.check()
    header = replace(OWN, log=folder.log_id)
    name = "00000005-0000000000000001.open"
    (path / name).write_bytes(open_segment(header, b"torn"))
    (path / "sub").mkdir()
    folder.close()
    folder.close()
    again = LogFolder(DiskFiles(), LogOptions(path.parent, path.name), Counts())
    again.open()
    again.settle()
    assert (again.log_id, again.epoch) == (folder.log_id, 6)
    sealed = path / "00000005-0000000000000001.seg"
    assert read_segment(sealed.read_bytes()).footer.last_seq == PER_SEGMENT
    assert [info.name for info in again.sealed()] == [sealed.name]
    (path / ".lock").unlink()
    with pytest.raises(FileNotFoundError):
        again.check()
    again.close()
