"""The path that traces a message of the node hop by hop."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from ...actors import Node
from ...actors.tracing import HopTracer, TraceOptions, trace
from ...actors.tracing._rows import trace_row
from ...protocol import TAGS, Address, OnwardError, ProtocolError, Route, parse_route
from ...protocol.broker import parse_address_query
from ._messages import HttpError, HttpRequest, HttpResponse, json_response
from ._paths import AdminPaths

__all__ = ["add_trace"]

MAX_PAYLOAD: Final = 16 * 1024
"""The maximum number of bytes of a payload."""

MAX_TIMEOUT: Final = 30
"""The maximum number of seconds to wait for the answer."""

MAX_TRACES: Final = 4
"""The maximum number of traces at a time; one more is answered with status 503."""


class _Traces:
    """The traces that were asked for.

    Args:
        node: The node that sends the messages.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._running = 0

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Send a message that is marked, and answer with its hops.

        Raises:
            HttpError: The arguments are wrong, the node does not trace, there are too many traces,
                or the message cannot be sent.
        """
        route, payload, timeout = _asked(request)
        if self._node.find_instrument(HopTracer) is None:
            raise HttpError(HTTPStatus.CONFLICT, "the node does not trace: start it with --trace")
        if self._running >= MAX_TRACES:
            text = f"there are {self._running} traces already"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, text, {"retry-after": "5"})
        self._running += 1
        try:
            options = TraceOptions(timeout=timeout)
            traced = await trace(self._node, route, payload, options=options)
        except OnwardError as error:
            raise HttpError(HTTPStatus.CONFLICT, str(error)) from None
        finally:
            self._running -= 1
        return json_response(trace_row(traced))


def _asked(request: HttpRequest) -> tuple[Route, bytes, float]:
    """Return the route, the payload and the seconds to wait.

    Raises:
        HttpError: One of them is wrong.
    """
    arguments = request.known("query", "route", "payload", "timeout")
    query, route = arguments.get("query"), arguments.get("route")
    payload, timeout = arguments.get("payload", ""), arguments.get("timeout", 5)
    if not isinstance(payload, str) or len(payload.encode()) > MAX_PAYLOAD:
        text = f"payload must be a text of at most {MAX_PAYLOAD} bytes"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0:
        raise HttpError(HTTPStatus.BAD_REQUEST, "timeout must be a number of seconds")
    if timeout > MAX_TIMEOUT:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"timeout must be at most {MAX_TIMEOUT} seconds")
    try:
        if isinstance(query, str) and route is None:
            parse_address_query(query)
            return (Address(TAGS, query.encode()),), payload.encode(), timeout
        if isinstance(route, str) and query is None:
            return parse_route(route), payload.encode(), timeout
    except ProtocolError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from None
    raise HttpError(HTTPStatus.BAD_REQUEST, "query, or route, must be given as a text")


def add_trace(paths: AdminPaths, node: Node) -> None:
    """Add the path. A message of the node may go anywhere, so that it needs `operate`."""
    paths.add("/api/v1/trace", _Traces(node).handle, method="POST", needs="operate")
