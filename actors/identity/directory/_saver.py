"""A directory that is saved: read from its file when the node starts, and written as it changes.

Changes are written in batches, a second after the first of them. What the node itself says comes
first, and there is a pause between batches, so that a flood of adverts takes a small part of the
disk. A node writes each batch in the thread of the file: a commit can wait for the disk, and now
and then copies the write-ahead log and waits until that is on the disk, which would hold up its
loop. What changes meanwhile is written later.

A process that is killed loses those alone that were not written yet. While they cannot be written,
as when the disk is full, the directory goes on in memory, and they are tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ....protocol import counted
from ....protocol.identity import (
    DIRECTORY_VERSION,
    Directory,
    DirectoryRow,
    Identity,
    Restored,
    ResultCode,
    RowJournal,
)
from .._errors import DirectoryFileFailed
from ._file import DirectoryFile, failure_of
from ._request_table import TrustAnswer
from ._trust_requests import InThread, TrustRequests

__all__ = ["SAVE_BATCH", "SAVE_DELAY", "SAVE_PAUSE", "SAVE_RETRY", "DirectorySaver"]

SAVE_BATCH: Final = 256
"""Most rows that are written at a time. Beyond: the rest is for later ones."""
SAVE_DELAY: Final = 1.0
"""Time from a change until it is written, in seconds."""
SAVE_PAUSE: Final = 0.1
"""Time between two batches, in seconds. When the node stops there is none."""
SAVE_RETRY: Final = 5.0
"""Time until changes that could not be written are tried again, in seconds."""

_logger = logging.getLogger("onward.actors.identity")


class DirectorySaver:
    """A writer of a directory into its file. Its methods are called on the node's loop.

    Args:
        directory: The directory.
        journal: Its journal.
        file: Its file.
        after: Calls a function after a time in seconds, as `Worker.after` does.
        in_thread: Calls a function in the thread of the file; `None`: what is due is written at
            once, as there are no threads.
        set_trust: Sets the trust in an identity as another process has asked; `None`: in the
            directory, which tells no subscriber.

    Attributes:
        requests: The requests of other processes in the file.
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
        in_thread: InThread | None = None,
        set_trust: Callable[[Identity, int], ResultCode] | None = None,
    ) -> None:
        self.requests: Final = TrustRequests(
            file, set_trust or directory.set_trust, self._save_soon, after, in_thread
        )
        self.restored = Restored(0, 0, 0)
        self.failures = 0
        self.trouble = ""
        self._directory: Final = directory
        self._journal: Final = journal
        self._file: Final = file
        self._after: Final = after
        self._in_thread: Final = in_thread
        # What a thread writes, and what to wait for until it has.
        self._batch: _Batch | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._is_ending = False
        self._is_closed = False

    @property
    def unsaved(self) -> int:
        """The number of identities with a change that is not written."""
        return len(self._journal)

    def load(self) -> Iterator[None]:
        """Read the file, a page for each step, and then do what requests in it ask for.

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
        self.requests.take(self._file.requests())

    def wake(self) -> None:
        """Write what has changed, soon."""
        if self._journal and not self._is_scheduled and not self._is_closed:
            self._schedule(SAVE_DELAY)

    def _save_soon(self) -> None:
        if not self._is_scheduled:
            self._schedule(0)

    def _schedule(self, seconds: float) -> None:
        self._is_scheduled = True
        self._after(seconds, self._turn)

    def _turn(self) -> None:
        if self._is_ending or self._is_closed:
            return
        if self._in_thread is None:
            self._go_on(saved=self.save())
            return
        batch = self._begin()
        if batch is None:
            self._is_scheduled = False
            return
        self._start(batch, self._in_thread)

    def _start(self, batch: _Batch, in_thread: InThread) -> asyncio.Future[None]:
        """Write changes in the thread; return what to wait for."""
        writing = in_thread(partial(self._write, batch))
        self._batch, self._writing = batch, writing
        writing.add_done_callback(partial(self._written, batch))
        return writing

    def _written(self, batch: _Batch, writing: asyncio.Future[None]) -> None:
        error = writing.exception()
        if batch is not self._batch:
            return  # it was looked at when the file was closed
        self._batch = self._writing = None
        self._go_on(saved=self._end(batch, error))
        if self._is_closed:
            self._say_lost()

    def _go_on(self, *, saved: bool) -> None:
        """Write what is left, after a pause."""
        self._is_scheduled = False
        is_left = self._journal or self.requests.answers
        if is_left and not self._is_ending and not self._is_closed:
            self._schedule(SAVE_PAUSE if saved else SAVE_RETRY)

    async def save_all(self) -> None:
        """Write all changes at the end, without a pause; those that cannot be written are left."""
        self._is_ending = True
        self.requests.close()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        while batch := self._begin():
            failures = self.failures
            if self._in_thread is None:
                self._end(batch, self._try(batch))
                await asyncio.sleep(0)
            else:
                await asyncio.wait((self._start(batch, self._in_thread),))
            if self.failures > failures:
                break

    def save(self) -> bool:
        """Write a batch of changes; return whether it is written, and false if there is none."""
        batch = self._begin()
        return batch is not None and self._end(batch, self._try(batch))

    def _begin(self) -> _Batch | None:
        """Return the changes to write next, as they are now; `None` if there are none."""
        identities = self._journal.begin(SAVE_BATCH)
        answers = self.requests.ready(identities, self._journal)
        if not identities and not answers:
            return None
        batch = _Batch(answers)
        for identity in identities:
            row = self._directory.row(identity)
            if row is None:
                batch.gone.append(identity)
            else:
                batch.rows.append(row)
        return batch

    def _write(self, batch: _Batch) -> None:
        """Write changes, which may be done in the thread."""
        self._file.save(batch.rows, batch.gone, batch.answers.items())

    def _try(self, batch: _Batch) -> DirectoryFileFailed | None:
        """Write changes; return why they are not written."""
        try:
            self._write(batch)
        except DirectoryFileFailed as error:
            return error
        return None

    def _end(self, batch: _Batch, error: BaseException | None) -> bool:
        """Go on after changes were written; return whether they were."""
        if error is not None:
            self._journal.end(None)
            self._failed(failure_of(error, self._file.path))
            return False
        self._journal.end(frozenset(row.identity for row in batch.rows))
        for number in batch.answers:
            del self.requests.answers[number]
        if self.trouble:
            self.trouble = ""
            _logger.warning(
                "%s: changes are written again",
                self._file.path,
                extra={"event": "identity.directory_saved_again"},
            )
        return True

    def _failed(self, error: DirectoryFileFailed) -> None:
        self.failures += 1
        if not self.trouble and not self._is_closed:
            _logger.error(
                "%s; the directory goes on in memory, and is written as soon as it can be",
                error,
                extra={"event": "identity.directory_not_saved"},
            )
        self.trouble = error.reason

    def close(self) -> asyncio.Future[None] | None:
        """Close the file, without a wait. What is not written is lost, which is logged.

        What waits to be written in the thread is still written there.

        Returns:
            What to wait for until the thread has closed the file; `None` if it is closed.
        """
        if self._is_closed:
            return None
        self._is_closed = True
        self.requests.close()
        batch = self._batch
        if batch is not None and self._writing is not None and self._writing.done():
            self._written(batch, self._writing)
        elif batch is not None:
            _logger.warning(
                "%s: the changes of %d identities are still being written; the file is closed then",
                self._file.path,
                len(batch.rows) + len(batch.gone),
                extra={"event": "identity.directory_closed_later"},
            )
        else:
            self._say_lost()
        if self._in_thread is not None:
            return self._in_thread(self._file.close)
        self._file.close()
        return None

    def _say_lost(self) -> None:
        """Log what is not written and will not be."""
        if self._journal:
            _logger.error(
                "%s: the changes of %d identities are lost: %s",
                self._file.path,
                self.unsaved,
                self.trouble or "there was no time to write them",
                extra={"event": "identity.directory_changes_lost"},
            )


@dataclass(slots=True)
class _Batch:
    """Changes that are written together.

    Attributes:
        answers: The answers to requests to write, by their numbers.
        rows: The rows to write.
        gone: The identities with a row to remove.
    """

    answers: dict[int, TrustAnswer]
    rows: list[DirectoryRow] = field(default_factory=list[DirectoryRow])
    gone: list[Identity] = field(default_factory=list[Identity])
