"""The thread that writes a log: it holds nobody up, and counts what it cannot take."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from onward.actors.eventlog import LogInUse, LogOptions, LogWriter
from onward.actors.eventlog.storage._files import Chunk, DiskFiles
from onward.protocol.eventlog import HOP, MAX_BLOCK, SEALED, Segment, SegmentFooter, read_segment
from tests.actors.eventlog.logs import (
    FOLDER,
    PER_SEGMENT,
    STARTED,
    blocks_of,
    options_of,
    sealed_on,
)
from tests.support.log_disk import Moment, SimulatedDisk, disk_full

PATIENCE = 30.0
"""Seconds until a test gives up on the thread."""


class Gate(SimulatedDisk):
    """A disk that answers a write only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = Event()
        self.writes = Event()

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        if any(bytes(chunk[:4]) == b"ONWL" for chunk in chunks):
            self.writes.set()
            assert self.may_write.wait(PATIENCE)
        super().write(handle, chunks)


class Loop:
    """What a recorder does with a writer."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.seq = 1
        self.epoch = writer.open()

    def begin(self) -> bool:
        return self.writer.begin(STARTED, self.seq - 1)

    def blocks(self) -> list[bool]:
        taken = [self.writer.append(*block.parts) for block in blocks_of(self.seq)]
        self.seq += PER_SEGMENT
        return taken

    def seal(self) -> None:
        self.writer.seal(self.seq - 1, STARTED + 5)

    def segment(self) -> list[bool]:
        self.begin()
        taken = self.blocks()
        self.seal()
        return taken


def sealed_in(folder: Path) -> list[Segment]:
    return [read_segment(path.read_bytes()) for path in sorted(folder.glob(f"*{SEALED}"))]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    made = LogWriter(LogOptions(tmp_path, "b"))
    yield made
    made.close(PATIENCE)


def test_what_is_appended_is_sealed_with_what_was_counted(
    writer: LogWriter, tmp_path: Path
) -> None:
    loop = Loop(writer)
    for _ in range(3):
        assert loop.segment() == [True] * 5
    writer.close(PATIENCE)
    found = sealed_in(tmp_path / "b")
    assert [segment.header.first_seq for segment in found] == [1, 7, 13]
    assert found[0].footer == SegmentFooter(4, 1, 1, 6, STARTED + 5)
    for segment in found:
        segment.check()
    statistics = writer.statistics()
    assert statistics.segments == 3
    assert statistics.pending == 0
    assert statistics.bytes == sum(path.stat().st_size for path in tmp_path.glob("b/*.seg"))
    assert writer.trouble() is None


def test_each_run_has_an_epoch_of_its_own_and_one_identity(tmp_path: Path) -> None:
    identities: set[bytes] = set()
    for epoch in (1, 2, 3):
        loop = Loop(LogWriter(LogOptions(tmp_path, "b")))
        loop.segment()
        assert loop.epoch == epoch
        identities.add(loop.writer.log_id)
        loop.writer.close(PATIENCE)
    assert len(identities) == 1
    assert [segment.header.epoch for segment in sealed_in(tmp_path / "b")] == [1, 2, 3]


def test_what_was_not_sealed_is_left_to_the_next_start(writer: LogWriter, tmp_path: Path) -> None:
    loop = Loop(writer)
    loop.begin()
    loop.blocks()
    writer.close(PATIENCE)
    writer.close(PATIENCE)
    assert sealed_in(tmp_path / "b") == []
    again = LogWriter(LogOptions(tmp_path, "b"))
    again.open()
    again.close(PATIENCE)
    (segment,) = sealed_in(tmp_path / "b")
    assert segment.footer.last_seq == PER_SEGMENT + 1


def test_one_that_was_never_opened_has_nothing_to_close(tmp_path: Path) -> None:
    writer = LogWriter(LogOptions(tmp_path, "b"))
    assert not writer.begin(STARTED, 0)
    assert not writer.append(b"R", b"x" * 64, 1)
    assert writer.flush(PATIENCE)
    writer.close(PATIENCE)
    assert list(tmp_path.iterdir()) == []


def test_one_is_opened_once(writer: LogWriter) -> None:
    writer.open()
    with pytest.raises(RuntimeError, match="opened before"):
        writer.open()


# --- bounds -------------------------------------------------------------------------------


def test_a_disk_that_does_not_keep_up_has_blocks_refused_and_nothing_waits() -> None:
    disk = Gate()
    writer = LogWriter(options_of(max_pending=2000), files=disk)
    loop = Loop(writer)
    loop.begin()
    assert disk.writes.wait(PATIENCE)
    taken = [writer.append(b"R", hop(seq), 1) for seq in range(1, 101)]
    assert taken[0]
    assert not taken[-1]
    assert writer.pending <= 2000
    loop.seq = 101
    loop.seal()
    begun = [loop.begin() for _ in range(10)]
    assert begun[-1] is False
    disk.may_write.set()
    writer.close(PATIENCE)
    assert writer.pending == 0
    segment = sealed_on(disk)[0]
    assert segment.footer.hops == sum(taken)
    assert segment.missing == 100 - sum(taken)
    assert writer.lost() == 0


def test_a_block_that_no_reader_would_take_is_refused(writer: LogWriter) -> None:
    loop = Loop(writer)
    loop.begin()
    assert not writer.append(b"R", bytes(MAX_BLOCK + 64), 1)
    assert writer.append(b"R", hop(1), 1)


def hop(seq: int) -> bytes:
    return HOP.pack(seq, STARTED, 7, 0, 2, 3, 0, 0, 0, 0, 0, 0, 5, 6, 100)


def test_a_disk_that_does_not_answer_is_left_behind_at_the_close() -> None:
    disk = Gate()
    writer = LogWriter(options_of(), files=disk)
    loop = Loop(writer)
    loop.begin()
    assert disk.writes.wait(PATIENCE)
    loop.blocks()
    assert not writer.flush(0.01)
    writer.close(0.01)
    assert writer.trouble() is not None
    assert "the disk does not answer" in str(writer.trouble())
    disk.may_write.set()
    writer.close(PATIENCE)


def test_a_disk_that_fails_is_told_and_the_next_segment_says_what_is_missing() -> None:
    disk = SimulatedDisk()
    writer = LogWriter(options_of(), files=disk, clock=lambda: disk.now)
    loop = Loop(writer)
    failed = Event()

    def full(at: int, operation: str) -> tuple[Moment, OSError] | None:
        if operation == "write":
            failed.set()
            return disk_full(code=errno.EIO)
        return None

    disk.fault = full
    loop.begin()
    assert failed.wait(PATIENCE)
    loop.blocks()
    loop.seal()
    assert writer.flush(PATIENCE)
    assert writer.trouble() == f"cannot write {FOLDER}: Input/output error"
    assert writer.statistics().errors == 1
    disk.fault = lambda at, operation: None
    disk.now += 10.0
    loop.segment()
    writer.close(PATIENCE)
    assert writer.trouble() is None
    assert [segment.missing for segment in sealed_on(disk)] == [PER_SEGMENT]


def test_a_defect_of_ours_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    writer = LogWriter(options_of(), files=disk)
    loop = Loop(writer)
    defect = Moment.BEFORE, RuntimeError("a defect")
    disk.fault = lambda at, operation: defect if operation == "create" else None
    loop.segment()
    assert writer.flush(PATIENCE)
    disk.fault = lambda at, operation: None
    assert loop.segment() == [True] * 5
    writer.close(PATIENCE)
    assert "the event log b failed" in caplog.text
    assert len(sealed_on(disk)) == 1


# --- other processes, and a disk that is one ----------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from onward.actors.eventlog import LogOptions, LogWriter
writer = LogWriter(LogOptions(Path(sys.argv[1]), "b"))
print(writer.open(), flush=True)
sys.stdin.read()
writer.close(30.0)
"""


