"""What a worker sends through while its messages are to be part of a trace."""

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
"""Returns a context that names a trace, or the one it is given."""


class Sends:
    """Stands between a worker and its node for a while, as an access control does.

    A message with a tracing text stays as it is: it is one that came, or its answer.

    Args:
        worker: Whose messages.
        add: Makes the context of those without a tracing text.
    """

    __slots__ = ("_add", "_below", "_worker", "table")

    def __init__(self, worker: Worker, add: Add) -> None:
        # Always empty: so whoever sends finds nobody and calls `carry`.
        self.table: dict[Address, Target] = {}
        self._worker = worker
        self._add = add
        self._below: Workers | OutboundGuard = worker._out

    def enter(self) -> None:
        """Have the worker send through this."""
        self._below = self._worker._out
        # It has what workers call of an `OutboundGuard`: a compiled class cannot be derived from.
        self._worker._out = cast("OutboundGuard", self)

    def leave(self) -> None:
        """Have the worker send as before."""
        self._worker._out = self._below

    def settle(self, sender: OutboundGuard) -> None:
        """Send through this from now on, instead of the node."""
        below = self._below
        if isinstance(below, Sends):
            below.settle(sender)
        elif type(below) is not type(sender):
            self._below = sender

    def carry(self, message: Message) -> None:
        """Do as what is below."""
        self._below.carry(self._traced(message))

    def carry_answer(self, message: Message) -> None:
        """Do as what is below."""
        self._below.carry_answer(self._traced(message))

    def carry_from(self, own: Address | None, message: Message) -> None:
        """Do as what is below."""
        self._below.carry_from(own, self._traced(message))

    async def carry_wait(self, message: Message, own: Address | None = None) -> None:
        """Do as what is below."""
        await self._below.carry_wait(self._traced(message), own)

    def request_from(
        self,
        source: Address,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Coroutine[Any, Any, Message]:
        """Do as what is below. The span is the one that is current now, not when it is awaited."""
        if context is None or not context.trace:
            context = self._add(context)
        return self._below.request_from(source, route, payload, timeout, context)

    def _traced(self, message: Message) -> Message:
        context = message.context
        if context is not None and context.trace:
            return message
        return message._replace(context=self._add(context))
