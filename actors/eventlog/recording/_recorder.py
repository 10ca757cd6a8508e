"""The recorder, called on the loop's thread where messages and requests are routed.

A hop is packed and stored until a block of 64 KiB is full; another thread writes the files. Each
record takes the next number of the log, so the numbers are in order within the blocks of one type,
as the format requires.

Records that do not get into the log are counted by reason. The log records them as soon as it can,
in an event `LOST`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from math import log
from typing import TYPE_CHECKING, Final

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName, threshold_of, weight_of_rate
from ...instruments._instrument import Instrument, Linked, TracedMessage, Watch
from .._options import LogOptions
from .._statistics import RecorderStatistics
from ..storage._output import EVENTS, FLOWS, HOPS, Output, Sink
from ._clocks import Budget, PerSecond, WallClock, Windows
from ._events import EventBuffer, size_of_event
from ._flows import FlowTable, write_rows
from ._messages import PACKED_HOP, MessageLog
from ._requests import RequestLog

if TYPE_CHECKING:
    from ....protocol import Address, Context, Message
    from ..._worker import Worker
    from ._flow_sampler import FlowSampler

__all__ = ["Recorder"]

HOPS_A_BLOCK: Final = 1024
"""Number of hops that fill a block: 64 KiB, which take 120 KiB of memory."""

MAX_EARLY: Final = 1000
"""Most counters, selectors, workers and links with which counters are written at each tick, and not
only at the end of a window."""

_pack_hop: Final = PACKED_HOP.pack
_NEVER: Final = 1 << 62


class Recorder(Instrument):
    """A recorder of hops, flows and route events. For the loop's thread only.

    Call `begin` first, `tick` about once a second, and `close` last.

    Args:
        sink: The receiver of blocks.
        options: The limits and intervals.
        node: The node's name.
        log_id: The log's identity, 16 bytes.
        epoch: The number of this run.
        clock: Returns nanoseconds since the Unix epoch.
        now: Returns a monotonic time in seconds.
        chance: Returns a random number, 0 or more and less than 1.

    Attributes:
        options: The limits and intervals.
        epoch: The number of this run.
        threshold: The threshold of `sampled`, for trace ids of other nodes.
        weight: The number of messages that a sample stands for.
        naming: The numbers of names, routes and tag sets in this segment.
        flows: The flow counters.
        requests: The record of a broker.
        messages: The record of the node's messages.
        links: The sampler of workers and links, if there is one.
        now: Returns a monotonic time in seconds.
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
        "_seq",
        "_wall",
        "_windows",
        "chance",
        "epoch",
        "flows",
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
        self._clock: Final = clock
        self._wall: Final = WallClock(clock, now)
        self._windows: Final = Windows(options.window_seconds)
        self._ids: Final = random.Random(int(chance() * 2**53) ^ time.time_ns())  # noqa: S311
        self._hops: Final[list[bytes]] = []
        self._keep: Final = self._hops.append
        self._seq = 0

    # --- what the node tells --------------------------------------------------------------

    def sample_gap(self) -> int:
        """Return the number of messages up to the next sample."""
        return self.gap() if self.options.sample_rate > 0 else 0

    def message_sampled(self, context: Context | None) -> Context | None:
        """Return the context of a message with the log's mark."""
        return self.messages.enters(context)

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        """Return the hop of a marked message."""
        return self.messages.traced(worker, traced)

    def messages_arrived(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        """Return messages that have arrived over a link, with their marks for this node."""
        return self.messages.arrive(messages, waits_for)

    def reply_traced(self, message: Message) -> None:
        """Record that a reply has reached its request."""
        self.messages.answered(message)

    def worker_stopped(self, worker: Worker) -> None:
        """Count a worker for the last time."""
        if self.links is not None:
            self.links.stopped(worker)

    def link_opened(self, link: Linked) -> None:
        """Count a link from now on."""
        if self.links is not None:
            self.links.link(link)

    def link_connected(self, link: Linked) -> None:
        """Count the messages of a link's previous connection."""
        if self.links is not None:
            self.links.settle(link)

    def broker_part(self) -> object:
        """Return the record of requests."""
        return self.requests

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
        """Record a hop with the current time.

        Args:
            trace_id: The trace id of the message; 64 bits, as is the next.
            shard_hash: The hash of a shard or sticky key; else 0.
            codes: From `codes_of`.
            ends: From `SegmentDictionary.known` or `SegmentDictionary.learn`, for this segment.
            latency_us: The time from arrival to end, in microseconds; 32 bits, as are the rest.
            size: Bytes of its payload.
            weight: The number of messages that it stands for.
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
        except Exception as error:  # noqa: BLE001 - a defect must not stop the routing
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
        """Return a random number of calls until the next sample."""
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
        """Record an event with the current time."""
        self._seq += 1
        self._events.add(self._seq, self._wall.us(), name, route_id, node, tags, reason)

    def lose(self, reason: str) -> None:
        """Record a loss in an event `LOST`."""
        self.event(EventName.LOST, reason=reason)

    def reject(self, tags: TagList, reason: str) -> None:
        """Record a request without a destination, within the limits."""
        rejects = self._rejects
        if not rejects.take():
            return
        if self._reject_bytes.take(size_of_event("", tags, reason)):
            self.event(EventName.REJECT, tags=tags, reason=reason)
        else:
            rejects.left_out += 1

    # --- flows ----------------------------------------------------------------------------

    def write_flows(self) -> bool:
        """Write a block of flows of past windows, or drop it; return whether there are more."""
        self._seq += write_rows(self.flows.rows, self._output, self._seq)
        return bool(self.flows.rows)

    def _write_all_flows(self) -> None:
        while self.write_flows():
            pass

    def _end_window(self) -> None:
        current = self._windows.of(self._wall.us())
        if current != self._windows.start:
            self._close_window()
            self._windows.start = current
        elif self._is_little():
            # A process that is killed loses only the counts since the last tick.
            self.flows.settle(current, self._windows.length_ms)

    def _is_little(self) -> bool:
        """Whether counters within a window can be written at next to no cost."""
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
        """Write the buffers, and end the window and the segment if they are due."""
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
        """Write everything and end the segment; later records are dropped."""
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
            # It distinguishes an idle log from one that has ended.
            self.event(EventName.IDLE)
        self._events.write()
        self._output.end(self._seq)

    def _look_at_clock(self) -> None:
        """Record a step of the wall clock."""
        step = self._wall.step()
        if step:
            self.event(EventName.CLOCK, reason=f"{step:+d} us")

    def _tell_lost(self) -> None:
        """Record the losses in events `LOST`."""
        output = self._output
        output.look_at_losses()
        lost = output.take_losses()
        if lost:
            self._events.write()
            for reason, count in lost.items():
                self.lose(f"{count} events: {reason}")
            if not self._events.write():
                output.keep_losses(lost)

    # --- inspection -----------------------------------------------------------------------

    def ended(self) -> None:
        """Count what the disk has lost since `close`, once the writer is closed."""
        self._output.look_at_losses()

    def statistics(self) -> RecorderStatistics:
        """Return the current figures."""
        output = self._output
        total = output.total
        return RecorderStatistics(
            hops=total[HOPS] + len(self._hops),
            flows=total[FLOWS],
            events=total[EVENTS] + len(self._events),
            segments=output.segments,
            dropped=dict(output.dropped),
            marks_left_out=self.messages.left_out,
            rejects_left_out=self._rejects.left_out,
            changes_left_out=self.requests.destinations.left_out,
            foreign_left_out=self.requests.foreign.left_out,
            without_number=output.naming.refused + self.requests.without_tags,
            folded=self.flows.folded,
        )
