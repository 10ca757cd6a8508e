"""What a job says while it works: each stage as it begins, and how it ended."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Progress", "Silent", "Stage", "stage"]


class Progress(Protocol):
    """Who is told. Called on the thread that runs the job."""

    def begin(self, name: str) -> None:
        """Take note that a stage begins."""
        ...

    def done(self, name: str, text: str) -> None:
        """Take note that it has ended well, and with what."""
        ...


class Silent:
    """Tells nobody."""

    def begin(self, name: str) -> None:
        """Do nothing."""

    def done(self, name: str, text: str) -> None:
        """Do nothing."""


class Stage:
    """One stage; what it has come to is said with `says`."""

    def __init__(self) -> None:
        self.text = ""

    def says(self, text: str) -> None:
        """Say what the stage has come to."""
        self.text = text


@contextmanager
def stage(progress: Progress, name: str) -> Generator[Stage]:
    """Run a stage; one that fails is not said to be done."""
    progress.begin(name)
    current = Stage()
    yield current
    progress.done(name, current.text)
