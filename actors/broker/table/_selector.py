"""Ways of asking: what an ADDRESS or an address of type 32 asks for, and how that is chosen.

What bytes ask for does not depend on the routing table, so an `Ask` never is stale and whoever
reads the same bytes again may keep it. A `Selector` is shared by all who ask in the same way:
it holds the state of the method, so that queries do not disturb one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....protocol import TAGS, Address, AddressError
from ....protocol.broker import (
    MAX_REMEMBERED_SIZE,
    AddressQuery,
    Balancer,
    Dialect,
    Query,
    QueryReader,
    RoundRobin,
    RoutingType,
    Sharding,
    TagList,
    format_address_query,
    shard_hash,
)
from ._methods import Methods

__all__ = ["Ask", "Selector", "Selectors"]


class Selector:
    """A way of asking in use: tags, routing and method, and the state of the method.

    Attributes:
        query: The tags a destination must carry.
        routing: Unicast, multicast or shard.
        method: The name of what chooses among several, in normal form; empty for multicast.
        balancer: What chooses for unicast.
        sharding: What chooses for shard.
        remembered: Whether it is asked again; if not, nothing is to be kept for it.
    """

    __slots__ = ("balancer", "method", "query", "remembered", "routing", "sharding")

    def __init__(
        self,
        query: Query,
        routing: RoutingType,
        method: str = "",
        *,
        balancer: Balancer | None = None,
        sharding: Sharding | None = None,
        remembered: bool = True,
    ) -> None:
        self.query: Final = query
        self.routing: Final = routing
        self.method: Final = method
        self.balancer: Final = balancer
        self.sharding: Final = sharding
        self.remembered: Final = remembered


class Ask:
    """What one ADDRESS, or one address of type 32, asks for.

    Attributes:
        selector: The way of asking.
        query: The tags a destination must carry.
        routing: Unicast, multicast or shard.
        shard: The hash of the tags that choose in a shard request, 64 bits; else 0.
        sticky: The tags that keep a unicast request on one destination; else none.
        no_route: How long to wait for a route, in seconds; 0 not at all, infinity as long as
            the broker lets anybody; `None` leaves it to the broker.
        unknown: Whether it asks for a method that nobody knows, and gets the default.
        turn: Says whose turn it is, where that is all there is to choose by; else `None`.
    """

    __slots__ = (
        "_address",
        "_asked",
        "no_route",
        "query",
        "routing",
        "selector",
        "shard",
        "sticky",
        "turn",
        "unknown",
    )

    def __init__(self, selector: Selector, asked: AddressQuery, *, unknown: bool = False) -> None:
        self.selector: Final = selector
        self.query: Final = selector.query
        self.routing: Final = asked.routing
        self.no_route: Final = asked.no_route
        self.unknown: Final = unknown
        self.shard = 0
        self.sticky: TagList = ()
        # Round robin asks nothing of those it chooses among but how many they are.
        self.turn: Callable[[Any, float, Any], int] | None = None
        if asked.routing is RoutingType.SHARD:
            self.shard = shard_hash(asked.keys)
        elif asked.keys:
            self.sticky = asked.keys
        elif type(selector.balancer) is RoundRobin and not unknown:
            self.turn = selector.balancer.pick
        self._asked = asked
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """The address of type 32 that asks for the same."""
        address = self._address
        if address is None:
            value = format_address_query(self._asked).encode()
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
        methods: What may choose.
        limit: How many ways of asking are remembered; and how many addresses, and how many
            queries without tags that choose, with what they ask for. The oldest are forgotten.
    """

    def __init__(self, queries: QueryReader, methods: Methods, limit: int) -> None:
        self._queries = queries
        self._methods = methods
        self._limit = limit
        self._selectors: dict[tuple[RoutingType, str, Query], Selector] = {}
        self._asks: dict[AddressQuery, Ask] = {}
        self._addresses: dict[Address, Ask] = {}
        # Of ways of asking that are not remembered: one for each method.
        self._balancers: dict[str, Balancer] = {}

    def read(self, frame: bytes, dialect: Dialect) -> Ask:
        """Return what an ADDRESS frame asks for.

        Args:
            frame: The whole frame.
            dialect: How it is written.

        Raises:
            BrokerFrameError: The frame is broken.
        """
        asked = self._queries.from_address(frame, dialect)
        return self._asks.get(asked) or self._ask(asked)

    def named(self, address: Address) -> Ask:
        """Return what an address of type 32 asks for.

        Raises:
            AddressError: It cannot be read.
        """
        ask = self._addresses.get(address)
        if ask is None:
            if address.type != TAGS:
                raise AddressError(str(address), "not a tag query")
            asked = self._queries.from_text(address.value)
            ask = self._asks.get(asked) or self._ask(asked)
            if len(address.value) <= MAX_REMEMBERED_SIZE:
                _make_room(self._addresses, self._limit)
                self._addresses[address] = ask
        return ask

    def _ask(self, asked: AddressQuery) -> Ask:
        method, unknown = self._method(asked)
        selector = self._selectors.get((asked.routing, method, asked.query))
        if selector is None:
            selector = self._select(asked.query, asked.routing, method)
        ask = Ask(selector, asked, unknown=unknown)
        # There are as many different keys as users, say, and few of them come again.
        if selector.remembered and not asked.keys:
            _make_room(self._asks, self._limit)
            self._asks[asked] = ask
        return ask

    def _method(self, asked: AddressQuery) -> tuple[str, bool]:
        """Return the method that is to choose, and whether it takes the place of another."""
        methods, name = self._methods, asked.method
        if asked.routing is RoutingType.MULTICAST:
            return "", False
        if asked.routing is RoutingType.SHARD:
            known, default = methods.knows_sharding(name), methods.sharding
        else:
            known, default = methods.knows_balancer(name), methods.balancer
        return (name, False) if known else (default, bool(name))

    def _select(self, query: Query, routing: RoutingType, method: str) -> Selector:
        remembered = _size(query) <= MAX_REMEMBERED_SIZE
        balancer: Balancer | None = None
        sharding: Sharding | None = None
        if routing is RoutingType.SHARD:
            sharding = self._methods.make_sharding(method)
        elif routing is RoutingType.UNICAST:
            balancer = None if remembered else self._balancers.get(method)
            if balancer is None:
                balancer = self._methods.make_balancer(method)
        selector = Selector(
            query, routing, method, balancer=balancer, sharding=sharding, remembered=remembered
        )
        if remembered:
            _make_room(self._selectors, self._limit)
            self._selectors[routing, method, query] = selector
        elif balancer is not None:
            self._balancers[method] = balancer
        return selector

    def __len__(self) -> int:
        """Return how many ways of asking are remembered."""
        return len(self._selectors)


def _make_room(table: dict[Any, Any], limit: int) -> None:
    while len(table) >= limit:
        del table[next(iter(table))]


def _size(query: Query) -> int:
    """Return how long a query is, in characters of keys and values."""
    return sum(
        (len(key) if isinstance(key, str) else 1) + len(value or "") + 1 for key, value in query
    )
