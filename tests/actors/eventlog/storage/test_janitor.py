"""Segments that are too old or too many are deleted, the oldest first."""

from __future__ import annotations

import errno
import json

import pytest

from tests.actors.eventlog.logs import FOLDER, Log, options_of
from tests.support.log_disk import SimulatedDisk, disk_full

ACKS = FOLDER / ".acks"


def names(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.contents(FOLDER) if name.endswith(".seg"))


def log_of(disk: SimulatedDisk, **options: object) -> Log:
    log = Log(disk, options_of(**options))
    log.open()
    return log


def ack(disk: SimulatedDisk, reader: str, said: object) -> None:
    disk.put(
        ACKS / f"{reader}.json", said if isinstance(said, bytes) else json.dumps(said).encode()
    )


def size_of_one() -> int:
    disk = SimulatedDisk()
    log = log_of(disk)
    log.segment()
    return len(disk.contents(FOLDER)[names(disk)[0]])


def test_segments_over_the_limit_of_bytes_are_deleted_the_oldest_first() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_bytes=3 * size_of_one() + 10)
    for _ in range(5):
        log.segment()
    assert len(names(disk)) == 3
    assert names(disk)[-1] == "00000001-0000000000000019.seg"
    assert (log.count.deleted, log.count.deleted_unread) == (2, 0)


def test_segments_that_are_too_old_are_deleted_but_for_the_newest() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_age_seconds=100.0)
    for _ in range(3):
        log.segment()
        disk.now += 60.0
    assert len(names(disk)) == 2
    log.close()
    disk.now += 1e6
    again = log_of(disk, max_age_seconds=100.0)
    again.janitor.clean()
    # Time in which nobody wrote does not count: it is known by the wall clock alone.
    assert len(names(disk)) == 2
    disk.now += 41.0
    again.janitor.clean()
    assert names(disk) == ["00000001-000000000000000d.seg"]
    assert again.count.deleted == 1


WEEK = 7 * 24 * 3600.0


