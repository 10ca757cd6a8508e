"""What the other end of a link may send to: what is exposed, and the ways back.

Everything behind the first address is the business of the worker there: who exposes a
forwarder lets others reach what it can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..protocol import LOCAL, Address

__all__ = ["MAX_RETURNS", "Gate"]

MAX_RETURNS: Final = 10_000
"""Most return addresses a link remembers, in each of its two tables. The one unused for
longest is forgotten: an answer that comes later is refused."""

ANY: Final = b"*"


class Gate:
    """Decides which messages from outside come in. One for each link.

    A message comes in if its first onward address

    - is exposed, or its type is, by an address of that type with the value `*` (for types
      other than 0: there is no way to expose all workers);
    - is a way back: the first return address of a message that went out over this link.
      The mailbox of a request is one for one message only, which is its answer.

    Args:
        expose: What is reachable from outside.
        max_returns: Most ways back to remember, of workers and of requests each.

    Attributes:
        noted: The worker's address noted last, or `None`: it need not be noted again.
        admitted: The address admitted last, or `None`: it need not be asked for again.
    """

    __slots__ = (
        "_expose",
        "_max_returns",
        "_requests",
        "_types",
        "_workers",
        "admitted",
        "noted",
    )

    def __init__(self, expose: frozenset[Address], *, max_returns: int = MAX_RETURNS) -> None:
        self._expose = expose
        self._types = frozenset(
            address.type for address in expose if address.value == ANY and address.type != LOCAL
        )
        self._max_returns = max_returns
        self._workers: dict[Address, None] = {}  # the least recently used first
        self._requests: dict[Address, None] = {}
        self.noted: Address | None = None
        self.admitted: Address | None = None

    def note(self, address: Address, is_request: Callable[[Address], bool]) -> None:
        """Remember where answers to a message that goes out will come to.

        Args:
            address: The first address of its return route.
            is_request: Tells whether a local address is the mailbox of a request.
        """
        self.noted = None
        if address[0] != LOCAL:
            return
        if address not in self._expose:
            if is_request(address):
                _remember(self._requests, address, self._max_returns)
                return
            _remember(self._workers, address, self._max_returns)
            self.admitted = None  # it may be the one that was forgotten
        self.noted = address

    def admits(self, address: Address) -> bool:
        """Decide about a message for this address. The answer to a request is let in once."""
        self.admitted = None
        if address in self._requests:
            del self._requests[address]
            return True
        if address in self._workers or address in self._expose or address[0] in self._types:
            self.admitted = address
            return True
        return False

    def take_waiting(self) -> tuple[Address, ...]:
        """Return the mailboxes of requests that have had no answer, and forget them."""
        waiting = tuple(self._requests)
        self._requests.clear()
        return waiting


def _remember(table: dict[Address, None], address: Address, limit: int) -> None:
    table.pop(address, None)
    if len(table) >= limit:
        del table[next(iter(table))]
    table[address] = None
