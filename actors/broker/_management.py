"""What a broker tells about itself, as a service like any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...protocol import ProtocolError
from ...protocol.broker import format_route
from ...protocol.rsocket import ErrorCode
from .._errors import LimitReached
from .local._handlers import ApplicationError, Handlers, Request
from .table._table_text import TableText, event_of, row_of

if TYPE_CHECKING:
    from ._broker import Broker

__all__ = ["MANAGEMENT_SERVICE", "management"]

MANAGEMENT_SERVICE = "onward.management"
"""The service name under which a broker answers questions about itself."""

MAX_ROWS: Final = 100
"""Most destinations of each kind that `resolve` names."""

CHUNK: Final = 64 * 1024
"""Characters of a table that are sent in one element, about."""

_WHAT: Final = "ask for 'routes', 'statistics' or 'resolve', or watch 'watch' or 'table'"


def management(broker: Broker) -> Handlers:
    """Make the handlers of the management service; they answer with JSON in UTF-8.

    What is asked is the route of `message/x.rsocket.routing.v0`, or, if there is none, the
    first word of the data:

    - `routes`: the table, those that are expected last.
    - `statistics`: the figures of the broker, those of each of its `listeners`, and how many
      `streams` the connections of all of them have; the question's own is one. If the node has
      an event log, its figures: `EventLogStatistics` as `event_log`.
    - `resolve`: where a request would go, and why nowhere else; the rest of the data is what
      it asks for, as in an address of type 32: `@shard=user service=orders user=42`.
    - `watch`, as a stream: each element is an event, as it happens.
    - `table`, as a stream: each element is some lines, one for each destination, with all that
      another broker needs to expect them; what they say is in `protocol.broker.parse_routes`.

    What cannot be read is answered with an object whose `error` says why.

    What is long is made in slices, and one thing at a time, whoever asks: the loop is for requests.
    """
    table = TableText(broker)
    one_at_a_time = asyncio.Lock()
    handlers = Handlers(max_handling_per_peer=broker.events.share)

    @handlers.response
    async def answer(request: Request) -> bytes:
        what, rest = _question(request)
        if what == "routes":
            return await table.written()
        async with one_at_a_time:
            written = _written(_answer(broker, what, rest))
            await asyncio.sleep(0)
        return written

    @handlers.stream
    async def watch(request: Request) -> AsyncGenerator[bytes]:
        what, _ = _question(request)
        if what == "table":
            chunks = _chunks(broker)
            while chunk := await _next(chunks, one_at_a_time):
                yield chunk
            return
        if what != "watch":
            raise ApplicationError(ErrorCode.INVALID, _WHAT)
        try:
            subscription = broker.events.subscribe()
        except LimitReached as error:
            raise ApplicationError(ErrorCode.REJECTED, str(error)) from None
        with subscription as events:
            async for event in events:
                yield _written(event_of(event))

    return handlers


def _question(request: Request) -> tuple[str, str]:
    """Return what is asked, and the rest of the data."""
    text = request.data.decode(errors="replace").strip()
    if request.route:
        return request.route, text
    what, _, rest = text.partition(" ")
    return what, rest


async def _next(chunks: Iterator[bytes], one_at_a_time: asyncio.Lock) -> bytes:
    """Return the next part of a table, once all who were before have theirs; empty at the end."""
    async with one_at_a_time:
        chunk = next(chunks, b"")
        await asyncio.sleep(0)
    return chunk


def _answer(broker: Broker, what: str, rest: str) -> Any:
    if what == "statistics":
        return _statistics(broker)
    if what == "resolve":
        try:
            found = broker.resolve(rest, limit=MAX_ROWS)
        except ProtocolError as error:
            return {"error": str(error)}
        others = [
            {"route": row_of(each.route), "missing": each.missing, "different": each.different}
            for each in found.others
        ]
        said = asdict(replace(found, matching=(), others=()))
        return {**said, "matching": [row_of(row) for row in found.matching], "others": others}
    return {"error": _WHAT}


def _chunks(broker: Broker) -> Iterator[bytes]:
    lines: list[str] = []
    size = 0
    for route in broker.saved():
        line = format_route(route) + "\n"
        lines.append(line)
        size += len(line)
        if size >= CHUNK:
            yield "".join(lines).encode()
            lines.clear()
            size = 0
    if lines:
        yield "".join(lines).encode()


def _statistics(broker: Broker) -> dict[str, Any]:
    reports = broker.reports()
    streams = sum(figures.get("streams", 0) for _, figures in reports)
    listeners = [{"uri": name, **figures} for name, figures in reports]
    figures = {**asdict(broker.statistics()), "streams": streams, "listeners": listeners}
    log = broker.node.event_log
    return figures if log is None else {**figures, "event_log": asdict(log.statistics())}


def _written(answer: Any) -> bytes:
    return json.dumps(answer, separators=(",", ":"), default=_text).encode()


def _text(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} is not to be written as JSON")