class Clocks:
    """A log with a clock that nobody sets, and one that somebody does."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.wall = 0.0
        self.log = Log(disk, options_of(max_age_seconds=WEEK))
        self.log.janitor._wall_clock = lambda: disk.now + self.wall
        self.log.open()


def test_a_clock_that_is_ahead_for_a_while_deletes_nothing() -> None:
    disk = SimulatedDisk()
    clocks = Clocks(disk)
    for _ in range(3):
        clocks.log.segment()
        disk.now += 60.0
    clocks.wall = 8 * 24 * 3600.0
    clocks.log.segment()
    clocks.wall = 0.0
    clocks.log.segment()
    clocks.log.janitor.look()
    clocks.log.janitor.clean()
    assert len(names(disk)) == 5
    assert clocks.log.count.deleted == 0


@pytest.mark.parametrize("ahead", [8 * 24 * 3600.0, -8 * 24 * 3600.0])
def test_a_start_with_a_clock_that_is_wrong_deletes_nothing(ahead: float) -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_age_seconds=WEEK)
    for _ in range(3):
        log.segment()
        disk.now += 60.0
    log.close()
    again = Clocks(disk)
    again.wall = ahead
    again.log.janitor.look()
    again.log.janitor.clean()
    assert len(names(disk)) == 3
    disk.now += WEEK + 1.0
    again.log.janitor.clean()
    assert len(names(disk)) == 1


def test_a_file_whose_time_is_wrong_is_no_younger_than_those_behind_it() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_age_seconds=100.0)
    for number in range(4):
        log.segment()
        disk._names[FOLDER / names(disk)[-1]].changed += 1e6 if number == 1 else 0.0
        disk.now += 10.0
    log.close()
    again = log_of(disk, max_age_seconds=100.0)
    again.segment()
    disk.now += 75.0
    again.janitor.clean()
    assert len(names(disk)) == 4
    disk.now += 16.0
    again.janitor.clean()
    assert len(names(disk)) == 2


def test_the_newest_segment_stays_however_large_it_is() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_bytes=1)
    for _ in range(3):
        log.segment()
        assert len(names(disk)) == 1


@pytest.mark.parametrize(
    ("acks", "unread"),
    [
        ({}, 0),
        ({"a": {"segment": "00000001-0000000000000007.seg"}}, 1),
        ({"a": {"segment": "00000009-0000000000000001.seg"}}, 0),
        ({"a": {"segment": "00000009-0000000000000001.seg"}, "b": {"segment": "none"}}, 3),
        ({"a": b"{"}, 3),
        ({"a": [1]}, 3),
        ({"a": {}}, 3),
        ({"a": {"segment": 5}}, 3),
        ({"a": b"[" * 100_000}, 3),
    ],
)
def test_what_somebody_had_not_read_is_counted(
    acks: dict[str, object], unread: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    for reader, said in acks.items():
        ack(disk, reader, said)
    log = log_of(disk, max_bytes=1)
    for _ in range(4):
        log.segment()
    assert log.count.deleted == 3
    assert log.count.deleted_unread == unread
    assert caplog.text.count("before all readers of the log") == min(unread, 1)


def test_what_cannot_be_deleted_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_bytes=1)
    log.segment()
    disk.fault = lambda at, name: disk_full(code=errno.EACCES) if name == "unlink" else None
    log.segment()
    assert len(names(disk)) == 2
    assert log.count.errors == 1
    assert "cannot be deleted: Permission denied" in caplog.text
    disk.fault = lambda at, name: None
    log.segment()
    assert len(names(disk)) == 1


def test_what_somebody_else_deleted_is_gone() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, max_bytes=1)
    log.segment()
    disk.unlink(FOLDER / names(disk)[0])
    log.segment()
    log.segment()
    assert len(names(disk)) == 1
    assert log.count.errors == 0


# --- what was set aside -------------------------------------------------------------------


def with_bad(disk: SimulatedDisk, *epochs: int, size: int = 100) -> list[str]:
    """Put files there that cannot be read, and return what they are called once set aside."""
    disk.put(FOLDER / "log", b"i" * 16)
    for epoch in epochs:
        disk.put(FOLDER / f"{epoch:08x}-0000000000000001.open", b"x" * size)
    return [f"{epoch:08x}-0000000000000001.open.bad" for epoch in epochs]


def aside(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.contents(FOLDER) if name.endswith(".bad"))


def test_what_was_set_aside_counts_towards_the_limit_and_goes_first_if_it_is_older() -> None:
    disk = SimulatedDisk()
    first, second = with_bad(disk, 1, 2)
    log = log_of(disk, max_bytes=2 * size_of_one() + 100)
    log.segment()
    assert aside(disk) == [first, second]
    log.segment()
    assert aside(disk) == [second]
    assert len(names(disk)) == 2
    assert (log.count.deleted, log.count.deleted_unread) == (1, 0)


def test_what_was_set_aside_after_a_segment_goes_after_it() -> None:
    disk = SimulatedDisk()
    log = log_of(disk)
    log.segment()
    log.segment()
    log.close()
    with_bad(disk, 7)
    again = log_of(disk, max_bytes=size_of_one() + 150)
    again.janitor.clean()
    assert (len(names(disk)), len(aside(disk))) == (1, 1)
    assert again.count.deleted == 1


def test_what_was_set_aside_is_deleted_when_it_is_too_old() -> None:
    disk = SimulatedDisk()
    with_bad(disk, 1, 2)
    log = log_of(disk, max_age_seconds=100.0)
    disk.now += 99.0
    log.segment()
    assert len(aside(disk)) == 2
    disk.now += 2.0
    log.segment()
    assert aside(disk) == []
    assert log.count.deleted == 2


def test_files_that_are_only_called_alike_are_left_alone() -> None:
    disk = SimulatedDisk()
    strays = ["x.bad", "notes.open.bad", "00000001-0000000000000001.seg.bad", "1.2.bad"]
    for name in strays:
        disk.put(FOLDER / name, b"x" * 1000)
    log = log_of(disk, max_bytes=1)
    log.segment()
    log.segment()
    assert aside(disk) == sorted(strays)
