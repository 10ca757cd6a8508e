"""The recorder: what is called where things happen, on the loop's thread.

A hop is packed into a block of 64 KiB that is there already, and that is all; files are another
thread's. Each event takes the next number of the log when it happens, so the numbers are in
order within the blocks of one type, which is all the format asks for.

What does not get into the log is counted by reason, and the log says so itself as soon as
it can: an event `LOST`.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ...protocol.broker import TagList
from ...protocol.eventlog import (
    FLOW,
    HOP,
    Asked,
    EventName,
    RouteEvent,
    SegmentFooter,
    SegmentHeader,
    clip_name,
    events_block,
    names_block,
    routes_block,
    tagsets_block,
    threshold_of,
    weight_of_rate,
)
from .._log import SeldomLogger, shown
from ._flows import FlowRow, FlowTable
from ._messages import MessageLog
from ._numbers import PIECE, Numbers
from ._options import LogOptions
from ._requests import RequestLog
from ._texts import MAX_ASKED, clean, clean_asked, clean_tags, size_of, size_of_asked, size_of_tags

if TYPE_CHECKING:
    from ._differences import Differences

__all__ = ["Recorder", "RecorderStatistics", "Sink"]

BLOCK_SIZE: Final = 64 * 1024
"""Bytes of a block of hops."""

FLOWS_A_BLOCK: Final = 1024
"""Most flows in a block."""

EVENTS_A_BLOCK: Final = 256
"""Most route events that are kept before they are written."""

EVENT_BYTES: Final = 64 * 1024
"""Bytes of tags and reasons that events are kept with before they are written."""

MAX_EVENT: Final = 1024 * 1024
"""Most bytes of the tags of one event; one that has more is told without them."""

MAX_REASON: Final = 1024
"""Most bytes of the reason of an event; the rest is cut off."""

MAX_CLOCK_STEP: Final = 1_000_000
"""Microseconds by which the clock may differ from what has passed before that is an event."""

MAX_EARLY: Final = 1000
"""Most counters, ways of asking, workers and links for which counters are written at each tick,
and not only when a window ends."""

TURN: Final = 256 * 1024
"""Bytes after which the rest of the flows has to wait for the loop's next turn."""

T = TypeVar("T", str, bytes, Asked)

_logger: Final = logging.getLogger("onward.actors.eventlog")
_pack_flow: Final = FLOW.pack
_HOP_SIZE: Final = HOP.size
_NEVER: Final = 1 << 62

