"""Messages on disk: the file of the messages of names that hold on disk.

It is an SQLite file, which one process at a time has open. A message is in it once `put` has
returned, whatever happens to the process. The write-ahead log is not forced to the device for each
message: what was put in the last moments before the machine loses its power may be lost.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ._errors import HoldStoreFailed, HoldStoreInUse

__all__ = ["HoldStore", "StoredMessage"]

_VERSION: Final = 1
_APPLICATION: Final = 0x6F6E7764  # "onwd"
_FILE_MODE: Final = 0o600  # payloads are for this user only

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
        file.text_factory = _text
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
            "SELECT number, CAST(name AS TEXT), length(CAST(payload AS BLOB)) FROM message "
            "ORDER BY number"
        ):
            self._count(number, name, size)

    # --- messages ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._known)

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
        if len(self._known) >= self._max_messages or self._bytes + len(payload) > self._max_bytes:
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
        self._bytes -= size
        if messages == 1:
            del self._sizes[name]
        else:
            self._sizes[name] = messages - 1, kept - size
        try:
            self._file.execute("DELETE FROM message WHERE number = ?", (number,))
        except sqlite3.Error as error:
            raise HoldStoreFailed(str(self.path), str(error)) from error

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of all messages, the oldest first, by their name."""
        numbers: dict[str, list[int]] = {}
        for number, (name, _) in self._known.items():
            numbers.setdefault(name, []).append(number)
        return numbers

    def known(self, number: int) -> tuple[str, int]:
        """Return the name of a message, and the bytes of its payload; `("", 0)` if it has gone."""
        return self._known.get(number, ("", 0))

    def read(self, number: int) -> StoredMessage | None:
        """Read a message; return `None` if its row is not one of a message.

        Raises:
            HoldStoreFailed: It cannot be read.
        """
        if self._file is None:
            return None
        try:
            row = self._file.execute(
                "SELECT number, name, onward, payload, entered, expires FROM message "
                "WHERE number = ?",
                (number,),
            ).fetchone()
        except sqlite3.Error as error:
            raise HoldStoreFailed(str(self.path), str(error)) from error
        match row:
            case (
                int(number),
                str(name),
                str(onward),
                bytes(payload),
                (int() | float()) as entered,
                (int() | float()) as expires,
            ):
                return StoredMessage(number, name, onward, payload, entered, expires)
            case _:
                return None

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
        self._bytes += size


def _text(content: bytes) -> str:
    """Read text, also of a row that has gone bad, so that the file can be opened."""
    return content.decode(errors="replace")
