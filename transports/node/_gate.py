"""What the other end of a link may send to: what is exposed, and the ways back.

What messages let in may do behind the first address goes with them, as `Context.outside`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Final

from ...actors.access import Exposed
from ...protocol import LOCAL, Address, Route

__all__ = ["MAX_RETURNS", "Gate"]

MAX_RETURNS: Final = 10_000
"""Most addresses that all the ways back together have that a link remembers, in each of its
tables: as many ways of one address, fewer of longer ones. At the limit those are forgotten
whose workers have stopped, and then those unused for longest; of the ways that go on over other
links, those of the link that has most. An answer that comes later is refused. With addresses of
the greatest length a table takes 4 MB."""

_ROOM: Final = 16
"""At the limit of the ways over other links, one part in so many of the table is made free."""

_SWEEPS: Final = 4
"""The ways of workers that have stopped are looked for when the table is full, and again when so
much of it has been added since."""


class Gate:
    """Decides which messages from outside come in. One for each link.

    A message comes in if

    - its first onward address is exposed, or its type is, by an address of that type with the
      value `*` (for types other than 0: there is no way to expose all workers);
    - its onward route is a way back: the return route, to the last address, of a message
      that went out over this link. Of a way back that goes on over another link only the part
      up to that link counts: what is behind it is the business of that link's other end. A way
      back to the mailbox of a request is one for one message only, which is its answer.

    A way back is remembered as long as its workers live and there is room, and then the longer
    the later it was used.

    Args:
        expose: What is reachable from outside, and where messages may go from there.
        max_returns: Most addresses in the ways back to remember, in each of the tables: of
            workers, over links, and of requests.
        more: Tells whether an address is exposed besides, for now; asked for each message.
        lives: Tells whether a local address is that of a worker.

    Attributes:
        noted: The way back noted last, or `None`: it need not be noted again.
        over: The other link that the way back noted last goes on over, if that was not known.
        admitted: The onward route admitted last, or `None`: it need not be asked for again.
        given: How many addresses at the end of the route admitted last the other end chose.
    """

    __slots__ = (
        "_expose",
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
        self._workers = _Routes(max_returns, lives)
        self._relayed = _Prefixes(max_returns, lives)
        self._requests = _Routes(max_returns, lives)
        self.noted: Route | None = None
        self.over: Address | None = None
        self.admitted: Route | None = None
        self.given = 0

    def allows(self, address: Address) -> bool:
        """Decide whether a message that was let in may go to an address the other end chose."""
        return self._expose.allows(address) or self._more(address)

    def note(
        self,
        back: Route,
        is_request: Callable[[Address], bool],
        link_on: Callable[[Route], Address | None] = lambda _: None,
    ) -> None:
        """Remember the way that answers to a message that goes out will come.

        Args:
            back: Its return route, which is not empty.
            is_request: Tells whether a local address is the mailbox of a request.
            link_on: Returns the first link on a return route.
        """
        self.noted = None
        first = back[0]
        if first[0] != LOCAL:
            return
        if first in self._expose and len(back) == 1:
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
        self.admitted = None  # it may be one that was forgotten
        self.noted = back

    def admits(self, onward: Route) -> bool:
        """Decide about a message with this onward route, which is not empty.

        The answer to a request is let in once.
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
        # Not remembered: it may be hidden again at any time.
        return self._more(onward[0])

    def take_waiting(self) -> tuple[Address, ...]:
        """Return the mailboxes of requests that have had no answer, and forget them."""
        return tuple(route[-1] for route in self._requests.take_all())


class _Routes:
    """Routes, the least recently used first, of so many addresses together and at least one."""

    __slots__ = ("_added", "_limit", "_lives", "_routes", "size")

    def __init__(self, limit: int, lives: Callable[[Address], bool]) -> None:
        self._limit = limit
        self._lives = lives
        self._routes: dict[Route, None] = {}
        self.size = 0  # addresses in all of them
        self._added = limit  # since the last look for those whose workers have stopped

    def add(self, route: Route) -> bool:
        """Note that a route is used; tell whether it is new."""
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

    def oldest(self) -> Route:
        """Return the route unused for longest."""
        return next(iter(self._routes))

    def stopped(self) -> list[Route]:
        """Return the routes of which a worker has stopped."""
        return [each for each in self._routes if not all(map(self._lives, each))]

    def use(self, route: Route) -> bool:
        """Note that a route is used; tell whether it is there."""
        routes = self._routes
        if routes.pop(route, route) is not None:
            return False
        routes[route] = None
        return True

    def take(self, route: Route) -> bool:
        """Forget a route; tell whether it was there."""
        if self._routes.pop(route, route) is not None:  # one look, as most requests come here
            return False
        self.size -= len(route)
        return True

    def take_all(self) -> tuple[Route, ...]:
        taken = tuple(self._routes)
        self._routes.clear()
        self.size = 0
        return taken


class _Prefixes:
    """Routes that others begin with, of so many addresses together, by the link each ends with.

    A peer chooses the routes that end with its link, so it may make many of them. At the limit
    the oldest is forgotten of the link that has most.
    """

    __slots__ = ("_added", "_count", "_limit", "_lives", "_shares", "_size")

    def __init__(self, limit: int, lives: Callable[[Address], bool]) -> None:
        self._limit = limit
        self._lives = lives
        self._shares: dict[Address, _Routes] = {}
        self._count = 0
        self._size = 0  # addresses in all of them
        self._added = limit  # since the last look for those whose workers have stopped

    def __len__(self) -> int:
        return self._count

    def add(self, route: Route) -> bool:
        """Note that a route is used; tell whether it is new."""
        share = self._shares.get(route[-1])
        if share is None:
            # Never full by itself: the limit is that of all.
            share = self._shares[route[-1]] = _Routes(self._limit + len(route), self._lives)
        if not share.add(route):
            return False
        self._count += 1
        self._size += len(route)
        self._added += len(route)
        if self._size > self._limit:
            self._make_room()
        return True

    def use_front(self, route: Route) -> int:
        """Note that a route is used that another begins with; return its length, or 0."""
        shares = self._shares
        for at, address in enumerate(route):
            share = shares.get(address)
            if share is not None:  # each of them ends at the first link on it
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
        # Somewhat more than has to be, so that the links are not looked through each time.
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

    def _take(self, link: Address, share: _Routes, route: Route) -> None:
        share.take(route)
        self._count -= 1
        self._size -= len(route)
        if not share:
            del self._shares[link]
