"""The monitor of a node: its checks, metrics, operations and recent events together."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from ...protocol import counted
from .._reloads import Reloads
from ..broker import Broker
from ..cluster import Cluster
from ..runtime._clock import clock_of
from ..runtime._turn_times import TurnTimes
from ._broker_metrics import BROKER_FAMILIES, broker_metrics
from ._cluster_metrics import CLUSTER_FAMILIES, cluster_metrics
from ._dispatch_metrics import DISPATCH_FAMILIES, dispatch_metrics
from ._event_ring import EventRing
from ._health import HealthChecks, Stage
from ._identity_metrics import IDENTITY_FAMILIES, identity_metrics
from ._lag import LoopLag
from ._limits import LIMIT_FAMILIES, limit_metrics
from ._metrics import Metrics
from ._node_metrics import NODE_FAMILIES, node_metrics
from ._process import (
    HEALTH_FAMILIES,
    PROCESS_FAMILIES,
    PROCESSES_FAMILIES,
    RELOAD_FAMILIES,
    health_metrics,
    process_metrics,
    reload_metrics,
)
from ._service_metrics import SERVICE_FAMILIES, service_metrics
from ._window import Window

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["METRIC_FAMILIES", "Monitor"]

METRIC_FAMILIES: Final = (
    *PROCESS_FAMILIES,
    *HEALTH_FAMILIES,
    *RELOAD_FAMILIES,
    *NODE_FAMILIES,
    *DISPATCH_FAMILIES,
    *IDENTITY_FAMILIES,
    *LIMIT_FAMILIES,
    *BROKER_FAMILIES,
    *CLUSTER_FAMILIES,
    *SERVICE_FAMILIES,
    *PROCESSES_FAMILIES,
)
"""All families of metrics that a monitor may have; those of services are read apart. The last ones
are those of a broker with several processes."""

MAX_LAG: Final = 5.0
"""The seconds that the loop may lag before the process counts as not live."""

PLUGINS: Final = "onward.health_checks"
"""The entry-point group of health checks: functions that are called with the monitor, and add
checks to it."""


class Monitor:
    """The checks, metrics, operations and recent events of a node. Use it on the node's loop.

    Args:
        node: The node.
        broker: Its broker, if it has one.
        reloads: The parts that are read anew, if there are some.
        cluster: The broker's part in a cluster, if it has one.

    Attributes:
        node: As given.
        broker: As given.
        cluster: As given.
        checks: The health checks. Those of the loop, of the start and of the listeners are there
            from the beginning; plug-ins of the group `onward.health_checks` add theirs.
        metrics: The metrics.
        services: The metrics of each service, which cost more to read.
        operations: The operations of the program by name, such as `drain`; those of the broker, if
            there is one.
        events: The recent events of the broker, if there is one.
        lag: The lag of the loop.
        times: The times of messages, by class of worker.
        window: The last five minutes: rates, latency, problems.
        configuration: The options in effect by their place, for operators: dataclasses, values
            that JSON can represent, or functions that return them.
        started: Whether the start of the program is over, as set by the program.
        began: The time at which the monitor was made, in seconds since 1970.
    """

    def __init__(
        self,
        node: Node,
        broker: Broker | None = None,
        reloads: Reloads | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.node = node
        self.broker = broker
        self.cluster = cluster
        self.checks = HealthChecks()
        self.metrics = Metrics()
        self.services = Metrics()
        self.operations: dict[str, Callable[[], Awaitable[object]]] = (
            {} if broker is None else broker.operations
        )
        self.events = None if broker is None else EventRing(broker)
        self.lag = LoopLag(node.loop)
        self.times = TurnTimes(clock_of(node.loop))
        self.window = Window(node, broker, self.checks, self.lag, self.events, reloads, cluster)
        self.configuration: dict[str, object] = {}
        self.started = False
        self.began = began = time.time()
        self.metrics.add(PROCESS_FAMILIES, lambda: process_metrics(began, self.lag))
        self.metrics.add(HEALTH_FAMILIES, lambda: health_metrics(self.checks))
        self.metrics.add(NODE_FAMILIES, lambda: node_metrics(node, self.times))
        self.metrics.add(DISPATCH_FAMILIES, lambda: dispatch_metrics(node))
        self.metrics.add(IDENTITY_FAMILIES, lambda: identity_metrics(node))
        self.metrics.add(LIMIT_FAMILIES, lambda: limit_metrics(node, broker, cluster))
        self.checks.add(Stage.LIVE, "loop", self._loop_lags)
        self.checks.add(Stage.STARTED, "started", self._is_starting)
        self.checks.add(Stage.READY, "started", self._is_starting)
        if broker is not None:
            self.metrics.add(BROKER_FAMILIES, lambda: broker_metrics(broker))
            self.services.add(SERVICE_FAMILIES, lambda: service_metrics(broker))
            self.configuration["broker"] = lambda: broker.options
            self.checks.add(Stage.READY, "listeners", lambda: _closed_listeners(broker))
            self.checks.add(Stage.READY, "draining", lambda: "it drains" * broker.draining)
        if cluster is not None and broker is not None:
            tally = broker.forwarded
            self.metrics.add(CLUSTER_FAMILIES, lambda: cluster_metrics(cluster, tally))
            self.configuration["cluster"] = lambda: cluster.options
            self.checks.add(Stage.READY, "cluster", cluster.not_ready)
        if reloads is not None:
            self.metrics.add(RELOAD_FAMILIES, lambda: reload_metrics(reloads))
        for entry in entry_points(group=PLUGINS):
            entry.load()(self)

    def start(self) -> None:
        """Measure the lag of the loop, and keep events and figures, from now on.

        Raises:
            LimitReached: The broker has too many subscriptions.
        """
        if self.events is not None:
            self.events.start()
        self.lag.start()
        self.node.parts.run_queue.times = self.times
        self.window.start()

    async def stop(self) -> None:
        """Stop what `start` has started."""
        self.window.stop()
        self.lag.stop()
        run_queue = self.node.parts.run_queue
        if run_queue.times is self.times:
            run_queue.times = None
        if self.events is not None:
            await self.events.stop()

    def _loop_lags(self) -> str:
        lag = self.lag.now
        return f"the event loop was held for {lag:.1f} s" if lag > MAX_LAG else ""

    def _is_starting(self) -> str:
        return "" if self.started else "the start is not over"


def _closed_listeners(broker: Broker) -> str:
    listeners = broker.listeners()
    if not listeners:
        return "no listener is open"
    closed = sum(not listener.accepting for _, listener in listeners)
    return f"{closed} of {counted(len(listeners), 'listener')} closed" if closed else ""
