"""A recorder without a disk, and what was recorded with names in the place of numbers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from onward.actors.broker import BrokerOptions, Handlers, Request
from onward.actors.eventlog import LogOptions, Recorder
from onward.actors.eventlog.recording._messages import codes_of
from onward.protocol.broker import RoutingType
from onward.protocol.eventlog import (
    Asked,
    EventName,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
    Segment,
    SegmentFooter,
    SegmentHeader,
    block,
    read_segment,
)
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_peer import World, world

__all__ = [
    "A_BLOCK",
    "NEVER",
    "OPTIONS",
    "Flowed",
    "Hopped",
    "MemorySink",
    "Recording",
    "a_hop",
    "an_event",
    "lost",
    "recorded_world",
    "recording",
    "served",
]

OPTIONS = LogOptions(Path("nowhere"), "test", sample_rate=1.0)
NEVER = replace(OPTIONS, sample_rate=0.0)
A_BLOCK = 1024
"""Hops that are written at once."""
BETWEEN = (*(Outcome.RECEIVED, Outcome.FORWARD, Outcome.RETURN), *(Outcome.HOLD, Outcome.REDIRECT))
ENDS = frozenset(Outcome) - set(BETWEEN)


class MemorySink:
    """Keeps segments in memory.

    Attributes:
        room: Whether blocks are taken.
        why: What `trouble` says.
        gone: Records that were taken and not written, as a test has it.
        blocks: Bytes of each block.
    """

    def __init__(self) -> None:
        self.room = True
        self.why: str | None = None
        self.gone = 0
        self.sealed: list[bytes] = []
        self.blocks: list[int] = []
        self._open = bytearray()
        self._records: Counter[bytes] = Counter()
        self._next_seq = 1

    def begin(self, started_us: int, last_seq: int) -> bool:
        assert not self._open
        first = self._next_seq
        self._open += SegmentHeader("test", b"l" * 16, 1, first, started_us, 1.0).serialize()
        self._records.clear()
        return True

    def append(self, kind: bytes, body: bytes, records: int = 0) -> bool:
        if self.room:
            self._open += block(kind, body)
            self._records[kind] += records
            self.blocks.append(len(body))
        return self.room

    def seal(self, last_seq: int, ended_us: int) -> None:
        hops, flows, events = (self._records[kind] for kind in (b"R", b"F", b"E"))
        footer = SegmentFooter(hops, flows, events, last_seq, ended_us)
        self.sealed.append(bytes(self._open) + footer.serialize())
        self._open.clear()
        self._next_seq = last_seq + 1

    def trouble(self) -> str | None:
        return self.why

    def lost(self) -> int:
        return self.gone

    def segments(self) -> list[Segment]:
        return [read_segment(each) for each in self.sealed]


@dataclass(frozen=True, slots=True)
class Hopped:
    """A hop with names."""

    kind: Kind
    outcome: Outcome
    origin: str
    dest: str
    hop: int
    flags: int
    asked: Asked | None
    raw: Hop


@dataclass(frozen=True, slots=True)
class Flowed:
    """A flow with names; those of several segments are added up."""

    kind: Kind
    outcome: Outcome
    origin: str
    dest: str
    asked: Asked | None = None
    routed: bool = False


class Recording:
    """A recorder and what it has written.

    Attributes:
        sink: Where it writes.
        seconds: What its clocks say.
        skew: By how much the one that tells the date is ahead, in seconds.
    """

    def __init__(
        self,
        options: LogOptions = OPTIONS,
        node: str = "edge",
        *,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.sink = MemorySink()
        self.seconds = 1000.0
        self.skew = 0.0
        self.recorder = Recorder(
            self.sink,
            options,
            node,
            clock=lambda: int((self.seconds + self.skew) * 1e9),
            now=now or (lambda: self.seconds),
            chance=random.Random(7).random,
        )
        self.recorder.begin()

    def read(self) -> list[Segment]:
        """Close the recorder; return all segments, and see that they follow one another."""
        self.recorder.close()
        segments = self.sink.segments()
        for before, after in pairwise(segments):
            assert after.header.first_seq == before.footer.last_seq + 1
        return segments

    def hops(self) -> list[Hopped]:
        """Return the hops, in order."""
        found: list[Hopped] = []
        for segment in self.read():
            names = ("", *segment.names)
            asked = (None, *segment.tagsets)
            for hop in segment.hops():
                made = Hopped(
                    Kind(hop.kind),
                    Outcome(hop.outcome),
                    names[hop.origin],
                    names[hop.dest],
                    hop.hop,
                    hop.flags,
                    asked[hop.tagset],
                    hop,
                )
                found.append(made)
        return found

    def flows(self) -> Counter[Flowed]:
        """Return how many of each there were."""
        found: Counter[Flowed] = Counter()
        for segment in self.read():
            names = ("", *segment.names)
            asked = (None, *segment.tagsets)
            for flow in segment.flows():
                kind, outcome = Kind(flow.kind), Outcome(flow.outcome)
                ends = names[flow.origin], names[flow.dest]
                key = Flowed(kind, outcome, *ends, asked[flow.tagset], bool(flow.route))
                found[key] += flow.frames
        return found

    def totals(self) -> Counter[tuple[Kind, Outcome]]:
        """Return how many of each kind and outcome there were."""
        found: Counter[tuple[Kind, Outcome]] = Counter()
        for flow, count in self.flows().items():
            found[flow.kind, flow.outcome] += count
        return found

    def events(self) -> list[RouteEvent]:
        """Return the route events, in order."""
        return [event for segment in self.read() for event in segment.events]

    def in_hand(self) -> dict[Kind, int]:
        """Return how many requests of each kind have come and not ended."""
        return _balance(self.totals())

    def in_hand_now(self) -> dict[Kind, int]:
        """Return the same in the middle of the first window, and go on."""
        flows = self.recorder.flows
        for settle in flows.before_window:
            settle()
        found: Counter[tuple[Kind, Outcome]] = Counter()
        for cell in flows._dirty:
            for each in (cell, cell.also):
                if each is not None:
                    found[Kind(each.key[4]), Outcome(each.key[5])] += cell.frames
        return _balance(found)


def _balance(totals: Counter[tuple[Kind, Outcome]]) -> dict[Kind, int]:
    found: Counter[Kind] = Counter()
    for (kind, outcome), count in totals.items():
        if kind in (Kind.LINK, Kind.NAME_COPY):
            continue  # it is received at one end, and sent at the other; copies are not received
        found[kind] += count * ((outcome == Outcome.RECEIVED) - (outcome in ENDS))
    return {kind: count for kind, count in found.items() if count}


def recording(**options: object) -> Recording:
    """Return a recorder with some options."""
    return Recording(replace(OPTIONS, **options))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_hop(recorder: Recorder, trace: int = 1, dest: str = "b") -> None:
    """Record a hop from `a`."""
    naming = recorder.naming
    ends = naming.known.get(dest) or naming.learn(dest, "a", dest)
    codes = codes_of(int(Kind.MESSAGE), int(Outcome.DELIVER))
    recorder.hop(trace, 0, codes, ends, 5, 7, recorder.weight)


def an_event(recorder: Recorder) -> None:
    """Record an event."""
    recorder.event(EventName.UP)


def lost(made: Recording) -> list[str]:
    """Return what a recording says that was lost."""
    return [event.reason for event in made.events() if event.name == EventName.LOST]


@asynccontextmanager
async def recorded_world(
    log: LogOptions = OPTIONS,
    broker_options: BrokerOptions | None = None,
    options: LinkOptions | None = None,
) -> AsyncGenerator[tuple[World, Recording]]:
    """Do as `world`, and record it; at its end everything that came must have ended."""
    async with world(broker_options, options) as w:
        made = Recording(log, now=w.node.loop.time)
        made.recorder.requests.defaults = {RoutingType.UNICAST: "roundrobin"}
        w.node.add_instrument(made.recorder)
        yield w, made
    assert made.in_hand() == {}


def served(w: World) -> Handlers:
    """Serve requests for `a`, one at a time; some fail, and some wait for ever."""
    handlers = Handlers(max_handling=1)

    @handlers.response
    async def response(asked: Request) -> bytes:
        if asked.data == b"wait":
            await asyncio.Event().wait()
        if asked.data == b"bad":
            raise RuntimeError
        return asked.data

    @handlers.fire_and_forget
    async def fire(asked: Request) -> None:
        if asked.data == b"bad":
            raise RuntimeError

    w.broker.serve(handlers, service="a")
    return handlers
