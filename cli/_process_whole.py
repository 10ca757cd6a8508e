"""All processes of `onward broker --processes` as one, for its operators."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, cast

from ..actors import Node
from ..actors._log import SeldomLogger
from ..transports.admin import (
    HttpError,
    HttpRequest,
    HttpResponse,
    Whole,
    inner_paths,
    whole_paths,
)
from ..transports.admin._part_paths import PART
from ..transports.admin._parts import (
    DEADLINE,
    PartMissing,
    part_request,
)
from ._admin import options_of, serve_admin
from ._broker_plan import Plan
from ._process import answer_of, response_of, said_of
from ._process_channel import ChannelClosed, Said
from ._process_slot import Slot
from ._service import Service
from ._status import CommandError

__all__ = ["ProcessParts", "WholeBroker"]

_logger: Final = logging.getLogger("onward.cli")

SOON: Final = 0.2
"""Seconds in which a process has to answer that has not answered the last question in time."""

POLL: Final = 30
"""Seconds for which a question for the next events waits for one."""

PAUSE: Final = 0.05
"""Seconds between two questions for the next events of a process: some 2000 events a second are
kept, and those beyond are counted as missed."""

AGAIN: Final = 1.0
"""Seconds after which a process that cannot be asked for events is asked again."""


class ProcessParts:
    """The processes, as those that are asked for what all together have.

    Args:
        slots: Their places.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all processes that there should be."""
        return range(len(self._slots))

    def run_of(self, number: int) -> str:
        """Return a text that tells this run of a process from others."""
        return str(self._slots[number].count)

    def ends_of(self, number: int) -> int:
        """Return how often a process has ended."""
        return self._slots[number].count

    async def ask(self, number: int, request: HttpRequest, timeout: float) -> HttpResponse:
        """Return the answer of a process, with its whole body.

        Raises:
            PartMissing: It does not run, or has not answered in time.
            HttpError: It refuses the request.
        """
        child = self._slots[number].child
        if child is None or child.over.done():
            raise PartMissing
        quick = timeout <= DEADLINE
        try:
            said = await child.ask(
                "path",
                min(timeout, SOON) if child.silent and quick else timeout,
                **await said_of(request),
            )
        except ChannelClosed:
            raise PartMissing from None
        except CommandError:
            child.silent |= quick
            raise PartMissing from None
        child.silent = False
        return response_of(said)


class WholeBroker:
    """The broker that all processes are.

    Args:
        name: The name of its node.
        slots: The places of the processes.
        operations: The operations on all processes, by name.
    """

    def __init__(
        self,
        name: str,
        slots: Sequence[Slot],
        operations: Mapping[str, Callable[[], Awaitable[object]]],
    ) -> None:
        self.parts = ProcessParts(slots)
        self._whole = Whole(name, self.parts, operations)
        self._paths = inner_paths(self._whole)
        self._seldom = SeldomLogger(_logger)

    @asynccontextmanager
    async def administered(
        self, plan: Plan, service: Service, began: float | None = None
    ) -> AsyncGenerator[str | None]:
        """Keep the events of all processes, and serve the admin interface if it is asked for.

        Args:
            plan: The broker that the options ask for.
            service: The ties to the system, with the parts that a reload reads anew.
            began: The time of its start; by default now.

        Yields:
            The URI of the admin interface; `None` without one.

        Raises:
            CommandError: It cannot be served.
        """
        self._whole.began = time.time() if began is None else began
        async with AsyncExitStack() as stack:
            uri: str | None = None
            if plan.admin is not None:
                stack.push_async_callback(plan.methods.close)
                node = await stack.enter_async_context(Node(self._whole.name))
                plan.methods.runs_on(node)
                options = options_of(plan.admin)
                # Its streams of events have the limits of the interface.
                paths = whole_paths(self._whole, options)
                uri = await serve_admin(node, plan.admin, paths, options, service)
            followers = [asyncio.create_task(self._follow(number)) for number in self.parts.numbers]
            try:
                yield uri
            finally:
                for task in followers:
                    task.cancel()
                await asyncio.wait(followers)

    async def asked(self, said: Said) -> Said:
        """Answer a process that asks on behalf of a client."""
        return await answer_of(self._paths, said)

    async def _follow(self, number: int) -> None:
        """Keep the events of a process, and of those in its place after it."""
        follower = _Follower(self._whole, number)
        while True:
            try:
                await follower.take()
                pause = PAUSE
            except (PartMissing, HttpError):
                pause = AGAIN
            except Exception as error:  # noqa: BLE001 - it would end the events of the process
                # Its other answers are not touched: it is not missing. Watchers are told how many
                # events were lost.
                self._whole.faults[number] += 1
                self._seldom.log(
                    logging.ERROR,
                    str(number),
                    "the events of process %d could not be read; they are asked for again",
                    number,
                    error=error,
                    extra={"event": "process.event_fault"},
                )
                pause = AGAIN
            await asyncio.sleep(pause)


class _Follower:
    """The reader of the events of a process, and of those in its place after it.

    Args:
        whole: The program, which keeps the events.
        number: The number of the process.
    """

    def __init__(self, whole: Whole, number: int) -> None:
        self._whole = whole
        self._number = number
        self._run = ""
        self._last = 0
        self._lost = 0

    async def take(self) -> None:
        """Wait for the next events, and keep them.

        After an error the events that came with it are lost; those behind them are the next ones.

        Raises:
            PartMissing: The process does not run, or does not answer.
            HttpError: It refuses the question.
        """
        parts, number = self._whole.parts, self._number
        if self._run != (run := parts.run_of(number)):
            self._run, self._last = run, 0
        fields = [("after", str(self._last)), ("wait", str(POLL))]
        answer = await parts.ask(number, part_request(f"{PART}events", fields), POLL + AGAIN)
        found = json.loads(cast("bytes", answer.body))
        self._last = int(found["last"])
        rows = deque(found["rows"])
        try:
            while rows:
                row = rows[0]
                missed = int(row.pop("missed"))
                self._whole.events.add({**row, "process": number}, missed + self._lost)
                self._lost = 0
                rows.popleft()
        finally:
            self._lost += len(rows)
