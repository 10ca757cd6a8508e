"""Reading `[nodes.NAME.identity]`: the identity of a node and its engines, and references to them.

An address of type 36 in the route of a request may name a node of the file, an engine of it, a
topic or a domain, in place of the text of an identity, which is often known only once the node
runs: `36#engine:{b.echo}`, `36#node:{b}`, `36#topic:{prices}` and `36#domain:{shops}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .._address import IDENTITY, Address, Route
from ..toml import FileTable, Position
from . import _values as values
from ._identity_groups import (
    DomainPlan,
    KeyPlan,
    ServicePlan,
    SubscriptionPlan,
    TopicPlan,
    read_domains,
    read_key,
    read_services,
    read_subscriptions,
    read_topics,
)

__all__ = [
    "IdentityPlan",
    "engine_name",
    "identity_names",
    "join_of",
    "put_identities",
    "put_references",
    "read_identity",
    "references_of",
]

_REFERENCE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class IdentityPlan:
    """The identity of a node. Nodes at the ends of links with `join` join each other.

    Attributes:
        place: Its place in the file.
        key: Its key.
        engines: The workers that are engines, in the order of the file.
        expose: The addresses that other identities can reach by that of the node.
        directory: The file that keeps what the node knows of identities; empty: none.
        relay: The rules of what it relays for others, which may have references; none: nothing.
        reserve: The names of the nodes that are relays at which it reserves.
        topics: The topics that it creates, in the order of the file.
        subscriptions: The workers that are subscribed to topics, in the order of the file.
        domains: The domains that it has the keys of, in the order of the file.
        services: The workers that serve domains, in the order of the file.
        join: The names of the domains that it asks to join, at the nodes with their keys.
    """

    place: Position
    key: KeyPlan = field(default=KeyPlan())
    engines: tuple[Address, ...] = ()
    expose: tuple[Address, ...] = ()
    directory: str = ""
    relay: tuple[str, ...] = ()
    reserve: tuple[str, ...] = ()
    topics: tuple[TopicPlan, ...] = ()
    subscriptions: tuple[SubscriptionPlan, ...] = ()
    domains: tuple[DomainPlan, ...] = ()
    services: tuple[ServicePlan, ...] = ()
    join: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[TopicPlan | DomainPlan, ...]:
        """The topics and domains that have their keys here."""
        return (*self.topics, *self.domains)

    @property
    def makes_keys(self) -> bool:
        """Whether a key is made for the run: its own, or that of a topic or a domain."""
        return self.key.is_made or any(each.key.is_made for each in self.groups)


def read_identity(node: FileTable) -> IdentityPlan | None:
    """Read the identity of a node; `None` if it has none."""
    if "identity" not in node.keys():  # noqa: SIM118 - a table of the file is no mapping
        return None
    # `identity = "node.key"` is short for `identity = { key_file = "node.key" }`.
    table = node.table("identity", short="key_file")
    plan = IdentityPlan(
        place=table.place,
        key=read_key(table),
        engines=table.take("engines", values.local_addresses, ()),
        expose=table.take("expose", values.addresses, ()),
        directory=table.take("directory", values.text, ""),
        relay=table.take("relay", values.texts, ()),
        reserve=table.take("reserve", values.texts, ()),
        topics=read_topics(table),
        subscriptions=read_subscriptions(table),
        domains=read_domains(table),
        services=read_services(table),
        join=table.take("join", values.texts, ()),
    )
    table.finish()
    return plan


def join_of(value: object) -> str:
    """Return the identity that the node at the other end of a link has to have; empty: any.

    Raises:
        ValueError: It is neither true nor a text.
    """
    if value is True:
        return ""
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{values.shown(value)} is neither true nor the text of an identity")


def engine_name(node: str, worker: Address) -> str:
    """Return what an engine is called in references: `node.worker`."""
    return f"{node}.{str(worker).removeprefix('0#')}"


def identity_names(route: Route) -> Iterator[str]:
    """Yield what the addresses of type 36 of a route refer to, without the braces."""
    for address in route:
        if address.type == IDENTITY:
            yield from references_of(address.value.decode("utf-8", "replace"))


def references_of(text: str) -> list[str]:
    """Return what a text refers to, without the braces."""
    return _REFERENCE.findall(text)


def put_references(text: str, identities: Mapping[str, str]) -> str:
    """Return a text with those of identities in place of references.

    Args:
        text: The text.
        identities: The texts of identities, by their names in the file.

    Raises:
        KeyError: One is not known; its argument is the name.
    """
    return _REFERENCE.sub(lambda match: identities[match[1]], text)


def put_identities(route: Route, identities: Mapping[str, str]) -> Route:
    """Return a route with the texts of identities in place of references.

    Args:
        route: The route.
        identities: The texts, by their names in the file.

    Raises:
        KeyError: One is not known; its argument is the name.
    """
    return tuple(
        Address(IDENTITY, _put(address.value, identities)) if address.type == IDENTITY else address
        for address in route
    )


def _put(value: bytes, identities: Mapping[str, str]) -> bytes:
    text = value.decode("utf-8", "surrogateescape")
    return put_references(text, identities).encode("utf-8", "surrogateescape")
