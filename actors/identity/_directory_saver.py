"""A directory that is saved: read from its file when the node starts, and written as it changes.

Changes are written in batches, a second after the first of them, on the node's loop. What the node
itself says comes first, and there is a pause between batches, so that a flood of adverts takes a
small part of the loop and of the disk. A process that is killed loses those alone that were not
written yet. While they cannot be written, as when the
disk is full, the directory goes on in memory, and they are tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from ...protocol import counted
from ...protocol.identity import (
    DIRECTORY_VERSION,
    Directory,
    DirectoryRow,
    Identity,
    Restored,
    RowJournal,
)
from ._directory_file import DirectoryFile
from ._errors import DirectoryFileFailed

__all__ = ["SAVE_BATCH", "SAVE_DELAY", "SAVE_PAUSE", "SAVE_RETRY", "DirectorySaver"]

SAVE_BATCH: Final = 256
"""Most rows that are written in one turn of the loop. Beyond: the rest is for later ones."""
SAVE_DELAY: Final = 1.0
"""Time from a change until it is written, in seconds."""
SAVE_PAUSE: Final = 0.1
"""Time between two batches, in seconds. When the node stops there is none."""
SAVE_RETRY: Final = 5.0
"""Time until changes that could not be written are tried again, in seconds."""

_logger = logging.getLogger("onward.actors.identity")


class DirectorySaver:
    """A writer of a directory into its file, on the node's loop.

    Args:
        directory: The directory.
        journal: Its journal.
        file: Its file.
        after: Calls a function after a time in seconds, as `Worker.after` does.

    Attributes:
        restored: The rows that were read at the start.
        failures: Times that changes could not be written.
        trouble: Why they cannot be written at present; empty if they can.
    """

    def __init__(
        self,
        directory: Directory,
        journal: RowJournal,
        file: DirectoryFile,
        after: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self.restored = Restored(0, 0, 0)
        self.failures = 0
        self.trouble = ""
        self._directory: Final = directory
        self._journal: Final = journal
        self._file: Final = file
        self._after: Final = after
        self._is_scheduled = False
        self._is_closed = False

    @property
    def unsaved(self) -> int:
        """The number of identities with a change that is not written."""
        return len(self._journal)

    def load(self) -> Iterator[None]:
        """Read the file, a page for each step.

        Raises:
            DirectoryFileFailed: It cannot be read.
        """
        for page in self._file.pages():
            found = self._directory.restore(page, DIRECTORY_VERSION)
            self.restored = Restored(*map(sum, zip(self.restored, found, strict=True)))
            yield
        bad, refused = self.restored.bad, self.restored.refused
        if bad or refused:
            _logger.warning(
                "%s: %s in it are damaged, and for %s there is no place; they stay there",
                self._file.path,
                counted(bad, "row"),
                counted(refused, "row"),
                extra={"event": "identity.directory_rows_left"},
            )

    def wake(self) -> None:
        """Write what has changed, soon."""
        if self._journal and not self._is_scheduled and not self._is_closed:
            self._schedule(SAVE_DELAY)

    def _schedule(self, seconds: float) -> None:
        self._is_scheduled = True
        self._after(seconds, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        saved = self.save()
        if self._journal:
            self._schedule(SAVE_PAUSE if saved else SAVE_RETRY)

    def save(self) -> bool:
        """Write a batch of changes; return whether it is written, and false if there is none."""
        identities = self._journal.unsaved(SAVE_BATCH)
        if not identities:
            return False
        rows: list[DirectoryRow] = []
        gone: list[Identity] = []
        for identity in identities:
            row = self._directory.row(identity)
            if row is None:
                gone.append(identity)
            else:
                rows.append(row)
        try:
            self._file.save(rows, gone)
        except DirectoryFileFailed as error:
            self._failed(error)
            return False
        if self.trouble:
            self.trouble = ""
            _logger.warning(
                "%s: changes are written again",
                self._file.path,
                extra={"event": "identity.directory_saved_again"},
            )
        there = frozenset(row.identity for row in rows)
        for identity in identities:
            self._journal.save(identity, there=identity in there)
        return True

    def _failed(self, error: DirectoryFileFailed) -> None:
        self.failures += 1
        if not self.trouble:
            _logger.error(
                "%s; the directory goes on in memory, and is written as soon as it can be",
                error,
                extra={"event": "identity.directory_not_saved"},
            )
        self.trouble = error.reason

    def close(self) -> None:
        """Close the file. What is not written is lost, which is logged."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._journal:
            _logger.error(
                "%s: the changes of %d identities are lost: %s",
                self._file.path,
                self.unsaved,
                self.trouble or "there was no time to write them",
                extra={"event": "identity.directory_changes_lost"},
            )
        self._file.close()
