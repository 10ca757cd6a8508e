"""The opening handshake of a WebSocket listener: its checks and limits.

No worker and no route exists for a connection before its handshake is done. So a client can make a
listener hold one socket and `max_handshake` bytes for `handshake_timeout` seconds, and listeners
count that as a connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, TypeAlias, cast

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ._proxy_protocol import UNEXPECTED, is_proxy_header
from ._ws_options import WebSocketOptions

__all__ = ["Handshake", "Opener", "own_names"]

Opener: TypeAlias = Callable[[asyncio.Transport, bytes], object]
"""The callback that takes over an open connection: socket and data so far."""

_logger = logging.getLogger("onward.transports.handshake")
# The library logs every connection that opens and closes, as often as peers like.
_logger.setLevel(logging.WARNING)

_LONGEST_ORIGIN: Final = 80
"""The maximum number of characters of an origin in the log."""
_END: Final = b"\r\n\r\n"
_PORT: Final = re.compile(r":\d+$")


def own_names(host: str) -> frozenset[str]:
    """Return the names of a listener: of its endpoint, and of its machine.

    The machine's name counts with and without its domain. The DNS is not asked for further
    names.

    Args:
        host: The name or address to listen at.
    """
    machine = socket.gethostname().casefold()
    names = {"localhost", host.casefold(), machine, machine.partition(".")[0]}
    return frozenset(name for name in names if name)


class Handshake(asyncio.Protocol):
    """An accepted socket before and during the opening handshake.

    Attributes:
        detail: The text for the log if the handshake is refused for a reason in the listener's
            configuration; otherwise empty.

    Args:
        loop: The event loop.
        names: The names of the listener; see `own_names`.
        subprotocol: The subprotocol, for clients that offer some.
        path: The path that clients must request, or "" for any.
        web: The limits of the handshake.
        admit: Returns the callback for a new connection, or `None` if there is no room.
        on_done: Called once, with the reason of a failure, or "" on success.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        names: frozenset[str],
        subprotocol: str,
        path: str,
        web: WebSocketOptions,
        admit: Callable[[], Opener | None],
        on_done: Callable[[Handshake, str], None],
    ) -> None:
        self.detail = ""
        self._names = names
        self._subprotocol = Subprotocol(subprotocol)
        self._path = path
        self._web = web
        self._admit = admit
        self._on_done = on_done
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._outcome = ""
        self._timer = loop.call_later(web.handshake_timeout, self._too_late)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        self._transport = cast(asyncio.Transport, transport)
        if self._outcome:
            self._transport.abort()  # aborted before it was connected

    def data_received(self, data: bytes) -> None:
        """Collect the request, and answer it when it is complete."""
        if self._outcome:
            return
        head = self._head
        searched = max(0, len(head) - len(_END) + 1)
        head += data
        end = head.find(_END, searched, self._web.max_handshake)
        if end >= 0:
            end += len(_END)
            self._answer(bytes(head[:end]), bytes(head[end:]))
        elif len(head) >= self._web.max_handshake:
            most = self._web.max_handshake
            self._refuse("too long", self._wire(), 431, f"the request has more than {most} bytes\n")

    def _answer(self, head: bytes, rest: bytes) -> None:
        """Answer the request, and hand the connection over if it is accepted."""
        wire = self._wire()
        wire.receive_data(head)
        events = wire.events_received()
        if not events:
            # The library has made a response itself if one makes sense.
            proxied = is_proxy_header(bytes(self._head))
            self._close(UNEXPECTED if proxied else "not understood", wire)
            return
        request = cast(Request, events[0])
        path = request.path.partition("?")[0]
        if self._path and path != self._path:
            # RFC 6455, section 4.2.2: "If the requested service is not available, the server MUST
            # send an appropriate HTTP error code (such as 404 Not Found) and abort the WebSocket
            # handshake."
            self.detail = f"a client asks for {path} and not for {self._path}"
            self._refuse("path", wire, 404, "there is nothing at this path\n")
            return
        if not self._may_come(request.headers):
            # RFC 6455, section 4.2.2: "If the server does not wish to accept this connection, it
            # MUST return an appropriate HTTP error code (e.g., 403 Forbidden) and abort the
            # WebSocket handshake described in this section."
            self.detail = _refused_origin(request.headers)
            self._refuse("origin", wire, 403, "pages of this origin may not connect\n")
            return
        response = wire.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            # RFC 6455, section 4.2.1: "If the server, while reading the handshake, finds that the
            # client did not send a handshake that matches the description below", then "the server
            # MUST stop processing the client's handshake and return an HTTP response with an
            # appropriate error code (such as 400 Bad Request)."
            self._respond("not a WebSocket", wire, response)
            return
        opener = self._admit()
        if opener is None:
            self._refuse("no room", wire, 503, "there can be no more connections now\n")
            return
        self._open(wire, response, opener, rest)

    def _wire(self) -> ServerProtocol:
        """Return the protocol state of a WebSocket that waits for a request.

        Without compression, as a small message could become a very large one. The limits on
        messages are checked before the library receives them.
        """
        ours = self._subprotocol

        def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
            # RFC 6455, section 4.2.2: "Either a single value representing the subprotocol the
            # server is ready to use or null." The value "MUST be derived from the client's
            # handshake".
            return ours if ours in offered else None

        return ServerProtocol(select_subprotocol=select, max_size=None, logger=_logger)

    def _may_come(self, headers: Headers) -> bool:
        """Whether the request is from a program, or from a page of an allowed origin.

        Some programs, such as Java clients, send the listener's own URI as the origin, with an HTTP
        scheme. The listener serves no pages, so no page has that origin, except by DNS rebinding.
        So an IP address is accepted, and a name only if it is one of the listener's own: a rebound
        page has another name.
        """
        # RFC 6455, section 10.2: "Servers that are not intended to process input from any web page
        # but only for certain sites SHOULD verify the |Origin| field is an origin they expect."
        allowed = self._web.origins
        if "*" in allowed:
            return True
        secure = self._transport is not None and self._transport.get_extra_info("ssl_object")
        scheme = "https" if secure else "http"
        own = [
            f"{scheme}://{host}".casefold()
            for host in headers.get_all("Host")
            if _is_own(host, self._names)
        ]
        return all(
            origin in allowed or origin.casefold() in own for origin in headers.get_all("Origin")
        )

    def _open(self, wire: ServerProtocol, response: Response, opener: Opener, rest: bytes) -> None:
        transport = self._transport
        if transport is None:
            raise AssertionError("data came before the connection was made")
        wire.send_response(response)
        _write_last(wire, transport)
        self._done("")
        opener(transport, rest)

    # --- refusal and end ------------------------------------------------------------------

    def _refuse(self, outcome: str, wire: ServerProtocol, status: int, text: str) -> None:
        self._respond(outcome, wire, wire.reject(status, text))

    def _respond(self, outcome: str, wire: ServerProtocol, response: Response) -> None:
        wire.send_response(response)
        self._close(outcome, wire)

    def _close(self, outcome: str, wire: ServerProtocol) -> None:
        """Write the response, and close."""
        transport = self._transport
        if transport is None:
            raise AssertionError("data came before the connection was made")
        self._outcome = outcome
        self._head.clear()
        _write_last(wire, transport)
        transport.close()

    def _too_late(self) -> None:
        self.abort("too late")

    def abort(self, outcome: str) -> None:
        """Close the socket at once, unless it is closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the listener."""
        self._done(self._outcome or "given up")

    def _done(self, outcome: str) -> None:
        self._timer.cancel()
        self._transport = None
        self._on_done(self, outcome)


def _write_last(wire: ServerProtocol, transport: asyncio.Transport) -> None:
    """Write the response to a request, after which the protocol state is not used any more."""
    transport.write(b"".join(wire.data_to_send()))
    # It refers to itself by its parser, and by bound methods. Without that it is freed at once.
    vars(wire).clear()


def _is_own(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header has an IP address or one of the names."""
    host = _PORT.sub("", host)
    if host.casefold() in names:
        return True
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _refused_origin(headers: Headers) -> str:
    """Return the text for the log about a client with a refused origin."""
    told = ", ".join(headers.get_all("Origin"))
    return f"the origin {told[:_LONGEST_ORIGIN]} may not connect unless it is one of origins="
