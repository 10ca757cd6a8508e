"""What gives the way for each attempt: a route, or a function that makes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol import LinkDown, OnwardError, Route, RouteLike, UnknownAddress

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["MAX_LEAVE_TIME", "Found", "RouteProvider", "Way", "way_over"]

Found: TypeAlias = RouteLike | AbstractAsyncContextManager[RouteLike]
"""A route to a service, the service's own address last; or a context manager that gives one, and
that is left when another way has taken its place."""

Way: TypeAlias = RouteLike | Callable[[], Found | Awaitable[Found]]
"""A route to a service, the service's own address last; or a function that gives one each time
the way has to be replaced, and may connect first. What it raises is a failed attempt. What
it connects is closed by itself if it gives a context manager, as that of `way_over` does."""

MAX_LEAVE_TIME: Final = 5.0
"""How long a way that has been replaced may take to be left, in seconds; then it is cancelled."""

_logger: Final = logging.getLogger("onward.actors.sessions")


def way_over(
    node: Node, uris: str | Iterable[str], onward: RouteLike, **options: Any
) -> Callable[[], AbstractAsyncContextManager[RouteLike]]:
    """Make a way over a connection of its own, for a session or a relay.

    Each time the way has to be replaced it connects to the first of the URIs that can be reached,
    and stops the connection that it made before.

    ```python
    way = way_over(node, ["tcp://hub-1:4000", "tcp://hub-2:4000"], "sessions")
    session = await SessionClient.on(node, "there", way)
    ```

    Args:
        node: From where.
        uris: Where to, in the order in which they are tried.
        onward: The route from there, the service's own address last.
        **options: As for `Node.connect`: `expose` and so on.
    """
    addresses = [uris] if isinstance(uris, str) else list(uris)

    @asynccontextmanager
    async def way() -> AsyncGenerator[RouteLike]:
        error = LinkDown("no URI is given")
        for uri in addresses:
            try:
                link = await node.connect(uri, **options)
            except LinkDown as failed:
                error = failed
                continue
            try:
                yield (link, *node.route_of(onward))
            finally:
                with suppress(UnknownAddress):  # it has stopped by itself
                    await node.stop_worker(link)
            return
        raise error

    return way


class RouteProvider:
    """Finds a way for each attempt, one at a time, and leaves those that are replaced.

    Two ways at most are held: the one that was last `taken`, as what was sent by it may still be
    answered, and the one that is tried.

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
        self._latest: _Attempt | None = None
        self._used: _Attempt | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    def attempt(self, epoch: int) -> None:
        """Find a way; give up the attempt before."""
        self._drop(self._latest)
        self._latest = None
        if callable(self._way):
            # In a task, and not as a turn: the worker has other messages to handle meanwhile.
            self._latest = attempt = _Attempt()
            attempt.task = self._node.loop.create_task(self._find(self._way, epoch, attempt))
        else:
            self._found(self._node.route_of(self._way), epoch)

    def taken(self) -> None:
        """Say that messages go by the way that was found last: the one before is left."""
        latest, self._latest = self._latest, None
        if latest is not None and latest.found:
            self._drop(self._used)
            self._used = latest
        else:
            self._drop(latest)

    def stop(self) -> None:
        """Look for a way no more. Idempotent."""
        if self._latest is not None and not self._latest.found:
            self._drop(self._latest)
            self._latest = None

    async def close(self) -> None:
        """Look for a way no more, and leave those there are. Idempotent."""
        for attempt in (self._latest, self._used):
            self._drop(attempt)
        self._latest = self._used = None
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _drop(self, attempt: _Attempt | None) -> None:
        if attempt is None or attempt.task is None or attempt.task.done():
            return
        task = attempt.task
        if attempt.found:
            attempt.enough.set()
        elif task is asyncio.current_task():
            return  # it failed, and is nearly done
        else:
            task.cancel()
        # Long before there could be many: an attempt takes its time too.
        late = self._node.loop.call_later(MAX_LEAVE_TIME, task.cancel)
        self._leaving.add(task)

        def left(task: asyncio.Task[None]) -> None:
            late.cancel()
            self._leaving.discard(task)

        task.add_done_callback(left)

    async def _find(
        self, way: Callable[[], Found | Awaitable[Found]], epoch: int, attempt: _Attempt
    ) -> None:
        try:
            given = way()
            found = await given if isawaitable(given) else given
            if not isinstance(found, AbstractAsyncContextManager):
                self._has(found, epoch, attempt)
                return
            # From the first to the last in this task, as some context managers have to be.
            async with found as route:
                self._has(route, epoch, attempt)
                await attempt.enough.wait()
        except Exception as error:
            if attempt.found:
                _logger.exception("a way to a service could not be left")
            elif isinstance(error, OnwardError):
                self._failed(epoch, str(error))
            else:
                _logger.exception("a function that gives the way to a service failed")
                self._failed(epoch, f"no way: {type(error).__name__}")

    def _has(self, given: RouteLike, epoch: int, attempt: _Attempt) -> None:
        route = self._node.route_of(given)
        attempt.found = True
        self._found(route, epoch)


class _Attempt:
    """A way that is looked for, tried or used, and the task that holds it."""

    __slots__ = ("enough", "found", "task")

    def __init__(self) -> None:
        self.enough = asyncio.Event()
        self.found = False
        self.task: asyncio.Task[None] | None = None
