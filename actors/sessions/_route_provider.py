"""The provider of a route for each attempt, from a route or from a function that makes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol import LinkDown, OnwardError, Route, RouteLike, UnknownAddress
from ..routing._given import as_route

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["MAX_LEAVE_TIME", "Found", "RouteProvider", "RouteSource", "route_over"]

Found: TypeAlias = RouteLike | AbstractAsyncContextManager[RouteLike]
"""A route to a service, the service's own address last; or a context manager of such a route, which
is left when another route has replaced it."""

RouteSource: TypeAlias = RouteLike | Callable[[], Found | Awaitable[Found]]
"""A route to a service, the service's own address last; or a function that returns one each time
the route has to be replaced, and may connect first. Its exceptions count as failed attempts. A
context manager, such as that of `route_over`, closes the connections that it made."""

MAX_LEAVE_TIME: Final = 5.0
"""The time after which leaving a replaced route is cancelled, in seconds."""

_logger: Final = logging.getLogger("onward.actors.sessions")


def route_over(
    node: Node, uris: str | Iterable[str], onward: RouteLike, **options: Any
) -> Callable[[], AbstractAsyncContextManager[RouteLike]]:
    """Return a function that makes a route over its own connection, for a session or a relay.

    Each time the route has to be replaced it connects to the first of the URIs that can be reached,
    and stops the connection that it made before.

    ```python
    route = route_over(node, ["tcp://hub-1:4000", "tcp://hub-2:4000"], "sessions")
    session = await SessionClient.on(node, "there", route)
    ```

    Args:
        node: The node that connects.
        uris: The URIs to connect to, in the order in which they are tried.
        onward: The route from there, the service's own address last.
        **options: As for `Node.connect`: `expose` and so on.
    """
    addresses = [uris] if isinstance(uris, str) else list(uris)

    @asynccontextmanager
    async def route() -> AsyncGenerator[RouteLike]:
        error = LinkDown("no URI is given")
        for uri in addresses:
            try:
                link = await node.connect(uri, **options)
            except LinkDown as failed:
                error = failed
                continue
            try:
                yield (link, *as_route(onward))
            finally:
                with suppress(UnknownAddress):  # it has stopped by itself
                    await node.stop_worker(link)
            return
        raise error

    return route


class RouteProvider:
    """A provider of a route for each attempt, one at a time, that leaves the replaced routes.

    At most two routes are held: the one last `taken`, because replies to its messages may still
    arrive, and the one being tried.

    Args:
        node: The node.
        route: A route or a function, as given by the user.
        found: Called with the route and the number of the attempt.
        failed: Called with the number of the attempt and the reason of its failure.
    """

    def __init__(
        self,
        node: Node,
        route: RouteSource,
        found: Callable[[Route, int], None],
        failed: Callable[[int, str], None],
    ) -> None:
        self._node = node
        self._route = route
        self._found = found
        self._failed = failed
        self._latest: _Attempt | None = None
        self._used: _Attempt | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    def attempt(self, epoch: int) -> None:
        """Find a route; cancel the attempt before."""
        self._drop(self._latest)
        self._latest = None
        if callable(self._route):
            # In a task, not in a turn: the worker has other messages to handle meanwhile.
            self._latest = attempt = _Attempt()
            attempt.task = self._node.loop.create_task(self._find(self._route, epoch, attempt))
        else:
            self._found(as_route(self._route), epoch)

    def taken(self) -> None:
        """Adopt the route that was found last, and leave the one before."""
        latest, self._latest = self._latest, None
        if latest is not None and latest.found:
            self._drop(self._used)
            self._used = latest
        else:
            self._drop(latest)

    def stop(self) -> None:
        """Cancel the attempt in progress. Idempotent."""
        if self._latest is not None and not self._latest.found:
            self._drop(self._latest)
            self._latest = None

    async def close(self) -> None:
        """Cancel the attempt in progress, and leave the routes held. Idempotent."""
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
        # Long before there could be many: an attempt takes time too.
        late = self._node.loop.call_later(MAX_LEAVE_TIME, task.cancel)
        self._leaving.add(task)

        def left(task: asyncio.Task[None]) -> None:
            late.cancel()
            self._leaving.discard(task)

        task.add_done_callback(left)

    async def _find(
        self, find: Callable[[], Found | Awaitable[Found]], epoch: int, attempt: _Attempt
    ) -> None:
        try:
            given = find()
            found = await given if isawaitable(given) else given
            if not isinstance(found, AbstractAsyncContextManager):
                self._has(found, epoch, attempt)
                return
            # In one task from beginning to end, as some context managers require.
            async with found as route:
                self._has(route, epoch, attempt)
                await attempt.enough.wait()
        except Exception as error:
            if attempt.found:
                _logger.exception(
                    "a route to a service could not be left",
                    extra={"event": "session.route_not_left"},
                )
            elif isinstance(error, OnwardError):
                self._failed(epoch, str(error))
            else:
                _logger.exception(
                    "a function that returns the route to a service failed",
                    extra={"event": "session.no_route"},
                )
                self._failed(epoch, f"no route: {type(error).__name__}")

    def _has(self, given: RouteLike, epoch: int, attempt: _Attempt) -> None:
        route = as_route(given)
        attempt.found = True
        self._found(route, epoch)


class _Attempt:
    """A route that is looked for, tried or used, and the task that holds it."""

    __slots__ = ("enough", "found", "task")

    def __init__(self) -> None:
        self.enough = asyncio.Event()
        self.found = False
        self.task: asyncio.Task[None] | None = None
