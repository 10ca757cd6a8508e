"""What the other end of a link may send to: what is exposed, and the ways back.

Everything behind the first address is the business of the worker there: who exposes a
forwarder lets others reach what it can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..protocol import LOCAL, Address, Route

__all__ = ["MAX_RETURNS", "Gate"]

MAX_RETURNS: Final = 10_000
"""Most addresses that all the ways back together have that a link remembers, in each of its two
tables: as many ways of one address, fewer of longer ones. Those unused for longest are
forgotten: an answer that comes later is refused. With addresses of the greatest length a table
takes 4 MB."""

ANY: Final = b"*"


class Gate:
    """Decides which messages from outside come in. One for each link.

    A message comes in if

    - its first onward address is exposed, or its type is, by an address of that type with the
      value `*` (for types other than 0: there is no way to expose all workers);
    - its onward route is a way back: the whole return route, to the last address, of a message
      that went out over this link. A way back to the mailbox of a request is one for one
      message only, which is its answer.

    Args:
        expose: What is reachable from outside.
        max_returns: Most addresses in the ways back to remember, of workers and of requests each.
        more: Tells whether an address is exposed besides, for now; asked for each message.

    Attributes:
        noted: The way back noted last, or `None`: it need not be noted again.
        admitted: The onward route admitted last, or `None`: it need not be asked for again.
    """

    __slots__ = ("_expose", "_more", "_requests", "_types", "_workers", "admitted", "noted")

    def __init__(
        self,
        expose: frozenset[Address],
        *,
        max_returns: int = MAX_RETURNS,
        more: Callable[[Address], bool] = lambda _: False,
    ) -> None:
        self._expose = expose
        self._more = more
        self._types = frozenset(
            address.type for address in expose if address.value == ANY and address.type != LOCAL
        )
        self._workers = _Routes(max_returns)
        self._requests = _Routes(max_returns)
        self.noted: Route | None = None
        self.admitted: Route | None = None

    def note(self, back: Route, is_request: Callable[[Address], bool]) -> None:
        """Remember the way that answers to a message that goes out will come.

        Args:
            back: Its return route, which is not empty.
            is_request: Tells whether a local address is the mailbox of a request.
        """
        self.noted = None
        first = back[0]
        if first[0] != LOCAL:
            return
        if first not in self._expose:
            if is_request(first):
                self._requests.add(back)
                return
            self._workers.add(back)
            self.admitted = None  # it may be one that was forgotten
        self.noted = back

    def admits(self, onward: Route) -> bool:
        """Decide about a message with this onward route, which is not empty.

        The answer to a request is let in once.
        """
        self.admitted = None
        if self._requests.take(onward):
            return True
        first = onward[0]
        if first in self._expose or first[0] in self._types or onward in self._workers:
            self.admitted = onward
            return True
        # Not remembered: it may be hidden again at any time.
        return self._more(first)

    def take_waiting(self) -> tuple[Address, ...]:
        """Return the mailboxes of requests that have had no answer, and forget them."""
        return tuple(route[0] for route in self._requests.take_all())


class _Routes:
    """Routes, the least recently used first, of so many addresses together and at least one."""

    __slots__ = ("_limit", "_routes", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._routes: dict[Route, None] = {}
        self._size = 0  # addresses in all of them

    def __contains__(self, route: Route) -> bool:
        return route in self._routes

    def add(self, route: Route) -> None:
        routes = self._routes
        self.take(route)
        self._size += len(route)
        while self._size > self._limit and routes:
            self.take(next(iter(routes)))
        routes[route] = None

    def take(self, route: Route) -> bool:
        """Forget a route; tell whether it was there."""
        if route not in self._routes:
            return False
        del self._routes[route]
        self._size -= len(route)
        return True

    def take_all(self) -> tuple[Route, ...]:
        taken = tuple(self._routes)
        self._routes.clear()
        self._size = 0
        return taken
