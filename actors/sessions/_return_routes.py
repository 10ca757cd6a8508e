"""The gate of a session for its other end: exposed addresses, and return routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ...protocol import LOCAL, Address, Route

__all__ = ["ReturnRoutes"]

_Key = TypeVar("_Key", Address, Route)

_ANY: Final = b"*"


class ReturnRoutes:
    """The messages that the other end of a session may send, as a link's gate for connections.

    A message is admitted if its first onward address is exposed, or its type is, by an address of
    that type with the value `*` (for types other than 0); or if its onward route is the whole
    return route of a message that went out.

    Args:
        expose: The addresses that the other end can reach.
        limit: The most return routes remembered; the least recently used are forgotten.
    """

    __slots__ = ("_back", "_expose", "_limit", "_types", "_waiting")

    def __init__(self, expose: frozenset[Address], limit: int) -> None:
        self._expose = expose
        self._types = frozenset(
            each.type for each in expose if each.value == _ANY and each.type != LOCAL
        )
        self._limit = limit
        self._back: dict[Route, None] = {}
        self._waiting: dict[Address, None] = {}

    def note(self, back: Route, is_request: Callable[[Address], bool]) -> None:
        """Remember the return route of an outgoing message, for its replies.

        Args:
            back: The return route, which may be empty.
            is_request: Returns whether an address is the mailbox of a request of this node.
        """
        if not back:
            return
        _renew(self._back, back, self._limit)
        if is_request(back[-1]):
            _renew(self._waiting, back[-1], self._limit)

    def admits(self, onward: Route) -> bool:
        """Whether a message with this onward route, which is not empty, is admitted."""
        first = onward[0]
        if onward in self._back:
            _renew(self._back, onward, self._limit)
            self._waiting.pop(onward[-1], None)
            return True
        return self.exposes(first)

    def exposes(self, address: Address) -> bool:
        """Whether an address is exposed."""
        return address in self._expose or address.type in self._types

    def is_back(self, onward: Route) -> bool:
        """Whether this is the whole return route of an outgoing message."""
        return onward in self._back

    def take_waiting(self) -> tuple[Address, ...]:
        """Return the mailboxes of requests without a reply, and forget them."""
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return waiting


def _renew(table: dict[_Key, None], key: _Key, limit: int) -> None:
    table.pop(key, None)
    table[key] = None
    if len(table) > limit:
        del table[next(iter(table))]
