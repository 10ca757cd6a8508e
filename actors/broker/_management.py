"""The management service: the broker's state, or the part of it that a requester may see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from ...protocol import ProtocolError
from ...protocol.broker import TagSet, format_route, parse_address_query, parse_key, tag_set
from ...protocol.rsocket import ErrorCode
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from .._errors import LimitReached
from .._node_report import LETTERS, WORKERS, node_report
from ..runtime._slices import Slices, in_slices
from .local._handlers import ApplicationError, Handlers, Request
from .table._events import BrokerEvent
from .table._services import ServiceStatistics, service_row
from .table._table_text import TableText, destinations, event_of, groups, row_of

if TYPE_CHECKING:
    from ._broker import Broker

__all__ = [
    "MANAGEMENT_SERVICE",
    "AdminAnswers",
    "broker_figures",
    "explained",
    "management",
    "service_statistics",
]

MANAGEMENT_SERVICE = "onward.management"
"""The name of the broker's management service."""

AdminAnswers: TypeAlias = "Callable[[str, str, Request], Awaitable[bytes | None]]"
"""A function that answers a question, mostly a path with its query, and a text with arguments; and
the request with them. Without an answer it returns `None`."""

MAX_ROWS: Final = 100
"""Most destinations of each kind in an answer to `resolve`."""

CHUNK: Final = 64 * 1024
"""Approximate number of characters of a table in one element."""

SCANNED: Final = 512
"""Rows that are looked at before the loop runs other tasks, if a requester may not see all."""

_Table: TypeAlias = Callable[[str, "Callable[[TagSet], bool] | None"], Awaitable[bytes]]
_FOR_READERS: Final = frozenset({"statistics", WORKERS, LETTERS})

_WHAT: Final = (
    "ask for 'routes', 'groups', 'services', 'statistics', 'resolve', 'workers' or "
    "'dead-letters', or watch 'watch' or 'table'"
)


def management(broker: Broker) -> Handlers:
    """Make the handlers of the management service, which answer with JSON in UTF-8.

    The question is the route in `message/x.rsocket.routing.v0` or, without one, the first word
    of the data:

    - `routes`: the table, with the expected destinations last.
    - `groups`: the groups of other zones. The rest of the data is the name of one zone, or empty.
    - `services`: the services, with their requests by outcome, the times of their answers, and the
      requests in progress.
    - `statistics`: the figures of the broker and of each of its `listeners`, and the number of
      `streams` of all their connections, the one of the question included. With an event log,
      its figures: `EventLogStatistics` as `event_log`.
    - `resolve`: where a request would go, and why not elsewhere. The rest of the data is the
      query, as in an address of type 32: `@shard=user service=orders user=42`.
    - `workers`, `dead-letters`: the statistics of the workers of the broker's node, and its dead
      letters without their payloads; in the form of a node's management service.
    - `drain`, `undo-drain`, `reload`, or another of `Broker.operations`: it is done, for a
      principal that may `operate`. Without authorization that is none.
    - A path of the admin interface with its query, such as `/api/v1/connections?state=closed`, if
      the program offers `Broker.admin`. The rest of the data are the arguments of a `POST`. Text
      is answered as a JSON string.
    - `watch`, as a stream: each element is an event, as it happens.
    - `table`, as a stream: each element is a number of lines, one for each destination, with all
      that another broker needs to expect it. `protocol.broker.parse_routes` reads them.

    The answer to an invalid question is an object with an `error`.

    With authorization, a principal that may not `read` sees only the destinations that it may
    request: in `routes`, `groups`, `resolve`, `table`, and in the events of `watch`. Of `services`
    it sees the sums of these destinations, without outcomes and times. Other questions are INVALID
    then: "not allowed: read". A message of a worker, or of a link, has no principal and counts as
    anonymous.

    Long answers are made in slices, one answer at a time, to leave the loop to requests.
    """
    table = TableText(partial(destinations, broker))
    one_at_a_time = asyncio.Lock()
    tables: dict[str, _Table] = {
        "routes": lambda _, view: _rows(table, view),
        "groups": partial(_groups, broker, one_at_a_time),
        "services": lambda _, view: _services(broker, one_at_a_time, view),
    }
    handlers = Handlers(max_handling_per_peer=broker.events.share)

    @handlers.response
    async def answer(request: Request) -> bytes:
        what, rest = _question(request)
        answered = await _of_program(broker, what, rest, request)
        if answered is not None:
            return answered
        if what in tables:
            return await tables[what](rest, broker.view_of(request.principal))
        _check_read(broker, what, request.principal)
        async with one_at_a_time:
            report = node_report(broker.node, what) if what in (WORKERS, LETTERS) else None
            written = report or _written(await _answer(broker, what, rest, request.principal))
            await asyncio.sleep(0)
        return written

    @handlers.stream
    async def watch(request: Request) -> AsyncGenerator[bytes]:
        what, _ = _question(request)
        if what == "table":
            chunks = _chunks(broker, broker.view_of(request.principal))
            while (chunk := await _next(chunks, one_at_a_time)) is not None:
                if chunk:
                    yield chunk
            return
        if what != "watch":
            raise ApplicationError(ErrorCode.INVALID, _WHAT)
        try:
            subscription = broker.events.subscribe()
        except LimitReached as error:
            raise ApplicationError(ErrorCode.REJECTED, str(error)) from None
        missed = 0
        with subscription as own:
            whole = broker.events_of_all if request.shared else None
            async for event in own if whole is None else whole():
                shown, seen = _seen(broker, event, missed, request.principal)
                missed = 0 if shown else seen.missed
                if shown:
                    yield _written(event_of(seen))

    return handlers


