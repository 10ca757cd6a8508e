"""Discovery: a directory of services with entries that expire unless they are renewed."""

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
    ResponseStatus,
    ServiceInfo,
    check_name,
    decode_metadata,
    encode_services,
)
from .._errors import LimitReached
from ..routing._given import several
from ._options import DiscoveryOptions
from ._service import Service

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["DiscoveryService"]

_OPTIONS: Final = DiscoveryOptions()


class DiscoveryService(Service):
    """Ockam's discovery service, in memory: a directory of services and their routes.

    Requests are those of Ockam's API. `GET` with an empty path lists all entries, `GET` with a name
    returns one. `PUT` with a name announces a service: its route is the request's return route, its
    metadata the body. The entry expires unless the service is announced again. `DELETE` with a
    name removes the entry.

    An entry belongs to its announcer: the worker at the same return route up to the last address.
    Requests of other workers do not remove it, nor replace it (`CONFLICT`) before it expires or its
    link stops. With the option `takeover` the latest announcement replaces the entry.

    Args:
        expose_at: The listeners and links through which the services can be reached. The first
            address of each route, the link of the announcement, is exposed there as long as an
            entry uses it. The other end of that link decides which messages it lets in.
        allow: The access control of requests; all are permitted by default.
        options: Its limits and times.
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
        """The entries by name, least recently announced first."""
        now = self._now()
        return {name: info for name, (info, until) in self._services.items() if until > now}

    def _handle(self, message: Message) -> None:
        self._serve(message, self._do)

    def _do(self, request: ApiRequest, message: Message) -> tuple[ResponseStatus, bytes]:
        if request.method is Method.GET:
            return self._get(request.path)
        if request.method is Method.PUT:
            return self._put(request, message.return_route)
        if request.method is Method.DELETE:
            return self._delete(request.path, message.return_route)
        return ResponseStatus.METHOD_NOT_ALLOWED, b""

    def _get(self, name: str) -> tuple[ResponseStatus, bytes]:
        if not name:
            known = islice(self.services.values(), self._options.max_listed)
            return ResponseStatus.OK, encode_services(list(known))
        info = self._known(name)
        return (
            (ResponseStatus.NOT_FOUND, b"")
            if info is None
            else (ResponseStatus.OK, encode_services(info))
        )

    def _known(self, name: str) -> ServiceInfo | None:
        info, until = self._services.get(name, (None, 0.0))
        return info if until > self._now() else None

    def _put(self, request: ApiRequest, route: Route) -> tuple[ResponseStatus, bytes]:
        name = check_name(request.path, "a service's name")
        info = ServiceInfo(name, route, decode_metadata(request.body))
        known = self._known(name)
        if known is not None and not self._options.takeover and self._has_owner(known, route):
            self.refused += 1
            return ResponseStatus.CONFLICT, b""
        if name not in self._services and len(self._services) >= self._options.max_services:
            self.refused += 1
            return ResponseStatus.CONFLICT, b""
        if not self._expose(route[0]):
            self.refused += 1
            return ResponseStatus.CONFLICT, b""
        self._drop(name)  # to keep the order: least recently announced first
        self._services[name] = info, self._now() + self._expire_after
        return ResponseStatus.OK, b""

    def _has_owner(self, known: ServiceInfo, route: Route) -> bool:
        """Whether an entry belongs to another announcer that is still there."""
        return not _same_route(known.route, route) and self.node.has(known.route[0])

    def _expose(self, first: Address) -> bool:
        for each in self._expose_at:
            try:
                self.node.expose(each, first)
            except UnknownAddress:
                # The mailbox of a request, or a link that is gone: nothing to expose. Or this
                # listener or link is gone, but the others may be there.
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

    def _delete(self, name: str, route: Route) -> tuple[ResponseStatus, bytes]:
        info = self._known(name)
        if info is None:
            return ResponseStatus.NOT_FOUND, b""
        if not _same_route(info.route, route):
            return ResponseStatus.FORBIDDEN, b""
        self._drop(name)
        return ResponseStatus.OK, b""

    def _sweep(self) -> None:
        now = self._now()
        for name, (_, until) in list(self._services.items()):
            if until > now:
                break
            self._drop(name)
            self.expired += 1


def _same_route(one: Route, other: Route) -> bool:
    """Whether two routes differ at most in the last address."""
    return one[:-1] == other[:-1]
