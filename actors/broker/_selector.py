"""Ways of asking: what an ADDRESS or an address of type 32 asks for, and whose turn it is.

What bytes ask for does not depend on the routing table, so an `Ask` never is stale and whoever
reads the same bytes again may keep it. A `Selector` is shared by all who ask in the same way:
it holds the state of the method, so that queries do not disturb one another.
"""

from __future__ import annotations

from typing import Final

from ...protocol import TAGS, Address, AddressError
from ...protocol.broker import (
    MAX_REMEMBERED_SIZE,
    BrokerFrameError,
    Dialect,
    Query,
    QueryReader,
    RoutingType,
    format_query,
)

__all__ = ["Ask", "Selector", "Selectors"]


class Turns:
    """Whose turn it is."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0


class Selector:
    """A way of asking in use.

    Attributes:
        query: The tags a destination must carry.
        turns: Whose turn it is.
    """

    __slots__ = ("query", "turns")

    def __init__(self, query: Query, turns: Turns) -> None:
        self.query: Final = query
        self.turns: Final = turns


class Ask:
    """What one ADDRESS, or one address of type 32, asks for.

    Attributes:
        selector: The way of asking.
        no_route: How long to wait for a route, in seconds; 0 not at all, infinity as long as
            the broker lets anybody; `None` leaves it to the broker.
    """

    __slots__ = ("_address", "no_route", "selector")

    def __init__(self, selector: Selector, address: Address | None = None) -> None:
        self.selector: Final = selector
        self.no_route: float | None = None
        self._address = address

    @property
    def address(self) -> Address:
        """The address of type 32 that asks for the same."""
        address = self._address
        if address is None:
            value = format_query(self.selector.query).encode()
            address = self._address = Address(TAGS, value)
        return address

    @property
    def text(self) -> str:
        """The same as people write it."""
        return self.address.value.decode()


class Selectors:
    """The ways of asking that are remembered.

    Args:
        queries: Reads and remembers raw queries.
        limit: How many ways of asking are remembered, and how many addresses and queries
            with what they ask for; the oldest are forgotten.
    """

    def __init__(self, queries: QueryReader, limit: int) -> None:
        self._queries = queries
        self._limit = limit
        self._asks: dict[Query, Ask] = {}
        self._addresses: dict[Address, Ask] = {}
        self._turns = Turns()

    def read(self, frame: bytes, dialect: Dialect) -> Ask:
        """Return what an ADDRESS frame asks for.

        Args:
            frame: The whole frame.
            dialect: How it is written.

        Raises:
            BrokerFrameError: The frame is broken, or asks for something else than unicast.
        """
        asked = self._queries.from_address(frame, dialect)
        if asked.routing is not RoutingType.UNICAST:
            raise BrokerFrameError("flags", f"{asked.routing.name.lower()} is not served here")
        return self._asks.get(asked.query) or self._ask(asked.query)

    def named(self, address: Address) -> Ask:
        """Return what an address of type 32 asks for.

        Raises:
            AddressError: The query cannot be read.
        """
        ask = self._addresses.get(address)
        if ask is None:
            if address.type != TAGS:
                raise AddressError(str(address), "not a tag query")
            query = self._queries.from_text(address.value).query
            ask = self._asks.get(query) or self._ask(query)
            if len(address.value) <= MAX_REMEMBERED_SIZE:
                while len(self._addresses) >= self._limit:
                    del self._addresses[next(iter(self._addresses))]
                self._addresses[address] = ask
        return ask

    def _ask(self, query: Query) -> Ask:
        address = Address(TAGS, format_query(query).encode())
        if len(address.value) > MAX_REMEMBERED_SIZE:
            return Ask(Selector(query, self._turns), address)  # they share one position
        while len(self._asks) >= self._limit:
            del self._asks[next(iter(self._asks))]
        ask = self._asks[query] = Ask(Selector(query, Turns()), address)
        return ask

    def __len__(self) -> int:
        """Return how many ways of asking are remembered."""
        return len(self._asks)
