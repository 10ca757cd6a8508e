"""One HTTP connection of the admin interface: h11 between a socket and the handlers.

One request is handled at a time. While it is, at most one further read of the socket is kept, and
the peer's end of the connection ends the handler. A request has a time in which it must be whole;
each part of the answer has one in which the peer must read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import h11

from ...protocol.security import PeerIdentity
from .._log import SeldomLogger, shown
from ._guard import RequestGuard
from ._messages import HttpError, HttpRequest, HttpResponse, text_response
from ._options import AdminOptions
from ._paths import METRICS, AdminPaths, Needs

__all__ = ["AdminHost", "HttpConnection"]

PART: Final = 64 * 1024
"""The bytes of an answer that are written at a time, and that may wait for the socket."""

LINGER: Final = 1.0
"""The seconds for which the rest of a refused request is read and ignored, so that the peer can
read the answer: a socket that is closed with unread input resets the connection."""

_FIELDS: Final = (
    # The console is served from here too: no page may load or run anything of elsewhere.
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
)


class AdminHost(Protocol):
    """The server, as its connections know it."""

    @property
    def options(self) -> AdminOptions:
        """The limits."""
        ...

    @property
    def paths(self) -> AdminPaths:
        """The handlers."""
        ...

    @property
    def guard(self) -> RequestGuard:
        """The checks of requests."""
        ...

    @property
    def seldom(self) -> SeldomLogger:
        """The log of events that peers cause."""
        ...

    def idle(self, connection: HttpConnection, *, idle: bool) -> None:
        """Record whether a connection has no request in hand."""
        ...

    def answered(self, status: HTTPStatus) -> None:
        """Count an answer."""
        ...

    def ended(self, connection: HttpConnection) -> None:
        """Forget a connection that is closed."""
        ...


class HttpConnection(asyncio.Protocol):
    """A connection.

    Args:
        host: The server.
        identity: The peer, as its transport has verified it.
        secure: Whether there is TLS.

    Attributes:
        identity: As given.
        closed: The reason of its end; empty while it is open.
    """

    def __init__(self, host: AdminHost, identity: PeerIdentity, *, secure: bool) -> None:
        self.identity = identity
        self.closed = ""
        self._host = host
        self._options = host.options
        self._secure = secure
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._options.max_request)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._left = 0  # bytes that the body may still have
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._streams = False  # an answer without a length is sent
        self._ignores = False  # after an error: the input is only read
        self._eof = False
        self._full = False
        self._room: asyncio.Future[None] | None = None

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(PART)
        self._await_request()

    @property
    def transport(self) -> asyncio.Transport:
        """The socket."""
        if self._transport is None:
            raise AssertionError("the connection is not open")
        return self._transport

    def data_received(self, data: bytes) -> None:
        """Read requests, or keep what comes while one is handled."""
        if self._ignores:
            return
        self._http.receive_data(data)
        if self._task is None:
            self._read()
        else:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Answer the request in hand, if there is one, and close."""
        self._eof = True
        if self._ignores:
            self.transport.close()
            return False
        self._http.receive_data(b"")
        if self._task is None:
            self._read()
        elif self._streams:
            self._task.cancel()  # it has no end of its own
        # A half of a TLS connection cannot be closed.
        return not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request in hand."""
        self.closed = self.closed or "by the peer"
        self._set_timer(None)
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        self._host.ended(self)

    def pause_writing(self) -> None:
        """Record that the peer does not keep up."""
        self._full = True

    def resume_writing(self) -> None:
        """Resume the answer that waits for the peer."""
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def gone(self) -> None:
        """Wait for the end of the request in hand, after the connection was closed."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def abort(self, reason: str) -> None:
        """Close at once."""
        self.closed = self.closed or reason
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """Close once all that was written has been sent."""
        self.closed = self.closed or reason
        self._host.idle(self, idle=False)
        if not self.transport.is_closing():
            self.transport.close()
            self._set_timer(self._options.write_timeout)

    def _set_timer(self, delay: float | None, reason: str = "slow reader") -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay is None else self._loop.call_later(delay, self.abort, reason)

    # --- requests -----------------------------------------------------------------------------

    def _await_request(self) -> None:
        self._request = None
        self._body.clear()
        self._host.idle(self, idle=True)
        self._set_timer(self._options.request_timeout, "request timeout")

    def _read(self) -> None:
        """Read the input up to the end of a request."""
        try:
            while self._task is None and not self._ignores:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.ConnectionClosed):
                    self.close("by the peer")
                    return
                self._on_event(event)
        except h11.RemoteProtocolError as error:
            # RFC 9112 section 2.2: a server "SHOULD respond with a 400 (Bad Request) response and
            # close the connection".
            known = {414, 431, 501}
            status = error.error_status_hint if error.error_status_hint in known else 400
            text = f"{self.identity.peer}: a broken request: {shown(str(error))}"
            self._host.seldom.log(
                logging.INFO, "broken request", "%s", text, extra={"event": "admin.broken_request"}
            )
            self._refuse(HttpError(HTTPStatus(status), "the request is not HTTP/1.1"))
        except HttpError as error:
            self._refuse(error)

    def _on_event(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            self._on_head(event)
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > self._left:
                self._too_large()
        elif isinstance(event, h11.EndOfMessage):
            self._set_timer(None)
            self._host.idle(self, idle=False)
            self._task = self._loop.create_task(self._handle())

    def _on_head(self, event: h11.Request) -> None:
        self._request = event
        if event.http_version not in (b"1.0", b"1.1"):
            text = "the interface speaks HTTP/1.1"
            raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, text)
        fields = dict(event.headers)
        # RFC 9112 section 6.1: such a message "might indicate an attempt to perform request
        # smuggling", and "ought to be handled as an error".
        if b"transfer-encoding" in fields and b"content-length" in fields:
            raise HttpError(HTTPStatus.BAD_REQUEST, "the body has two lengths")
        size = len(event.method) + len(event.target)
        size += sum(len(name) + len(value) + 4 for name, value in event.headers)
        self._left = self._options.max_request - size
        if self._left < 0:
            self._too_large(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if int(fields.get(b"content-length", b"0")) > self._left:
            self._too_large()
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))

    def _too_large(self, status: HTTPStatus = HTTPStatus.REQUEST_ENTITY_TOO_LARGE) -> None:
        text = f"a request may have {self._options.max_request} bytes"
        raise HttpError(status, text)

    async def _handle(self) -> None:
        """Answer the request in hand, then read the next one."""
        try:
            response = await self._answer()
            await self._send(response)
        except asyncio.CancelledError:
            self.abort("by the peer")
            raise
        except Exception:
            # The answer has begun: its end would be taken for a whole one.
            logging.getLogger("onward.transports.admin").exception(
                "an answer has failed", extra={"event": "admin.answer_failed"}
            )
            self.abort("failure")
            return
        finally:
            self._task = None
        if self._transport is None or self._transport.is_closing():
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.close("by the peer" if self._eof else "last answer")
            return
        self._http.start_next_cycle()
        self._await_request()
        self._transport.resume_reading()
        self._read()

    async def _answer(self) -> HttpResponse:
        try:
            return await self._routed()
        except HttpError as error:
            return _error_response(error)
        except Exception:
            logging.getLogger("onward.transports.admin").exception(
                "a handler has failed", extra={"event": "admin.handler_failed"}
            )
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return text_response("the handler has failed; the log has more", status)

    async def _routed(self) -> HttpResponse:
        event, guard = self._request, self._host.guard
        if event is None:
            raise AssertionError("there is no request")
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        target, host = _target(event.target.decode("ascii"), headers.get("host", ""))
        guard.check_host(host, self._own_address())
        path, _, query = target.partition("?")
        method = event.method.decode("ascii")
        request = HttpRequest(method, path, query, headers, bytes(self._body))
        found = self._host.paths.find(method, path)
        if method == "POST":
            guard.check_post(request, host, secure=self._secure)
        guard.check_site(request, found.needs)
        is_open = path == METRICS and self._options.open_metrics
        needs: Needs = "nothing" if is_open else found.needs
        principal = await guard.principal(request, needs, self.identity)
        permitted = partial(guard.permits, principal, needs)
        admitted = partial(guard.admits, request, needs, self.identity)
        return await found.handle(
            replace(
                request,
                principal=principal,
                source=self.identity.source,
                permitted=permitted,
                admitted=admitted,
                operates=guard.permits(principal, "operate"),
                reads=partial(guard.admits, request, "read", self.identity),
            )
        )

    def _own_address(self) -> str:
        name = self.transport.get_extra_info("sockname")
        if not isinstance(name, tuple):
            return ""
        host = str(cast("tuple[object, ...]", name)[0]).removeprefix("::ffff:")
        return f"[{host}]" if ":" in host else host

    # --- answers ------------------------------------------------------------------------------

    async def _send(self, response: HttpResponse) -> None:
        body = response.body
        try:
            if isinstance(body, bytes):
                length = {"content-length": str(len(body))}
                self._begin(response, length)
                if not self._is_head:
                    for at in range(0, len(body), PART):
                        self._write(h11.Data(data=body[at : at + PART]))
                        await self._written()
            else:
                self._begin(response, {})
                if not self._is_head:
                    await self._stream(body)
            self._write(h11.EndOfMessage())
            await self._written()
        finally:
            if response.on_end is not None:
                response.on_end()

    async def _stream(self, parts: AsyncIterator[bytes]) -> None:
        close = getattr(parts, "aclose", None)
        self._streams = True
        try:
            async for part in parts:
                self._write(h11.Data(data=part))
                await self._written()
        finally:
            self._streams = False
            if close is not None:
                await close()

    @property
    def _is_head(self) -> bool:
        return self._request is not None and self._request.method == b"HEAD"

    def _begin(self, response: HttpResponse, more: Mapping[str, str]) -> None:
        self._host.answered(response.status)
        headers = [
            # RFC 9110 section 6.6.1: an origin server with a clock "MUST generate a Date".
            ("date", formatdate(usegmt=True)),
            ("content-type", response.content_type),
            *(each for each in _FIELDS if each[0] not in response.headers),
            *response.headers.items(),
            *more.items(),
        ]
        self._write(
            h11.Response(
                status_code=response.status.value, headers=headers, reason=response.status.phrase
            )
        )

    def _write(
        self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage
    ) -> None:
        data = self._http.send(event)
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def _written(self) -> None:
        """Wait until the socket has room, or cut the connection of a peer that does not read."""
        if not self._full:
            return
        self._room = self._loop.create_future()
        self._set_timer(self._options.write_timeout)
        try:
            await self._room
        finally:
            self._room = None
            self._set_timer(None)

    def _refuse(self, error: HttpError) -> None:
        """Answer a request that is not read to its end, and close."""
        self._ignores = True
        self._host.idle(self, idle=False)
        response = _error_response(error)
        body = cast("bytes", response.body)
        with contextlib.suppress(h11.LocalProtocolError):
            close = {"connection": "close", "content-length": str(len(body))}
            self._begin(response, close)
            if not self._is_head:
                self._write(h11.Data(data=body))
            self._write(h11.EndOfMessage())
        self.closed = self.closed or "bad request"
        if self._eof or not self.transport.can_write_eof():
            self.close("bad request")
            return
        self.transport.write_eof()
        self._set_timer(LINGER, "bad request")


def _error_response(error: HttpError) -> HttpResponse:
    text = text_response(error.text, error.status)
    return HttpResponse(text.body, text.content_type, error.status, error.headers)


def _target(target: str, host: str) -> tuple[str, str]:
    """Return path and host of a request.

    RFC 9112 section 3.2.2: of a target in absolute form "an origin server MUST ignore the received
    Host header field (if any) and instead use the host information of the request-target".
    """
    scheme, mark, rest = target.partition("://")
    if mark and scheme.lower() in ("http", "https"):
        host, slash, path = rest.partition("/")
        return (f"/{path}" if slash else "/"), host
    return target, host
