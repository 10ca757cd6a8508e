"""Writes a log without a thread, and reads what is on the disk afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from onward.actors.eventlog import LogInUse, LogOptions
from onward.actors.eventlog.storage._counts import Counts
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
    SegmentFooter,
    SegmentHeader,
    events_block,
    flows_block,
    hops_block,
    names_block,
    read_segment,
    record_count,
)
from tests.support.log_disk import SimulatedDisk

FOLDER = Path("/logs/b")
STARTED = 1_700_000_000_000_000
PER_SEGMENT = 6
"""Records of each segment."""


def options_of(**other: object) -> LogOptions:
    return LogOptions(FOLDER.parent, FOLDER.name, **other)  # type: ignore[arg-type]


def blocks_of(seq: int) -> list[bytes]:
    """The blocks of a segment: names, then hops, a flow, an event, and hops."""
    hops = [
        Hop(seq + place, STARTED + seq, 7, 0, 2, 3, 0, 0, 1, 2, 0, 0, 5, 6, 100)
        for place in (0, 1, 4, 5)
    ]
    flow = Flow(seq + 2, STARTED, 10_000, 1, 2, 0, 0, 2, 3, 4, 5)
    event = RouteEvent(seq + 3, STARTED, EventName.UP, bytes(16), "orders")
    return [
        names_block(["shop", "orders"]),
        hops_block(hops[:2]),
        flows_block([flow]),
        events_block([event]),
        hops_block(hops[2:]),
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
        self.count = Counts()
        clock = lambda: self.disk.now  # noqa: E731
        self.folder = LogFolder(
            self.disk, options_of(), self.count, lambda size: self.identity * size
        )
        self.janitor = Janitor(self.disk, self.folder, self.options, self.count, clock, clock)
        self.segments = Segments(
            self.disk,
            self.folder,
            self.options,
            self.count,
            clock,
            self.janitor.add,
            self.janitor.look,
        )

    def open(self) -> None:
        self.folder.open()
        try:
            self.janitor.look()
            self.segments.settle()
        except (OSError, LogInUse):
            self.folder.close()
            raise

    def begin(self) -> bool:
        folder = self.folder
        header = SegmentHeader("b", folder.log_id, folder.epoch, self.seq, STARTED, 0.01)
        return self.segments.begin(header.serialize(), self.seq)

    def write(self) -> None:
        epoch = self.folder.epoch
        seqs = iter((0, 1, 2, 3, 4, 5))
        for block in blocks_of(self.seq):
            count = record_count(block[:1], block[9:])
            told = [(epoch, self.seq + next(seqs)) for _ in range(count)]
            self.given += count
            if self.segments.write(block[:1], (block,), count):
                self.written += told

    def segment(self) -> None:
        """A whole segment."""
        self.begin()
        self.write()
        first = self.seq
        self.seq += PER_SEGMENT
        if self.segments.seal(self.seq - 1, STARTED + self.seq):
            self.sealed += [(self.folder.epoch, seq) for seq in range(first, self.seq)]
        self.janitor.clean()

    def close(self) -> None:
        last = max([self.seq - 1, *(seq for _, seq in self.written)])
        self.segments.close(None, SegmentFooter(0, 0, 0, last, STARTED + self.seq))
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
    """Epoch and number of all records on the disk; each is there once, and no gap untold."""
    records: list[tuple[int, int]] = []
    due: dict[int, int] = {}
    for segment in sealed_on(disk):
        header, footer = segment.header, segment.footer
        assert header.first_seq == due.get(header.epoch, 1), "a gap that no segment tells"
        due[header.epoch] = footer.last_seq + 1
        found = [hop.seq for hop in segment.hops()]
        found += [flow.seq for flow in segment.flows()]
        found += [event.seq for event in segment.events]
        records += [(header.epoch, seq) for seq in found]
        assert segment.missing == footer.last_seq - header.first_seq + 1 - len(found)
    assert len(set(records)) == len(records), "a record twice"
    return sorted(records)
