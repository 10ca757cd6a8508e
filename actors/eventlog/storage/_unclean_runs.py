"""Notices of earlier runs that did not close, stored in a file until an event `LOST` has them.

A killed run cannot record its losses. The next run does, and may be killed as well, after it has
sealed the open segment, which then looks like that of a run that closed. So the notice is in a file
before the segment is sealed, and is removed once the block with the event is on the disk. A run
that is killed in between has its notice recorded twice, and never not at all.

```
<name of a segment left open, with 0 for its first number if none was> <notice>
```
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....protocol import counted
from ....protocol.eventlog import OPEN, SEALED, segment_name
from .._options import LogOptions
from ._files import Files
from ._sealing import store

__all__ = ["UncleanRuns"]

UNTOLD: Final = "untold"

MAX_UNFINISHED: Final = 64
"""Most runs with their own notice; there are more only if that many are killed at their start."""

MAX_NOTICE: Final = 1024
"""Most bytes of a line in the file; a longer line means a damaged file."""

_MORE: Final = "more"
_DAMAGED: Final = "damaged"
_OF_DAMAGED: Final = (
    f"a run before ended without closing, or several; the file {UNTOLD}, which said which, was "
    "damaged"
)


class UncleanRuns:
    """The notices of earlier runs, in memory and in the log's folder.

    Args:
        files: The disk.
        folder: The log's folder.
        options: The log's options, which bound the losses of a killed run.
    """

    def __init__(self, files: Files, folder: Path, options: LogOptions) -> None:
        self._files = files
        self._path = folder / UNTOLD
        self._options = options
        self._texts: dict[str, str] = {}
        """The notices, by the name of the open segment."""
        self._loaded = False
        self._stored = True
        """Whether the file is up to date."""

    @property
    def texts(self) -> list[str]:
        """The notices, the oldest first."""
        return list(self._texts.values())

    def load(self) -> None:
        """Read the notices that earlier runs have left, once.

        Raises:
            OSError: The file cannot be read; it may be tried again.
        """
        if not self._loaded:
            with suppress(FileNotFoundError):
                self._texts = _parsed(self._files.read(self._path))
            self._loaded = True

    def add(self, name: str, epoch: int, lost: int, aside: str) -> None:
        """Add a notice of a run that left a file open, before that is sealed or renamed.

        An existing notice is not changed: after an interrupted start, the file may look different.

        Args:
            name: The file.
            epoch: The run's epoch.
            lost: Bytes at its end that form no whole block.
            aside: Its new name if it cannot be read; else empty.

        Raises:
            OSError: It is not on the disk; it may be tried again.
        """
        if name not in self._texts:
            self._add(name, epoch, self._of(epoch, lost, aside))
        self.store()

    def add_run(self, epoch: int) -> None:
        """Add a notice of a run that did not close, unless an open file of it has one.

        Raises:
            OSError: It is not on the disk; it may be tried again.
        """
        if not any(name.startswith(f"{epoch:08x}-") for name in self._texts):
            text = (
                f"the run before (epoch {epoch}) ended without closing; no file of it was left "
                f"open; {self._not_there()}"
            )
            self._add(_run_of(epoch), epoch, text)
        self.store()

    def _add(self, name: str, epoch: int, text: str) -> None:
        # Further runs share one notice.
        full = len(self._texts) >= MAX_UNFINISHED
        self._texts[_MORE if full else name] = self._of_more(epoch) if full else text
        self._stored = False

    def has(self, texts: Iterable[str]) -> bool:
        """Whether one of these notices is pending."""
        return any(text in texts for text in self._texts.values())

    def forget(self, texts: Collection[str]) -> None:
        """Remove recorded notices. If the disk fails, `tidy` tries again."""
        if self.has(texts):
            self._texts = {name: text for name, text in self._texts.items() if text not in texts}
            self._stored = False
            self.tidy()

    def tidy(self) -> None:
        """Update the file, if the disk permits."""
        with suppress(OSError):
            self.store()

    def store_again(self) -> None:
        """Write the file after it was removed.

        Raises:
            OSError: It failed; it may be tried again.
        """
        self._stored = False
        self.store()

    def store(self) -> None:
        """Update the file.

        Raises:
            OSError: It failed; it may be tried again.
        """
        if self._stored:
            return
        if self._texts:
            lines = "".join(f"{name} {text}\n" for name, text in self._texts.items())
            store(self._files, self._path, [lines.encode()])
        else:
            with suppress(FileNotFoundError):
                self._files.unlink(self._path)
        self._stored = True

    def _of(self, epoch: int, lost: int, aside: str) -> str:
        what = f"the run before (epoch {epoch}) ended without closing; "
        if aside:
            return f"{what}its last segment could not be read, and is now {aside}"
        return f"{what}{counted(lost, 'byte')} cut; {self._not_there()}"

    def _of_more(self, epoch: int) -> str:
        return (
            f"further runs before, up to epoch {epoch}, ended without closing; of each "
            f"{self._not_there()}"
        )

    def _not_there(self) -> str:
        options = self._options
        return (
            f"counters of at most {options.window_seconds:g} seconds "
            f"and records of at most {options.flush_seconds:g} seconds are not there, "
            "nor what a disk that failed did not take before"
            + ("" if options.fsync == "block" else ", nor what a power cut took of a segment")
        )


def _run_of(epoch: int) -> str:
    """Return the key of a run without an open file: a name that no segment has."""
    return segment_name(epoch, 0).removesuffix(SEALED) + OPEN


def _parsed(data: bytes) -> dict[str, str]:
    """Return the notices in a file; for a damaged file, one that says so."""
    lines = data.split(b"\n")
    # Each line has an end, so nothing follows the last.
    if lines.pop() or len(lines) > MAX_UNFINISHED + 1:
        return {_DAMAGED: _OF_DAMAGED}
    found: dict[str, str] = {}
    for line in lines:
        text = line.decode(errors="replace")
        name, _, told = text.partition(" ")
        known = name.endswith(OPEN) or name in {_MORE, _DAMAGED}
        if not known or not told or not text.isprintable() or len(line) > MAX_NOTICE:
            return {_DAMAGED: _OF_DAMAGED}
        found[name] = told
    return found
