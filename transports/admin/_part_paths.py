"""What a process tells of itself where several are one program: figures that can be added up.

Its other paths are those of each program. These are for the other processes of the program only,
and are not served by HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final, cast

from ...actors._node_report import WORKERS, node_report
from ...actors.broker import Broker
from ...actors.broker._management import broker_figures, service_statistics
from ...actors.broker._tally import OUTCOMES
from ...actors.broker.table._remote import RemoteRoute
from ...actors.broker.table._services import ServiceStatistics
from ...actors.broker.table._table_text import event_of, row_of
from ...actors.cluster import PeerStatistics
from ...actors.monitoring import Monitor
from ...actors.monitoring._surroundings import Surroundings, Traffic
from ...actors.runtime._slices import in_slices
from ...protocol.eventlog import Outcome
from ...protocol.metrics import Durations, Metric, MetricFamily, Series
from ._api import BROKER, PEERS, ROUTES, peer_rows
from ._event_paths import add_polled_events
from ._health_paths import wanted_families
from ._messages import JSON, HttpRequest, HttpResponse, json_response, json_text
from ._paging import page
from ._paths import AdminPaths
from ._topology_paths import surroundings_of

__all__ = [
    "PART",
    "metrics_of_rows",
    "part_paths",
    "service_of_row",
    "surroundings_of_row",
]

SLICE: Final = 10_000
"""Routes that are looked at before the loop does other things."""

PART: Final = "/part/"
"""The prefix of the paths."""


def part_paths(monitor: Monitor, siblings: frozenset[str]) -> AdminPaths:
    """Return the paths of a process that is a broker.

    Args:
        monitor: Its monitor.
        siblings: The ids of the brokers of the other processes.
    """
    paths = AdminPaths()
    broker = monitor.broker
    if broker is None or monitor.events is None:
        raise AssertionError("a process without a broker")
    part = _Part(monitor, broker, siblings, paths)
    for handler in (
        part.metrics,
        part.status,
        part.services,
        part.elsewhere,
        part.peers,
        part.workers,
    ):
        paths.add(PART + handler.__name__, handler)
    paths.add(PART + "surroundings", part.surroundings)
    add_polled_events(paths, PART + "events", monitor.events, event_of)
    return paths


class _Part:
    """The handlers. See `part_paths`."""

    def __init__(
        self, monitor: Monitor, broker: Broker, siblings: frozenset[str], paths: AdminPaths
    ) -> None:
        self._monitor = monitor
        self._broker = broker
        self._siblings = siblings
        self._turn = paths.turn

    async def metrics(self, request: HttpRequest) -> HttpResponse:
        """Answer with the metrics of some families, or of all but those of services."""
        monitor = self._monitor
        known = frozenset((*monitor.metrics.families, *monitor.services.families))
        names, _ = wanted_families(request, known)
        found = self._monitor.metrics.collect(names)
        if names is not None:
            found = chain(found, self._monitor.services.collect(names))
        return HttpResponse(_written(found), JSON)

    async def status(self, _: HttpRequest) -> HttpResponse:
        """Answer with the figures of the broker; its peer brokers are those elsewhere."""
        async with self._turn:
            figures = await in_slices(broker_figures(self._broker))
        routes = sum(row.routes for row in self._peers() if row.broker_id not in self._siblings)
        return json_response({**figures, "peer_routes": routes})

    async def services(self, _: HttpRequest) -> HttpResponse:
        """Answer with the figures of the services."""
        found = await service_statistics(self._broker, self._turn)
        return json_response({"rows": [_service(each) for each in found]})

    async def elsewhere(self, request: HttpRequest) -> HttpResponse:
        """Answer with a page of the routes of peer brokers elsewhere."""
        siblings = {row.name or row.broker_id for row in self._of_siblings()}
        found: list[RemoteRoute] = []
        for number, entry in enumerate(self._broker.index.entries(), 1):
            route = entry.target
            if isinstance(route, RemoteRoute) and route.shared.peer.label not in siblings:
                found.append(route)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return await page(request, found, _row, ROUTES, turn=self._turn)

    async def peers(self, request: HttpRequest) -> HttpResponse:
        """Answer with the peers, of which the other processes are of the kind `process`."""
        async with self._turn:
            rows = await peer_rows(self._monitor)
        for row in rows:
            if row["kind"] == BROKER and row["broker_id"] in self._siblings:
                row["kind"] = "process"
        return await page(request, rows, dict, PEERS, turn=self._turn)

    async def workers(self, _: HttpRequest) -> HttpResponse:
        """Answer with the report on the workers."""
        found = node_report(self._monitor.node, WORKERS)
        if found is None:
            raise AssertionError("there is no report on workers")
        return HttpResponse(found, JSON)

    async def surroundings(self, _: HttpRequest) -> HttpResponse:
        """Answer with what surrounds the broker."""
        found = await surroundings_of(self._monitor)
        # By their names, as in the picture.
        siblings = {row.name or row.uri or row.peer for row in self._of_siblings()}
        return json_response(
            {
                "listeners": found.listeners,
                "requesters": _traffic(found.requesters),
                "services": _traffic(found.services),
                "peers": [each for each in found.peers if each[0] not in siblings],
            }
        )

    def _peers(self) -> tuple[PeerStatistics, ...]:
        cluster = self._monitor.cluster
        return () if cluster is None else tuple(cluster.peers())

    def _of_siblings(self) -> list[PeerStatistics]:
        return [row for row in self._peers() if row.broker_id in self._siblings]


def _row(route: RemoteRoute) -> Mapping[str, Any]:
    return row_of(route.row())


# --- metrics ------------------------------------------------------------------------------------


async def _written(metrics: Iterator[Metric | None]) -> AsyncIterator[bytes]:
    """Yield the metrics as JSON, each family in one part."""
    before = b"["
    for metric in metrics:
        if metric is None:
            continue
        family = metric.family
        series = [(labels, _plain(value)) for labels, value in metric.series]
        row = (family.name, family.kind, family.help, family.labels, family.across, series)
        yield before + json_text(row).encode()
        before = b","
    yield b"]" if before == b"," else b"[]"


def _plain(value: float | Durations) -> Any:
    return (value.counts, value.total) if isinstance(value, Durations) else value


def metrics_of_rows(rows: Any) -> Iterator[Metric]:
    """Yield the metrics that a process has told of."""
    for name, kind, text, labels, across, series in rows:
        family = MetricFamily(name, kind, text, tuple(labels), across)
        yield Metric(family, tuple(_series(each) for each in series))


def _series(row: Any) -> Series:
    labels, value = row
    if isinstance(value, list):
        counts, total = cast("tuple[list[int], float]", value)
        return tuple(labels), Durations(tuple(counts), total)
    return tuple(labels), value


# --- services -----------------------------------------------------------------------------------

_FIGURES: Final = (
    "service",
    "destinations",
    "busy",
    "in_progress",
    "requests",
    "latency",
    "elsewhere",
)


def _service(found: ServiceStatistics) -> dict[str, Any]:
    ended, durations = found.ended or {}, found.durations
    return {
        **{name: getattr(found, name) for name in _FIGURES},
        "ended": {name: ended.get(outcome, 0) for outcome, name in OUTCOMES.items()},
        "durations": None if durations is None else _plain(durations),
    }


def service_of_row(row: Mapping[str, Any]) -> ServiceStatistics:
    """Return the figures of a service that a process has told of."""
    ended: dict[Outcome, int] = {each: row["ended"][name] for each, name in OUTCOMES.items()}
    counts, total = row["durations"] or ((), 0.0)
    made = ServiceStatistics(**{name: row[name] for name in _FIGURES}, ended=ended, durations=None)
    return (
        made
        if row["durations"] is None
        else replace(made, durations=Durations(tuple(counts), total))
    )


# --- surroundings -------------------------------------------------------------------------------


def _traffic(found: Mapping[str, Traffic]) -> dict[str, tuple[int, int]]:
    return {name: (each.peers, each.requests) for name, each in found.items()}


def surroundings_of_row(node: str, row: Mapping[str, Any]) -> Surroundings:
    """Return the surroundings that a process has told of."""
    return Surroundings(
        node,
        row["listeners"],
        {name: Traffic(*each) for name, each in row["requesters"].items()},
        {name: Traffic(*each) for name, each in row["services"].items()},
        [(peer, kind) for peer, kind in row["peers"]],
    )
