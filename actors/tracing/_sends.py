"""The interception of a worker's messages, which adds them to a trace."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...protocol import Address, Context, Message, RouteLike
from ..routing._router import Router
from ..runtime._mailbox import Target

if TYPE_CHECKING:
    from .._worker import Worker
    from ..access._guard import OutboundGuard
    from ..routing._requests import Requests

__all__ = ["Sends"]

Add: TypeAlias = Callable[[Context | None], Context | None]
"""A function that returns the given context, with a trace if there is a current one."""


class Sends:
    """A temporary layer between a worker and its node, like an access control.

    A message with a tracing text is not changed: it is forwarded, or a reply.

    Args:
        worker: The worker.
        add: Makes the context of messages without a tracing text.
    """

    __slots__ = ("_add", "_below", "_worker", "table")

    def __init__(self, worker: Worker, add: Add) -> None:
        # Always empty, so that a sender finds no target and calls `dispatch`.
        self.table: dict[Address, Target] = {}
        self._worker = worker
        self._add = add
        self._below: Router | OutboundGuard = worker._out

    def enter(self) -> None:
        """Insert this layer for the worker's messages."""
        self._below = self._worker._out
        # It has the methods of `OutboundGuard` that workers call; a compiled class has no subclass.
        self._worker._out = cast("OutboundGuard", self)

    def leave(self) -> None:
        """Remove this layer."""
        self._worker._out = self._below

    def settle(self, sender: OutboundGuard) -> None:
        """Send through an access control from now on, instead of the node."""
        below = self._below
        if isinstance(below, Router):
            self._below = sender
        else:
            below.settle(sender)

    def dispatch(self, message: Message) -> None:
        """Add the trace to a message, and forward the call."""
        self._below.dispatch(self._traced(message))

    def dispatch_answer(self, message: Message) -> None:
        """Add the trace to a reply, and forward the call."""
        below = self._below
        if isinstance(below, Router):
            below.dispatch(self._traced(message))
        else:
            below.dispatch_answer(self._traced(message))

    def dispatch_from(self, own: Address | None, message: Message) -> None:
        """Add the trace to a message, and forward the call."""
        self._below.dispatch_from(own, self._traced(message))

    async def dispatch_wait(self, message: Message, own: Address | None = None) -> None:
        """Add the trace to a message, and forward the call."""
        await self._below.dispatch_wait(self._traced(message), own)

    def request(
        self,
        requests: Requests,
        source: Address,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Coroutine[Any, Any, Message]:
        """Add the span that is current now, not when it is awaited, and forward the call."""
        if context is None or not context.trace:
            context = self._add(context)
        below = self._below
        if isinstance(below, Router):
            return requests.request(source, route, payload, timeout, context)
        return below.request(requests, source, route, payload, timeout, context)

    def _traced(self, message: Message) -> Message:
        context = message.context
        if context is not None and context.trace:
            return message
        return message._replace(context=self._add(context))
