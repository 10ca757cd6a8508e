"""The paths of reports about marked messages, as `onward trace` asks for.

The return route of a copy ends with the token of the dispatcher that has sent it. So a report of a
hop behind it comes to that token, and from there takes the path of the message back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol import (
    MalformedMessage,
    Message,
    OnwardError,
    Route,
    decode_hop_report,
    read_tracing,
)
from ...protocol._tracing import reported_trace
from ._arrival import Arrival, CopyPath, PlainPath, TransitPath

__all__ = ["TracedPaths"]

_REMEMBERED: Final = 1_000
"""Copies of marked messages of which the path for reports is kept. Beyond: the oldest is forgotten,
and reports that come for it are lost and counted."""


class TracedPaths:
    """The paths for reports, by the token of a copy.

    Args:
        dispatch: Sends a message.
    """

    def __init__(self, dispatch: Callable[[Message], object]) -> None:
        self._dispatch: Final = dispatch
        self._paths: Final[dict[bytes, Route]] = {}

    def note(self, token: bytes, arrival: Arrival) -> None:
        """Keep the path back of a message, if it is marked, for as long as reports may come."""
        context = arrival.message.context
        if context is None or context.trace is None:
            return
        match arrival.reply_path:
            case PlainPath(message):
                route = message.return_route
            case TransitPath(route):
                pass
            case CopyPath(other):
                route = self._paths.get(other, ())
            case _:
                route = ()
        if route:
            self._paths[token] = route
            if len(self._paths) > _REMEMBERED:
                del self._paths[next(iter(self._paths))]

    def is_report(self, message: Message) -> bool:
        """Whether a message is a report of a hop, and not an answer.

        Every peer can mark a message as one, so its payload has to be a valid one.
        """
        context = message.context
        fields = None if context is None or context.trace is None else read_tracing(context.trace)
        trace = None if fields is None else reported_trace(fields)
        if trace is None:
            return False
        try:
            return decode_hop_report(message.payload).trace == trace
        except MalformedMessage:
            return False

    def pass_on(self, token: bytes, message: Message) -> bool:
        """Send a report on along the path of its message; return whether it went."""
        route = self._paths.get(token)
        if route is None:
            return False
        context = message.context
        if context is not None:
            context = context._replace(outside=None)
        try:
            self._dispatch(Message(route, (), message.payload, None, context))
        except OnwardError:
            return False
        return True
