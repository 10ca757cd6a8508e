"""The stop of a node and of its workers, within a time."""

from __future__ import annotations

import asyncio
from typing import Final

from ._errors import WouldDeadlock
from ._transport import Transport
from ._transports import Transports
from .routing._requests import Requests
from .routing._router import Router
from .runtime import _failures as failures, _stopping as stopping
from .runtime._cell import Cell
from .runtime._run_queue import Phase

__all__ = ["Shutdown"]

LAST_SHARE: Final = 0.25
"""The part of the time to stop that is kept for workers that stop last."""

LAST_SECONDS: Final = 0.2
"""Seconds that the workers that stop last have at least."""


class Shutdown:
    """The order in which a node stops: workers, transports, what waits, and the last workers.

    Args:
        router: The router of the node.
        requests: Its requests.
        transports: Its transports.
    """

    __slots__ = ("_requests", "_router", "_run_queue", "_stopped", "_transports")

    def __init__(self, router: Router, requests: Requests, transports: Transports) -> None:
        self._router: Final = router
        self._requests: Final = requests
        self._transports: Final = transports
        self._run_queue: Final = router.run_queue
        self._stopped: asyncio.Future[None] | None = None

    async def stop(self, timeout: float) -> None:
        """Stop the node; see `Node.stop`."""
        run_queue = self._run_queue
        loop = run_queue.loop
        cells = self._router.addresses.cells()
        if any(cell.task is asyncio.current_task() for cell in cells):
            raise WouldDeadlock(
                "Node.stop()", "waits for the handler that awaits it; stop the node from outside"
            )
        if self._stopped is not None:
            await asyncio.shield(self._stopped)
            return
        self._stopped = loop.create_future()
        run_queue.phase = Phase.CLOSING
        deadline = loop.time() + timeout
        try:
            tops = [cell for cell in reversed(cells) if cell.parent is None]
            last = [cell for cell in tops if cell.worker.stops_last]
            # Part of the time is kept for the workers that stop last.
            sooner = deadline - timeout * LAST_SHARE if last else deadline
            await stopping.stop_in_order([cell for cell in tops if cell not in last], sooner)
            for transport in self._transports.take_all():
                await self._stop_transport(transport, sooner)
            self._router.pending.close()
            self._requests.close(run_queue.name)
            await stopping.stop_in_order(last, max(deadline, loop.time() + LAST_SECONDS))
        finally:
            run_queue.phase = Phase.CLOSED
            self._stopped.set_result(None)

    async def _stop_transport(self, transport: Transport, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(max(deadline, self._run_queue.loop.time() + 0.1)):
                await transport.stop()
        except Exception:  # noqa: BLE001 - the others have to be stopped too
            failures.logger.exception(
                "the transport %r did not stop",
                transport.scheme,
                extra={"event": "transport.stop_failed"},
            )

    async def stop_worker(self, cell: Cell, timeout: float) -> None:
        """Stop a worker; see `Node.stop_worker`."""
        if cell.task is not None and cell.task is asyncio.current_task():
            raise WouldDeadlock(
                "Node.stop_worker()", "waits for the handler that awaits it; use Worker.stop"
            )
        await stopping.stop_within(cell, self._run_queue.loop.time() + timeout, drain=True)
