"""Discovery: where services are, told by those who are there, forgotten when they say no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from ...protocol import (
    Address,
    AddressLike,
    Message,
    Route,
    UnknownAddress,
)
from ...protocol.options import check_value
from ...protocol.services import (
    ApiRequest,
    Method,
    ServiceInfo,
    Status,
    check_name,
    decode_metadata,
    encode_services,
)
from .._errors import LimitReached
from .._several import several
from ._options import DiscoveryOptions
from ._service import Service

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["DiscoveryService"]

_OPTIONS: Final = DiscoveryOptions()


class DiscoveryService(Service):
    """Knows where services are: Ockam's discovery service, in memory.

    Requests are those of Ockam's API: `GET` with an empty path lists all, `GET` with a name gives
    one. `PUT` with a name announces one: the route to it is the request's return route, the
    body what else is to be known. It expires unless it is announced again. `DELETE` with a
    name takes it back.

    A name is theirs who announced it, which is whoever comes the same way up to the last address:
    nobody else takes it back, nor announces it (`CONFLICT`) before it has expired or the link that
    it came over has stopped. With the option `takeover` whoever announces it last has it.

    Args:
        expose_at: The listeners and links through which what is known here can be reached: the
            first step of each route, which is the link that the announcement came over, is
            exposed there as long as a service behind it is known. What that lets through is the
            business of the other end of the link.
        allow: Decides about each request, as an access control; all may by default.
        options: What it may use.
    """

    def __init__(
        self,
        *,
        expose_at: Iterable[AddressLike] = (),
        allow: AccessControl | None = None,
        options: DiscoveryOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, DiscoveryOptions)
        super().__init__(allow, options.expire_after)
        self._options = options
        self._expose_at = several("expose_at", expose_at)
        self._exposed = Counter[Address]()
        self._services: dict[str, tuple[ServiceInfo, float]] = {}

    @property
    def services(self) -> Mapping[str, ServiceInfo]:
        """What is known, by name; what was announced longest ago comes first."""
        now = self._now()
        return {name: info for name, (info, until) in self._services.items() if until > now}

    def _handle(self, message: Message) -> None:
        self._serve(message, self._do)

    def _do(self, request: ApiRequest, message: Message) -> tuple[Status, bytes]:
        if request.method is Method.GET:
            return self._get(request.path)
        if request.method is Method.PUT:
            return self._put(request, message.return_route)
        if request.method is Method.DELETE:
            return self._delete(request.path, message.return_route)
        return Status.METHOD_NOT_ALLOWED, b""

    def _get(self, name: str) -> tuple[Status, bytes]:
        if not name:
            known = islice(self.services.values(), self._options.max_listed)
            return Status.OK, encode_services(list(known))
        info = self._known(name)
        return (Status.NOT_FOUND, b"") if info is None else (Status.OK, encode_services(info))

    def _known(self, name: str) -> ServiceInfo | None:
        info, until = self._services.get(name, (None, 0.0))
        return info if until > self._now() else None

    def _put(self, request: ApiRequest, route: Route) -> tuple[Status, bytes]:
        name = check_name(request.path, "a service's name")
        info = ServiceInfo(name, route, decode_metadata(request.body))
        known = self._known(name)
        if known is not None and not self._options.takeover and self._has_owner(known, route):
            self.refused += 1
            return Status.CONFLICT, b""
        if name not in self._services and len(self._services) >= self._options.max_services:
            self.refused += 1
            return Status.CONFLICT, b""
        if not self._expose(route[0]):
            self.refused += 1
            return Status.CONFLICT, b""
        self._drop(name)  # so that those announced last are behind
        self._services[name] = info, self._now() + self._expire_after
        return Status.OK, b""

    def _has_owner(self, known: ServiceInfo, route: Route) -> bool:
        """Tell whether what is known is somebody else's, who is still there."""
        return not _same_way(known.route, route) and self.node.has(known.route[0])

    def _expose(self, first: Address) -> bool:
        for each in self._expose_at:
            try:
                self.node.expose(each, first)
            except UnknownAddress:
                # The mailbox of a request, or a link that is gone: there is nothing to expose. Or
                # there is nobody to expose it to, but at the others there may be.
                continue
            except LimitReached:
                if not self._exposed[first]:
                    self._hide(first)
                return False
        self._exposed[first] += 1
        return True

    def _hide(self, first: Address) -> None:
        del self._exposed[first]
        for each in self._expose_at:
            self.node.hide(each, first)

    def _drop(self, name: str) -> None:
        info, _ = self._services.pop(name, (None, 0.0))
        if info is None:
            return
        first = info.route[0]
        self._exposed[first] -= 1
        if not self._exposed[first]:
            self._hide(first)

    def _delete(self, name: str, route: Route) -> tuple[Status, bytes]:
        info = self._known(name)
        if info is None:
            return Status.NOT_FOUND, b""
        if not _same_way(info.route, route):
            return Status.FORBIDDEN, b""
        self._drop(name)
        return Status.OK, b""

    def _sweep(self) -> None:
        now = self._now()
        for name, (_, until) in list(self._services.items()):
            if until > now:
                break
            self._drop(name)
            self.expired += 1


def _same_way(one: Route, other: Route) -> bool:
    """Tell whether two routes are the same but for the worker at the end."""
    return one[:-1] == other[:-1]
