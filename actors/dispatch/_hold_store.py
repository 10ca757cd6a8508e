"""Messages on disk: the file of the messages of names that hold on disk.

It is an SQLite file, which one process at a time has open. A message is in it once `put` has
returned, whatever happens to the process. The write-ahead log is not forced to the device for each
message: what was put in the last moments before the machine loses its power may be lost.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ._errors import HoldStoreFailed, HoldStoreInUse

__all__ = ["HoldStore", "StoredMessage"]

_VERSION: Final = 1
_APPLICATION: Final = 0x6F6E7764  # "onwd"
_FILE_MODE: Final = 0o600  # payloads are for this user only
_PAGE: Final = 500
"""Messages that are read at a time."""

_TABLE: Final = """\
CREATE TABLE message (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  onward TEXT NOT NULL,
  payload BLOB NOT NULL,
  entered REAL NOT NULL,
  expires REAL NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in the file.

    Attributes:
        number: Its number, from 1; no other message of the file ever has it.
        name: The text of its name.
        onward: What follows the name in its route, as text.
        payload: Its payload.
        entered: When it entered, in seconds since 1970.
        expires: When it is not worth handling any more, in seconds since 1970.
    """

    number: int
    name: str
    onward: str
    payload: bytes
    entered: float
    expires: float


class HoldStore:
    """The file of messages on hold.

    Args:
        path: The file; it is made if it is not there, for this user only.
        max_messages: Most messages in it.
        max_bytes: Most bytes of their payloads.

    Raises:
        HoldStoreInUse: Another process has it open.
        HoldStoreFailed: It cannot be opened, or is another file.

    Attributes:
        refused: Number of messages that were not put, by the reason.
    """

    def __init__(self, path: str | Path, max_messages: int, max_bytes: int) -> None:
        self.path: Final = Path(path)
        self.refused: Final[dict[str, int]] = {}
        self._max_messages: Final = max_messages
        self._max_bytes: Final = max_bytes
        self._sizes: Final[dict[str, tuple[int, int]]] = {}
        self._messages = 0
        self._bytes = 0
        self._known: Final[dict[int, tuple[str, int]]] = {}
        self._file: sqlite3.Connection | None = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            # Made here, as SQLite would make it with the permissions of the umask.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
        except OSError as error:
            raise HoldStoreFailed(str(self.path), error.strerror or str(error)) from error
        file = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            self._prepare(file)
        except sqlite3.Error as error:
            file.close()
            if getattr(error, "sqlite_errorcode", 0) in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
            ):
                raise HoldStoreInUse(str(self.path)) from error
            raise HoldStoreFailed(str(self.path), str(error)) from error
        except HoldStoreFailed:
            file.close()
            raise
        return file

    def _prepare(self, file: sqlite3.Connection) -> None:
        file.execute("PRAGMA locking_mode=EXCLUSIVE")
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=NORMAL")
        # The first write takes the lock, which is kept until the file is closed.
        file.execute("BEGIN IMMEDIATE")
        (application,) = file.execute("PRAGMA application_id").fetchone()
        (version,) = file.execute("PRAGMA user_version").fetchone()
        (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            file.execute(_TABLE)
            file.execute(f"PRAGMA application_id={_APPLICATION}")
            file.execute(f"PRAGMA user_version={_VERSION}")
        elif application != _APPLICATION:
            raise HoldStoreFailed(str(self.path), "it is a file of something else")
        elif version != _VERSION:
            raise HoldStoreFailed(str(self.path), f"it is of version {version}, not {_VERSION}")
        file.execute("COMMIT")
        for number, name, size in file.execute(
            "SELECT number, name, length(payload) FROM message ORDER BY number"
        ):
            self._count(number, name, size)

    # --- messages ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._messages

    @property
    def size(self) -> int:
        """The bytes of the payloads in the file."""
        return self._bytes

    def of_name(self, name: str) -> tuple[int, int]:
        """Return the number of messages of a name, and the bytes of their payloads."""
        return self._sizes.get(name, (0, 0))

    def put(self, name: str, onward: str, payload: bytes, *, entered: float, expires: float) -> int:
        """Write a message; return its number, or 0 if there is no room.

        Raises:
            HoldStoreFailed: It cannot be written, as when the disk is full.
        """
        if self._messages >= self._max_messages or self._bytes + len(payload) > self._max_bytes:
            return 0
        file = self._file
        if file is None:
            return 0
        try:
            cursor = file.execute(
                "INSERT INTO message (name, onward, payload, entered, expires) "
                "VALUES (?, ?, ?, ?, ?)",
                (name, onward, payload, entered, expires),
            )
        except sqlite3.Error as error:
            raise HoldStoreFailed(str(self.path), str(error)) from error
        number = cursor.lastrowid or 0
        self._count(number, name, len(payload))
        return number

    def remove(self, number: int) -> None:
        """Remove a message that has ended; nothing happens if the store is closed.

        Raises:
            HoldStoreFailed: It cannot be written. The message is sent again after a restart.
        """
        if self._file is None or number not in self._known:
            return
        name, size = self._known.pop(number)
        messages, kept = self._sizes[name]
        self._messages -= 1
        self._bytes -= size
        if messages == 1:
            del self._sizes[name]
        else:
            self._sizes[name] = messages - 1, kept - size
        try:
            self._file.execute("DELETE FROM message WHERE number = ?", (number,))
        except sqlite3.Error as error:
            raise HoldStoreFailed(str(self.path), str(error)) from error

    def names(self) -> tuple[str, ...]:
        """Return the names of which there are messages."""
        return tuple(self._sizes)

    def messages(self, name: str) -> Iterator[StoredMessage]:
        """Yield the messages of a name, the oldest first; some may be removed meanwhile.

        Raises:
            HoldStoreFailed: They cannot be read.
        """
        last = 0
        while self._file is not None:
            try:
                rows = self._file.execute(
                    "SELECT number, name, onward, payload, entered, expires FROM message "
                    "WHERE name = ? AND number > ? ORDER BY number LIMIT ?",
                    (name, last, _PAGE),
                ).fetchall()
            except sqlite3.Error as error:
                raise HoldStoreFailed(str(self.path), str(error)) from error
            for row in rows:
                yield StoredMessage(*row)
                last = row[0]
            if len(rows) < _PAGE:
                return

    def close(self) -> None:
        """Close the file: what is in it stays. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(sqlite3.Error):
                file.close()

    def _count(self, number: int, name: str, size: int) -> None:
        messages, kept = self._sizes.get(name, (0, 0))
        self._sizes[name] = messages + 1, kept + size
        self._known[number] = name, size
        self._messages += 1
        self._bytes += size
