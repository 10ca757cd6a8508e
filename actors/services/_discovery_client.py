"""The clients of a discovery service: one looks services up, the other announces one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from ...protocol import AddressLike, Message, OnwardError, Route, RouteLike
from ...protocol.options import check_timeout
from ...protocol.services import (
    MAX_REQUEST_ID,
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    ServiceError,
    ServiceInfo,
    check_name,
    decode_response,
    decode_service,
    decode_services,
    encode_metadata,
    encode_request,
)
from .._worker import Worker
from ..routing._given import as_route
from ._errors import RequestRefused
from ._subscriber import REFRESH

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Announcer", "DiscoveryClient"]

_NOTHING: Final[Mapping[str, bytes]] = {}


class DiscoveryClient:
    """A client that looks up services.

    ```python
    found = await DiscoveryClient(node, [link, "discovery"]).get("printer")
    await node.request(found.route, b"page")
    ```

    Args:
        node: The node that sends the requests.
        route: The route to the discovery service.
        timeout: The longest time to wait for an answer, in seconds.
    """

    def __init__(self, node: Node, route: RouteLike, *, timeout: float = 30.0) -> None:
        self._node = node
        self._route = as_route(route)
        self._timeout = check_timeout(timeout)
        self._numbers = count(1)

    async def get(self, name: str) -> ServiceInfo | None:
        """Return the entry of a service.

        Returns:
            The entry, with the route to the service from this node; `None` if there is none.

        Raises:
            RequestRefused: The discovery service refused the request.
            ServiceError: The answer is not valid.
            DeliveryError: As `Node.request`.
        """
        answer = await self._ask(check_name(name, "a service's name"))
        if answer.status is ResponseStatus.NOT_FOUND:
            return None
        return self._reachable(decode_service(self._body(answer)))

    async def list(self) -> tuple[ServiceInfo, ...]:
        """Return all entries, as far as the discovery service lists them.

        Raises:
            RequestRefused: The discovery service refused the request.
            ServiceError: The answer is not valid.
            DeliveryError: As `Node.request`.
        """
        return tuple(map(self._reachable, decode_services(self._body(await self._ask("")))))

    async def _ask(self, path: str) -> ApiResponse:
        number = next(self._numbers) & MAX_REQUEST_ID
        request = encode_request(ApiRequest(number, path, Method.GET))
        answer = await self._node.request(self._route, request, timeout=self._timeout)
        response = decode_response(answer.payload)
        if response.to != number:
            raise ServiceError(f"an answer to request {response.to}, not {number}")
        return response

    def _body(self, answer: ApiResponse) -> bytes:
        if answer.status is not ResponseStatus.OK:
            raise RequestRefused(self._route[-1], answer.status)
        return answer.body

    def _reachable(self, info: ServiceInfo) -> ServiceInfo:
        """Put the route to the discovery service's node in front of a route, which begins there."""
        return ServiceInfo(info.name, (*self._route[:-1], *info.route), info.metadata)


class Announcer(Worker):
    """A worker that announces a service every ten seconds and forwards its messages.

    The route in the directory leads to this worker, because the announcement came from it. It
    forwards messages to the service and does not add itself to their return routes.

    Args:
        route: The route to the discovery service.
        name: The name of the service.
        target: The route to the service from here.
        metadata: The metadata of the entry.
        refresh: The time between two announcements, in seconds.

    Attributes:
        announced: Announcements that the discovery service confirmed.
        failed: Announcements that failed: the route is broken, or the service refused.
        passed: Messages forwarded to the service.

    Raises:
        ServiceError: The name is not valid, or the metadata is too large.
    """

    def __init__(
        self,
        route: RouteLike,
        name: str,
        target: RouteLike,
        metadata: Mapping[str, bytes] = _NOTHING,
        *,
        refresh: float = REFRESH,
    ) -> None:
        super().__init__()
        self.announced = 0
        self.failed = 0
        self.passed = 0
        self._route = route
        self._name = check_name(name, "a service's name")
        self._target = target
        self._body = encode_metadata(metadata)
        self._refresh = refresh
        self._number = 0
        self._known = asyncio.Event()

    @classmethod
    async def on(
        cls,
        node: Node,
        route: RouteLike,
        name: str,
        target: RouteLike,
        metadata: Mapping[str, bytes] = _NOTHING,
        *,
        address: AddressLike | None = None,
        **options: Any,
    ) -> Self:
        """Start an announcer on a node.

        Args:
            node: The node.
            route: As for the class.
            name: As for the class.
            target: As for the class.
            metadata: As for the class.
            address: Its address; a random one by default.
            **options: As for the class.
        """
        announcer = cls(route, name, target, metadata, **options)
        await node.start(lambda: announcer, address=address)
        return announcer

    def on_start(self) -> None:
        """Announce the service, and repeat it."""
        self._from: Route = as_route(self._route)
        self._to: Route = as_route(self._target)
        self.every(self._refresh, self._announce)
        self._announce()

    async def until_announced(self, timeout: float = 30.0) -> None:
        """Wait until the discovery service has confirmed once.

        Args:
            timeout: The longest time to wait, in seconds.

        Raises:
            TimeoutError: It has not confirmed in time.
        """
        async with asyncio.timeout(check_timeout(timeout)):
            await self._known.wait()

    def _announce(self) -> None:
        self._number += 1
        self._ask(Method.PUT, self._body)

    def _ask(self, method: Method, body: bytes) -> None:
        request = ApiRequest(self._number & MAX_REQUEST_ID, self._name, method, body)
        try:
            self.send(self._from, encode_request(request))
        except OnwardError:
            self.failed += 1

    def handle_message(self, message: Message) -> None:
        """Process an answer of the discovery service; forward any other message to the service."""
        back = message.return_route
        if back and back[-1] == self._from[-1] and self._confirmed(message.payload):
            return
        try:
            self.route(message.redirect(*self._to))
        except OnwardError as error:
            self.node.lose(message, error)
            return
        self.passed += 1

    def _confirmed(self, payload: bytes) -> bool:
        """Whether a message is an answer to an announcement."""
        try:
            response = decode_response(payload)
        except ServiceError:
            return False
        if response.to > self._number:
            return False
        if response.status is ResponseStatus.OK:
            self.announced += 1
            self._known.set()
        else:
            self.failed += 1
        return True

    def on_stop(self) -> None:
        """Withdraw the announcement."""
        self._ask(Method.DELETE, b"")
