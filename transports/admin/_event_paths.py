"""The stream of events, as server-sent events.

All streams read one ring of recent events. A slow reader loses what the ring no longer has, and the
next event says how many that were.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

from ...actors.broker.table._table_text import event_of
from ...actors.monitoring import EventReader, EventRing, RecentEvent
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, json_text
from ._options import AdminOptions
from ._paths import AdminPaths

__all__ = ["add_events"]

RETRY_MS = 2000
"""The milliseconds after which a browser connects again."""


class _EventStreams:
    """The streams of events, of which there is a limited number.

    Args:
        ring: The recent events.
        run: A text that tells this run of the program from others.
        options: The limits.
    """

    def __init__(self, ring: EventRing, run: str, options: AdminOptions) -> None:
        self._ring = ring
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
        known = run == self._run and number.isascii() and number.isdecimal() and len(number) < 20
        return int(number) if known else 0

    async def _stream(self, reader: EventReader, request: HttpRequest) -> AsyncIterator[bytes]:
        """Yield events for as long as the reader may read them.

        The rules are asked before each part. The credentials are verified anew once in the time of
        a heartbeat, as this may be dear.
        """
        expires = None if request.principal is None else request.principal.expires
        loop = asyncio.get_running_loop()
        verified = loop.time()
        yield f"retry: {RETRY_MS}\n\n".encode()
        while True:
            found: list[RecentEvent] = []
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

    def _text(self, found: RecentEvent) -> str:
        row = {**event_of(found.event), "missed": found.missed}
        written = json_text(row)
        return f"id: {self._run}-{found.number}\nevent: {found.event.kind}\ndata: {written}\n\n"


def add_events(paths: AdminPaths, ring: EventRing, run: str, options: AdminOptions) -> None:
    """Add the paths of the events: as they happen, and those that are kept."""

    async def recent(_: HttpRequest) -> HttpResponse:
        found: list[RecentEvent] = []
        while more := ring.after(found[-1].number if found else 0):
            found += more
        rows = [{**event_of(each.event), "missed": each.missed} for each in found]
        return json_response({"total": ring.last, "rows": rows})

    paths.add("/api/v1/events", _EventStreams(ring, run, options).handle)
    paths.add("/api/v1/recent-events", recent)
