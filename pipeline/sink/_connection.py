"""Connections to receivers of rows: by a route from a node, or by a tag query of a broker."""

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
from ...transports.client import Client, ClientOptions, RetryOptions, connect
from ._options import SinkOptions

__all__ = ["STICKS", "BatchConnection", "open_connection"]

STICKS: Final = "onward.batch"
"""The tag by which all batches of a task for one query stick to one destination."""


class BatchConnection(ABC):
    """A connection over which batches are sent."""

    @abstractmethod
    def check(self, destination: str) -> None:
        """Check a destination before the first batch to it.

        Raises:
            AddressError: It cannot be parsed, or is not allowed here.
        """

    @abstractmethod
    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Send a batch; return the answer.

        Raises:
            NotDelivered: The batch was certainly not taken.
            InDoubt: The batch may have been taken.
            OnwardError: The destination takes no batches.
        """


class NodeConnection(BatchConnection):
    """A connection to a node; destinations are routes from it."""

    def __init__(self, node: Node, link: Address, timeout: float) -> None:
        self._node = node
        self._link = link
        self._timeout = timeout
        self._routes: dict[str, Route] = {}

    def check(self, destination: str) -> None:
        """Parse the route."""
        self._routes[destination] = (self._link, *parse_route(destination))

    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Send a batch along the route; return the answer."""
        route = self._routes[destination]
        return (await self._node.request(route, payload, timeout=self._timeout)).payload


class BrokerConnection(BatchConnection):
    """A connection to a broker; destinations are tag queries.

    A receiver recognises only the batches that it has taken itself. So a query gets a sticky key
    for each partition: the destination that is chosen first is used while it is registered. A
    query with its own `@shard` or `@sticky` is not changed.
    """

    def __init__(self, client: Client, partition: str) -> None:
        self._client = client
        self._partition = partition
        self._queries: dict[str, str] = {}

    def check(self, destination: str) -> None:
        """Parse the query, and add the sticky key."""
        query = parse_address_query(destination)
        if query.routing is RoutingType.MULTICAST:
            raise AddressError(destination[:80], "rows have one receiver, which answers for them")
        if query.routing is RoutingType.UNICAST and not query.keys:
            destination_with_key = f"@sticky={STICKS} {destination} {STICKS}={self._partition}"
            self._queries[destination] = destination_with_key
        else:
            self._queries[destination] = destination

    async def ask(self, destination: str, payload: bytes) -> bytes:
        """Send a batch by the query; return the answer."""
        query = self._queries[destination]
        return (await self._client.request(query, payload, route=BATCHES)).data


@asynccontextmanager
async def open_connection(options: SinkOptions, partition: int) -> AsyncGenerator[BatchConnection]:
    """Open the connection of a task, and close it at the end.

    Raises:
        LinkDown: The endpoint cannot be reached.
    """
    if options.to_broker:
        key = hashlib.blake2b(f"{partition} {options.id}".encode(), digest_size=8).hexdigest()
        # The sink decides on retries, as it knows which batches are in doubt.
        limits = ClientOptions(request_timeout=options.timeout, retry=RetryOptions(max_tries=1))
        async with connect(options.uri, options=limits) as client:
            yield BrokerConnection(client, key)
        return
    async with Node(f"sink-{partition}") as node:
        yield NodeConnection(node, await node.connect(options.uri), options.timeout)
