"""The access control of a link: exposed addresses and remembered return routes.

Limits on the addresses behind the first travel with a message, as `Context.outside`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final

from ...actors.access import Exposed
from ...protocol import DELIVERY, LOCAL, Address, Route

__all__ = ["MAX_RETURNS", "Gate"]

MAX_RETURNS: Final = 10_000
"""The maximum number of addresses in the return routes that a link remembers, for each of its
tables. At the limit, the routes with stopped workers are forgotten first, then the least recently
used ones; of the routes that go on over other links, those of the link with the most addresses. A
later reply along a forgotten route is refused. With addresses of the maximum length a table takes
4 MB."""

_ROOM: Final = 16
"""The reciprocal of the part of the table of routes over links that is freed at the limit."""

_SWEEPS: Final = 4
"""The reciprocal of the part of a full table that has to be added between two searches for routes
with stopped workers."""


class Gate:
    """The filter of one link for messages that come from outside.

    A message is admitted if

    - its first onward address is exposed, or its type is, by an address of that type with the
      value `*` (for types other than 0: it is not possible to expose all workers);
    - its onward route is the return route, to the last address, of a message that was sent over
      this link. Of a return route that goes on over another link only the part up to that link
      is compared: that link's other end checks the rest. A return route to the mailbox of a
      request admits one message only, the response.

    A return route is remembered while its workers live and there is room. The least recently used
    ones are forgotten first.

    Args:
        expose: The addresses that are reachable from outside, or may be passed on to.
        max_returns: The maximum number of addresses in remembered return routes, for each table:
            routes to workers, over links, and to requests.
        more: Whether an address is exposed at run time; called for each message.
        lives: Whether a local address belongs to a worker.

    Attributes:
        noted: The return route noted last, or `None`; it need not be noted again.
        over: The other link on the return route noted last, if that route was new.
        admitted: The onward route admitted last, or `None`; it need not be checked again.
        given: The number of addresses of that route, at its end, that the other end chose.
    """

    __slots__ = (
        "_expose",
        "_lives",
        "_more",
        "_relayed",
        "_requests",
        "_workers",
        "admitted",
        "given",
        "noted",
        "over",
    )

    def __init__(
        self,
        expose: frozenset[Address],
        *,
        max_returns: int = MAX_RETURNS,
        more: Callable[[Address], bool] = lambda _: False,
        lives: Callable[[Address], bool] = lambda _: True,
    ) -> None:
        self._expose = expose if isinstance(expose, Exposed) else Exposed(expose)
        self._more = more
        self._lives = lives
        self._workers = _RecentRoutes(max_returns, lives)
        self._relayed = _Prefixes(max_returns, lives)
        self._requests = _RecentRoutes(max_returns, lives)
        self.noted: Route | None = None
        self.over: Address | None = None
        self.admitted: Route | None = None
        self.given = 0

    def allows(self, address: Address) -> bool:
        """Whether an admitted message may go to an address that the other end chose."""
        return self._expose.allows(address) or self._more(address)

    def note(
        self,
        back: Route,
        is_request: Callable[[Address], bool],
        link_on: Callable[[Route], Address | None] = lambda _: None,
    ) -> None:
        """Remember the return route of a message that is sent.

        Args:
            back: The return route, not empty.
            is_request: Whether a local address is the mailbox of a request.
            link_on: Returns the first link on a return route, or `None`.
        """
        self.noted = None
        first = back[0]
        if first[0] != LOCAL:
            return
        if first in self._expose and (len(back) == 1 or back[1][0] == DELIVERY):
            # A dispatcher looks itself at what comes to its tokens, of which there is one for each
            # message.
            self.noted = back
            return
        if is_request(first):
            self._requests.add(back)
            return
        link = link_on(back)
        if link is not None:
            self.over = link if self._relayed.add(back[: back.index(link) + 1]) else None
        elif is_request(back[-1]):
            self._requests.add(back)
            return
        else:
            self._workers.add(back)
        self.admitted = None  # that route may have been forgotten
        self.noted = back

    def admits(self, onward: Route) -> bool:
        """Whether a message with this onward route, which is not empty, is admitted.

        The response to a request is admitted once.
        """
        self.admitted = None
        self.given = 0
        if self._requests.take(onward):
            return True
        if self._workers.use(onward):
            self.admitted = onward
            return True
        length = self._relayed.use_front(onward) if self._relayed else 0
        self.given = len(onward) - (length or 1)
        if length or self._expose.lets_in(onward[0]):
            self.admitted = onward
            return True
        # Not stored in `admitted`: the address may be hidden again at any time.
        return self._more(onward[0])

    def is_waiting(self) -> bool:
        """Whether a request waits for its response."""
        return any(all(map(self._lives, route)) for route in self._requests)

    def take_waiting(self) -> tuple[Address, ...]:
        """Return the mailboxes of unanswered requests, and forget them."""
        return tuple(route[-1] for route in self._requests.take_all())


class _RecentRoutes:
    """Routes in order of last use, with a limit on their addresses; one route is always kept."""

    __slots__ = ("_added", "_limit", "_lives", "_routes", "size")

    def __init__(self, limit: int, lives: Callable[[Address], bool]) -> None:
        self._limit = limit
        self._lives = lives
        self._routes: dict[Route, None] = {}
        self.size = 0  # addresses in all routes
        self._added = limit  # addresses added since the last search for stopped workers

    def add(self, route: Route) -> bool:
        """Add a route, or mark it as used; return whether it is new."""
        routes, length = self._routes, len(route)
        if route in routes:
            del routes[route]
            routes[route] = None
            return False
        self.size += length
        self._added += length
        if self.size > self._limit and self._added * _SWEEPS >= self._limit:
            self._added = 0
            for each in self.stopped():
                self.take(each)
        while self.size > self._limit and routes:
            self.take(self.oldest())
        routes[route] = None
        return True

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def oldest(self) -> Route:
        """Return the least recently used route."""
        return next(iter(self._routes))

    def stopped(self) -> list[Route]:
        """Return the routes with a stopped worker."""
        return [each for each in self._routes if not all(map(self._lives, each))]

    def use(self, route: Route) -> bool:
        """Mark a route as used; return whether it is known."""
        routes = self._routes
        if routes.pop(route, route) is not None:
            return False
        routes[route] = None
        return True

    def take(self, route: Route) -> bool:
        """Forget a route; return whether it was known."""
        if self._routes.pop(route, route) is not None:  # one look-up: most requests come here
            return False
        self.size -= len(route)
        return True

    def take_all(self) -> tuple[Route, ...]:
        taken = tuple(self._routes)
        self._routes.clear()
        self.size = 0
        return taken


class _Prefixes:
    """Beginnings of return routes, each up to its first link, with a limit on their addresses.

    A peer chooses the routes that end with its link, and may choose many. At the limit the oldest
    route of the link with the most addresses is forgotten.
    """

    __slots__ = ("_added", "_count", "_limit", "_lives", "_shares", "_size")

    def __init__(self, limit: int, lives: Callable[[Address], bool]) -> None:
        self._limit = limit
        self._lives = lives
        self._shares: dict[Address, _RecentRoutes] = {}
        self._count = 0
        self._size = 0  # addresses in all routes
        self._added = limit  # addresses added since the last search for stopped workers

    def __len__(self) -> int:
        return self._count

    def add(self, route: Route) -> bool:
        """Add a route, or mark it as used; return whether it is new."""
        share = self._shares.get(route[-1])
        if share is None:
            # Never full by itself: the limit applies to all shares together.
            share = self._shares[route[-1]] = _RecentRoutes(self._limit + len(route), self._lives)
        if not share.add(route):
            return False
        self._count += 1
        self._size += len(route)
        self._added += len(route)
        if self._size > self._limit:
            self._make_room()
        return True

    def use_front(self, route: Route) -> int:
        """Mark the known beginning of a route as used; return its length, or 0."""
        shares = self._shares
        for at, address in enumerate(route):
            share = shares.get(address)
            if share is not None:  # each known beginning ends at its first link
                return at + 1 if share.use(route[: at + 1]) else 0
        return 0

    def _make_room(self) -> None:
        if self._added * _SWEEPS >= self._limit:
            self._added = 0
            for link, share in list(self._shares.items()):
                for each in share.stopped():
                    self._take(link, share, each)
        if self._size <= self._limit:
            return
        # More than necessary, so that the links are not searched each time.
        enough = self._limit - self._limit // _ROOM
        largest = [(-share.size, link) for link, share in self._shares.items()]
        heapify(largest)
        while self._size > enough and self._count > 1:
            link = largest[0][1]
            share = self._shares[link]
            self._take(link, share, share.oldest())
            if share:
                heapreplace(largest, (-share.size, link))
            else:
                heappop(largest)

    def _take(self, link: Address, share: _RecentRoutes, route: Route) -> None:
        share.take(route)
        self._count -= 1
        self._size -= len(route)
        if not share:
            del self._shares[link]
