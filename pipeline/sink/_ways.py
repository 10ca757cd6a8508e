"""The two ways to who takes the rows: a route from a node on, or a tag query to a broker."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ...actors import Node
from ...actors.batches import BATCHES
from ...protocol import Address, AddressError, Route, parse_route
from ...protocol.broker import RoutingType, parse_address_query
from ...transports.client import Client, ClientOptions, connect
from ._options import SinkOptions

__all__ = ["STICKS", "Way", "open_way"]

STICKS: Final = "onward.batch"
"""The tag by which all that a task sends to one query sticks to one destination."""


class Way(ABC):
    """A connection, and how a batch is sent over it."""

    @abstractmethod
    def check(self, destination: str) -> None:
        """Look at a destination before anything is sent to it.

        Raises:
            AddressError: It cannot be read, or is of no use here.
        """

    @abstractmethod
    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Send a batch; return the answer.

        Raises:
            NotDelivered: Certainly nobody has taken it.
            InDoubt: Somebody may have.
            OnwardError: Something else answers there.
        """


class NodeWay(Way):
    """To a route from a node on."""

    def __init__(self, node: Node, link: Address, timeout: float) -> None:
        self._node = node
        self._link = link
        self._timeout = timeout
        self._routes: dict[str, Route] = {}

    def check(self, destination: str) -> None:
        """Read the route."""
        self._routes[destination] = (self._link, *parse_route(destination))

    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Ask the worker at the end of the route."""
        route = self._routes[destination]
        return (await self._node.request(route, payload, timeout=self._timeout)).payload


class BrokerWay(Way):
    """To whom a broker finds by tags.

    Who takes batches knows only its own. So a query that several destinations match is sent with a
    tag that it sticks to one of them by, one for each partition: a route that is chosen once stays
    as long as it is there, while others come. A query that says itself how it is divided, by
    `@shard` or `@sticky`, is sent as it is.
    """

    def __init__(self, client: Client, partition: str) -> None:
        self._client = client
        self._partition = partition
        self._queries: dict[str, str] = {}

    def check(self, destination: str) -> None:
        """Read the query, and add what it sticks by."""
        query = parse_address_query(destination)
        if query.routing is RoutingType.MULTICAST:
            raise AddressError(destination[:80], "rows have one receiver, which answers for them")
        if query.routing is RoutingType.UNICAST and not query.keys:
            destination_with_key = f"@sticky={STICKS} {destination} {STICKS}={self._partition}"
            self._queries[destination] = destination_with_key
        else:
            self._queries[destination] = destination

    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Ask the destination that the query sticks to."""
        query = self._queries[destination]
        return (await self._client.request(query, payload, route=BATCHES)).data


@asynccontextmanager
async def open_way(options: SinkOptions, partition: int) -> AsyncGenerator[Way]:
    """Connect, for the time of a task.

    Raises:
        LinkDown: There is nobody.
    """
    if options.to_broker:
        key = hashlib.blake2b(f"{partition} {options.id}".encode(), digest_size=8).hexdigest()
        # What is sent again is the sink's to decide, which knows what is in doubt.
        limits = ClientOptions(request_timeout=options.timeout, max_tries=1)
        async with connect(options.uri, options=limits) as client:
            yield BrokerWay(client, key)
        return
    async with Node(f"sink-{partition}") as node:
        yield NodeWay(node, await node.connect(options.uri), options.timeout)
