"""Selectors and queries, parsed from an ADDRESS frame or an address of type 32.

The meaning of the bytes does not depend on the routing table, so an `Ask` is never stale and may be
kept for equal bytes. A `Selector` is shared by all requests with the same query, routing and
method. It holds the state of the method, so that queries do not disturb one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....protocol import TAGS, Address, AddressError
from ....protocol._closed import close_class
from ....protocol.broker import (
    MAX_REMEMBERED_SIZE,
    MAX_TAGS,
    AddressQuery,
    Balancer,
    BrokerFrameError,
    Dialect,
    Query,
    QueryReader,
    RoundRobin,
    RoutingType,
    Sharding,
    TagList,
    TagSet,
    format_address_query,
    shard_hash,
)
from ....protocol.security import Action, add_forced_tags
from .._tally import NUMBERS
from ._methods import Methods

__all__ = ["Ask", "Selector", "Selectors"]


class Selector:
    """A query with its routing, its method and the state of the method.

    Attributes:
        query: The tags a destination must carry.
        routing: Unicast, multicast or shard.
        method: The name of the method in normal form; empty for multicast.
        balancer: The method for unicast.
        sharding: The method for shard.
        remembered: Whether the selector is reused; if not, no state is to be kept for it.
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


close_class(Selector)


class Ask:
    """The parsed content of an ADDRESS frame or an address of type 32.

    Attributes:
        selector: The selector.
        query: The tags a destination must carry.
        routing: Unicast, multicast or shard.
        shard: The 64-bit hash of the tags of a shard key; else 0.
        sticky: The tags of a sticky key; else none.
        no_route: How long to wait for a route, in seconds; 0 not at all, infinity as long as
            the broker permits; `None` for the broker's default.
        unknown: Whether its method is unknown, and the default takes its place.
        asked: The content as it was read.
        everywhere: Whether destinations of all brokers are alike: a shard is the same for all of
            them, and a sticky key stays where it is.
        turn: Returns the index of the next candidate if plain round robin chooses; else `None`.
        counts: The requests of connections with this routing, by the number of their interaction;
            those of all queries together.
    """

    __slots__ = (
        "_address",
        "asked",
        "counts",
        "everywhere",
        "no_route",
        "query",
        "routing",
        "selector",
        "shard",
        "sticky",
        "turn",
        "unknown",
    )

    def __init__(
        self, selector: Selector, asked: AddressQuery, counts: list[int], *, unknown: bool = False
    ) -> None:
        self.selector: Final = selector
        self.counts: Final = counts
        self.query: Final = selector.query
        self.routing: Final = asked.routing
        self.no_route: Final = asked.no_route
        self.unknown: Final = unknown
        self.shard = 0
        self.sticky: TagList = ()
        # Round robin depends only on the number of candidates.
        self.turn: Callable[[Any, float, Any], int] | None = None
        if asked.routing is RoutingType.SHARD:
            self.shard = shard_hash(asked.keys)
        elif asked.keys:
            self.sticky = asked.keys
        elif type(selector.balancer) is RoundRobin and not unknown:
            self.turn = selector.balancer.pick
        self.everywhere: Final = asked.routing is not RoutingType.UNICAST or bool(self.sticky)
        self.asked: Final = asked
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """The equivalent address of type 32."""
        address = self._address
        if address is None:
            value = format_address_query(self.asked).encode()
            address = self._address = Address(TAGS, value)
        return address

    @property
    def text(self) -> str:
        """The query in text form."""
        return self.address.value.decode()


close_class(Ask)


class Selectors:
    """The selectors in use.

    Args:
        queries: The parser of queries, with its memory.
        methods: The methods.
        limit: Most selectors that are remembered; also most addresses, and most queries without
            keys. The oldest are forgotten.

    Attributes:
        counts: The requests of connections by routing, and by the number of their interaction.
    """

    def __init__(self, queries: QueryReader, methods: Methods, limit: int) -> None:
        self._queries = queries
        self._methods = methods
        self._limit = limit
        self._selectors: dict[tuple[RoutingType, str, Query], Selector] = {}
        self._asks: dict[AddressQuery, Ask] = {}
        self._addresses: dict[Address, Ask] = {}
        # Of selectors that are not remembered: one for each method.
        self._balancers: dict[str, Balancer] = {}
        self.counts: dict[RoutingType, list[int]] = {each: [0] * NUMBERS for each in RoutingType}

    def read(self, frame: bytes, dialect: Dialect) -> Ask:
        """Parse an ADDRESS frame.

        Args:
            frame: The whole frame.
            dialect: The dialect of the frame.

        Raises:
            BrokerFrameError: The frame is broken.
        """
        asked = self._queries.from_address(frame, dialect)
        return self._asks.get(asked) or self._ask(asked)

    def named(self, address: Address) -> Ask:
        """Parse an address of type 32.

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

    def narrowed(self, ask: Ask, forced: TagSet) -> Ask:
        """Return a query that asks for more tags, which its requester has no say in.

        Of a shard or sticky key only the other tags choose: they would leave the query in its text
        form, and the forced ones stay in it.

        Raises:
            NotAllowed: The query has another value for the key of a forced tag.
            BrokerFrameError: It has too many tags now, or a shard key has no others.
        """
        asked = ask.asked
        tags = add_forced_tags(Action.REQUEST, asked.query.union(asked.keys), forced)
        if len(tags) > MAX_TAGS:
            raise BrokerFrameError("tags", f"more than {MAX_TAGS} with those of the principal")
        names = frozenset(key for key, _ in forced)
        keys = tuple(tag for tag in asked.keys if tag[0] not in names)
        if not keys and asked.routing is RoutingType.SHARD:
            raise BrokerFrameError("ShardKey", "the tags that it names are those of the principal")
        asked = asked._replace(query=asked.query | forced, keys=keys)
        return self._asks.get(asked) or self._ask(asked)

    def _ask(self, asked: AddressQuery) -> Ask:
        method, unknown = self._method(asked)
        selector = self._selectors.get((asked.routing, method, asked.query))
        if selector is None:
            selector = self._select(asked.query, asked.routing, method)
        ask = Ask(selector, asked, self.counts[asked.routing], unknown=unknown)
        # There may be as many different keys as users, and few are reused.
        if selector.remembered and not asked.keys:
            _make_room(self._asks, self._limit)
            self._asks[asked] = ask
        return ask

    def _method(self, asked: AddressQuery) -> tuple[str, bool]:
        """Return the method to use, and whether it replaces an unknown one."""
        methods, name = self._methods, asked.method
        if asked.routing is RoutingType.MULTICAST:
            return "", False
        if asked.routing is RoutingType.SHARD:
            # Shard Routing: "This is optional and broker does not need to use the hint."
            known, default = methods.knows_sharding(name), methods.sharding
        else:
            # Unicast Routing: "This is optional and the broker does not need to use the hint."
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
        """Return the number of remembered selectors."""
        return len(self._selectors)


def _make_room(table: dict[Any, Any], limit: int) -> None:
    while len(table) >= limit:
        del table[next(iter(table))]


def _size(query: Query) -> int:
    """Return the length of a query, in characters of keys and values."""
    return sum(
        (len(key) if isinstance(key, str) else 1) + len(value or "") + 1 for key, value in query
    )