def _question(request: Request) -> tuple[str, str]:
    """Return the question and the rest of the data."""
    text = request.data.decode(errors="replace").strip()
    if request.route:
        return request.route, text
    what, _, rest = text.partition(" ")
    return what, rest


async def _of_program(broker: Broker, what: str, rest: str, request: Request) -> bytes | None:
    """Return the answer of the program that runs the broker; `None` if it has none."""
    if what in broker.operations:
        return await _operated(broker, what, request.principal)
    return None if broker.admin is None else await broker.admin(what, rest, request)


async def _rows(table: TableText, view: Callable[[TagSet], bool] | None) -> bytes:
    """Return the table, or the part of it that a requester may see."""
    return await (table.written() if view is None else table.seen(view))


async def _groups(
    broker: Broker,
    one_at_a_time: asyncio.Lock,
    zone: str,
    view: Callable[[TagSet], bool] | None,
) -> bytes:
    """Return the groups of a zone, or of all, or the part of them that a requester may see."""
    async with one_at_a_time:
        return await _rows(TableText(partial(groups, broker, zone.strip())), view)


async def _services(
    broker: Broker, one_at_a_time: asyncio.Lock, view: Callable[[TagSet], bool] | None
) -> bytes:
    """Return the services as JSON, or the part of them that a requester may see."""
    found = iter(await service_statistics(broker, one_at_a_time, view))
    parts: list[bytes] = []
    async with one_at_a_time:
        while part := [service_row(each) for each in islice(found, MAX_ROWS)]:
            parts.append(_written(part)[1:-1])
            await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


async def service_statistics(
    broker: Broker, one_at_a_time: asyncio.Lock, view: Callable[[TagSet], bool] | None = None
) -> list[ServiceStatistics]:
    """Return the figures of the services; the table is looked through in slices.

    Args:
        broker: The broker.
        one_at_a_time: Held meanwhile.
        view: Whether a destination with some tags is shown; `None` shows all.
    """
    found: list[ServiceStatistics] = []
    async with one_at_a_time:
        for each in broker.index.service_statistics(view):
            if each is None:
                await asyncio.sleep(0)
            else:
                found.append(each)
    return found


async def _operated(broker: Broker, what: str, principal: Principal | None) -> bytes:
    """Run an operation for a principal, and return its answer.

    Raises:
        ApplicationError: No rule allows it to operate the broker, or there are no rules.
    """
    authorization = broker.authorization
    if authorization is None:
        raise ApplicationError(ErrorCode.INVALID, str(NotAllowed(Action.OPERATE.value)))
    if not authorization.allows(principal or ANONYMOUS, Action.OPERATE):
        raise ApplicationError(ErrorCode.INVALID, str(authorization.denial(Action.OPERATE)))
    return _written(await broker.operations[what]())


