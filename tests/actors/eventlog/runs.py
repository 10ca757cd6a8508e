"""A recorder and a writer on a disk in memory, stepped by hand, and what is in their log."""

from __future__ import annotations

from collections import Counter

from onward.actors.eventlog import LogOptions, LogWriter, Recorder
from onward.protocol.eventlog import EventName, Kind, Outcome, RouteEvent
from tests.actors.eventlog.logs import options_of, sealed_on
from tests.support.log_disk import SimulatedDisk

__all__ = ["OPTIONS", "QUIET", "Run", "Stepped", "found", "losses", "missing", "told"]

OPTIONS = options_of(sample_rate=0.0, seal_seconds=20.0, retry_seconds=5.0)
QUIET = 30
"""Seconds after which all is well again, whatever was before."""


class Stepped(LogWriter):
    """A writer whose thread does nothing: a test does the work, when it says so."""

    def _run(self) -> None:
        pass

    def step(self, most: int = 1 << 30) -> None:
        """Do what waits, or so many things of it."""
        while most and not self._queue.empty():
            task = self._queue.get()
            assert task is not None
            self._do(task)
            most -= 1

    def end(self) -> None:
        """Do what a writer does as it is closed."""
        self._closed = True
        self.step()
        self._end()


class Run:
    """A recorder and a writer on one disk.

    Attributes:
        given: Frames that were counted, by destination.
    """

    def __init__(self, disk: SimulatedDisk, options: LogOptions = OPTIONS) -> None:
        self.disk = disk
        now = lambda: disk.now  # noqa: E731
        self.writer = Stepped(options, files=disk, clock=now, wall_clock=now)
        self.writer.open()
        clock = lambda: int(disk.now * 1e9)  # noqa: E731
        self.recorder = Recorder(self.writer, options, "edge", clock=clock, now=now)
        self.recorder.begin()
        self.given: Counter[str] = Counter()

    def count(self, dest: str, frames: int) -> None:
        self.given[dest] += frames
        cell = self.recorder.flows.cell(int(Kind.MESSAGE), int(Outcome.DELIVER), dest=dest)
        cell.add(0, frames)

    def tick(self, most: int = 1 << 30) -> None:
        """Have a second pass, and the writer do so much of what it is given."""
        self.disk.now += 1.0
        self.recorder.tick()
        while self.recorder.write_flows():
            pass
        self.writer.step(most)

    def end(self) -> None:
        self.recorder.close()
        self.writer.end()

    @property
    def numbers(self) -> int:
        """Numbers that were given."""
        return self.recorder._seq

    @property
    def dropped(self) -> int:
        return sum(self.recorder.statistics().dropped.values())


def found(disk: SimulatedDisk) -> Counter[str]:
    """Frames in the log, by destination."""
    counted: Counter[str] = Counter()
    for segment in sealed_on(disk):
        names = ("", *segment.names)
        for flow in segment.flows():
            counted[names[flow.dest]] += flow.frames
    return counted


def missing(disk: SimulatedDisk) -> int:
    return sum(segment.missing for segment in sealed_on(disk))


def losses(disk: SimulatedDisk) -> list[str]:
    """What the log says that it lost."""
    events: list[RouteEvent] = [event for each in sealed_on(disk) for event in each.events]
    return [event.reason for event in events if event.name is EventName.LOST]


def told(disk: SimulatedDisk) -> int:
    """How many records the log says that it lost."""
    return sum(int(reason.split()[0]) for reason in losses(disk))
