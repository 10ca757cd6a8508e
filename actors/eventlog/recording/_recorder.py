"""The recorder: what is called where things happen, on the loop's thread.

A hop is packed and kept until a block of 64 KiB is full, and that is all; files are another
thread's. Each event takes the next number of the log when it happens, so the numbers are in
order within the blocks of one type, which is all the format asks for.

What does not get into the log is counted by reason, and the log says so itself as soon as
it can: an event `LOST`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING, Final

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName, threshold_of, weight_of_rate
from .._options import LogOptions
from .._statistics import RecorderStatistics
from ..storage._output import EVENTS, FLOWS, HOPS, Output
from ._events import EventBuffer, size_of_event
from ._flows import FlowTable
from ._hops import PACKED_HOP
from ._limits import Budget, PerSecond
from ._messages import MessageLog
from ._requests import RequestLog
from ._rows import FlowRows
from ._sink import Receipt, Sink
from ._windows import WallClock, Windows

if TYPE_CHECKING:
    from ._flow_sampler import FlowSampler

__all__ = ["Recorder"]

HOPS_A_BLOCK: Final = 1024
"""Most hops that are kept before they are written: 64 KiB, for which 120 KiB are kept."""

MAX_EARLY: Final = 1000
"""Most counters, ways of asking, workers and links for which counters are written at each tick,
and not only when a window ends."""

_pack_hop: Final = PACKED_HOP.pack
_NEVER: Final = 1 << 62


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
        epoch: As given.
        left: Messages until the next sample. Who sends one takes one off, and if that leaves none
            has it looked at: see `MessageLog.enters`.
        threshold: What `sampled` takes, for ids that came from elsewhere.
        weight: How many one that is sampled here stands for.
        naming: The numbers that names, routes and tag sets have in this segment.
        flows: The counters.
        requests: What a broker tells of.
        messages: What the node tells of.
        links: Where links are counted, if they are.
        now: As given.
        chance: As given.
    """

    __slots__ = (
        "_clock",
        "_events",
        "_hops",
        "_ids",
        "_keep",
        "_output",
        "_reject_bytes",
        "_rejects",
        "_rows",
        "_seq",
        "_wall",
        "_windows",
        "chance",
        "epoch",
        "flows",
        "left",
        "links",
        "messages",
        "naming",
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
        self.threshold: Final = threshold_of(options.sample_rate)
        self.weight: Final = weight_of_rate(options.sample_rate)
        self.left = self.gap()
        output = Output(sink, options, log_id=log_id, epoch=epoch, clock=clock, now=now)
        self._output: Final = output
        self.naming: Final = output.naming
        self.flows: Final = FlowTable(options.max_flows)
        self.requests: Final = RequestLog(self, node)
        self.messages: Final = MessageLog(self, node)
        self.links: FlowSampler | None = None
        self._events: Final = EventBuffer(output)
        self._rejects: Final = PerSecond(options.max_rejects_per_second, now)
        self._reject_bytes: Final = Budget(
            options.max_event_bytes_per_second, options.max_event_burst, now
        )
        self._rows: Final = FlowRows(self.flows, output, options.max_flows)
        self._clock: Final = clock
        self._wall: Final = WallClock(clock, now)
        self._windows: Final = Windows(options.window_seconds)
        self._ids: Final = random.Random(int(chance() * 2**53) ^ time.time_ns())  # noqa: S311
        self._hops: Final[list[bytes]] = []
        self._keep: Final = self._hops.append
        self._seq = 0

    # --- hops -----------------------------------------------------------------------------

    def hop(
        self,
        trace_id: int,
        shard_hash: int,
        codes: int,
        ends: bytes,
        latency_us: int,
        size: int,
        weight: int,
    ) -> None:
        """Record a hop, as of now.

        Args:
            trace_id: Which message; 64 bits, as is the next.
            shard_hash: The hash of the tags that choose; else 0.
            codes: From `codes_of`.
            ends: From `SegmentDictionary.known` or `SegmentDictionary.learn`, for this segment.
            latency_us: From its coming to its end here, in microseconds; 32 bits, as are the rest.
            size: Bytes of its payload.
            weight: How many it stands for.
        """
        self._seq = seq = self._seq + 1
        try:
            self._keep(
                _pack_hop(
                    seq,
                    self._clock() // 1000,
                    trace_id,
                    shard_hash,
                    codes,
                    ends,
                    latency_us,
                    size,
                    weight,
                )
            )
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._output.unpacked(HOPS, error)
            return
        if len(self._hops) == HOPS_A_BLOCK:
            self._write_hops()
            self._look_at_size()

    def _write_hops(self) -> None:
        hops = self._hops
        if hops:
            body = b"".join(hops)
            count = len(hops)
            hops.clear()
            self._output.put(HOPS, count, b"R", body)

    # --- sampling -------------------------------------------------------------------------

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

    # --- route events ---------------------------------------------------------------------

    def event(
        self,
        name: EventName,
        route_id: bytes | None = None,
        node: str = "",
        tags: TagList = (),
        reason: str = "",
    ) -> None:
        """Record that something has happened, as of now."""
        self._seq += 1
        self._events.add(self._seq, self._wall.us(), name, route_id, node, tags, reason)

    def lose(self, reason: str) -> None:
        """Record that something is not in the log; again, if the disk loses that too."""
        self._output.losses.said(self._say(reason), reason)

    def _say(self, reason: str) -> Receipt:
        self._seq += 1
        return self._events.add(self._seq, self._wall.us(), EventName.LOST, None, "", (), reason)

    def reject(self, tags: TagList, reason: str) -> None:
        """Record a request that nobody could take, unless there were too many or too large ones."""
        rejects = self._rejects
        if not rejects.take():
            return
        if self._reject_bytes.take(size_of_event("", tags, reason)):
            self.event(EventName.REJECT, tags=tags, reason=reason)
        else:
            rejects.left_out += 1

    # --- flows ----------------------------------------------------------------------------

    def write_flows(self) -> bool:
        """Write a block of the flows of windows that are over; say whether there are more.

        What cannot be written now stays, and is written later: see `FlowTable.rows`.
        """
        written = self._rows.write(self._seq)
        self._seq += written
        return written > 0 and bool(self.flows.rows)

    def _write_all_flows(self) -> None:
        self._rows.look()
        self._rows.let_go()
        while self.write_flows():
            self._rows.let_go()
        self._seq += self._rows.drop_rest()

    def _end_window(self) -> None:
        current = self._windows.of(self._wall.us())
        if current != self._windows.start:
            self._close_window()
            self._windows.start = current
        elif self._is_little():
            # A process that is killed now loses no more than it has counted since the last tick.
            self.flows.settle(current, self._windows.length_ms)

    def _is_little(self) -> bool:
        """Say whether to write counters within a window costs next to nothing."""
        links = self.links
        return (
            max(self.flows.counted_on, self.requests.kept) <= MAX_EARLY
            and (links is None or links.known <= MAX_EARLY)
            and not self.flows.rows
        )

    def _close_window(self) -> None:
        self.flows.end_window(self._windows.start, self._windows.length_ms)

    # --- segments -------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the first segment."""
        self._output.closed = False
        self._windows.start = self._windows.of(self._wall.us())
        self._wall.step()
        self._begin_segment()

    def tick(self) -> None:
        """Do what is due: write what is kept, end the window, end the segment."""
        output = self._output
        if output.closed:
            return
        if output.broken:
            output.guarded(self._turn_over)
        for step in (
            self._look_at_clock,
            self.requests.destinations.catch_up,
            self._end_window,
            self._tell_lost,
            self._write_hops,
            self._events.write,
            self._turn_over,
        ):
            output.guarded(step)

    def close(self) -> None:
        """Write all there is and end the segment; what is recorded from now on is dropped."""
        output = self._output
        if output.closed:
            return
        for step in (
            self.requests.destinations.finish,
            self._close_window,
            self._write_all_flows,
            self._tell_lost,
            self._write_hops,
            self._events.write,
            self._end_segment,
        ):
            output.guarded(step)
        output.closed = True

    def _turn_over(self) -> None:
        if self._output.due:
            self._end_segment()
            self._begin_segment()

    def _look_at_size(self) -> None:
        output = self._output
        if output.full and not output.closed:
            output.guarded(self._end_segment)
            output.guarded(self._begin_segment)

    def _begin_segment(self) -> None:
        self._output.begin(self._seq + 1)

    def _end_segment(self) -> None:
        self._write_hops()
        if not any(self._output.segment) and not self._events:
            # Or nobody could tell an idle log from one that has ended.
            self.event(EventName.IDLE)
        self._events.write()
        self._output.end(self._seq)

    def _look_at_clock(self) -> None:
        """Record that the clock was set, if it has moved otherwise than time has passed."""
        step = self._wall.step()
        if step:
            self.event(EventName.CLOCK, reason=f"{step:+d} us")

    def _tell_lost(self) -> None:
        """Have the log say what it has lost. If that is lost, it is said with what follows."""
        output = self._output
        # What was taken and not written; the flows among it are taken back.
        self._rows.look()
        output.look_at_losses()
        lost = output.losses.take()
        for reason, count in lost:
            receipt = self._say(f"{count} events: {reason}" if count else reason)
            output.losses.said(receipt, reason, count)
        if lost:
            self._events.write()

    # --- looking at it --------------------------------------------------------------------

    def ended(self) -> None:
        """Count what the disk has lost since `close`, once the writer is closed too."""
        self._output.look_at_losses()

    def statistics(self) -> RecorderStatistics:
        """Return what has been recorded so far."""
        output = self._output
        total = output.total
        return RecorderStatistics(
            hops=total[HOPS] + len(self._hops),
            flows=total[FLOWS],
            events=total[EVENTS] + len(self._events),
            segments=output.segments,
            dropped=dict(output.losses.dropped),
            marks_left_out=self.messages.left_out,
            rejects_left_out=self._rejects.left_out,
            changes_left_out=self.requests.destinations.left_out,
            foreign_left_out=self.requests.foreign.left_out,
            without_number=output.naming.refused + self.requests.without_tags,
            folded=self.flows.folded,
        )
