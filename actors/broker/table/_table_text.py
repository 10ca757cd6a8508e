"""The routing table as JSON, written in slices and shared by concurrent queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.broker import Expected, TagList, TagSet
from ....protocol.cluster import FOLDED_KEY
from ....protocol.rsocket import ErrorCode
from ..local._handlers import ApplicationError
from ._events import BrokerEvent
from ._remote import AnyRoute, RemoteRoute
from ._route import RouteStatistics, readable

if TYPE_CHECKING:
    from .._broker import Broker

__all__ = ["TableText", "destinations", "event_of", "groups", "row_of"]

SLICE: Final = 64
"""Rows that are written before the loop runs other tasks."""

MAX_TEXT: Final = 64 * 1024 * 1024
"""Most characters of a table in one answer; a longer table is available as a stream."""

Rows: TypeAlias = Iterator[tuple[TagList, Callable[[], dict[str, Any]]]]
"""The tags of each row of a table, and what makes the row."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_EVENT: Final = tuple(each.name for each in fields(BrokerEvent))


class TableText:
    """The table of a broker as JSON, shared by concurrent queries.

    It is written at most once at a time, `SLICE` rows in a turn of the loop. All calls made
    while it is written get the same next version.

    Args:
        rows: Yields the tags of each row, and what makes the row.
    """

    def __init__(self, rows: Callable[[], Rows]) -> None:
        self._rows = rows
        self._writing = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._waiting = 0
        self._text = b""

    async def written(self) -> bytes:
        """Return the table as of this call, or later.

        Raises:
            ApplicationError: It is longer than `MAX_TEXT`.
        """
        self._asked += 1
        number = self._asked
        self._waiting += 1
        try:
            async with self._writing:
                if self._answered < number:
                    asked = self._asked
                    self._text = await self._write(None)
                    self._answered = asked
                return self._text
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._text = b""

    async def seen(self, view: Callable[[TagSet], bool]) -> bytes:
        """Return the part of the table that a requester may see; it is not shared.

        Args:
            view: Whether a destination with some tags is shown.

        Raises:
            ApplicationError: It is longer than `MAX_TEXT`.
        """
        async with self._writing:
            return await self._write(view)

    async def _write(self, view: Callable[[TagSet], bool] | None) -> bytes:
        parts: list[str] = []
        size = 0
        rows = self._rows()
        while some := tuple(islice(rows, SLICE)):
            shown = (row() for tags, row in some if view is None or view(frozenset(tags)))
            if part := _joined(shown):
                parts.append(part)
            size += len(part)
            if size > MAX_TEXT:
                text = (
                    f"the table has over {MAX_TEXT} characters: ask for 'table', a stream, or for "
                    "the 'groups' of one zone"
                )
                raise ApplicationError(ErrorCode.REJECTED, text)
            await asyncio.sleep(0)
        return f"[{','.join(parts)}]".encode()


def destinations(broker: Broker) -> Rows:
    """Yield the registered destinations of a broker, and then those that are expected."""
    index = broker.index
    expected = tuple(index.table.expected())
    row = index.expectations.row
    return chain(
        ((entry.tags, partial(_row, entry.target)) for entry in index.entries()),
        ((each.tags, partial(_expected, row, each)) for each in expected),
    )


def groups(broker: Broker, zone: str) -> Rows:
    """Yield the groups of another zone; those of all if the name is empty."""
    return ((each.common, partial(_group, each)) for each in broker.index.zones.rows(zone))


def _row(target: AnyRoute) -> dict[str, Any]:
    return row_of(target.row())


def _expected(row: Callable[[Expected], RouteStatistics], each: Expected) -> dict[str, Any]:
    return row_of(row(each))


def _group(route: RemoteRoute) -> dict[str, Any]:
    """Return a group as values that JSON can represent."""
    peer = route.peer
    tags = dict(readable(route.common))
    folded = tags.pop(FOLDED_KEY, None) is not None
    return {
        "zone": peer.zone,
        "broker": peer.label,
        "service": route.service_name,
        "tags": tags,
        "routes": int(route.weight),
        "folded": folded,
        "outstanding": route.outstanding,
        "requests": route.requests,
        "since": route.timestamp / 1000,
        "latency": route.latency,
        "busy": peer.busy and not peer.suspended,
        "expected": peer.suspended,
    }


def _joined(rows: Iterable[dict[str, Any]]) -> str:
    return ",".join([_encode(row) for row in rows])


def row_of(row: RouteStatistics) -> dict[str, Any]:
    """Return a row of the table as values that JSON can represent.

    `dataclasses.asdict` copies each value and takes a hundred times as long.
    """
    return {
        "route": str(row.route_id),
        "service": row.service,
        "tags": dict(row.tags),
        "peer": row.peer,
        "outstanding": row.outstanding,
        "requests": row.requests,
        "since": row.since,
        "latency": row.latency,
        "weight": row.weight,
        "busy": row.busy,
        "expected": row.expected,
        "principal": row.principal,
        "broker": row.broker,
    }


def event_of(event: BrokerEvent) -> dict[str, Any]:
    """Return an event as values that JSON can represent, except for its route id."""
    return {name: getattr(event, name) for name in _EVENT}
