"""The stream of events, as server-sent events.

All streams read one ring of recent events. A slow reader loses what the ring no longer has, and the
next event says how many that were.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from ...actors.monitoring import EventReader, RecentEvent, RecentEvents
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, json_text
from ._options import AdminOptions
from ._paging import number_of
from ._paths import AdminPaths

__all__ = ["add_events", "add_polled_events"]

T = TypeVar("T")

MAX_WAIT: Final = 60
"""The maximum number of seconds for which a poll waits."""

RETRY_MS = 2000
"""The milliseconds after which a browser connects again."""


class _EventStreams(Generic[T]):
    """The streams of events, of which there is a limited number.

    Args:
        ring: The recent events.
        row: Returns an event as values that JSON can represent, with its `kind`.
        run: A text that tells this run of the program from others.
        options: The limits.
    """

    def __init__(
        self,
        ring: RecentEvents[T],
        row: Callable[[T], Mapping[str, Any]],
        run: str,
        options: AdminOptions,
    ) -> None:
        self._ring = ring
        self._row = row
        self._run = run
        self._options = options
        self._open = 0

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer with the events after the last one that the reader has had, as they happen.

        Raises:
            HttpError: There are too many streams.
        """
        if self._open >= self._options.max_event_streams:
            text = f"there are {self._open} streams of events already"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, text, {"retry-after": "5"})
        reader = self._ring.read(self._after(request.headers.get("last-event-id")))
        if request.method != "HEAD":
            self._open += 1
        end = self._end if request.method != "HEAD" else None
        return HttpResponse(self._stream(reader, request), "text/event-stream", on_end=end)

    def _end(self) -> None:
        self._open -= 1

    def _after(self, last: str | None) -> int | None:
        """Return the number of the last event that a reader has had."""
        if not last:
            return None
        run, _, number = last.rpartition("-")
        # Of another run of the program it has had nothing of this one.
        return _number(number) if run == self._run else 0

    async def _stream(self, reader: EventReader[T], request: HttpRequest) -> AsyncIterator[bytes]:
        """Yield events for as long as the reader may read them.

        The rules are asked before each part. The credentials are verified anew once in the time of
        a heartbeat, as this may be dear.
        """
        expires = None if request.principal is None else request.principal.expires
        loop = asyncio.get_running_loop()
        verified = loop.time()
        yield f"retry: {RETRY_MS}\n\n".encode()
        while True:
            found: list[RecentEvent[T]] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.heartbeat):
                    found = await reader.next()
            if loop.time() - verified >= self._options.heartbeat:
                if not await request.admitted():
                    return
                verified = loop.time()
            if not request.permitted() or (expires is not None and time.time() >= expires):
                return
            # HTML, "Server-sent events": a comment line "every 15 seconds or so" protects against
            # proxies that close connections without traffic.
            yield "".join(map(self._text, found)).encode() or b":\n\n"

    def _text(self, found: RecentEvent[T]) -> str:
        row = _shown(self._row, found)
        head = f"id: {self._run}-{found.number}\nevent: {row['kind']}\n"
        return f"{head}data: {json_text(row)}\n\n"


def _number(text: str) -> int:
    """Return the number of an event; 0 if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _shown(row: Callable[[T], Mapping[str, Any]], found: RecentEvent[T]) -> dict[str, Any]:
    return {**row(found.event), "missed": found.missed}


def add_events(
    paths: AdminPaths,
    ring: RecentEvents[T],
    row: Callable[[T], Mapping[str, Any]],
    run: str,
    options: AdminOptions,
) -> None:
    """Add the paths of the events: as they happen, and those that are kept.

    Args:
        paths: The paths.
        ring: The recent events.
        row: Returns an event as values that JSON can represent, with its `kind`.
        run: A text that tells this run of the program from others.
        options: The limits.
    """

    async def recent(_: HttpRequest) -> HttpResponse:
        found: list[RecentEvent[T]] = []
        while more := ring.after(found[-1].number if found else 0):
            found += more
        return json_response({"total": ring.last, "rows": [_shown(row, each) for each in found]})

    paths.add("/api/v1/events", _EventStreams(ring, row, run, options).handle)
    paths.add("/api/v1/recent-events", recent)


def add_polled_events(
    paths: AdminPaths, path: str, ring: RecentEvents[T], row: Callable[[T], Mapping[str, Any]]
) -> None:
    """Add a path of the events after a number, for which it waits if there are none yet.

    The fields `after` and `wait`, in seconds, are optional: by default it tells the `last` number.
    """

    async def polled(request: HttpRequest) -> HttpResponse:
        given = dict(request.fields())
        wait = number_of("wait", given.get("wait", "0"), MAX_WAIT)
        after = given.get("after")
        number = ring.last if after is None else _number(after)
        found = ring.after(number)
        if not found and wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await ring.wait()
            found = ring.after(number)
        last = found[-1].number if found else number
        return json_response({"last": last, "rows": [_shown(row, each) for each in found]})

    paths.add(path, polled)
