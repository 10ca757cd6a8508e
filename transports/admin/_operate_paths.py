"""The paths that change a running program."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final

from ...actors.broker import Broker
from ...actors.monitoring import Monitor
from ._messages import HttpError, HttpRequest, HttpResponse, json_response
from ._paths import AdminPaths

__all__ = ["add_operations", "operated", "set_level"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_LOGGER: Final = "onward"

MAX_TEXT: Final = 200
"""The maximum number of characters of a text for a peer that is disconnected."""

_logger = logging.getLogger("onward.transports.admin")


def add_operations(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the paths that change something: the log's level, connections, and the operations."""
    paths.add("/api/v1/log-level", set_level, method="POST", needs="operate")
    if monitor.broker is not None:
        kick = partial(_kick, monitor.broker)
        paths.add("/api/v1/kick", kick, method="POST", needs="operate")
    for name in ("drain", "undo-drain", "reload"):
        operate = partial(_operate, monitor, name)
        paths.add(f"/api/v1/{name}", operate, method="POST", needs="operate")


async def set_level(request: HttpRequest) -> HttpResponse:
    """Set the level of a logger of this process.

    Raises:
        HttpError: The arguments are wrong.
    """
    arguments = request.known("logger", "level")
    name, level = arguments.get("logger", _LOGGER), arguments.get("level")
    if not isinstance(name, str) or f"{name}.".partition(".")[0] != _LOGGER:
        raise HttpError(HTTPStatus.BAD_REQUEST, "logger must be onward, or one below it")
    if level not in (*_LEVELS, None):
        text = f"level must be one of {', '.join(_LEVELS)}, or null for that of the logger above"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    logger = logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else str(level).upper())
    _logger.warning(
        "the level of %s is now %s, set by %s",
        name,
        level,
        _by(request),
        extra={"event": "admin.log_level"},
    )
    effective = logging.getLevelName(logger.getEffectiveLevel()).lower()
    return json_response({"logger": name, "level": level, "effective": effective})


async def _kick(broker: Broker, request: HttpRequest) -> HttpResponse:
    arguments = request.known("connection", "text")
    number = arguments.get("connection")
    text = arguments.get("text", "closed by an operator")
    if not isinstance(number, int) or isinstance(number, bool):
        raise HttpError(HTTPStatus.BAD_REQUEST, "connection must be the id of a connection")
    if not isinstance(text, str) or len(text) > MAX_TEXT or not text.isprintable():
        text = f"text must have at most {MAX_TEXT} characters that can be printed"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    for _, listener in broker.listeners():
        if listener.close_connection(number, text):
            _logger.warning(
                "connection %d was closed by %s",
                number,
                _by(request),
                extra={"event": "admin.connection_closed"},
            )
            return json_response({"connection": number})
    raise HttpError(HTTPStatus.NOT_FOUND, f"there is no connection {number}")


async def _operate(monitor: Monitor, name: str, request: HttpRequest) -> HttpResponse:
    operation = monitor.operations.get(name)
    if operation is None:
        raise HttpError(HTTPStatus.NOT_FOUND, f"this program has no {name}")
    return await operated(name, operation, request)


async def operated(
    name: str, operation: Callable[[], Awaitable[object]], request: HttpRequest
) -> HttpResponse:
    """Run an operation that is asked for, and answer with its outcome.

    Raises:
        HttpError: The request has arguments.
    """
    if request.arguments():
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{name} has no arguments")
    _logger.warning(
        "%s was asked for by %s", name, _by(request), extra={"event": "admin.operation"}
    )
    answer = await operation()
    status = HTTPStatus.CONFLICT if _failed(answer) else HTTPStatus.OK
    return json_response(answer, status)


def _failed(answer: object) -> bool:
    return isinstance(answer, Mapping) and "error" in answer


def _by(request: HttpRequest) -> str:
    return "an operator" if request.principal is None else request.principal.name
