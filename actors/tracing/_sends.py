"""The interception of a worker's messages, which adds them to a trace."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...protocol import Address, Context, Message, RouteLike
from ..runtime._mailbox import Target

if TYPE_CHECKING:
    from .._worker import Worker
    from .._workers import Workers
    from ..access._guard import OutboundGuard

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
        # Always empty, so that a sender finds no target and calls `carry`.
        self.table: dict[Address, Target] = {}
        self._worker = worker
        self._add = add
        self._below: Workers | OutboundGuard = worker._out

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
        if isinstance(below, Sends):
            below.settle(sender)
        elif type(below) is not type(sender):
            self._below = sender

    def carry(self, message: Message) -> None:
        """Add the trace to a message, and forward the call."""
        self._below.carry(self._traced(message))

    def carry_answer(self, message: Message) -> None:
        """Add the trace to a reply, and forward the call."""
        self._below.carry_answer(self._traced(message))

    def carry_from(self, own: Address | None, message: Message) -> None:
        """Add the trace to a message, and forward the call."""
        self._below.carry_from(own, self._traced(message))

    async def carry_wait(self, message: Message, own: Address | None = None) -> None:
        """Add the trace to a message, and forward the call."""
        await self._below.carry_wait(self._traced(message), own)

    def request_from(
        self,
        source: Address,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Coroutine[Any, Any, Message]:
        """Add the span that is current now, not when it is awaited, and forward the call."""
        if context is None or not context.trace:
            context = self._add(context)
        return self._below.request_from(source, route, payload, timeout, context)

    def _traced(self, message: Message) -> Message:
        context = message.context
        if context is not None and context.trace:
            return message
        return message._replace(context=self._add(context))
