"""The file of a directory: an SQLite file with a row for each identity.

One node at a time writes it; meanwhile others read it. A batch of rows is in it whole or not at
all, and outlasts the process once `save` has returned. The write-ahead log is not forced to the
device for each batch: what was saved in the last moments before the machine loses its power may be
lost, and the file is as it was before them.

What another process wants of the node that has it open is in a table of its own, and is taken by
that node or by the next one. The version is that without this table: what reads only rows of
identities reads them as before, and what does not know of requests leaves them there.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ....protocol.identity import DIRECTORY_VERSION, DirectoryRow, Identity, NewerDirectory
from ...security._own_files import own_file_fault
from .._errors import DirectoryFileFailed, DirectoryFileInUse
from ._request_table import (
    REQUEST_TABLE,
    TrustAnswer,
    TrustRequest,
    add_request,
    has_requests,
    read_answer,
    read_requests,
    write_answers,
)

__all__ = [
    "DIRECTORY_FILE_MODE",
    "DirectoryFile",
    "failure_of",
    "find_directory_row",
    "find_trust_answer",
    "write_trust_request",
]

DIRECTORY_FILE_MODE: Final = 0o600
"""Mode of the files of directories: their owner may read and write them."""

_LOCK_WAIT: Final = 1.0
"""Time that a process waits while another one writes, in seconds. Then it has failed."""

_NO_REQUESTS: Final = """\
the node that has it open takes no requests, as it is of a former version or has only begun to \
start: try again, or stop it first"""

_APPLICATION: Final = 0x6F6E7769  # "onwi"
# The columns after the number are the fields of `DirectoryRow`, in their order.
_TABLE: Final = """\
CREATE TABLE entry (
  number INTEGER PRIMARY KEY,
  identity BLOB NOT NULL UNIQUE,
  shelf INTEGER NOT NULL,
  kind INTEGER,
  envelope BLOB NOT NULL,
  created INTEGER NOT NULL,
  local BLOB NOT NULL,
  equivocated INTEGER NOT NULL
)"""
_SELECT: Final = "SELECT identity, shelf, kind, envelope, created, local, equivocated FROM entry "
_ALL: Final = tuple(
    f"{_SELECT}WHERE {shelf} ORDER BY number"
    for shelf in ("shelf = 0", "shelf = 1", "shelf NOT IN (0, 1)")
)
_ONE: Final = f"{_SELECT}WHERE identity = ?"
_REPLACE: Final = """\
REPLACE INTO entry (identity, shelf, kind, envelope, created, local, equivocated)
VALUES (?, ?, ?, ?, ?, ?, ?)"""
_PAGE: Final = 512
"""Rows that are read at a time."""


class DirectoryFile:
    """The file of a directory, open to write. One thread at a time uses it.

    Args:
        path: The file; it is made if it is not there, with the mode `DIRECTORY_FILE_MODE`. Beside
            it there is another one, `PATH.lock`, which stays.

    Attributes:
        path: The file.

    Raises:
        DirectoryFileInUse: A node or a command has it open.
        DirectoryFileFailed: It cannot be opened, is damaged, is a file of something else, or other
            users may read or write it. It is as before.
        NewerDirectory: A newer version of Onward has written it. It is as before.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        with ExitStack() as to_close:
            to_close.callback(os.close, _locked(path))
            _make(path)
            self._file: Final = self._open()
            to_close.callback(self._file.close)
            self._to_close: Final = to_close.pop_all()

    def _open(self) -> sqlite3.Connection:
        with _reading(self.path) as found:
            is_new = _is_new(found, self.path)
            with _failures(self.path):
                fault = found.execute("PRAGMA quick_check(1)").fetchone()[0]
            if fault != "ok":
                raise DirectoryFileFailed(self.path, f"it is damaged: {_line(fault)}")
        with _failures(self.path):
            file = sqlite3.connect(
                self.path, timeout=_LOCK_WAIT, isolation_level=None, check_same_thread=False
            )
            try:
                file.execute("PRAGMA journal_mode=WAL")
                file.execute("PRAGMA synchronous=NORMAL")
                file.execute("BEGIN IMMEDIATE")
                if is_new:
                    file.execute(_TABLE)
                    file.execute(f"PRAGMA application_id={_APPLICATION}")
                    file.execute(f"PRAGMA user_version={DIRECTORY_VERSION}")
                file.execute(REQUEST_TABLE)
                file.execute("COMMIT")
            except sqlite3.Error:
                file.close()
                raise
        return file

    def pages(self) -> Iterator[list[DirectoryRow]]:
        """Yield all rows in pages, those that would be let go first before others.

        Raises:
            DirectoryFileFailed: It cannot be read.
        """
        with _failures(self.path):
            # The three scans take no memory, as sorting would.
            for query in _ALL:
                rows = self._file.execute(query)
                while page := rows.fetchmany(_PAGE):
                    yield [DirectoryRow._make(each) for each in page]

    def save(
        self,
        rows: Iterable[DirectoryRow],
        gone: Iterable[Identity],
        answers: Iterable[tuple[int, TrustAnswer]] = (),
    ) -> None:
        """Write rows in the place of those of their identities, and remove others, all or none.

        Args:
            rows: The rows.
            gone: The identities with a row to remove.
            answers: The numbers of requests, and their answers.

        Raises:
            DirectoryFileFailed: It cannot be written, as when the disk is full. It is as before.
        """
        file = self._file
        with _failures(self.path), _transaction(file):
            # A row that is replaced has the number after all others.
            file.executemany(_REPLACE, rows)
            file.executemany("DELETE FROM entry WHERE identity = ?", ((each,) for each in gone))
            write_answers(file, answers)

    def requests(self) -> list[TrustRequest]:
        """Return the requests that wait, in their order.

        Raises:
            DirectoryFileFailed: They cannot be read.
        """
        with _failures(self.path):
            return read_requests(self._file)

    def close(self) -> None:
        """Close the file: what is in it stays. Idempotent."""
        with suppress(sqlite3.Error):
            self._to_close.close()