_HOPS: Final = 0
_FLOWS: Final = 1
_EVENTS: Final = 2

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""Why what cannot be written is dropped; it is logged as well."""
BEHIND: Final = "the disk does not keep up"


class Sink(Protocol):
    """Where blocks go: a `LogWriter`. Nothing here blocks."""

    def begin(self, header: bytes, first_seq: int) -> None:
        """Begin a segment."""
        ...

    def append(self, block: bytes, body: bytes | None = None, /) -> bool:
        """Take a block, or its type and its body; say whether it was taken."""
        ...

    def seal(self, footer: bytes) -> None:
        """End the segment."""
        ...

    def trouble(self) -> str | None:
        """Say what is wrong, if anything is."""
        ...

    def statistics(self) -> Figures:
        """Return what became of blocks after they were taken."""
        ...


class Figures(Protocol):
    """What became of blocks after they were taken: a `LogWriterStatistics`."""

    @property
    def pending(self) -> int:
        """Bytes that wait."""
        ...

    @property
    def lost_hops(self) -> int:
        """Hops that were taken and then not written."""
        ...

    @property
    def lost_flows(self) -> int:
        """Flows likewise."""
        ...

    @property
    def lost_events(self) -> int:
        """Route events likewise."""
        ...


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """What a recorder has recorded since the start.

    Attributes:
        hops: Hops recorded; `flows` and `events` likewise. Those that were dropped later count.
        flows: Rows of flow counters.
        events: Route events, those about the log itself included.
        segments: Segments begun.
        dropped: What did not get into the log, by reason.
        marks_left_out: Marks of messages that came over links and were not believed: beyond
            `max_marked_per_second`, or any at a `sample_rate` of 0.
        rejects_left_out: `REJECT` events beyond `max_rejects_per_second`. Flows count them.
        without_number: Times a name, a route or a tag set got no number, as there were as many
            in the segment as may be, or it was too long.
        folded: Flow counters there was no room for; their counts are in rows without names.
    """

    hops: int
    flows: int
    events: int
    segments: int
    dropped: dict[str, int]
    marks_left_out: int
    rejects_left_out: int
    without_number: int
    folded: int


class Recorder:
    """Records hops, flows and route events. For the loop's thread alone.

    `begin` comes first and `close` last; in between, `tick` is to be called about once a second.

    Args:
        sink: Where blocks go.
        options: How much.
        node: The node's name.
        log_id: The log's identity, 16 bytes.
        epoch: Which run this is.
        clock: Tells nanoseconds since the Unix epoch.
        now: Tells seconds; it does not go back.
        chance: Returns a random number, 0 or more and less than 1.

    Attributes:
        options: As given.
        generation: Rises with each segment: numbers are of one segment only.
        left: Calls until the next sample; who decides takes one off, and calls `sample` at 0.
        threshold: What `sampled` takes, for ids that came from elsewhere.
        weight: How many one that is sampled here stands for.
        flows: The counters.
        requests: What a broker tells of.
        messages: What the node tells of.
        links: Where links are counted, if they are.
        now: As given.
    """

    __slots__ = (
        "_at",
        "_began",
        "_block",
        "_broken",
        "_clock",
        "_closed",
        "_dropped",
        "_event_bytes",
        "_events",
        "_failed_at",
        "_flight",
        "_flight_end",
        "_handed",
        "_ids",
        "_log_id",
        "_lost",
        "_lost_later",
        "_names",
        "_pack",
        "_rejects_left",
        "_rejects_left_out",
        "_rejects_until",
        "_routes",
        "_segment",
        "_segments",
        "_seldom",
        "_seq",
        "_sink",
        "_size",
        "_skew",
        "_tagsets",
        "_told",
        "_told_end",
        "_total",
        "_window",
        "chance",
        "epoch",
        "flows",
        "generation",
        "left",
        "links",
        "messages",
        "now",
        "options",
        "requests",
        "threshold",
        "weight",
    )

    def __init__(
        self,
        sink: Sink,
        options: LogOptions,
        node: str,
        *,
        log_id: bytes,
        epoch: int,
        clock: Callable[[], int] = time.time_ns,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.options: Final = options
        self.epoch: Final = epoch
        self.now: Final = now
        self.chance: Final = chance
        self.generation = 0
        self.threshold: Final = threshold_of(options.sample_rate)
        self.left = self.gap()
        self.flows: Final = FlowTable(options.max_flows)
        self.requests: Final = RequestLog(self, node)
        self.messages: Final = MessageLog(self, node)
        self.links: Differences | None = None
        self._sink: Final = sink
        self._log_id: Final = log_id
        self._clock: Final = clock
        self.weight: Final = weight_of_rate(options.sample_rate)
        self._names: Final = Numbers[str](options.max_names, names_block, size_of)
        self._routes: Final = Numbers[bytes](options.max_routes, routes_block, _size_of_route)
        self._tagsets: Final = Numbers[Asked](options.max_tagsets, tagsets_block, size_of_asked)
        self._ids: Final = random.Random(int(chance() * 2**53) ^ time.time_ns())  # noqa: S311
        self._block: Final = bytearray(BLOCK_SIZE)
        self._pack: Final = partial(HOP.pack_into, self._block)
        self._at = 0
        self._seq = 0
        self._events: list[RouteEvent] = []
        self._event_bytes = 0
        self._dropped: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._lost_later = (0, 0, 0)
        # Bytes of all blocks that were taken. Of those no more can wait than came after a block
        # once that has been dealt with.
        self._handed = 0
        # What said what was lost, and may be lost itself yet; and flows that may be.
        self._told: Counter[str] = Counter()
        self._told_end = 0
        self._flight: list[FlowRow] = []
        self._flight_end = 0
        self._failed_at: float | None = None
        self._broken = False
        self._seldom: Final = SeldomLogger(_logger, now)
        self._closed = True
        self._segments = 0
        self._segment = [0, 0, 0]  # hops, flows, events in this segment
        self._total = [0, 0, 0]
        self._size = 0
        self._began = 0.0
        self._window = 0
        self._skew = 0
        self._rejects_until = float("-inf")
        self._rejects_left = 0
        self._rejects_left_out = 0

    # --- hops -----------------------------------------------------------------------------

    def hop(
        self,
        trace_id: int,
        shard_hash: int,
        kind: int,
        outcome: int,
        hop: int,
        flags: int,
        origin: int,
        dest: int,
        route: int,
        tagset: int,
        latency_us: int,
        size: int,
        weight: int,
    ) -> None:
        """Record a hop, as of now. Numbers are those of this segment: see `generation`."""
        at = self._at
        self._seq = seq = self._seq + 1
        try:
            self._pack(
                at,
                seq,
                self._clock() // 1000,
                trace_id,
                shard_hash,
                kind,
                outcome,
                hop,
                flags,
                origin,
                dest,
                route,
                tagset,
                latency_us,
                size,
                weight,
            )
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            # The next one is packed to the same place.
            self._total[_HOPS] += 1
            self._drop(1, BROKEN)
            self._log(error)
            return
        self._at = at = at + _HOP_SIZE
        if at == BLOCK_SIZE:
            self._write_hops()
            self._look_at_size()

    def sample(self) -> int:
        """Begin to count to the next sample, and return a trace id for this one."""
        self.left = self.gap()
        return self.trace_id()

    def trace_id(self) -> int:
        """Return a new trace id, 64 bits and not 0."""
        return self._ids.getrandbits(64) or 1

    def gap(self) -> int:
        """Return after how many calls one is sampled: drawn once, not for each."""
        rate = self.options.sample_rate
        if rate >= 1:
            return 1
        if rate <= 0:
            return _NEVER
        return min(_NEVER, int(log(1.0 - self.chance()) / log(1.0 - rate)) + 1)

    # --- numbers --------------------------------------------------------------------------

    def name(self, text: str) -> int:
        """Return the number of a name in this segment; 0 for none, or if there is no room."""
        number = self._names.get(text)
        if number is not None:
            return number
        if not text:
            return 0
        return self._number(self._names, text, clip_name)

    def route(self, route_id: bytes | None) -> int:
        """Return the number of a route in this segment; 0 for none, or if there is no room."""
        return 0 if route_id is None else self._number(self._routes, route_id, bytes)

    def tagset(self, asked: Asked | None) -> int:
        """Return the number of a tag set in this segment; 0 for none, or if there is no room."""
        if asked is None:
            return 0
        number = self._tagsets.get(asked)
        if number is not None:
            return number
        if size_of_asked(asked) > MAX_ASKED:
            self._tagsets.refused += 1
            return 0
        return self._number(self._tagsets, asked, clean_asked)

    def _number(self, numbers: Numbers[T], thing: T, made: Callable[[T], T]) -> int:
        """Return a number for something new, once it is made fit for the log."""
        try:
            number = numbers.add(made(thing))
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._failed(error)
            return 0
        if numbers.waiting >= PIECE and not self._broken and self._failed_at is None:
            # At once: with all that a block of hops needs, the loop would stand still.
            self._guarded(self._define)
        return number

    # --- route events ---------------------------------------------------------------------

    def event(
        self,
        name: EventName,
        route_id: bytes | None = None,
        node: str = "",
        tags: TagList = (),
        reason: str = "",
    ) -> None:
        """Record that something has happened, as of now.

        A destination that nobody ever asks has a name and an id all the same: the event alone
        would not say them to who reads what a segment lists.
        """
        self._seq += 1
        at = self._clock() // 1000
        try:
            size = size_of_tags(tags)
            if size > MAX_EVENT:
                reason, tags, size = f"{reason} ({size} bytes of tags are left out)", (), 0
            node, reason, tags = clip_name(node), clean(reason, MAX_REASON), clean_tags(tags)
            self.route(route_id)
            self.name(node)
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._total[_EVENTS] += 1
            self._drop(1, BROKEN)
            self._log(error)
            return
        self._events.append(RouteEvent(self._seq, at, name, route_id, node, tags, reason))
        self._event_bytes += size + len(reason) + len(node)
        if len(self._events) >= EVENTS_A_BLOCK or self._event_bytes >= EVENT_BYTES:
            self._write_events()

    def reject(self, tags: TagList, reason: str) -> None:
        """Record a request that nobody could take, unless there were too many this second."""
        now = self.now()
        if now >= self._rejects_until:
            self._rejects_until = now + 1.0
            self._rejects_left = self.options.max_rejects_per_second
        if self._rejects_left <= 0:
            self._rejects_left_out += 1
            return
        self._rejects_left -= 1
        self.event(EventName.REJECT, tags=tags, reason=reason)

    # --- segments -------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the first segment."""
        self._closed = False
        now_us = self._clock() // 1000
        self._window = self._window_of(now_us)
        self._skew = now_us - int(self.now() * 1e6)
        self._begin_segment()

    def tick(self) -> None:
        """Do what is due: write what is kept, end the window, end the segment."""
        if self._closed:
            return
        if self._broken:
            self._guarded(self._turn_over)
        for step in (
            self._look_at_clock,
            self._end_window,
            self._tell_lost,
            self._write_hops,
            self._write_events,
            self._turn_over,
        ):
            self._guarded(step)

    def _turn_over(self) -> None:
        """Begin another segment, if this one is old, large, or takes nothing more."""
        now = self.now()
        failed = self._failed_at
        if (
            now - self._began >= self.options.seal_seconds
            or self._size >= self.options.seal_bytes
            or (failed is not None and now - failed >= self.options.retry_seconds)
            or self._broken
        ):
            self._end_segment()
            self._begin_segment()

    def write_flows(self) -> bool:
        """Write a block of the flows of windows that are over; say whether there are more.

        What cannot be written now stays, and is written later: see `FlowTable.rows`.
        """
        rows = self.flows.rows
        if len(self._flight) >= self.options.max_flows:
            return False
        taken: list[FlowRow] = []
        packed: list[bytes] = []
        seq, segment = self._seq, self.generation
        size = self._size
        try:
            while rows and len(packed) < FLOWS_A_BLOCK and self._size - size < TURN:
                taken.append(rows.popleft())
                packed.append(self._packed(taken[-1], seq + len(taken)))
        except Exception as error:  # noqa: BLE001 - the loop is not to fail with us
            self._failed(error)
            # Without names it fits; else nothing does.
            row = taken.pop()
            if any(row[2:6]):
                rows.appendleft((*row[:2], "", "", None, None, *row[6:]))
            else:
                self._total[_FLOWS] += 1
                self._drop(1, BROKEN)
        if not taken:
            return bool(rows)
        self._seq = seq + len(taken)
        if self.generation == segment and self._try(_FLOWS, len(taken), b"F", b"".join(packed)):
            self._flight += taken
            self._flight_end = self._handed
            return bool(rows)
        # Nothing else has taken a number meanwhile.
        self._seq = seq
        self.flows.keep(taken)
        return False

    def _packed(self, row: FlowRow, seq: int) -> bytes:
        start, length, origin, dest, to, asked, kind, outcome, frames, size = row
        return _pack_flow(
            seq,
            start,
            length,
            self.name(origin),
            self.name(dest),
            self.route(to),
            self.tagset(asked),
            kind,
            outcome,
            0,
            frames,
            size,
        )

    def close(self) -> None:
        """Write all there is and end the segment; what is recorded from now on is dropped."""
        if self._closed:
            return
        for step in (
            self._close_window,
            self._write_all_flows,
            self._tell_lost,
            self._write_hops,
            self._write_events,
            self._end_segment,
        ):
            self._guarded(step)
        self._closed = True

    def _write_all_flows(self) -> None:
        self._flight.clear()
        while self.write_flows():
            self._flight.clear()
        rows = self.flows.rows
        if rows:
            # There will be no other time.
            self._seq += len(rows)
            self._total[_FLOWS] += len(rows)
            self._drop(len(rows), self._sink.trouble() or BEHIND)
            rows.clear()

    def _begin_segment(self) -> None:
        self.generation += 1
        for numbers in (self._names, self._routes, self._tagsets):
            numbers.forget()
        self._segment = [0, 0, 0]
        self._size = 0
        self._began = self.now()
        self._failed_at = None
        self._broken = False
        self._segments += 1
        first = self._seq + 1
        options = self.options
        started = self._clock() // 1000
        header = SegmentHeader(
            options.name, self._log_id, self.epoch, first, started, options.sample_rate
        )
        self._sink.begin(header.serialize(), first)

    def _end_segment(self) -> None:
        self._write_hops()
        if not any(self._segment) and not self._events:
            # Or nobody could tell an idle log from one that has ended.
            self.event(EventName.IDLE)
        self._write_events()
        hops, flows, events = self._segment
        footer = SegmentFooter(hops, flows, events, self._seq, self._clock() // 1000)
        self._sink.seal(footer.serialize())

    def _look_at_size(self) -> None:
        if self._size >= self.options.seal_bytes and not self._closed:
            self._guarded(self._end_segment)
            self._guarded(self._begin_segment)

    # --- blocks ---------------------------------------------------------------------------

    def _write_hops(self) -> None:
        size = self._at
        if size:
            self._at = 0
            # A copy: the writer's thread has it while the next hops are packed.
            self._put(_HOPS, size // _HOP_SIZE, b"R", bytes(self._block[:size]))

    def _write_events(self) -> None:
        events = self._events
        if events:
            self._events = []
            self._event_bytes = 0
            self._put(_EVENTS, len(events), partial(events_block, events), None)

    def _put(
        self, which: int, count: int, made: bytes | Callable[[], bytes], body: bytes | None
    ) -> None:
        """Write a block with so many events, after what it refers to; or drop it, and count."""
        if not self._try(which, count, made, body):
            self._total[which] += count
            reason = CLOSED if self._closed else self._sink.trouble() or BEHIND
            self._drop(count, BROKEN if self._broken else reason)

    def _try(
        self, which: int, count: int, made: bytes | Callable[[], bytes], body: bytes | None = None
    ) -> bool:
        """Write a block with so many events, after what it refers to; say whether that went well.

        This is the one place where what is made of names and tags of strangers is handed on.
        Whatever goes wrong there costs this block, and what follows in the segment.
        """
        if self._closed or self._broken:
            return False
        try:
            block = made if isinstance(made, bytes) else made()
            written = self._define() and self._append(block, body)
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._failed(error)
            return False
        if written:
            self._segment[which] += count
            self._total[which] += count
        elif self._failed_at is None:
            self._failed_at = self.now()
        return written

    def _failed(self, error: Exception) -> None:
        """Note a defect: nothing more goes into this segment, and the next tick begins another."""
        self._broken = True
        self._log(error)

    def _log(self, error: Exception) -> None:
        text = "the event log %s could not pack something: %s"
        self._seldom.log(logging.ERROR, "packing", text, self.options.name, shown(repr(error)))

    def _guarded(self, step: Callable[[], object]) -> None:
        """Do something that must not fail with whoever routes, whatever goes wrong."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - that is what this is for
            self._failed(error)

    def _define(self) -> bool:
        """Write the names, routes and tag sets that are new; say whether all are written."""
        for numbers in (self._names, self._routes, self._tagsets):
            for made in numbers.blocks():
                if not self._append(made):
                    return False
        return True

    def _append(self, made: bytes, body: bytes | None = None) -> bool:
        # Of a block that has a body apart the writer's thread makes the check.
        if not self._sink.append(made, body):
            return False
        size = len(made if body is None else body)
        self._size += size
        self._handed += size
        return True

    def _drop(self, count: int, reason: str) -> None:
        self._dropped[reason] += count
        self._lost[reason] += count

    def _look_at_losses(self) -> None:
        """Count what was taken and not written, and take back the flows among it."""
        figures = self._sink.statistics()
        flight = self._flight
        lost = figures.lost_hops, figures.lost_flows, figures.lost_events
        more = [now - then for now, then in zip(lost, self._lost_later, strict=True)]
        self._lost_later = lost
        if any(more):
            self._drop(sum(more), self._sink.trouble() or FAILED)
        # Once a segment has failed it takes nothing more: the last ones are those that are lost.
        if flight and more[_FLOWS]:
            self.flows.keep(flight[-more[_FLOWS] :])
            del flight[-more[_FLOWS] :]
        if self._told and more[_EVENTS]:
            self._lost.update(self._told)
        if figures.pending <= self._handed - self._flight_end:
            flight.clear()
        if figures.pending <= self._handed - self._told_end:
            self._told.clear()

    def _tell_lost(self) -> None:
        """Have the log say what it has lost. If that is lost, it is said with what follows.

        What said so counts as well then: its number is missing like the others.
        """
        self._look_at_losses()
        lost, self._lost = self._lost, Counter()
        for reason, count in lost.items():
            self.event(EventName.LOST, reason=f"{count} events: {reason}")
        if lost:
            self._write_events()
            if self._lost:
                self._lost.update(lost)
            else:
                self._told = lost
                self._told_end = self._handed

    # --- clocks ---------------------------------------------------------------------------

    def _window_of(self, now_us: int) -> int:
        """Return when the window began that a time is in: all logs have the same windows."""
        length = int(self.options.window_seconds * 1e6)
        return now_us // length * length

    def _end_window(self) -> None:
        current = self._window_of(self._clock() // 1000)
        if current != self._window:
            self._close_window()
            self._window = current
        elif self._is_little():
            # A process that is killed now loses no more than it has counted since the last tick.
            self.flows.settle(self._window, int(self.options.window_seconds * 1000))

    def _is_little(self) -> bool:
        """Say whether to write counters within a window costs next to nothing."""
        links = self.links
        return (
            max(self.flows.counted_on, self.requests.kept) <= MAX_EARLY
            and (links is None or links.known <= MAX_EARLY)
            and not self.flows.rows
        )

    def _close_window(self) -> int:
        self.flows.end_window(self._window, int(self.options.window_seconds * 1000))
        return self._window

    def _look_at_clock(self) -> None:
        """Record that the clock was set, if it has moved otherwise than time has passed."""
        skew = self._clock() // 1000 - int(self.now() * 1e6)
        step = skew - self._skew
        if abs(step) > MAX_CLOCK_STEP:
            self.event(EventName.CLOCK, reason=f"{step:+d} us")
        self._skew = skew

    # --- looking at it --------------------------------------------------------------------

    def statistics(self) -> RecorderStatistics:
        """Return what has been recorded so far."""
        refused = (each.refused for each in (self._names, self._routes, self._tagsets))
        return RecorderStatistics(
            hops=self._total[0] + self._at // _HOP_SIZE,
            flows=self._total[1],
            events=self._total[2] + len(self._events),
            segments=self._segments,
            dropped=dict(self._dropped),
            marks_left_out=self.messages.left_out,
            rejects_left_out=self._rejects_left_out,
            without_number=sum(refused) + self.requests.without_tags,
            folded=self.flows.folded,
        )


def _size_of_route(route: bytes) -> int:
    return len(route) + 1
