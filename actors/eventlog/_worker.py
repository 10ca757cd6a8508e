"""The worker that records a node's event log, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import TAGS, counted
from ...protocol.options import check_value
from .._errors import LimitReached
from .._worker import Worker
from ..instruments._instrument import Instrument
from ..runtime._clock import clock_of
from ._options import LogOptions
from ._statistics import EventLogStatistics
from .recording._flow_sampler import FlowSampler
from .recording._recorder import Recorder
from .storage._writer import LogWriter

if TYPE_CHECKING:
    from .._node import Node
    from ..routing._dead_letters import DeadLetter

__all__ = ["EventLog"]

DEFAULT_ADDRESS: Final = "onward/eventlog"
"""An address that programs do not use by accident."""

LEAST_SECONDS: Final = 0.05
"""Least seconds that the end waits for the disk."""

_logger: Final = logging.getLogger("onward.actors.eventlog")


class EventLog(Worker):
    """A worker that records the messages and requests of a node and its broker.

    Attach it before anything else, so that it records everything:

        async with Node("edge") as node:
            await EventLog.attach(node, LogOptions(Path("log"), "edge"))
            broker = await Broker.attach(node)

    After a broker it logs a warning: existing destinations and connections are not in the log.
    It stops after all other workers and the transports, and records the losses at their end.

    Args:
        options: The log's place, limits and intervals.
    """

    stops_last: ClassVar[bool] = True

    def __init__(self, options: LogOptions) -> None:
        check_value("options", options, LogOptions)
        super().__init__()
        self.options: Final = options
        self._writer: Final = LogWriter(options)
        self._recorder: Recorder | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @classmethod
    async def attach(cls, node: Node, options: LogOptions) -> EventLog:
        """Start the event log of a node.

        After an error the log can be attached again.

        Raises:
            AddressInUse: The node has an event log.
            LogInUse: Another process writes the log of that name.
            EventLogError: The folder has a file of the last possible epoch.
            OSError: The folder cannot be written.
        """
        log = cls(options)
        await node.start(lambda: log, address=DEFAULT_ADDRESS)
        return log

    @property
    def recorder(self) -> Recorder:
        """The recorder; for the loop's thread only."""
        if self._recorder is None:
            raise AssertionError("the event log has not been started")
        return self._recorder

    async def on_start(self) -> None:
        """Open the log and begin to record."""
        self._check_alone()
        opening = asyncio.ensure_future(asyncio.to_thread(self._writer.open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on; its result must not keep the folder's lock.
            opening.add_done_callback(self._opened_in_vain)
            raise
        try:
            self._begin()
        except BaseException:
            await asyncio.to_thread(self._writer.close, self.options.close_seconds)
            raise

    def _check_alone(self) -> None:
        instruments = self.node.instruments
        if instruments is not None and instruments.broker is not None:
            raise LimitReached("event logs of a node", 1)

    def _opened_in_vain(self, opening: asyncio.Future[int]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._writer.close(0.0)

    def _begin(self) -> None:
        node = self.node
        # Another log may have been attached while this one opened.
        self._check_alone()
        recorder = Recorder(self._writer, self.options, node.name, now=clock_of(node.loop))
        recorder.begin()
        self._recorder = recorder
        recorder.links = FlowSampler(recorder, node)
        self._unsubscribe = node.dead_letters.subscribe(self._on_dead_letter)
        if TAGS in node.parts.router.rules.made:
            text = (
                "the event log %s begins after the broker: destinations and requests of earlier "
                "connections are not in it; attach it first"
            )
            _logger.warning(text, self.options.name, extra={"event": "event_log.late"})
        node.add_instrument(recorder)
        before = node.find_instrument(_Figures)
        if before is not None:
            node.remove_instrument(before)
        node.add_instrument(_Figures(self))
        self.every(self.options.flush_seconds, self._tick)

    async def _tick(self) -> None:
        recorder = self.recorder
        recorder.tick()
        # In parts: there may be many flows, and the loop runs other tasks in between.
        while recorder.write_flows():  # noqa: ASYNC110 - each call writes a block
            await asyncio.sleep(0)

    def _on_dead_letter(self, letter: DeadLetter) -> None:
        context = letter.message.context
        if context is None or context.trace is None:
            return
        recorder = self.recorder
        if get_ident() == self.node.parts.run_queue.thread_id:
            recorder.messages.lost(letter)
        else:
            self.node.parts.run_queue.call_on_loop(lambda: recorder.messages.lost(letter))

    async def on_stop(self) -> None:
        """Record the rest, and wait for the disk as long as there is time.

        Data not written by then are logged, and counted as `pending` in the writer's statistics.
        """
        recorder = self._recorder
        if recorder is None:
            return
        if self._unsubscribe is not None:
            self._unsubscribe()
        self.node.remove_instrument(recorder)
        recorder.close()
        writer = self._writer
        await asyncio.to_thread(writer.close, self._left())
        trouble = writer.trouble()
        if trouble is not None:
            lost = sum(recorder.statistics().dropped.values())
            text = "the event log %s has ended incomplete: %s%s"
            figure = f"; lost since the start: {counted(lost, 'record')}" if lost else ""
            _logger.warning(
                text, self.options.name, trouble, figure, extra={"event": "event_log.unwritten"}
            )

    def _left(self) -> float:
        """Return how long the disk may be waited for, in seconds: `close_seconds` at most.

        The node cancels a worker after half of its time to stop.
        """
        most = self.options.close_seconds
        deadline = self._placed.deadline
        if deadline is None:
            return most
        left = (deadline - self.node.loop.time()) / 2
        return max(LEAST_SECONDS, min(most, left - LEAST_SECONDS))

    def statistics(self) -> EventLogStatistics:
        """Return the log's current figures."""
        writer = self._writer
        return EventLogStatistics(
            self.recorder.statistics(), writer.statistics(), writer.trouble() or ""
        )


class _Figures(Instrument):
    """The statistics of a node's event log, which can be read after its end as well."""

    __slots__ = ("_log",)

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def figures(self) -> Mapping[str, object]:
        """Return the statistics as `event_log`."""
        return {"event_log": asdict(self._log.statistics())}
