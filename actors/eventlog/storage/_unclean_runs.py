"""What the log has to tell of earlier runs: in a file, until an event `LOST` has told it.

A run that is killed says nothing of what it lost; the next one does, and may be killed before it
could. What it found open is sealed by then, and would look like the end of a run that ended. So
the notice is in a file before anything is sealed, and is taken out once the block with the event
lasts. Whoever is killed in between has it told twice, and nobody has it told never.

```
<name of a segment left open, with 0 for its first number if none was> <what is to be told>
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
"""Most runs that are told of each; there are more only if as many were killed as they began."""

MAX_NOTICE: Final = 1024
"""Most bytes of a line in the file; one that has more is none of ours."""

_MORE: Final = "more"
_DAMAGED: Final = "damaged"
_OF_DAMAGED: Final = (
    f"a run before ended without closing, or several; the file {UNTOLD}, which said which, was "
    "damaged"
)


class UncleanRuns:
    """What is to be told of earlier runs, in memory and in the log's folder.

    Args:
        files: The disk.
        folder: The log's folder.
        options: The log's: they say how much a run that is killed can lose.
    """

    def __init__(self, files: Files, folder: Path, options: LogOptions) -> None:
        self._files = files
        self._path = folder / UNTOLD
        self._options = options
        self._texts: dict[str, str] = {}
        """What is to be told, by the file that it is of."""
        self._loaded = False
        self._stored = True
        """Whether the file says the same."""

    @property
    def texts(self) -> list[str]:
        """What is to be told, the oldest first."""
        return list(self._texts.values())

    def load(self) -> None:
        """Take what earlier runs have left to be told; once that is done, nothing.

        Raises:
            OSError: It cannot be read; it may be tried again.
        """
        if not self._loaded:
            with suppress(FileNotFoundError):
                self._texts = _parsed(self._files.read(self._path))
            self._loaded = True

    def add(self, name: str, epoch: int, lost: int, aside: str) -> None:
        """Note that a run left a file open, before that is sealed or renamed.

        What is noted already stays as it is: if a start was broken off, the file may not look as
        it did.

        Args:
            name: The file.
            epoch: Which run.
            lost: Bytes at its end of which no block can be made.
            aside: What it will be called if it cannot be read; else empty.

        Raises:
            OSError: It is not on the disk; it may be tried again.
        """
        if name not in self._texts:
            self._add(name, epoch, self._of(epoch, lost, aside))
        self.store()

    def add_run(self, epoch: int) -> None:
        """Note that a run did not close, unless that is noted of a file that it left open.

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
        # Further ones are not told of each, but that there are some is.
        full = len(self._texts) >= MAX_UNFINISHED
        self._texts[_MORE if full else name] = self._of_more(epoch) if full else text
        self._stored = False

    def has(self, texts: Iterable[str]) -> bool:
        """Say whether one of these is to be told."""
        return any(text in texts for text in self._texts.values())

    def forget(self, texts: Collection[str]) -> None:
        """Forget what is told, and lasts. If the disk fails, `tidy` tries it again."""
        if self.has(texts):
            self._texts = {name: text for name, text in self._texts.items() if text not in texts}
            self._stored = False
            self.tidy()

    def tidy(self) -> None:
        """Have the file say no more than is to be told, if the disk lets it."""
        with suppress(OSError):
            self.store()

    def store_again(self) -> None:
        """Write the file after somebody removed it.

        Raises:
            OSError: It cannot be done; it may be tried again.
        """
        self._stored = False
        self.store()

    def store(self) -> None:
        """Write the file, if it is not as it should be.

        Raises:
            OSError: It cannot be done; it may be tried again.
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
    """Return what stands for a run of which no file was left: a name that no segment has."""
    return segment_name(epoch, 0).removesuffix(SEALED) + OPEN


def _parsed(data: bytes) -> dict[str, str]:
    """Return what a file says; of a damaged one, that it is."""
    lines = data.split(b"\n")
    # Each line has an end, so nothing is behind the last.
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
