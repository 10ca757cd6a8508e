"""A log's folder: its lock, its identity, and what is found in it at a start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors.eventlog import LogInUse, LogOptions, LogWriterStatistics
from onward.actors.eventlog.storage._files import DiskFiles
from onward.actors.eventlog.storage._folder import LogFolder
from onward.protocol.eventlog import (
    EventLogError,
    EventName,
    SegmentFooter,
    SegmentHeader,
    block,
    read_segment,
)
from tests.actors.eventlog.logs import (
    FOLDER,
    PER_SEGMENT,
    STARTED,
    Log,
    blocks_of,
    records_on,
    sealed_on,
)
from tests.support.log_disk import SimulatedDisk

OWN = SegmentHeader("b", b"i" * 16, 5, 1, STARTED, 0.01)
OPEN_5 = "00000005-0000000000000001.open"
LAST = "2147483647"


def open_segment(header: SegmentHeader, more: bytes = b"") -> bytes:
    return b"".join(
        [header.serialize(), *(each.framed for each in blocks_of(header.first_seq)), more]
    )


def started(disk: SimulatedDisk, identity: bytes = b"i") -> Log:
    log = Log(disk, identity=identity)
    log.open()
    return log


# --- what a run left open -----------------------------------------------------------------


def test_an_open_segment_is_sealed_and_says_what_of_its_run_is_not_there() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    disk.put(FOLDER / OPEN_5, open_segment(OWN, b"R\x40\0\0\0torn"))
    log = started(disk)
    assert (log.folder.epoch, log.count.recovered) == (6, 1)
    (segment,) = sealed_on(disk)
    assert segment.footer == SegmentFooter(4, 1, 2, PER_SEGMENT + 1, STARTED + 10_000_000)
    event = segment.events[-1]
    assert (event.name, event.reason) == (
        EventName.LOST,
        (
            "the run ended without closing; 9 bytes cut; counters of at most 10 seconds and "
            "records of at most 1 seconds are not there, nor what a failing disk did not take, "
            "nor what a power cut took"
        ),
    )


def test_a_segment_that_has_its_end_needs_only_its_name() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    footer = SegmentFooter(4, 1, 1, PER_SEGMENT, STARTED)
    disk.put(FOLDER / OPEN_5, open_segment(OWN, footer.serialize()))
    started(disk)
    assert sealed_on(disk)[0].footer == footer


def test_several_open_segments_of_several_epochs_are_all_sealed() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    disk.put(FOLDER / OPEN_5, open_segment(OWN))
    disk.put(FOLDER / OPEN_5.replace("5-", "3-"), open_segment(replace(OWN, epoch=3)))
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
        open_segment(OWN, block(b"X", b"whole, and of a type that is not known")),
    ],
)
def test_an_open_file_that_cannot_be_read_is_set_aside(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", b"i" * 16)
    disk.put(FOLDER / OPEN_5, data)
    log = started(disk)
    assert disk.contents(FOLDER)[f"{OPEN_5}.bad"] == data
    assert (log.count.bad, log.folder.epoch) == (1, 6)
    assert f"set aside as {OPEN_5}.bad" in caplog.text
    assert sealed_on(disk) == []


def test_an_open_segment_that_is_sealed_already_is_deleted() -> None:
    disk = SimulatedDisk()
    log = started(disk)
    log.segment()
    log.close()
    before = records_on(disk)
    disk.put(FOLDER / "00000001-0000000000000001.open", b"the rest of a recovery")
    assert started(disk).count.bad == 0
    assert records_on(disk) == before


def test_everything_else_in_the_folder_is_left_alone() -> None:
    disk = SimulatedDisk()
    names = ("notes.txt", "x.open", "x.seg", "x.bad", ".hidden")
    strays = dict.fromkeys((*names, "00000001-0000000000000001.seg.bad"), b"x")
    for name, data in strays.items():
        disk.put(FOLDER / name, data)
    log = started(disk)
    log.segment()
    log.close()
    contents = disk.contents(FOLDER)
    assert {name: contents[name] for name in strays} == strays
    assert log.folder.epoch == 2  # after the one that was set aside


# --- identity and epochs ------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "identity"), [(None, b"1"), (b"", b"2"), (b"x" * 17, b"2")])
def test_an_identity_is_made_once_and_again_if_it_is_damaged(
    damage: bytes | None, identity: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    started(disk, b"1").close()
    if damage is not None:
        disk.put(FOLDER / "log", damage)
    assert started(disk, b"2").folder.log_id == identity * 16
    assert disk.contents(FOLDER)["log"] == identity * 16
    assert ("the file log is damaged" in caplog.text) == (damage is not None)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("epoch", LAST.encode()),
        ("7fffffff-0000000000000001.seg", b""),
        ("7fffffff-0000000000000001.open", b""),
        ("7fffffff-0000000000000001.open.bad", b""),
    ],
)
def test_after_the_last_epoch_there_is_none(name: str, data: bytes) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / name, data)
    with pytest.raises(EventLogError, match=f"/logs/b has a file of epoch {LAST}, .* move it away"):
        started(disk)
    assert disk.open_handles == 0
    disk.unlink(FOLDER / name)
    assert started(disk).folder.epoch == 1


@pytest.mark.parametrize(
    ("text", "epoch"),
    [(b"2147483646", int(LAST)), (b"7 running", 8), (b"", 1), (b"x", 1), (b"-1", 1)],
)
def test_an_epoch_follows_the_one_in_the_file(
    text: bytes, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "epoch", text)
    log = started(disk)
    log.segment()
    assert sealed_on(disk)[0].header.epoch == epoch
    assert ("/logs/b: the file epoch is damaged, and made again" in caplog.text) == (epoch == 1)


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
    def opened() -> LogFolder:
        options = LogOptions(tmp_path / "logs", "b")
        folder = LogFolder(DiskFiles(), options, LogWriterStatistics())
        folder.open()
        return folder

    folder = opened()
    folder.settle()
    with pytest.raises(LogInUse):
        opened()
    (folder.path / OPEN_5).write_bytes(open_segment(replace(OWN, log=folder.log_id), b"torn"))
    (folder.path / "sub").mkdir()
    folder.close()
    folder.close()
    again = opened()
    again.settle()
    again.begin_epoch()
    again.close()
    assert (again.log_id, again.epoch) == (folder.log_id, 6)
    sealed = folder.path / "00000005-0000000000000001.seg"
    assert read_segment(sealed.read_bytes()).footer.last_seq == PER_SEGMENT + 1
    assert sorted(path.name for path in folder.path.iterdir()) == sorted(
        [sealed.name, ".lock", "epoch", "log", "sub"]
    )
