"""The roles of those that may use a name: checked before anything is looked up.

A program of the node may use each name. A message that came over a link is checked by the
principal of its peer, at the node where it enters: what a neighbour passes on has been checked
there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from ...protocol import Address
from ...protocol.dispatch import Rejected, Semantics
from ...protocol.security import ANONYMOUS, Principal

__all__ = [
    "UNAUTHORIZED",
    "PrincipalOf",
    "is_anonymous",
    "may_consume",
    "may_produce",
    "source_of",
]

UNAUTHORIZED: Final = Rejected("amqp:unauthorized-access", "the name is for other roles")
"""The outcome of a message of which the sender has none of the roles of its name."""

PrincipalOf: TypeAlias = Callable[[Address], Principal | None]
"""Function that returns the principal of the peer of a link; `None` if it is not authenticated."""


def may_produce(semantics: Semantics, principal: Principal | None) -> bool:
    """Whether a principal may send to a name; `None` is a program of the node, which may."""
    return _has_one(semantics.access.producers, principal)


def may_consume(semantics: Semantics, principal: Principal | None) -> bool:
    """Whether a principal may consume a name; `None` is a program of the node, which may."""
    return _has_one(semantics.access.consumers, principal)


def _has_one(roles: frozenset[str], principal: Principal | None) -> bool:
    return not roles or principal is None or not roles.isdisjoint(principal.roles)


def is_anonymous(principal: Principal | None) -> bool:
    """Whether a connection with a principal, or with none, is not authenticated."""
    return principal is None or principal.method == ANONYMOUS.method


def source_of(principal: Principal | None, client: Hashable) -> Hashable:
    """Return that of which the share counts: a principal, or one connection of many alike.

    Args:
        principal: The principal; one that is not anonymous has one share for all its connections.
        client: The connection; `None`: there is none.
    """
    if principal is None or is_anonymous(principal):
        return client
    return principal.name, principal.method, principal.issuer
