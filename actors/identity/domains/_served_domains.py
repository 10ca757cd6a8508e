"""The domains that workers of a node serve, and the requests to them that wait for an answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol import Address
from ....protocol.identity import MAX_SKEW, DomainRequest, Identity
from ..._errors import LimitReached

if TYPE_CHECKING:
    from ..._node import Node

__all__ = ["ServedDomain", "ServedDomains"]

_MAX_SERVED: Final = 1024
"""Most domains that a node serves. Beyond: a further one raises `LimitReached`."""
_TOKEN: Final = 16
"""Bytes of a token."""


class ServedDomain(NamedTuple):
    """A domain that a worker of this node serves.

    Attributes:
        worker: The primary address of the worker.
        expose: The other addresses of this node that requests to the domain may go to.
        unwatch: Ends the watch of the worker.
    """

    worker: Address
    expose: frozenset[Address]
    unwatch: Callable[[], None]

    def allows(self, address: Address) -> bool:
        """Whether a request may go to an address."""
        return address == self.worker or address in self.expose


class ServedDomains:
    """The domains that workers of a node serve.

    Args:
        node: The node.
        on_end: Receives a domain when the worker for it has ended.
    """

    __slots__ = ("_domains", "_node", "_on_end", "_tokens")

    def __init__(self, node: Node, on_end: Callable[[Identity], object]) -> None:
        self._node: Final = node
        self._on_end: Final = on_end
        self._domains: Final[dict[Identity, ServedDomain]] = {}
        # Those that wait, without their bodies: they are as many as `DomainRequests` has.
        self._tokens: Final[dict[bytes, DomainRequest]] = {}

    def __contains__(self, domain: Identity) -> bool:
        return domain in self._domains

    def __len__(self) -> int:
        return len(self._domains)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._tokens)

    def get(self, domain: Identity) -> ServedDomain | None:
        """Return how a domain is served; `None` if it is not."""
        return self._domains.get(domain)

    def identities(self) -> tuple[Identity, ...]:
        """Return the domains."""
        return tuple(self._domains)

    def add(self, domain: Identity, worker: Address, expose: frozenset[Address]) -> None:
        """Serve a domain by a worker, in the place of the one before.

        Raises:
            UnknownAddress: There is no such worker.
            LimitReached: There are as many domains as there may be.
        """
        before = self._domains.get(domain)
        if before is None and len(self._domains) >= _MAX_SERVED:
            raise LimitReached("domains that are served", _MAX_SERVED)
        unwatch = self._node.watch(worker, lambda: self._on_end(domain))
        if before is not None:
            before.unwatch()
        self._domains[domain] = ServedDomain(worker, expose, unwatch)

    def remove(self, domain: Identity) -> bool:
        """Serve a domain no more; return whether it was served."""
        served = self._domains.pop(domain, None)
        if served is None:
            return False
        served.unwatch()
        return True

    def expect(self, request: DomainRequest) -> bytes:
        """Keep a request that a worker is to answer, and return the token of the answer."""
        token = secrets.token_bytes(_TOKEN)
        self._tokens[token] = replace(request, body=b"")
        return token

    def take(self, token: bytes) -> DomainRequest | None:
        """Return the request of a token, which is used by that; `None` if there is none."""
        return self._tokens.pop(token, None)

    def take_all(self, domain: Identity) -> list[DomainRequest]:
        """Return the requests to a domain that wait; they are answered by that."""
        tokens = [token for token, each in self._tokens.items() if each.domain == domain]
        return [self._tokens.pop(token) for token in tokens]

    def forget(self, identity: Identity) -> None:
        """Forget the requests to an identity and over it, as it is banned."""
        for token, each in tuple(self._tokens.items()):
            if identity == each.domain or identity in each.path:
                del self._tokens[token]

    def expire(self, now: int) -> None:
        """Forget the requests that are over, at a time in Unix milliseconds."""
        for token, each in tuple(self._tokens.items()):
            if each.expiry + MAX_SKEW <= now:
                del self._tokens[token]

    def close(self) -> None:
        """End all watches."""
        for each in self._domains.values():
            each.unwatch()
        self._domains.clear()
        self._tokens.clear()
