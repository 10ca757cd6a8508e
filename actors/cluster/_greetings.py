"""The requests that a peer broker sends for the cluster itself, and the answers to them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...protocol.cluster import (
    BROKER_INFO_ROUTE,
    BROKERS_ROUTE,
    OWNER_SALT_SIZE,
    OWNERS_ROUTE,
    PLACES_ROUTE,
    REMOTE_BROKER_INFO_ROUTE,
    ClusterFrameError,
    LinkRole,
    PeerInfo,
    RoutePlace,
    answer_owned_places,
    answer_places,
)
from ...protocol.rsocket import ErrorCode
from ..broker import ApplicationError, Handlers, Request

if TYPE_CHECKING:
    from ._cluster import Cluster
    from ._link_workers import LinkEnd
    from ._peer_connection import PeerConnection

__all__ = ["Requested", "greetings"]

Requested = Callable[[bytes], AsyncGenerator[bytes]]
"""Returns the elements of a stream for the data of a request; raises `ClusterFrameError`."""


def greetings(
    cluster: Cluster,
    worker: LinkEnd,
    connection: PeerConnection,
    streams: Mapping[str, Requested],
) -> Handlers:
    """Make the handlers of the requests that come by a link.

    A request that cannot be read is INVALID, and the link is closed.

    Args:
        cluster: The cluster.
        worker: The other end.
        connection: The link.
        streams: The streams that the other end may ask for, by the routes of their requests.
    """
    handlers = Handlers(max_handling=cluster.options.max_greetings)

    def broken(error: ClusterFrameError) -> ApplicationError:
        if worker.connection is connection:
            worker.fault(error)
        return ApplicationError(ErrorCode.INVALID, str(error))

    def told(request: Request) -> None:
        try:
            info = PeerInfo.parse(request.data)
        except ClusterFrameError as error:
            raise broken(error) from None
        if worker.connection is connection:
            cluster.heard(info, worker)

    @handlers.response(BROKER_INFO_ROUTE)
    async def introduced(request: Request) -> bytes:
        told(request)
        return PeerInfo.of(cluster.info).serialize()

    @handlers.response(REMOTE_BROKER_INFO_ROUTE)
    async def another(request: Request) -> bytes:
        told(request)
        return b""

    @handlers.response(BROKERS_ROUTE)
    async def brokers(request: Request) -> bytes:
        return cluster.membership.answer(worker.info.broker_id, request.data)

    for route, requested in streams.items():
        handlers.stream(route)(_served(requested, broken))

    if connection.role is LinkRole.FROM_ZONE:
        handlers.response(PLACES_ROUTE)(_places(cluster, answer_places, broken))
        handlers.response(OWNERS_ROUTE)(_places(cluster, _answer_owned_places, broken))
    # Decorated functions are used by the handlers only.
    del introduced, another, brokers
    return handlers


def _answer_owned_places(data: bytes, place_of: Callable[[bytes], RoutePlace | None]) -> bytes:
    return answer_owned_places(data, place_of, secrets.token_bytes(OWNER_SALT_SIZE))


def _places(
    cluster: Cluster,
    answer: Callable[[bytes, Callable[[bytes], RoutePlace | None]], bytes],
    broken: Callable[[ClusterFrameError], ApplicationError],
) -> Callable[[Request], Awaitable[bytes]]:
    """Return the handler of the requests for the places of routes of this zone."""

    async def places(request: Request) -> bytes:
        try:
            return answer(request.data, cluster.place_of)
        except ClusterFrameError as error:
            raise broken(error) from None

    return places


def _served(
    requested: Requested, broken: Callable[[ClusterFrameError], ApplicationError]
) -> Callable[[Request], AsyncGenerator[bytes]]:
    """Return the handler of the requests for a stream."""

    async def elements(request: Request) -> AsyncGenerator[bytes]:
        try:
            stream = requested(request.data)
        except ClusterFrameError as error:
            raise broken(error) from None
        async for element in stream:
            yield element

    return elements