def failure_of(error: BaseException, path: Path) -> DirectoryFileFailed:
    """Return the failure of a file, with the reason of an error that none expects too."""
    if isinstance(error, DirectoryFileFailed):
        return error
    return DirectoryFileFailed(path, _line(f"{type(error).__name__}: {error}"))


def find_directory_row(path: Path, identity: Identity) -> DirectoryRow | None:
    """Read the row of an identity in the file of a directory, which a node may have open.

    Returns:
        The row; `None` if there is none.

    Raises:
        FileNotFoundError: There is no such file.
        DirectoryFileFailed: It cannot be read, is damaged, is a file of something else, or other
            users may read or write it.
        NewerDirectory: A newer version of Onward has written it.
    """
    _check_own(path)
    with _reading(path) as file:
        if _is_new(file, path):
            return None
        with _failures(path):
            row = file.execute(_ONE, (identity,)).fetchone()
    return None if row is None else DirectoryRow._make(row)


def write_trust_request(path: Path, identity: Identity, trust: int) -> int:
    """Write a request for the node that has the file of a directory open: to set a trust.

    Returns:
        Its number, by which its answer is found.

    Raises:
        FileNotFoundError: There is no such file.
        LimitReached: `MAX_TRUST_REQUESTS` wait already.
        DirectoryFileFailed: It cannot be written, is a file of something else, other users may read
            or write it, or the node that has it open does not know of requests.
        NewerDirectory: A newer version of Onward has written it.
    """
    _check_own(path)
    with _reading(path, "rw") as file:
        _is_new(file, path)
        with _failures(path), _transaction(file):
            if not has_requests(file):
                raise DirectoryFileFailed(path, _NO_REQUESTS)
            return add_request(file, identity, trust)


def find_trust_answer(path: Path, number: int) -> TrustAnswer:
    """Read the answer to a request.

    Raises:
        DirectoryFileFailed: It cannot be read.
    """
    with _reading(path) as file, _failures(path):
        return read_answer(file, number)


def _locked(path: Path) -> int:
    """Keep other writers out; the handle is to be closed in the end.

    The lock is that of a file of its own: a handle of the SQLite file that is closed would end the
    locks of SQLite in this process.
    """
    import fcntl  # not available on Windows, where the rest can be imported

    lock = path.with_name(f"{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, DIRECTORY_FILE_MODE)
    except OSError as error:
        raise DirectoryFileFailed(path, error.strerror or str(error)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise DirectoryFileInUse(path) from None
        raise DirectoryFileFailed(path, error.strerror or str(error)) from error
    return handle


def _make(path: Path) -> None:
    """Make the file if it is not there: SQLite would with the permissions of the umask."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, DIRECTORY_FILE_MODE))
    except FileExistsError:
        _check_own(path)
    except OSError as error:
        raise DirectoryFileFailed(path, error.strerror or str(error)) from error


def _check_own(path: Path) -> None:
    try:
        state = path.stat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DirectoryFileFailed(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(state.st_mode):
        raise DirectoryFileFailed(path, "it is no file on a disk")
    if fault := own_file_fault(state, secret=True):
        raise DirectoryFileFailed(path, fault)


@contextmanager
def _reading(path: Path, mode: str = "ro") -> Generator[sqlite3.Connection]:
    """Open the file to read, or with the mode `rw` to write; it is not made."""
    with _failures(path):
        name = f"file:///{quote(str(path.absolute()).lstrip('/'))}?mode={mode}"
        file = sqlite3.connect(name, uri=True, timeout=_LOCK_WAIT, isolation_level=None)
    with closing(file):
        yield file


@contextmanager
def _transaction(file: sqlite3.Connection) -> Generator[None]:
    """Write what is written meanwhile, or nothing if anything fails."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            file.execute("ROLLBACK")
        raise


def _is_new(file: sqlite3.Connection, path: Path) -> bool:
    """Whether there is nothing in the file yet."""
    with _failures(path):
        (application,) = file.execute("PRAGMA application_id").fetchone()
        (version,) = file.execute("PRAGMA user_version").fetchone()
        (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return True
    if application != _APPLICATION:
        raise DirectoryFileFailed(path, "it is a file of something else")
    if version > DIRECTORY_VERSION:
        raise NewerDirectory(version, DIRECTORY_VERSION)
    if version != DIRECTORY_VERSION:
        raise DirectoryFileFailed(path, f"it is of version {version}, which there never was")
    return False


@contextmanager
def _failures(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DirectoryFileFailed(path, str(error)) from error


def _line(text: object) -> str:
    return " ".join(str(text).split())
