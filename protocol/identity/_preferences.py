"""What a message asks of its way: how far it may go, and how it is carried.

```
scope      = [0] / [1, identity] / [2]                  local, a domain, any
rprefs     = [scope]
tprefs     = [ordering, reliability, security]          0 or 1, 0 or 1
security   = [0] / [1, hops] / [2]                      direct, onion, mix network
protocol   = [name, version]
```
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ._checks import check_key, check_number, check_text
from ._errors import BadRecord
from ._identities import Identity
from ._record_reader import RecordReader

__all__ = [
    "MAX_HOPS",
    "MAX_PROTOCOL_NAME",
    "SCOPE_ANY",
    "SCOPE_LOCAL",
    "Ordering",
    "Protocol",
    "Reliability",
    "RoutingPrefs",
    "RoutingScope",
    "ScopeKind",
    "Security",
    "TransportPrefs",
    "protocol_items",
    "read_protocol",
    "read_routing_prefs",
    "read_scope",
    "read_transport_prefs",
    "routing_items",
    "scope_items",
    "transport_items",
]

MAX_HOPS: Final = 8
"""Most relays that a message may ask for."""
MAX_PROTOCOL_NAME: Final = 32
"""Most bytes of the name of a protocol, in UTF-8."""


class ScopeKind(IntEnum):
    """The kind of a scope; the number is the one on the wire."""

    LOCAL = 0
    DOMAIN = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class RoutingScope:
    """The bounds of the way of a message.

    Attributes:
        kind: To this node alone, to the nodes of a domain, or anywhere.
        domain: The domain, for `ScopeKind.DOMAIN` alone.

    Raises:
        BadRecord: The domain does not fit the kind, or has no key.
    """

    kind: ScopeKind
    domain: Identity | None = None

    def __post_init__(self) -> None:
        if (self.domain is not None) != (self.kind is ScopeKind.DOMAIN):
            raise BadRecord("a scope has a domain if it is of one, and only then")
        if self.domain is not None:
            check_key("the domain of a scope", self.domain)


SCOPE_LOCAL: Final = RoutingScope(ScopeKind.LOCAL)
"""The scope of this node alone."""
SCOPE_ANY: Final = RoutingScope(ScopeKind.ANY)
"""The scope without a bound."""


@dataclass(frozen=True, slots=True)
class RoutingPrefs:
    """The wishes of a message about its routing.

    Attributes:
        scope: How far it may go.
    """

    scope: RoutingScope = SCOPE_ANY


class Ordering(IntEnum):
    """The order of messages, kept or not; the number is the one on the wire."""

    ORDERED = 0
    UNORDERED = 1


class Reliability(IntEnum):
    """The care for a message that is lost, sent again or not; the number is the one on the wire."""

    RELIABLE = 0
    UNRELIABLE = 1


class Security(IntEnum):
    """The means that hide the way of a message; the number is the one on the wire.

    `DIRECT` is a link to the node, `ONION` is relays with a layer of encryption for each, and
    `MIXNET` is a mix network.
    """

    DIRECT = 0
    ONION = 1
    MIXNET = 2


@dataclass(frozen=True, slots=True)
class TransportPrefs:
    """The wishes of a message about its carriage.

    Attributes:
        ordering: Whether the order is kept.
        reliability: Whether it is sent again when it is lost.
        security: What hides its way.
        hops: Fewest relays, 1 to `MAX_HOPS`; 0 if `security` is not `Security.ONION`.

    Raises:
        BadRecord: The number of relays does not fit.
    """

    ordering: Ordering = Ordering.ORDERED
    reliability: Reliability = Reliability.RELIABLE
    security: Security = Security.DIRECT
    hops: int = 0

    def __post_init__(self) -> None:
        if self.security is not Security.ONION:
            if self.hops:
                raise BadRecord("only onion routing has a number of hops")
        elif not 1 <= self.hops <= MAX_HOPS:
            raise BadRecord(f"onion routing has 1 to {MAX_HOPS} hops, not {self.hops}")


@dataclass(frozen=True, slots=True)
class Protocol:
    """The language of the body of a message.

    Attributes:
        name: 1 to `MAX_PROTOCOL_NAME` bytes in UTF-8.
        version: Its version.

    Raises:
        BadRecord: The name is empty or too long, or the version is no number of a record.
    """

    name: str
    version: int

    def __post_init__(self) -> None:
        check_text("the name of the protocol", self.name, MAX_PROTOCOL_NAME, 1)
        check_number("the version of the protocol", self.version)


def read_scope(reader: RecordReader, what: str) -> RoutingScope:
    """Read a scope.

    Raises:
        BadRecord: It is something else.
    """
    count = reader.enter(what, 1, 2)
    kind = ScopeKind(reader.number(f"the kind of {what}", max(ScopeKind)))
    domain = reader.keyed(f"the domain of {what}") if count == 2 else None
    reader.leave()
    return RoutingScope(kind, domain)


def scope_items(scope: RoutingScope) -> tuple[object, ...]:
    """Return the items of a scope, for `cbor2.dumps`."""
    return (scope.kind,) if scope.domain is None else (scope.kind, scope.domain)


def read_routing_prefs(reader: RecordReader) -> RoutingPrefs | None:
    """Read what a message asks of its routing, or null.

    Raises:
        BadRecord: It is something else.
    """
    if reader.is_null("the routing preferences"):
        return None
    reader.enter("the routing preferences", 1)
    scope = read_scope(reader, "the scope")
    reader.leave()
    return RoutingPrefs(scope)


def routing_items(prefs: RoutingPrefs | None) -> tuple[object, ...] | None:
    """Return the items of what a message asks of its routing, for `cbor2.dumps`."""
    return None if prefs is None else (scope_items(prefs.scope),)


def read_transport_prefs(reader: RecordReader) -> TransportPrefs | None:
    """Read what a message asks of its carriage, or null.

    Raises:
        BadRecord: It is something else.
    """
    if reader.is_null("the transport preferences"):
        return None
    reader.enter("the transport preferences", 3)
    ordering = Ordering(reader.number("the ordering", max(Ordering)))
    reliability = Reliability(reader.number("the reliability", max(Reliability)))
    count = reader.enter("the security", 1, 2)
    security = Security(reader.number("the kind of the security", max(Security)))
    if (count == 2) != (security is Security.ONION):
        raise BadRecord("the security has a number of hops if it is onion routing, and only then")
    hops = reader.number("the number of hops", MAX_HOPS) if count == 2 else 0
    reader.leave()
    reader.leave()
    return TransportPrefs(ordering, reliability, security, hops)


def transport_items(prefs: TransportPrefs | None) -> tuple[object, ...] | None:
    """Return the items of what a message asks of its carriage, for `cbor2.dumps`."""
    if prefs is None:
        return None
    onion = prefs.security is Security.ONION
    security = (prefs.security, prefs.hops) if onion else (prefs.security,)
    return prefs.ordering, prefs.reliability, security


def read_protocol(reader: RecordReader) -> Protocol:
    """Read what a body is written in.

    Raises:
        BadRecord: It is something else.
    """
    reader.enter("the protocol", 2)
    name = reader.text("the name of the protocol", MAX_PROTOCOL_NAME, 1)
    version = reader.number("the version of the protocol")
    reader.leave()
    return Protocol(name, version)


def protocol_items(protocol: Protocol) -> tuple[object, ...]:
    """Return the items of what a body is written in, for `cbor2.dumps`."""
    return protocol.name, protocol.version
