"""The paths that show a broker and its node as JSON, as the management service answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, cast

from ...actors._node_report import LETTERS, LINKS, json_row, link_row, node_report
from ...actors.broker import Broker, LimitUse
from ...actors.broker._management import broker_figures, explained, service_statistics
from ...actors.broker.table._services import SERVICE_COLUMNS, service_row
from ...actors.broker.table._table_text import row_of
from ...actors.broker.table._waiting import WaitingQuery
from ...actors.cluster import PeerStatistics
from ...actors.monitoring import Monitor, limit_uses
from ...actors.runtime._cell import Cell
from ...actors.runtime._slices import in_slices
from ...protocol import ProtocolError
from ...protocol.options import spelling
from ...protocol.security import NotAllowed
from ._messages import JSON, HttpError, HttpRequest, HttpResponse, json_response
from ._paging import page
from ._paths import AdminPaths

__all__ = ["BROKER", "PEERS", "ROUTES", "WAITING", "add_api", "peer_rows", "plain"]

_CONNECTIONS: Final = (
    "id",
    "listener",
    "peer",
    "source",
    "principal",
    "opened",
    "idle",
    "service",
    "route",
    "streams",
    "requests",
    "refused",
    "received_bytes",
    "sent_bytes",
    "pending_bytes",
    "keepalive_ms",
    "tls",
    "state",
    "closed",
    "reason",
)
ROUTES: Final = (
    "route",
    "service",
    "tags",
    "peer",
    "outstanding",
    "requests",
    "since",
    "latency",
    "weight",
    "busy",
    "expected",
    "broker",
)
BROKER: Final = "broker"
"""The kind of a peer broker among the peers."""

WAITING: Final = ("query", "requests", "bytes", "sources", "oldest")
_WORKERS: Final = (
    "address",
    "kind",
    "state",
    "waiting",
    "limit",
    "handled",
    "failed",
    "refused",
    "dropped",
    "restarts",
    "children",
    "timers",
    "parent",
)
PEERS: Final = (
    "peer",
    "principal",
    "kind",
    "address",
    "state",
    "connects",
    "sent",
    "received",
    "refused",
    "bytes_in",
    "bytes_out",
    "pending",
    "queued",
    "in_doubt",
    "broker_id",
    "uri",
    "draining",
    "instance",
    "dialled",
    "round_trip",
    "routes",
    "sequence",
    "behind",
    "unsent",
    "in_flight",
    "since",
    "reason",
    "reported_by",
    "losses",
    "java",
    "zone",
    "role",
    "groups",
    "folded",
    "suspended",
)
"""The columns of links of the node, up to `in_doubt`, and of peer brokers."""

SLICE: Final = 1000
"""Workers that are looked at before the loop does other things."""

_LIMITS: Final = ("name", "listener", "used", "limit", "reached")


def add_api(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the paths below `/api/v1/` that only read."""
    node, broker = monitor.node, monitor.broker
    turn = paths.turn

    async def workers(request: HttpRequest) -> HttpResponse:
        cells: list[Cell] = node.parts.table.cells()
        return await page(request, cells, _worker, _WORKERS, turn=turn)

    async def peers(request: HttpRequest) -> HttpResponse:
        async with turn:
            found = await peer_rows(monitor)
        return await page(request, found, dict[str, Any], PEERS, turn=turn)

    async def report(question: str, request: HttpRequest) -> HttpResponse:
        found = node_report(node, question)
        if found is None:
            raise AssertionError(f"unexpected {question}")
        return HttpResponse(found, JSON)

    async def limits(request: HttpRequest) -> HttpResponse:
        found = tuple(limit_uses(node, broker, monitor.cluster))
        return await page(request, found, _limit_row, _LIMITS, turn=turn)

    async def configuration(_: HttpRequest) -> HttpResponse:
        known = monitor.configuration
        found = {name: each() if callable(each) else each for name, each in known.items()}
        return json_response(plain(found))

    paths.add("/api/v1/workers", workers)
    paths.add("/api/v1/peers", peers)
    paths.add("/api/v1/links", partial(report, LINKS))
    paths.add("/api/v1/dead-letters", partial(report, LETTERS))
    paths.add("/api/v1/limits", limits)
    paths.add("/api/v1/config", configuration)
    if broker is not None:
        _add_broker(paths, broker, turn)


