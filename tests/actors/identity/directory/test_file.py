"""The file of a directory: what is in it, whatever happens to it or to the disk."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from onward.actors.identity import (
    SAVE_BATCH,
    SAVE_DELAY,
    SAVE_PAUSE,
    SAVE_RETRY,
    DirectoryFile,
    DirectoryFileFailed,
    DirectoryFileInUse,
    DirectorySaver,
    find_directory_row,
)
from onward.actors.identity.directory._file import _APPLICATION
from onward.protocol.identity import (
    TRUST_BANNED,
    AdvertEnvelope,
    AdvertSource,
    Directory,
    DirectoryLimits,
    DirectoryRow,
    LocalMetadata,
    NewerDirectory,
    NodeAdvert,
    RowJournal,
    SigningKey,
    Verifiers,
    derived_engine,
    sign_advert,
)
from tests.support.identities import key_of

NOW = 2_000_000_000_000
KEYS = [key_of(f"node {number}") for number in range(6)]
ADVERTS = [
    sign_advert(NodeAdvert(key.identity, (), bytes(32), 1, NOW - number), key)
    for number, key in enumerate(KEYS)
]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "node.directory"
    while Saved.opened:
        Saved.opened.pop().close()


class Saved:
    """A directory with its file, in a loop of which a test takes the timers."""

    opened: ClassVar[list[DirectoryFile]] = []

    def __init__(self, path: Path, limits: DirectoryLimits | None = None) -> None:
        self.file = DirectoryFile(path)
        self.opened.append(self.file)
        self.journal = RowJournal()
        self.directory = Directory(Verifiers(), limits, self.journal)
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.saver = DirectorySaver(self.directory, self.journal, self.file, self.after)
        self.pages = sum(1 for _ in self.saver.load())

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self.timers.append((seconds, action))

    def put(self, *adverts: AdvertEnvelope, source: AdvertSource = AdvertSource.NETWORK) -> None:
        for each in adverts:
            self.directory.put_advert(each, NOW, source)
        self.saver.wake()

    def say(self, key: SigningKey, trust: int) -> None:
        self.directory.set_trust(key.identity, trust)
        self.saver.wake()

    def turn(self) -> float:
        """Wait for the timer there is, and return its time."""
        ((seconds, action),) = self.timers
        self.timers.clear()
        action()
        return seconds

    def save_all(self) -> None:
        while self.saver.save():
            pass

    @property
    def rows(self) -> list[DirectoryRow]:
        return list(self.directory.snapshot())

    def fill_disk(self) -> None:
        """Let the disk have no place for a further page."""
        (pages,) = self.file._file.execute("PRAGMA page_count").fetchone()
        self.file._file.execute(f"PRAGMA max_page_count={pages}")

    def clear_disk(self) -> None:
        self.file._file.execute("PRAGMA max_page_count=1000000")


def other(path: Path, *statements: str) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    for each in statements:
        file.execute(each)
    file.close()
    path.chmod(0o600)


def test_a_directory_is_as_before_after_a_restart(path: Path) -> None:
    before = Saved(path)
    before.put(*ADVERTS[:2])
    before.put(*ADVERTS[2:4], source=AdvertSource.ANSWER)
    before.say(KEYS[4], TRUST_BANNED)
    before.directory.update(KEYS[0].identity, LocalMetadata(200, worker=b"printer"))
    before.directory.set_trust(derived_engine(KEYS[0].identity, b"x"), 1)
    before.save_all()
    rows = before.rows
    before.saver.close()
    after = Saved(path)
    assert after.rows == rows
    assert after.saver.restored == (6, 0, 0)
    assert list(after.directory.banned()) == [KEYS[4].identity]
    assert after.saver.unsaved == 0
    after.directory.forget(KEYS[4].identity)
    after.directory.forget(KEYS[5].identity)
    after.save_all()
    rows = after.rows
    after.saver.close()
    again = Saved(path)
    assert again.rows == rows
    assert list(again.directory.banned()) == []
    again.saver.close()


def test_changes_are_written_in_batches_a_second_after_the_first(path: Path) -> None:
    saved = Saved(path)
    saved.saver.wake()
    assert saved.timers == []
    keys = [key_of(f"many {number}") for number in range(SAVE_BATCH + 1)]
    for key in keys:
        saved.say(key, 1)
    assert saved.turn() == SAVE_DELAY
    assert saved.saver.unsaved == 1
    assert saved.turn() == SAVE_PAUSE
    assert saved.saver.unsaved == 0
    assert saved.timers == []
    assert not saved.saver.save()
    saved.say(keys[0], 2)
    assert saved.turn() == SAVE_DELAY
    saved.saver.close()
    assert Saved(path).pages == 1


def test_a_large_directory_is_read_in_pages(path: Path) -> None:
    saved = Saved(path)
    for number in range(1025):
        saved.directory.set_trust(key_of(f"many {number}").identity, 1)
    saved.save_all()
    saved.saver.close()
    assert Saved(path).pages == 3


def test_it_is_for_this_user_only(path: Path) -> None:
    saved = Saved(path)
    saved.say(KEYS[0], 1)
    saved.turn()
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys(
        [path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.lock"], 0o600
    )
    saved.saver.close()
    path.chmod(0o640)
    with pytest.raises(DirectoryFileFailed, match="others may read"):
        DirectoryFile(path)
    path.chmod(0o622)
    with pytest.raises(DirectoryFileFailed, match="others may write"):
        find_directory_row(path, KEYS[0].identity)
    path.chmod(0o600)
    assert find_directory_row(path, KEYS[0].identity)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Saved(path).saver.close()
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    os.chown(path, path.stat().st_uid or 4711, -1)
    with pytest.raises(DirectoryFileFailed, match="another user owns it"):
        DirectoryFile(path)


def test_one_node_at_a_time_has_it_and_others_read_it(path: Path) -> None:
    saved = Saved(path)
    saved.put(ADVERTS[0])
    saved.turn()
    told = r"node\.directory: a node or a command has it open: stop that, or name another file"
    with pytest.raises(DirectoryFileInUse, match=told):
        DirectoryFile(path)
    # That was no end of the locks of the first one.
    with pytest.raises(DirectoryFileInUse):
        DirectoryFile(path)
    assert find_directory_row(path, KEYS[0].identity) == saved.rows[0]
    assert find_directory_row(path, KEYS[1].identity) is None
    saved.put(ADVERTS[1])
    saved.turn()
    assert find_directory_row(path, KEYS[1].identity) == saved.rows[1]
    saved.saver.close()
    assert find_directory_row(path, KEYS[1].identity) == saved.rows[1]
    Saved(path).saver.close()


def test_what_is_not_there_is_not_made_by_a_reader(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_directory_row(path, KEYS[0].identity)
    assert not list(path.parent.iterdir())
    path.touch(0o600)
    assert find_directory_row(path, KEYS[0].identity) is None
    # An empty file is as none.
    Saved(path).saver.close()


def test_a_file_of_a_newer_version_is_not_changed(path: Path) -> None:
    saved = Saved(path)
    saved.put(ADVERTS[0])
    saved.turn()
    saved.saver.close()
    other(path, "PRAGMA journal_mode=DELETE", "PRAGMA user_version=2")
    content = path.read_bytes()
    with pytest.raises(NewerDirectory, match="has version 2, and this Onward reads up to 1"):
        DirectoryFile(path)
    with pytest.raises(NewerDirectory):
        find_directory_row(path, KEYS[0].identity)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("CREATE TABLE other (a)",), "a file of something else"),
        ((f"PRAGMA application_id={_APPLICATION}",), "of version 0, which there never was"),
    ],
)
def test_other_files_are_refused(statements: tuple[str, ...], reason: str, path: Path) -> None:
    other(path, *statements)
    content = path.read_bytes()
    with pytest.raises(DirectoryFileFailed, match=reason):
        DirectoryFile(path)
    assert path.read_bytes() == content


def test_what_is_no_file_of_sqlite_is_refused(path: Path) -> None:
    path.write_bytes(b"hello " * 1000)
    path.chmod(0o600)
    with pytest.raises(DirectoryFileFailed, match=r"node\.directory: file is not a database"):
        DirectoryFile(path)
    with pytest.raises(DirectoryFileFailed, match="Not a directory"):
        DirectoryFile(path / "deeper")
    with pytest.raises(DirectoryFileFailed, match="Not a directory"):
        find_directory_row(path / "deeper", KEYS[0].identity)
    with pytest.raises(DirectoryFileFailed, match="it is no file on a disk"):
        DirectoryFile(path.parent)


def test_a_file_whose_pages_are_damaged_is_refused_at_the_start(path: Path) -> None:
    saved = Saved(path)
    for number in range(500):
        saved.directory.set_trust(key_of(f"many {number}").identity, 1)
    saved.save_all()
    saved.saver.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 5] = b"?" * 8192
    path.write_bytes(content)
    with pytest.raises(DirectoryFileFailed, match=r"node\.directory: .*(damaged|malformed)"):
        DirectoryFile(path)
    assert path.read_bytes() == content


def test_rows_that_are_damaged_are_left_out(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = Saved(path)
    saved.put(*ADVERTS[:3])
    saved.turn()
    saved.saver.close()
    other(
        path,
        "UPDATE entry SET created = 'noon' WHERE number = 1",
        "UPDATE entry SET shelf = 7 WHERE number = 2",
    )
    after = Saved(path)
    assert after.saver.restored == (1, 2, 0)
    assert after.rows == saved.rows[2:]
    (told,) = caplog.messages
    assert "2 rows in it are damaged, and for 0 rows there is no place; they stay there" in told
    # They are replaced once there is another row of their identity.
    after.put(ADVERTS[0])
    after.turn()
    after.saver.close()
    assert Saved(path).saver.restored == (2, 1, 0)


def test_what_has_no_place_any_more_is_left_in_the_file(path: Path) -> None:
    saved = Saved(path)
    for key in KEYS[:3]:
        saved.say(key, 1)
    saved.turn()
    saved.saver.close()
    after = Saved(path, DirectoryLimits(max_identities=3, max_unknown=1))
    assert after.saver.restored == (2, 0, 1)
    after.saver.close()
    assert Saved(path).saver.restored == (3, 0, 0)


def test_a_full_disk_is_tried_again_and_the_directory_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = Saved(path)
    saved.put(ADVERTS[0])
    saved.turn()
    saved.fill_disk()
    keys = [key_of(f"many {number}") for number in range(SAVE_BATCH * 2)]
    for key in keys:
        saved.say(key, 1)
    assert saved.turn() == SAVE_DELAY
    assert saved.saver.trouble == "database or disk is full"
    assert saved.turn() == SAVE_RETRY
    assert saved.saver.failures == 2
    assert saved.saver.unsaved == len(keys)
    # What is there already is not harmed, and one line is logged.
    assert find_directory_row(path, KEYS[0].identity) == saved.rows[0]
    assert find_directory_row(path, keys[0].identity) is None
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    saved.clear_disk()
    assert saved.turn() == SAVE_RETRY
    assert saved.saver.trouble == ""
    assert saved.turn() == SAVE_PAUSE
    assert saved.saver.unsaved == 0
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    assert caplog.messages[-1].endswith("changes are written again")
    rows = saved.rows
    saved.saver.close()
    assert len(rows) == len(keys) + 1
    assert Saved(path).rows == rows


def test_a_full_disk_keeps_a_file_from_being_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def full(name: Path, flags: int, mode: int = 0o777) -> int:
        if name == path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(name, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(DirectoryFileFailed, match="No space left on device"):
            DirectoryFile(path)
    assert not path.exists()
    # Neither is one that was made, and could not be begun.
    with monkeypatch.context() as patch:
        patch.setattr("onward.actors.identity.directory._file._TABLE", "CREATE TABLE full")
        with pytest.raises(DirectoryFileFailed, match="incomplete input"):
            DirectoryFile(path)
    assert find_directory_row(path, KEYS[0].identity) is None
    Saved(path).saver.close()  # no lock is left behind


def test_a_lock_that_the_disk_does_not_have_is_a_failure(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", none)
        with pytest.raises(DirectoryFileFailed, match="No locks available"):
            DirectoryFile(path)
    Saved(path).saver.close()


def test_what_cannot_be_written_at_the_end_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = Saved(path)
    saved.fill_disk()
    for number in range(SAVE_BATCH):
        saved.say(key_of(f"many {number}"), 1)
    saved.save_all()
    saved.saver.close()
    saved.saver.close()
    assert caplog.messages[1:] == [
        f"{path}: the changes of 256 identities are lost: database or disk is full"
    ]
    # A timer that was set before does nothing any more.
    saved.turn()
    saved.saver.wake()
    assert saved.timers == []
    with pytest.raises(DirectoryFileFailed, match="closed"):
        saved.file.save([], [])


def test_a_file_that_ends_while_it_is_read_is_no_whole_one(path: Path) -> None:
    saved = Saved(path)
    saved.file._file.execute("DROP TABLE entry")
    with pytest.raises(DirectoryFileFailed, match="no such table"):
        list(saved.file.pages())


_KILLED = """
import sys, time
from pathlib import Path
from tests.actors.identity.directory.test_file import ADVERTS, Saved
saved = Saved(Path(sys.argv[1]))
saved.put(*ADVERTS[:2])
saved.turn()
saved.put(*ADVERTS[2:])
print("now", flush=True)
time.sleep(60)
"""


def test_a_process_that_is_killed_loses_what_it_has_not_written_yet(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    assert find_directory_row(path, KEYS[0].identity)
    saved = Saved(path)
    assert [row.identity for row in saved.rows] == [key.identity for key in KEYS[:2]]
    saved.saver.close()
