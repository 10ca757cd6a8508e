"""The brokers of a topology, as operators see them: they answer `onward peers` and the like."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from ..actors.topology import RunningBroker

__all__ = ["answering"]


@asynccontextmanager
async def answering(brokers: Iterable[RunningBroker | None]) -> AsyncGenerator[None]:
    """Answer the questions of operators to brokers, as `onward broker` does.

    Args:
        brokers: The brokers; `None` for nodes without one.
    """
    async with AsyncExitStack() as stack:
        for each in brokers:
            if each is None:
                continue
            # Most topologies have no broker, and the imports take some time.
            from ..actors.monitoring import Monitor
            from ..transports.admin import AdminOptions, admin_paths, answer_paths

            monitor = Monitor(each.broker.node, each.broker, cluster=each.cluster)
            answer_paths(each.broker, admin_paths(monitor, AdminOptions()))
            monitor.start()
            stack.push_async_callback(monitor.stop)
            monitor.started = True
        yield
