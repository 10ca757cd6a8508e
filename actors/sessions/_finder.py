"""What gives the way for each attempt: a route, or a function that makes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import OnwardError, Route, RouteLike

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Finder", "Way"]

Way: TypeAlias = RouteLike | Callable[[], RouteLike | Awaitable[RouteLike]]
"""A route to a service, the service's own address last; or a function that gives one each time
the way has to be replaced, and may connect first. What it raises is a failed attempt."""

_logger: Final = logging.getLogger("onward.actors.sessions")


class Finder:
    """Finds a way for each attempt, one at a time.

    Args:
        node: Where.
        way: As given by the user.
        found: Is called with the way and the number of the attempt.
        failed: Is called with the number of the attempt and why there is none.
    """

    def __init__(
        self,
        node: Node,
        way: Way,
        found: Callable[[Route, int], None],
        failed: Callable[[int, str], None],
    ) -> None:
        self._node = node
        self._way = way
        self._found = found
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def attempt(self, epoch: int) -> None:
        """Find a way; give up the attempt before."""
        self.stop()
        if callable(self._way):
            # In a task, and not as a turn: the worker has other messages to handle meanwhile.
            self._task = self._node.loop.create_task(self._find(self._way, epoch))
        else:
            self._found(self._node.route_of(self._way), epoch)

    def stop(self) -> None:
        """Give up the attempt, if there is one. Idempotent."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    async def _find(self, way: Callable[[], RouteLike | Awaitable[RouteLike]], epoch: int) -> None:
        try:
            given = way()
            route = self._node.route_of(await given if isawaitable(given) else given)
        except OnwardError as error:
            self._failed(epoch, str(error))
        except Exception as error:
            _logger.exception("a function that gives the way to a service failed")
            self._failed(epoch, f"no way: {type(error).__name__}")
        else:
            self._found(route, epoch)
