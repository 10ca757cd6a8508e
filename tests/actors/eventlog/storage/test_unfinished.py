"""A run that was killed is told of by the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onward.actors import Node
from onward.actors.eventlog import EventLog, LogOptions, LogWriter
from onward.protocol.eventlog import EventName, Segment, SegmentHeader, block, read_segment
from tests.actors.eventlog.logs import FOLDER, PER_SEGMENT, STARTED, blocks_of, options_of
from tests.support.log_disk import SimulatedDisk, disk_full

OWN = SegmentHeader("b", b"i" * 16, 5, 1, STARTED, 0.01)


def left_open(folder: Path, more: bytes) -> None:
    folder.mkdir()
    (folder / "log").write_bytes(OWN.log)
    data = b"".join([replace(OWN, broker=folder.name).serialize(), *blocks_of(1), more])
    (folder / "00000005-0000000000000001.open").write_bytes(data)


def segments(folder: Path) -> list[Segment]:
    return [read_segment(path.read_bytes()) for path in sorted(folder.glob("*.seg"))]


async def told(folder: Path) -> list[str]:
    async with Node("n") as node:
        await EventLog.attach(node, LogOptions(folder.parent, folder.name))
    last = segments(folder)[-1]
    assert last.header.epoch == 6
    return [event.reason for event in last.events if event.name is EventName.LOST]


async def test_the_next_run_says_what_of_a_killed_one_is_not_there(tmp_path: Path) -> None:
    left_open(tmp_path / "b", b"R\x40\0\0\0torn")
    assert await told(tmp_path / "b") == [
        (
            "the run before (epoch 5) ended without closing; 9 bytes cut; counters of at most "
            "10 seconds and records of at most 1 seconds are not there, "
            "nor what a disk that failed did not take before, "
            "nor what a power cut took of a segment"
        )
    ]
    assert segments(tmp_path / "b")[0].footer.last_seq == PER_SEGMENT


async def test_it_says_which_file_could_not_be_read(tmp_path: Path) -> None:
    left_open(tmp_path / "b", block(b"X", b"new"))
    name = "00000005-0000000000000001.open.bad"
    assert await told(tmp_path / "b") == [
        (
            "the run before (epoch 5) ended without closing; its last segment could not be read, "
            f"and is now {name}; counters of at most 10 seconds and records of at most 1 seconds "
            "are not there, nor what a disk that failed did not take before, "
            "nor what a power cut took of a segment"
        )
    ]
    assert (tmp_path / "b" / name).is_file()


async def test_after_a_run_that_ended_there_is_nothing_to_tell(tmp_path: Path) -> None:
    left_open(tmp_path / "b", b"")
    await told(tmp_path / "b")
    async with Node("n") as node:
        await EventLog.attach(node, LogOptions(tmp_path, "b"))
    assert not [e for e in segments(tmp_path / "b")[-1].events if e.name is EventName.LOST]


async def test_a_run_that_is_gone_before_it_writes_leaves_it_to_the_next_one_to_tell(
    tmp_path: Path,
) -> None:
    left_open(tmp_path / "b", b"")
    (tmp_path / "b" / "epoch").write_bytes(b"5 running")
    writer = LogWriter(LogOptions(tmp_path, "b"))
    assert writer.open() == 6
    assert (tmp_path / "b" / "00000005-0000000000000001.seg").is_file()
    writer.close(30.0)
    assert [text[:26] for text in await told(tmp_path / "b")] == ["the run before (epoch 5) e"]


def test_it_is_told_when_it_can_be_written() -> None:
    disk = SimulatedDisk()
    folder = Path("/logs/b")
    disk.put(folder / "log", OWN.log)
    disk.put(folder / "00000005-0000000000000001.open", OWN.serialize() + b"".join(blocks_of(1)))
    disk.fault = lambda at, name: disk_full() if name == "fsync" else None
    now = 0.0
    writer = LogWriter(options_of(), files=disk, clock=lambda: now)
    assert writer.open() == 6
    header = replace(OWN, epoch=6).serialize()
    writer.begin(header, 1)
    assert writer.flush(30.0)
    assert writer.unfinished() == []
    disk.fault = lambda at, name: None
    now += 10.0
    writer.begin(header, 1)
    assert writer.flush(30.0)
    assert [text[:26] for text in writer.unfinished()] == ["the run before (epoch 5) e"]
    assert writer.unfinished() == []
    writer.close(30.0)


def test_a_start_without_room_leaves_it_to_the_next_one_to_tell() -> None:
    disk = SimulatedDisk()
    disk.put(FOLDER / "log", OWN.log)
    disk.put(FOLDER / "00000005-0000000000000001.open", OWN.serialize() + b"".join(blocks_of(1)))
    disk.fault = lambda at, name: disk_full() if name in {"create", "write"} else None
    writer = LogWriter(options_of(), files=disk)
    assert writer.open() == 6
    writer.close(30.0)
    assert "00000005-0000000000000001.open" in disk.contents(FOLDER)
    disk.fault = lambda at, name: None
    again = LogWriter(options_of(), files=disk)
    assert again.open() == 6
    again.begin(replace(OWN, epoch=6).serialize(), 1)
    assert [text[:26] for text in again.unfinished()] == ["the run before (epoch 5) e"]
    again.close(30.0)
