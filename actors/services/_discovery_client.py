"""The client sides of a discovery service: who looks for a service, and who announces one."""

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
    ServiceError,
    ServiceInfo,
    Status,
    check_name,
    decode_response,
    decode_service,
    decode_services,
    encode_metadata,
    encode_request,
)
from .._worker import Worker
from ._errors import RequestRefused
from ._subscriber import REFRESH

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Announcer", "DiscoveryClient"]

_NOTHING: Final[Mapping[str, bytes]] = {}


class DiscoveryClient:
    """Looks services up.

    ```python
    found = await DiscoveryClient(node, [link, "discovery"]).get("printer")
    await node.request(found.route, b"page")
    ```

    Args:
        node: From where.
        way: The route to the discovery service.
        timeout: How long to wait for an answer, in seconds.
    """

    def __init__(self, node: Node, way: RouteLike, *, timeout: float = 30.0) -> None:
        self._node = node
        self._way = node.route_of(way)
        self._timeout = check_timeout(timeout)
        self._numbers = count(1)

    async def get(self, name: str) -> ServiceInfo | None:
        """Look one up.

        Returns:
            What is known, with the route to it from this node; `None` if nothing is.

        Raises:
            RequestRefused: The service will not say.
            ServiceError: Its answer is none.
            DeliveryError: As `Node.request`.
        """
        answer = await self._ask(check_name(name, "a service's name"))
        if answer.status is Status.NOT_FOUND:
            return None
        return self._reachable(decode_service(self._body(answer)))

    async def list(self) -> tuple[ServiceInfo, ...]:
        """Look up all there are, as far as the service lists them.

        Raises:
            RequestRefused: The service will not say.
            ServiceError: Its answer is none.
            DeliveryError: As `Node.request`.
        """
        return tuple(map(self._reachable, decode_services(self._body(await self._ask("")))))

    async def _ask(self, path: str) -> ApiResponse:
        number = next(self._numbers) & MAX_REQUEST_ID
        request = encode_request(ApiRequest(number, path, Method.GET))
        answer = await self._node.request(self._way, request, timeout=self._timeout)
        response = decode_response(answer.payload)
        if response.to != number:
            raise ServiceError(f"an answer to request {response.to}, not {number}")
        return response

    def _body(self, answer: ApiResponse) -> bytes:
        if answer.status is not Status.OK:
            raise RequestRefused(self._way[-1], answer.status)
        return answer.body

    def _reachable(self, info: ServiceInfo) -> ServiceInfo:
        """Put the way to the discovery service's node in front: its routes begin there."""
        return ServiceInfo(info.name, (*self._way[:-1], *info.route), info.metadata)


class Announcer(Worker):
    """Announces a service, again every ten seconds, and hands on what is sent to it.

    The route that others find leads to this worker, as it is the way the announcement came. It
    sends messages on to the service and does not add itself to their return route.

    Args:
        way: The route to the discovery service.
        name: Of the service.
        target: The route to the service from here.
        metadata: What else is to be known of it.
        refresh: How long to wait before it is announced again, in seconds.

    Attributes:
        announced: Times the discovery service has confirmed.
        failed: Times it has not: the way is broken, or it said no.
        passed: Messages that were sent on to the service.

    Raises:
        ServiceError: The name cannot be one, or there is too much to be known.
    """

    def __init__(
        self,
        way: RouteLike,
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
        self._way = way
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
        way: RouteLike,
        name: str,
        target: RouteLike,
        metadata: Mapping[str, bytes] = _NOTHING,
        *,
        address: AddressLike | None = None,
        **options: Any,
    ) -> Self:
        """Start one on a node.

        Args:
            node: Where.
            way: As for the class.
            name: As for the class.
            target: As for the class.
            metadata: As for the class.
            address: Its address; a random one by default.
            **options: As for the class.
        """
        announcer = cls(way, name, target, metadata, **options)
        await node.start(lambda: announcer, address=address)
        return announcer

    def on_start(self) -> None:
        """Announce, and again and again."""
        self._from: Route = self.node.route_of(self._way)
        self._to: Route = self.node.route_of(self._target)
        self.every(self._refresh, self._announce)
        self._announce()

    async def until_announced(self, timeout: float = 30.0) -> None:
        """Wait until the discovery service has confirmed once.

        Args:
            timeout: How long to wait, in seconds.

        Raises:
            TimeoutError: It has not.
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
        """Take the discovery service's answer; send anything else on to the service."""
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
        """Tell whether a message is an answer to an announcement."""
        try:
            response = decode_response(payload)
        except ServiceError:
            return False
        if response.to > self._number:
            return False
        if response.status is Status.OK:
            self.announced += 1
            self._known.set()
        else:
            self.failed += 1
        return True

    def on_stop(self) -> None:
        """Take the announcement back."""
        self._ask(Method.DELETE, b"")