def _check_read(broker: Broker, what: str, principal: Principal | None) -> None:
    """Refuse a question that only principals that may `read` may ask.

    Raises:
        ApplicationError: It is such a question, and the principal may not.
    """
    authorization = broker.authorization
    if authorization is None or what not in _FOR_READERS:
        return
    if not authorization.allows(principal or ANONYMOUS, Action.READ):
        raise ApplicationError(ErrorCode.INVALID, str(authorization.denial(Action.READ)))


def _seen(
    broker: Broker, event: BrokerEvent, missed: int, principal: Principal | None
) -> tuple[bool, BrokerEvent]:
    """Return whether a principal may see an event, and the event as it sees it.

    Args:
        broker: The broker.
        event: The event.
        missed: Whether it has missed others before, as a number.
        principal: The principal.
    """
    view = broker.view_of(principal)
    if view is None:
        return True, event
    if event.missed or missed:
        # The number of missed ones says how busy others are.
        event = replace(event, missed=1)
    return view(_tags_of(event)), event


def _tags_of(event: BrokerEvent) -> TagSet:
    """Return the tags of an event's destination, or of its query.

    In events a null value is an empty text, so the tag counts as either.
    """
    if event.query:
        return parse_address_query(event.query).query
    tags = [(parse_key(key), value) for key, value in event.tags]
    return tag_set([*tags, *((key, None) for key, value in tags if not value)])


async def _next(chunks: Iterator[bytes], one_at_a_time: asyncio.Lock) -> bytes | None:
    """Return the next part of a table, in turn with the other streams; `None` at the end."""
    async with one_at_a_time:
        chunk = next(chunks, None)
        await asyncio.sleep(0)
    return chunk


async def _answer(broker: Broker, what: str, rest: str, principal: Principal | None) -> Any:
    if what == "statistics":
        return await in_slices(broker_figures(broker))
    if what == "resolve":
        try:
            return explained(broker, rest, principal or ANONYMOUS)
        except (ProtocolError, NotAllowed) as error:
            return {"error": str(error)}
    return {"error": _WHAT}


def explained(broker: Broker, query: str, principal: Principal | None) -> dict[str, Any]:
    """Return where a request would go now, and why not elsewhere.

    Args:
        broker: The broker.
        query: The query, as in an address of type 32.
        principal: The principal that asks; `None` sees all.

    Raises:
        AddressError: The query cannot be read.
        NotAllowed: The principal may not send this request.
    """
    found = broker.resolve(query, limit=MAX_ROWS, principal=principal)
    others = [
        {"route": row_of(each.route), "missing": each.missing, "different": each.different}
        for each in found.others
    ]
    said = asdict(replace(found, matching=(), others=()))
    return {**said, "matching": [row_of(row) for row in found.matching], "others": others}


def _chunks(broker: Broker, view: Callable[[TagSet], bool] | None) -> Iterator[bytes]:
    """Yield parts of the table; an empty one if there is nothing to show in many rows."""
    lines: list[str] = []
    size = 0
    for number, route in enumerate(broker.saved(), 1):
        if view is not None:
            if number % SCANNED == 0 and not lines:
                yield b""
            if not view(tag_set(route.tags)):
                continue
        line = format_route(route) + "\n"
        lines.append(line)
        size += len(line)
        if size >= CHUNK:
            yield "".join(lines).encode()
            lines.clear()
            size = 0
    if lines:
        yield "".join(lines).encode()


def broker_figures(broker: Broker) -> Slices[dict[str, Any]]:
    """Return the figures of a broker, of its listeners, and of its event log if there is one."""
    reports = yield from broker.reports_in_slices()
    streams = sum(figures.get("streams", 0) for _, figures in reports)
    listeners = [{"uri": name, **figures} for name, figures in reports]
    figures = {**asdict(broker.statistics()), "streams": streams, "listeners": listeners}
    instruments = broker.node.instruments
    return figures if instruments is None else {**figures, **instruments.figures()}


def _written(answer: Any) -> bytes:
    return json.dumps(answer, separators=(",", ":"), default=_text).encode()


def _text(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
