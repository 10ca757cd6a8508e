"""The recorder, called on the loop's thread where messages and requests are routed.

A hop is packed and stored until a block of 64 KiB is full; another thread writes the files. Each
record takes the next number of the log, so the numbers are in order within the blocks of one type,
as the format requires.

Records that do not get into the log are counted by reason. The log records them as soon as it can,
in an event `LOST`.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from typing import TYPE_CHECKING, Final

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName, threshold_of, weight_of_rate
from ...instruments._instrument import Instrument, Linked, TracedMessage, Watch
from .._options import LogOptions
from .._statistics import RecorderStatistics
from ..storage._output import BROKEN, CLOSED, EVENTS, FLOWS, HOPS, Output, Sink
from ._events import EventBuffer, size_of_event
from ._flows import FlowTable
from ._messages import PACKED_HOP, MessageLog
from ._names import NameLog
from ._rate_limit import RateLimit
from ._requests import RequestLog

if TYPE_CHECKING:
    from ....protocol import Address, Context, Message
    from ..._worker import Worker
    from ._flow_sampler import FlowSampler

__all__ = ["Recorder"]

HOPS_A_BLOCK: Final = 1024
"""Number of hops that fill a block: 64 KiB, which take 120 KiB of memory."""

_pack_hop: Final = PACKED_HOP.pack
_NEVER: Final = 1 << 62


class Recorder(Instrument):
    """A recorder of hops, flows and route events. For the loop's thread only.

    Call `begin` first, `tick` about once a second, and `close` last.

    Args:
        sink: The receiver of blocks.
        options: The limits and intervals.
        node: The node's name.
        clock: Returns nanoseconds since the Unix epoch.
        now: Returns a monotonic time in seconds.
        chance: Returns a random number, 0 or more and less than 1.

    Attributes:
        options: The limits and intervals.
        left_out: What the limits have kept out of the log: see `RecorderStatistics`.
        threshold: The threshold of `sampled`, for trace ids of other nodes.
        weight: The number of messages that a sample stands for.
        naming: The numbers of names, routes and tag sets in this segment.
        flows: The flow counters.
        requests: The record of a broker.
        messages: The record of the node's messages.
        names: The record of a dispatcher.
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
        "_rejects",
        "_seq",
        "_window_us",
        "chance",
        "flows",
        "left_out",
        "links",
        "messages",
        "names",
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
        clock: Callable[[], int] = time.time_ns,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.options: Final = options
        self.now: Final = now
        self.chance: Final = chance
        self.left_out: Final[Counter[str]] = Counter()
        self.threshold: Final = threshold_of(options.sample_rate)
        self.weight: Final = weight_of_rate(options.sample_rate)
        output = Output(sink, options, clock=clock, now=now)
        self._output: Final = output
        self.naming: Final = output.naming
        self.flows: Final = FlowTable(options.max_flows)
        self.requests: Final = RequestLog(self, node)
        self.messages: Final = MessageLog(self, node)
        self.names: Final = NameLog(self.flows)
        self.links: FlowSampler | None = None
        self._events: Final = EventBuffer(output)
        self._rejects: Final = RateLimit(
            options.max_event_bytes_per_second, options.max_event_burst, now
        )
        self._clock: Final = clock
        self._ids: Final = random.Random(int(chance() * 2**53) ^ time.time_ns())  # noqa: S311
        self._hops: Final[list[bytes]] = []
        self._keep: Final = self._hops.append
        self._seq = 0
        self._window_us = 0

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

    def names_part(self) -> object:
        """Return the record of messages to names."""
        return self.names

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
        except struct.error as error:
            self._output.total[HOPS] += 1
            self._output.drop(1, BROKEN)
            self._output.log_defect(error)
            return
        if len(self._hops) == HOPS_A_BLOCK:
            self._write_hops()
            if self._output.full:
                self._output.guarded(self._turn_over)

    def _write_hops(self) -> None:
        if self._hops:
            body = b"".join(self._hops)
            count = len(self._hops)
            self._hops.clear()
            self._output.put(HOPS, count, lambda: body)

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
        self._events.add(self._seq, self._clock() // 1000, name, route_id, node, tags, reason)

    def reject(self, tags: TagList, reason: str) -> None:
        """Record a request without a destination, within the limit."""
        if self._rejects.take(size_of_event("", tags, reason)):
            self.event(EventName.REJECT, tags=tags, reason=reason)
        else:
            self.left_out["rejects"] += 1

    # --- flows ----------------------------------------------------------------------------

    def write_flows(self) -> bool:
        """Write a block of flows of past windows, or drop it; return whether there was one."""
        count = self.flows.write(self._output, self._seq)
        self._seq += count
        return count > 0

    def _write_all_flows(self) -> None:
        while self.write_flows():
            pass

    def _window_now(self) -> int:
        length = int(self.options.window_seconds * 1e6)
        return self._clock() // 1000 // length * length

    def _end_window(self) -> None:
        # The windows of all logs begin at the same times. A clock that is set begins another one.
        if self._window_now() != self._window_us:
            self._close_window()
            self._window_us = self._window_now()

    def _close_window(self) -> None:
        self.flows.end_window(self._window_us, int(self.options.window_seconds * 1000))

    # --- segments -------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the first segment."""
        self._window_us = self._window_now()
        self._output.begin(self._seq)

    def tick(self) -> None:
        """Write the buffers, and end the window and the segment if they are due."""
        output = self._output
        if output.refusing is CLOSED:
            return
        for step in (
            self._turn_over,
            self.requests.destinations.catch_up,
            self._end_window,
            self._report_losses,
            self._write_hops,
            self._events.write,
        ):
            output.guarded(step)

    def close(self) -> None:
        """Write everything and end the segment; later records are dropped."""
        output = self._output
        if output.refusing is CLOSED:
            return
        if output.refusing is not None:
            # Another segment may have room for the report of what was lost.
            output.guarded(self._turn_over)
        for step in (
            self.requests.destinations.finish,
            self._close_window,
            self._write_all_flows,
            self._report_losses,
            self._end_segment,
        ):
            output.guarded(step)
        output.refusing = CLOSED

    def _turn_over(self) -> None:
        if self._output.due:
            self._end_segment()
            self._output.begin(self._seq)

    def _end_segment(self) -> None:
        self._write_hops()
        if not self._output.records and not self._events:
            # It distinguishes an idle log from one that has ended.
            self.event(EventName.IDLE)
        self._events.write()
        self._output.end(self._seq)

    def _report_losses(self) -> None:
        """Record the losses in events `LOST`."""
        losses = self._output.take_losses()
        if losses:
            self._events.write()
            for reason, count in losses.items():
                self.event(EventName.LOST, reason=f"{count} events: {reason}")
            if not self._events.write():
                self._output.keep_losses(losses)

    # --- inspection -----------------------------------------------------------------------

    def statistics(self) -> RecorderStatistics:
        """Return the current figures."""
        output = self._output
        output.look_at_losses()
        total, left_out = output.total, dict(self.left_out)
        more = {"names": output.naming.left_out, "flows": self.flows.folded}
        for name, count in more.items():
            if count:
                left_out[name] = left_out.get(name, 0) + count
        return RecorderStatistics(
            hops=total[HOPS] + len(self._hops),
            flows=total[FLOWS],
            events=total[EVENTS] + len(self._events),
            segments=output.segments,
            dropped=dict(output.dropped),
            left_out=left_out,
        )
