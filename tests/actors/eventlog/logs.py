"""Writes a log without a thread, and reads what is on the disk afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from onward.actors.eventlog import LogOptions, LogWriterStatistics
from onward.actors.eventlog.storage._folder import LogFolder
from onward.actors.eventlog.storage._janitor import Janitor
from onward.actors.eventlog.storage._segments import Segments
from onward.protocol.eventlog import (
    SEALED,
    EventName,
    Flow,
    Hop,
    RouteEvent,
    Segment,
    events_block,
    flows_block,
    hops_block,
    names_block,
    read_segment,
)
from tests.support.log_disk import SimulatedDisk

FOLDER = Path("/logs/b")
STARTED = 1_700_000_000_000_000
PER_SEGMENT = 6
"""Records of each segment."""


def options_of(**other: object) -> LogOptions:
    return LogOptions(FOLDER.parent, FOLDER.name, **other)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its type, its body and the number of its records."""

    framed: bytes
    records: int = 0

    @property
    def parts(self) -> tuple[bytes, bytes, int]:
        return self.framed[:1], self.framed[9:], self.records


def blocks_of(seq: int) -> list[Block]:
    """The blocks of a segment: names, then hops, a flow, an event, and hops."""
    hops = [
        Hop(seq + place, STARTED + seq, 7, 0, 2, 3, 0, 0, 1, 2, 0, 0, 5, 6, 100)
        for place in (0, 1, 4, 5)
    ]
    flow = Flow(seq + 2, STARTED, 10_000, 1, 2, 0, 0, 2, 3, 4, 5)
    event = RouteEvent(seq + 3, STARTED, EventName.UP, bytes(16), "orders")
    return [
        Block(names_block(["shop", "orders"])),
        Block(hops_block(hops[:2]), 2),
        Block(flows_block([flow]), 1),
        Block(events_block([event]), 1),
        Block(hops_block(hops[2:]), 2),
    ]


@dataclass
class Log:
    """A log without a thread, and what it was told that it has written."""

    disk: SimulatedDisk
    options: LogOptions = field(default_factory=options_of)
    identity: bytes = b"i"
    seq: int = 1
    sealed: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and number of the records of segments that were sealed."""
    written: list[tuple[int, int]] = field(default_factory=list)
    """Those of blocks that were written."""
    given: int = 0

    def __post_init__(self) -> None:
        self.count = LogWriterStatistics()
        parts = self.disk, self.options, self.count
        clock = lambda: self.disk.now  # noqa: E731
        self.folder = LogFolder(*parts, lambda size: self.identity * size)
        self.janitor = Janitor(*parts, clock, clock)
        self.segments = Segments(
            self.disk, self.folder, self.janitor, self.options, self.count, clock
        )

    def open(self) -> None:
        self.folder.open()
        try:
            self.janitor.look()
        except OSError:
            self.folder.close()
            raise
        self.segments.settle()

    def begin(self) -> None:
        self.segments.begin(STARTED, self.seq - 1)

    def write(self) -> None:
        seqs = iter(range(self.seq, self.seq + PER_SEGMENT))
        for block in blocks_of(self.seq):
            told = [(self.folder.epoch, next(seqs)) for _ in range(block.records)]
            self.given += block.records
            lost = self.count.lost
            self.segments.write(*block.parts)
            if self.count.lost == lost:
                self.written += told

    def segment(self) -> None:
        """A whole segment."""
        self.begin()
        self.write()
        first, sealed = self.seq, self.count.segments
        self.seq += PER_SEGMENT
        self.segments.seal(self.seq - 1, STARTED + self.seq)
        if self.count.segments > sealed:
            self.sealed += [(self.folder.epoch, seq) for seq in range(first, self.seq)]
        self.janitor.clean()

    def close(self) -> None:
        last = max([self.seq - 1, *(seq for _, seq in self.written)])
        self.segments.close(last, STARTED + self.seq)
        self.folder.close()


def sealed_on(disk: SimulatedDisk) -> list[Segment]:
    """The sealed segments, in order, each looked at whole."""
    found = [
        read_segment(data)
        for name, data in sorted(disk.contents(FOLDER).items())
        if name.endswith(SEALED)
    ]
    for segment in found:
        segment.check()
    return found


def records_on(disk: SimulatedDisk) -> list[tuple[int, int]]:
    """Epoch and number of all records on the disk; each is there once, and no gap untold.

    Without the events that tell of a run that did not close.
    """
    records: list[tuple[int, int]] = []
    due: dict[int, int] = {}
    for segment in sealed_on(disk):
        header, footer = segment.header, segment.footer
        assert header.first_seq == due.get(header.epoch, 1), "a gap that no segment tells"
        due[header.epoch] = footer.last_seq + 1
        found = [hop.seq for hop in segment.hops()]
        found += [flow.seq for flow in segment.flows()]
        found += [event.seq for event in segment.events]
        ended = {event.seq for event in segment.events if event.reason.startswith("the run ended")}
        records += [(header.epoch, seq) for seq in found if seq not in ended]
        assert segment.missing == footer.last_seq - header.first_seq + 1 - len(found)
    assert len(set(records)) == len(records), "a record twice"
    return sorted(records)
