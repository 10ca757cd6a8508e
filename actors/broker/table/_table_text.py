"""The routing table as JSON, written in slices and shared by concurrent queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from ....protocol.broker import TagList, TagSet
from ....protocol.rsocket import ErrorCode
from ..local._handlers import ApplicationError
from ._events import BrokerEvent
from ._route import RouteStatistics

if TYPE_CHECKING:
    from .._broker import Broker

__all__ = ["TableText", "event_of", "row_of"]

SLICE: Final = 64
"""Rows that are written before the loop runs other tasks."""

MAX_TEXT: Final = 64 * 1024 * 1024
"""Most characters of a table in one answer; a longer table is available as a stream."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_EVENT: Final = tuple(each.name for each in fields(BrokerEvent))


class TableText:
    """The table of a broker as JSON, shared by concurrent queries.

    It is written at most once at a time, `SLICE` rows in a turn of the loop. All calls made
    while it is written get the same next version.

    Args:
        broker: The broker with the table.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
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
                text = f"the table has over {MAX_TEXT} characters: ask for 'table', a stream"
                raise ApplicationError(ErrorCode.REJECTED, text)
            await asyncio.sleep(0)
        return f"[{','.join(parts)}]".encode()

    def _rows(self) -> Iterator[tuple[TagList, Callable[[], RouteStatistics]]]:
        """Yield the tags of each registered or expected destination, and what makes its row."""
        index = self._broker.index
        expected = tuple(index.table.expected())
        row = index.expectations.row
        return chain(
            ((entry.tags, entry.target.row) for entry in index.entries()),
            ((each.tags, partial(row, each)) for each in expected),
        )


def _joined(rows: Iterable[RouteStatistics]) -> str:
    return ",".join([_encode(row_of(row)) for row in rows])


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
