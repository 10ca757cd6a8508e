"""The drain of a broker: its connections end without a lost request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import random
from uuid import UUID

from ...protocol import NodeStopped
from ..security import Authorization
from ._broker_inspection import BrokerInspection
from ._drain import Drain, DrainPart, DrainSteps
from ._options import BrokerOptions, DrainOptions, WaitingOptions

__all__ = ["BrokerDrain"]


class BrokerDrain(BrokerInspection):
    """A broker that can be drained; see `Broker`.

    Args:
        options: The limits of the broker.
        authorization: See `BrokerRules`.
        broker_id: See `BrokerRules`.
    """

    def __init__(
        self,
        options: BrokerOptions,
        authorization: Authorization | None,
        broker_id: UUID | None,
    ) -> None:
        super().__init__(options, authorization, broker_id)
        self._parts: dict[DrainPart, None] = {}
        self._drain: Drain | None = None
        self._draining: asyncio.Task[bool] | None = None

    @property
    def draining(self) -> bool:
        """Whether the broker drains, or has drained."""
        return self._drain is not None

    async def drain(
        self, options: DrainOptions | None = None, *, random: Callable[[], float] = random
    ) -> bool:
        """End all connections without a lost request: the first half of an orderly stop.

        Connections are accepted during `grace`; then the listeners close their sockets. At a
        random moment of `spread` each connection begins to end. From then on its new requests are
        REJECTED, which is certain, and as a destination it is passed over where another can take
        a request. Its open streams run to their end; then the peer gets
        ERROR[CONNECTION_CLOSE]. At `timeout` what waits is REJECTED, and what is open CANCELED.
        Afterwards stop the node.

        A second call while the broker drains can only shorten the times. `timeout=0` ends it at
        once.

        Args:
            options: The times; those of the broker's options by default.
            random: Returns a random number, 0 or more and less than 1.

        Returns:
            Whether it has drained; False if the drain was undone or the broker stopped.
        """
        options, now = options or self.options.drain, self.node.loop.time()
        drain = self._drain
        if drain is None:
            steps = DrainSteps(options, now)
            drain = self._drain = Drain(steps, self.index, self._parts.keys(), random)
            self._draining = asyncio.ensure_future(drain.run())
        else:
            drain.steps.hasten(options, now)
        task = self._draining
        if task is None:
            raise AssertionError("a drain has a task")
        await asyncio.wait({task})
        return not task.cancelled() and task.result()

    def adjust(self, waiting: WaitingOptions, drain: DrainOptions) -> None:
        """Change the times of requests that wait, and of a drain, while the broker runs.

        Requests that wait already keep their times, and a drain in progress its own.

        Args:
            waiting: The limits of waiting requests; only the times may differ.
            drain: The times of a drain.

        Raises:
            ValueError: A limit is changed that has to stay.
        """
        old = self.options.waiting
        times = replace(old, no_route_timeout=waiting.no_route_timeout, max_wait=waiting.max_wait)
        if times != waiting:
            raise ValueError("only the times of waiting requests change while the broker runs")
        self.options = replace(self.options, waiting=times, drain=drain)
        self.index.adjust(self.options)

    def undo_drain(self) -> bool:
        """Undo a drain; return False if there is none, or its sockets are closed already."""
        if self._drain is None or not self._drain.undo():
            return False
        self._drain = None
        return True

    def add_part(self, part: DrainPart) -> Callable[[], None]:
        """Add a part with connections, which a drain ends.

        Returns:
            The function that removes it.

        Raises:
            NodeStopped: The broker drains, and its sockets are closed.
        """
        if self.index.closing:
            raise NodeStopped(self.node.name)
        self._parts[part] = None
        return lambda: self._forget_part(part)

    def _forget_part(self, part: DrainPart) -> None:
        self._parts.pop(part, None)