@pytest.mark.slow
def test_two_processes_cannot_write_one_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        writer = LogWriter(LogOptions(tmp_path, "b"))
        with pytest.raises(LogInUse, match="another process writes the event log"):
            writer.open()
        # Another name is another log.
        beside = LogWriter(LogOptions(tmp_path, "c"))
        assert beside.open() == 1
        beside.close(PATIENCE)
        other.kill()
        other.wait()
    assert writer.open() == 1  # the one that was killed had written nothing
    writer.close(PATIENCE)


SMALL = """
import resource, signal, sys
from pathlib import Path
from onward.actors.eventlog import LogOptions, LogWriter
from tests.actors.eventlog.storage.test_writer import Loop
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
now = 0.0
writer = LogWriter(LogOptions(Path(sys.argv[1]), "b"), clock=lambda: now)
loop = Loop(writer)
loop.segment()
writer.flush(30.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
loop.segment()
writer.flush(30.0)
print(writer.trouble(), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
now = 60.0
loop.segment()
writer.close(30.0)
print(writer.trouble(), flush=True)
print(writer.statistics().lost)
"""


@pytest.mark.slow
def test_files_that_may_not_grow_any_more_are_cut_to_whole_blocks(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    run = subprocess.run(
        [sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    told = run.stdout.splitlines()
    assert told[0] == f"cannot write {tmp_path / 'b'}: File too large"
    assert told[1] == "None"
    found = sealed_in(tmp_path / "b")
    for segment in found:
        segment.check()
    assert [segment.header.first_seq for segment in found] == [1, 7, 13]
    assert found[1].missing > 0
    assert int(told[2]) == found[1].missing


def test_a_device_that_is_full_says_so() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    files = DiskFiles()
    handle = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left"):
        files.write(handle, [b"x"])
    files.close(handle)


def test_a_write_that_writes_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(handle: int, data: bytes) -> int:
        return 0

    monkeypatch.setattr(os, "write", nothing)
    with pytest.raises(OSError, match="Input/output error"):
        DiskFiles().write(1, [b"x"])


def test_a_file_that_cannot_be_locked_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").touch()
    closed: list[int] = []
    close = os.close

    def note(handle: int) -> None:
        closed.append(handle)
        close(handle)

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(os, "close", note)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="refused"):
        DiskFiles().lock(tmp_path / "x")
    assert len(closed) == 1


def test_a_file_that_goes_while_it_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        name = "x"

        def is_file(self, *, follow_symlinks: bool) -> bool:
            raise FileNotFoundError

    @contextmanager
    def scan(folder: Path) -> Generator[list[Gone]]:
        yield [Gone()]

    monkeypatch.setattr(os, "scandir", scan)
    assert DiskFiles().list(tmp_path) == []