def _add_broker(paths: AdminPaths, broker: Broker, turn: asyncio.Lock) -> None:
    async def status(_: HttpRequest) -> HttpResponse:
        async with turn:
            return json_response(await in_slices(broker_figures(broker)))

    async def connections(request: HttpRequest) -> HttpResponse:
        state = dict(request.fields()).get("state", "open")
        if state not in ("open", "closed"):
            raise HttpError(HTTPStatus.BAD_REQUEST, "state must be open or closed")
        found = _connections(broker, closed=state == "closed")
        return await page(request, found, _whole, _CONNECTIONS, turn=turn)

    async def routes(request: HttpRequest) -> HttpResponse:
        index = broker.index
        found: list[Any] = list(index.entries())
        live = len(found)
        found.extend(index.table.expected())
        numbers = range(len(found))

        def row(number: int) -> Mapping[str, Any]:
            # Those that have left meanwhile are shown too: it is the table as of the request.
            entry: Any = found[number]
            return row_of(entry.target.row() if number < live else index.expectations.row(entry))

        return await page(request, numbers, row, ROUTES, turn=turn)

    async def services(request: HttpRequest) -> HttpResponse:
        found = await service_statistics(broker, turn)
        return await page(request, found, service_row, SERVICE_COLUMNS, turn=turn)

    async def waiting(request: HttpRequest) -> HttpResponse:
        now = broker.node.loop.time()
        return await page(
            request, broker.index.waiting_by_query(), partial(_waiting, now), WAITING, turn=turn
        )

    async def resolve(request: HttpRequest) -> HttpResponse:
        query = dict(request.fields()).get("q", "")
        try:
            return json_response(explained(broker, query, request.principal))
        except (ProtocolError, NotAllowed) as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from None

    for handler in (status, connections, routes, services, waiting, resolve):
        paths.add(f"/api/v1/{handler.__name__}", handler)


def _worker(cell: Cell) -> Mapping[str, Any]:
    parent = None if cell.parent is None else str(cell.parent.address)
    return {**json_row(cell.statistics()), "parent": parent}


async def peer_rows(monitor: Monitor) -> list[dict[str, Any]]:
    """Return the rows of the peer brokers and of the nodes that there are links to."""
    cluster = monitor.cluster
    found = [] if cluster is None else [_broker_row(row) for row in cluster.peers()]
    for number, cell in enumerate(monitor.node.parts.table.cells(), 1):
        row = link_row(cell)
        if row is not None:
            found.append({name: row.get(name) for name in PEERS})
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return found


def _broker_row(found: PeerStatistics) -> dict[str, Any]:
    """Return the row of a peer broker among the peers."""
    row = asdict(found)
    row["instance"] = found.instance / 1000 if found.instance else None
    row["since"] = found.since or None
    named = {"peer": found.name or found.uri or found.peer or found.broker_id, "kind": BROKER}
    return {name: named.get(name, row.get(name)) for name in PEERS}


def _connections(broker: Broker, *, closed: bool) -> Iterator[Mapping[str, Any]]:
    listeners = [listener for _, listener in broker.listeners()]
    if closed:
        return chain.from_iterable(each.closed_connections() for each in listeners)
    return chain.from_iterable(each.connections() for each in listeners)


def _whole(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a connection with the columns of closed ones."""
    state = "closed" if "closed" in row else "open"
    return {"closed": None, "reason": None, **row, "state": state}


def _waiting(now: float, found: WaitingQuery) -> Mapping[str, Any]:
    return {
        "query": found.query,
        "requests": found.messages,
        "bytes": found.size,
        "sources": found.sources,
        "oldest": now - found.since,
    }


def _limit_row(found: tuple[str, LimitUse]) -> Mapping[str, Any]:
    uri, use = found
    return {
        "name": use.name,
        "listener": uri,
        "used": use.used,
        "limit": use.limit,
        "reached": use.reached,
    }


def plain(value: object) -> Any:
    """Return options as JSON can represent them. What a `repr` must not show is left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value) if each.repr}
    if isinstance(value, Enum):
        return spelling(value)
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        return {str(name): plain(each) for name, each in found.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in cast("list[object]", value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if type(value).__str__ is not object.__str__ else type(value).__name__
