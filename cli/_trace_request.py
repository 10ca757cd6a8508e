"""The trace of a request that a client sends through a broker."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final

from ..actors.broker import Handlers, Request
from ..actors.tracing import Trace
from ..actors.tracing._trace import ROOT, analyse
from ..protocol import (
    TAGS,
    Address,
    HopReport,
    LinkDown,
    MalformedMessage,
    Message,
    OnwardError,
    TraceMark,
    decode_hop_report,
    with_trace_mark,
)
from ..protocol.broker import MIME_HOP_REPORT, MIME_TRACING
from ..transports.client import Client, ClientOptions, CredentialsRefused, RetryOptions
from ..transports.client._credentials import ClientCredentials
from ..transports.client._dial import parse_place
from ..transports.client._service import ClientService
from ._access import Access
from ._client import refused
from ._status import CommandError, Status

__all__ = ["trace_through"]

SETTLE: Final = 0.25
"""Seconds to wait for reports after the answer, and after each report."""

DRAIN: Final = 1.0
"""Longest time for closing, in seconds."""

_HERE: Final = Address(0, b"trace")


async def trace_through(
    uri: str, destination: str, payload: bytes, timeout: float, access: Access
) -> tuple[Trace, OnwardError | None]:
    """Send a request/response through a broker, and collect the reports of its hops.

    Args:
        uri: The broker's URI, as for `request_through`.
        destination: The query, as in an address of type 32.
        payload: The data.
        timeout: The longest time to connect, and then again to wait for the answer, in seconds.
        access: The certificates and credentials.

    Returns:
        The trace, and the error of a request without an answer.

    Raises:
        CommandError: There is no connection, or the URI is wrong.
    """
    trace = uuid.uuid4().hex
    reports = _Reports(trace)
    client = _client(uri, timeout, reports.handlers, access)
    text = with_trace_mark({}, TraceMark(trace, ROOT, 0, _HERE)) or ""
    answer: Message | None = None
    lost: OnwardError | None = None
    try:
        async with client:
            started = ended = time.time_ns()
            try:
                entries = [(MIME_TRACING, text.encode())]
                data = (await client.request(destination, payload, entries=entries)).data
                ended = time.time_ns()
                answer = Message((_HERE,), (), data)
            except OnwardError as error:
                ended = time.time_ns()
                lost = error
            await reports.settled()
    except CredentialsRefused as error:
        raise refused(uri, access) from error
    except LinkDown as error:
        raise CommandError(f"{uri}: cannot connect: {error.detail}") from error
    # The broker has put an address of its own into the mark; the first return route has it.
    tracer = next((each.return_route[-1] for each in reports.known if each.return_route), _HERE)
    asked = (Address(TAGS, destination.encode()),)
    traced = analyse(
        trace,
        tracer,
        asked,
        reports.known,
        started,
        ended,
        answer=answer,
        lost=None if lost is None else str(lost),
    )
    return traced, lost


class _Reports:
    """The reports of hops that a broker pushes.

    Args:
        trace: The id of the trace.

    Attributes:
        handlers: The handlers that take the pushes.
        known: The reports, in order of arrival.
    """

    def __init__(self, trace: str) -> None:
        self._trace = trace
        self._news = asyncio.Event()
        self.known: list[HopReport] = []
        self.handlers = Handlers()
        self.handlers.metadata_push(self._pushed)

    async def _pushed(self, request: Request) -> None:
        for mime, content in request.entries:
            if mime == MIME_HOP_REPORT:
                self._keep(content)

    def _keep(self, content: bytes) -> None:
        try:
            report = decode_hop_report(content)
        except MalformedMessage:
            return
        if report.trace == self._trace:
            self.known.append(report)
            self._news.set()

    async def settled(self) -> None:
        """Wait until no report has come for a while."""
        while True:
            self._news.clear()
            try:
                async with asyncio.timeout(SETTLE):
                    await self._news.wait()
            except TimeoutError:
                return


def _client(uri: str, timeout: float, handlers: Handlers, access: Access) -> Client:
    options = ClientOptions(
        connect_timeout=timeout,
        request_timeout=timeout,
        reconnect=False,
        drain_timeout=DRAIN,
        tls=access.tls,
        retry=RetryOptions(max_tries=1),
    )
    try:
        place = parse_place(uri, options)
    except (OSError, ValueError) as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error
    service, credentials = ClientService(None, {}, handlers), ClientCredentials(access.credentials)
    return Client([place], service, [uuid.uuid4()], credentials, options)
