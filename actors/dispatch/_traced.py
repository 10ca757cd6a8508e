"""The ways of reports about marked messages, as `onward trace` asks for.

The return route of a copy ends with the token of the dispatcher that has sent it. So a report of a
hop behind it comes to that token, and from there takes the way of the message back.
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
from ._arrival import Arrival, CopyWay, PlainWay, TransitWay

__all__ = ["TracedWays"]

_REMEMBERED: Final = 1_000
"""Copies of marked messages of which the way for reports is kept. Beyond: the oldest is forgotten,
and reports that come for it are lost and counted."""


class TracedWays:
    """The ways for reports, by the token of a copy.

    Args:
        dispatch: Sends a message.
    """

    def __init__(self, dispatch: Callable[[Message], object]) -> None:
        self._dispatch: Final = dispatch
        self._ways: Final[dict[bytes, Route]] = {}

    def note(self, token: bytes, arrival: Arrival) -> None:
        """Keep the way back of a message, if it is marked, for as long as reports may come."""
        context = arrival.message.context
        if context is None or context.trace is None:
            return
        match arrival.way:
            case PlainWay(message):
                route = message.return_route
            case TransitWay(route):
                pass
            case CopyWay(other):
                route = self._ways.get(other, ())
            case _:
                route = ()
        if route:
            self._ways[token] = route
            if len(self._ways) > _REMEMBERED:
                del self._ways[next(iter(self._ways))]

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
        """Send a report on along the way of its message; return whether it went."""
        route = self._ways.get(token)
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
