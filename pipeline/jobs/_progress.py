"""The progress of a job: the beginning of each stage and its result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["JobStage", "Progress", "Silent", "stage"]


class Progress(Protocol):
    """A receiver of a job's progress, called on the thread that runs the job."""

    def begin(self, name: str) -> None:
        """Report that a stage begins."""
        ...

    def done(self, name: str, text: str) -> None:
        """Report that a stage succeeded, and its result as text."""
        ...


class Silent:
    """A receiver that discards the progress of a job."""

    def begin(self, name: str) -> None:
        """Discard the beginning of a stage."""

    def done(self, name: str, text: str) -> None:
        """Discard the result of a stage."""


class JobStage:
    """One stage of a job; `says` sets its result."""

    def __init__(self) -> None:
        self.text = ""

    def says(self, text: str) -> None:
        """Set the result of the stage."""
        self.text = text


@contextmanager
def stage(progress: Progress, name: str) -> Generator[JobStage]:
    """Run a stage; a stage that raises is not reported as done."""
    progress.begin(name)
    current = JobStage()
    yield current
    progress.done(name, current.text)
