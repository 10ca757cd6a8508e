"""The places of the processes of `onward broker --processes`, and those that run there."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio.subprocess import Process as Subprocess
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ._process import ASKED, Place, Totals
from ._process_channel import Channel, ChannelClosed, Said
from ._run import Pace
from ._status import CommandError, Status

__all__ = ["LATE", "MAX_ENDS", "WINDOW", "Child", "Slot"]

_logger: Final = logging.getLogger("onward.cli")

START: Final = 60.0
"""Most seconds for the start of a process; then it is killed."""

MAX_ENDS: Final = 5
"""Most ends of one process within `WINDOW`; at one more the broker ends with an error."""

WINDOW: Final = 60.0
"""Seconds in which the ends of a process are counted."""

FIRST: Final = 0.1
"""Seconds before a process that has ended is started anew; doubled with each end in `WINDOW`."""

LONGEST: Final = 5.0
"""Most seconds before that."""

LATE: Final = 2.0
"""Seconds for the end of processes that stop at once; then they are killed."""

PULSE: Final = 5.0
"""Seconds between two questions whether a process is alive."""

SILENT: Final = 5.0
"""Seconds in which it has to answer, or to write anything else."""

MISSED: Final = 2
"""Answers that may be missing one after the other; at one more the process is killed."""


class Child:
    """A process that runs.

    Attributes:
        place: Its place.
        started: The URIs of its listeners, once they are open.
        over: The task that ends with it, and returns its status.
        totals: Its figures at the end, once it has told them.
        log: Those of its event log, if any.
        silent: Whether it has not answered the last question in time, of those that have to be
            answered soon.
        failed: Why it could not start; `None` if it has not told that.
    """

    def __init__(
        self,
        place: Place,
        process: Subprocess,
        answer: Callable[[str, Said], Awaitable[Said]],
        own: socket.socket,
    ) -> None:
        self.place = place
        self.process = process
        self.started: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.totals: Totals | None = None
        self.log = ""
        self.silent = False
        self.failed: CommandError | None = None
        self._answer = answer
        self._own = own
        self._channel: Channel | None = None
        self.over: asyncio.Task[int] = asyncio.create_task(self._follow())

    @property
    def serves(self) -> bool:
        """Whether its listeners are open, or were, and it runs."""
        return self.started.done() and not self.over.done()

    async def _follow(self) -> int:
        self._channel = channel = await Channel.open(self._own, self._answered)
        late = asyncio.get_running_loop().call_later(START, self._late)
        pulse = asyncio.create_task(self._pulse(channel))
        try:
            status = await self.process.wait()
            # Its last words are in the channel, which ends with it.
            await asyncio.wait({channel.over}, timeout=LATE)
        finally:
            late.cancel()
            pulse.cancel()
            await channel.close()
        return status

    def _late(self) -> None:
        if not self.started.done():
            self.failed = CommandError(f"it has not started within {START:g} s")
            self.signal(kill=True)

    async def _pulse(self, channel: Channel) -> None:
        """Kill it when it has hung for some time: its port still gets its share of connections."""
        await asyncio.shield(self.started)
        missed = 0
        while missed <= MISSED:
            await asyncio.sleep(PULSE)
            try:
                missed = 0 if await channel.pulse(SILENT) else missed + 1
            except ChannelClosed:
                return
            self.silent = missed > 0
        self.failed = CommandError("it has hung, and was killed")
        self.signal(kill=True)

    async def ask(self, what: str, timeout: float = ASKED, **values: object) -> Said:
        """Ask it; raises as `Channel.ask`."""
        if self._channel is None:
            raise ChannelClosed
        return await self._channel.ask(what, timeout, **values)

    def stop(self, pace: Pace) -> None:
        """Stop it at a pace."""
        if self.started.done() and self._channel is not None:
            self._channel.tell("stop", pace=pace.name)
        else:
            self.signal(kill=False)  # it may not listen yet, and has no clients

    def signal(self, *, kill: bool) -> None:
        """Terminate or kill it."""
        with suppress(ProcessLookupError):
            (self.process.kill if kill else self.process.terminate)()

    async def _answered(self, what: str, said: Said) -> Said:
        if what == "started" and not self.started.done():
            self.started.set_result(said["listeners"])
        elif what == "failed":
            self.failed = CommandError(said["text"], Status(said["status"]))
        elif what == "totals":
            self.totals, self.log = Totals(*said["totals"]), said["log"]
        else:
            return await self._answer(what, said)
        return {}

    def obituary(self) -> str:
        """Describe how it ended."""
        if self.failed is not None:
            return f"has failed: {self.failed}"
        status = self.over.result()
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


class Slot:
    """The place of a process: the one that runs there, and those before it.

    Attributes:
        index: Its number.
        broker_id: The identity of the broker there.
        child: The process; `None` between two.
        ends: The times of the last ends.
        due: The time at which the next one is started.
        count: How many have ended, not in a drain.
    """

    def __init__(self, index: int, broker_id: str) -> None:
        self.index = index
        self.broker_id = broker_id
        self.child: Child | None = None
        self.ends: deque[float] = deque()
        self.due = 0.0
        self.count = 0

    def ended(self, now: float) -> None:
        """Set the time for the next one.

        Raises:
            CommandError: They end too often.
        """
        if self.child is None:
            raise AssertionError("no process has ended")
        told, self.child = self.child.obituary(), None
        self.count += 1
        while self.ends and self.ends[0] <= now - WINDOW:
            self.ends.popleft()
        if len(self.ends) >= MAX_ENDS:
            raise CommandError(
                f"process {self.index} {told}; it has ended more than {MAX_ENDS} times "
                f"within {WINDOW:g} s"
            )
        delay = min(LONGEST, FIRST * 2 ** len(self.ends))
        self.ends.append(now)
        self.due = now + delay
        _logger.error(
            "process %d %s; it is started anew in %g s",
            self.index,
            told,
            delay,
            extra={"event": "process.ended", "reason": told},
        )
