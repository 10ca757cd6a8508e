"""Adverts: records that say where a node, an engine, a topic or a domain is.

The identity that an advert is about signs it. For an engine without a key of its own its node does,
and the advert has the name that the identity is the digest of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, assert_never

from cbor2 import dumps

from ._errors import BadRecord
from ._identities import MAX_ENGINE_NAME, Identity, derived_engine, is_derived
from ._preferences import RoutingScope, read_scope, scope_items
from ._record_reader import RecordReader

__all__ = [
    "KX_SIZE",
    "MAX_ADVERT",
    "MAX_ADVERT_ADDRESSES",
    "MAX_ADVERT_VERSION",
    "MAX_DOMAIN_NODES",
    "MAX_ROUTE_TEXT",
    "MAX_TAG",
    "MAX_TOPIC_PUBLISHERS",
    "MAX_TOPIC_TAGS",
    "MAX_WEIGHT",
    "Advert",
    "AdvertAddress",
    "AdvertKind",
    "DomainAdvert",
    "EngineAdvert",
    "NodeAdvert",
    "TopicAdvert",
    "node_of_advert",
    "parse_advert",
    "parse_domain_advert",
    "parse_engine_advert",
    "parse_node_advert",
    "parse_topic_advert",
    "serialize_advert",
    "serialize_domain_advert",
    "serialize_engine_advert",
    "serialize_node_advert",
    "serialize_topic_advert",
    "signer_of",
]

MAX_ADVERT: Final = 8 * 1024
"""Most bytes of an advert without its envelope."""
MAX_ADVERT_ADDRESSES: Final = 16
"""Most addresses in the advert of a node."""
MAX_ROUTE_TEXT: Final = 255
"""Most bytes of the text of a route in an advert."""
MAX_TAG: Final = 64
"""Most bytes of a tag of a topic, in UTF-8."""
MAX_TOPIC_PUBLISHERS: Final = 64
"""Most publishers in the advert of a topic."""
MAX_TOPIC_TAGS: Final = 16
"""Most tags in the advert of a topic."""
MAX_WEIGHT: Final = 255
"""Greatest weight of an address."""
MAX_DOMAIN_NODES: Final = 64
"""Most nodes in the advert of a domain."""
MAX_ADVERT_VERSION: Final = 2**32 - 1
"""Greatest version of an advert."""
KX_SIZE: Final = 32
"""Bytes of an X25519 public key."""


class AdvertKind(IntEnum):
    """The kind of an advert; the number is that of the kind of destination."""

    ENGINE = 0
    NODE = 1
    TOPIC = 2
    DOMAIN = 4


class AdvertAddress(NamedTuple):
    """An address in the advert of a node.

    Attributes:
        route: The text of a route that leads to the node.
        weight: From 0 to 255; the address with the greatest is tried first.
    """

    route: str
    weight: int


@dataclass(frozen=True, slots=True)
class NodeAdvert:
    """The advert of a node: how it is reached, and the key to seal for it.

    Attributes:
        identity: The node; it signs.
        addresses: Its addresses; none for a node that cannot be dialled.
        kx: The X25519 public key that is sealed for, which may change with the version.
        version: The newest version counts.
        created: When it was made, in Unix milliseconds.
    """

    identity: Identity
    addresses: tuple[AdvertAddress, ...]
    kx: bytes
    version: int
    created: int


@dataclass(frozen=True, slots=True)
class EngineAdvert:
    """The advert of an engine: the node that it is at.

    Attributes:
        identity: The engine; it signs, or its node if the identity is derived.
        node: The node.
        name: The value of the address of its worker there; `None` if it is not said, which only an
            engine with a key of its own may do.
        version: The newest version counts.
        created: When it was made, in Unix milliseconds.
    """

    identity: Identity
    node: Identity
    name: bytes | None
    version: int
    created: int


@dataclass(frozen=True, slots=True)
class TopicAdvert:
    """The advert of a topic: the engines that publish, and how far it goes.

    Attributes:
        identity: The topic; it signs.
        tags: Words that it is found by.
        publishers: The engines that may publish; `None` for all.
        scope: How far it goes.
        version: The newest version counts.
        created: When it was made, in Unix milliseconds.
    """

    identity: Identity
    tags: tuple[str, ...]
    publishers: tuple[Identity, ...] | None
    scope: RoutingScope
    version: int
    created: int


@dataclass(frozen=True, slots=True)
class DomainAdvert:
    """The advert of a domain: its nodes that are there for the others.

    Attributes:
        identity: The domain; it signs.
        nodes: The nodes; none for a domain that is closed.
        version: The newest version counts.
        created: When it was made, in Unix milliseconds.
    """

    identity: Identity
    nodes: tuple[Identity, ...]
    version: int
    created: int


Advert: TypeAlias = NodeAdvert | EngineAdvert | TopicAdvert | DomainAdvert
"""An advert of any kind."""


def parse_node_advert(data: bytes) -> NodeAdvert:
    """Read the advert of a node.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_ADVERT)
    reader.enter("the advert", 5)
    identity = reader.keyed("the node")
    count = reader.enter("the list of addresses", 0, MAX_ADVERT_ADDRESSES)
    addresses = tuple(_address(reader) for _ in range(count))
    reader.leave()
    kx = reader.binary("the key for sealing", KX_SIZE, KX_SIZE)
    version, created = _age(reader)
    return NodeAdvert(identity, addresses, kx, version, created)


def serialize_node_advert(advert: NodeAdvert) -> bytes:
    """Return the bytes of the advert of a node."""
    addresses = tuple(tuple(each) for each in advert.addresses)
    return dumps((advert.identity, addresses, advert.kx, advert.version, advert.created))


def parse_engine_advert(data: bytes) -> EngineAdvert:
    """Read the advert of an engine.

    Raises:
        BadRecord: It is none, or the identity is derived, and not of this node and this name.
    """
    reader = RecordReader(data, MAX_ADVERT)
    reader.enter("the advert", 5)
    identity = reader.identity("the engine")
    node = reader.keyed("the node")
    name = None if reader.is_null("the name") else reader.binary("the name", MAX_ENGINE_NAME, 1)
    version, created = _age(reader)
    if is_derived(identity) and (name is None or derived_engine(node, name) != identity):
        raise BadRecord("the engine is not the one of this name at this node")
    return EngineAdvert(identity, node, name, version, created)


def serialize_engine_advert(advert: EngineAdvert) -> bytes:
    """Return the bytes of the advert of an engine."""
    return dumps((advert.identity, advert.node, advert.name, advert.version, advert.created))


def parse_topic_advert(data: bytes) -> TopicAdvert:
    """Read the advert of a topic.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_ADVERT)
    reader.enter("the advert", 6)
    identity = reader.keyed("the topic")
    count = reader.enter("the list of tags", 0, MAX_TOPIC_TAGS)
    tags = tuple(reader.text("a tag", MAX_TAG, 1) for _ in range(count))
    reader.leave()
    publishers = None
    if not reader.is_null("the list of publishers"):
        count = reader.enter("the list of publishers", 0, MAX_TOPIC_PUBLISHERS)
        publishers = tuple(reader.identity("a publisher") for _ in range(count))
        reader.leave()
    scope = read_scope(reader, "the scope")
    version, created = _age(reader)
    return TopicAdvert(identity, tags, publishers, scope, version, created)


def serialize_topic_advert(advert: TopicAdvert) -> bytes:
    """Return the bytes of the advert of a topic."""
    scope = scope_items(advert.scope)
    return dumps(
        (
            advert.identity,
            advert.tags,
            advert.publishers,
            scope,
            advert.version,
            advert.created,
        )
    )


def parse_domain_advert(data: bytes) -> DomainAdvert:
    """Read the advert of a domain.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_ADVERT)
    reader.enter("the advert", 4)
    identity = reader.keyed("the domain")
    count = reader.enter("the list of nodes", 0, MAX_DOMAIN_NODES)
    nodes = tuple(reader.keyed("a node") for _ in range(count))
    reader.leave()
    version, created = _age(reader)
    return DomainAdvert(identity, nodes, version, created)


def serialize_domain_advert(advert: DomainAdvert) -> bytes:
    """Return the bytes of the advert of a domain."""
    return dumps((advert.identity, advert.nodes, advert.version, advert.created))


def parse_advert(kind: AdvertKind, data: bytes) -> Advert:
    """Read an advert of a kind.

    Raises:
        BadRecord: It is none.
    """
    return _PARSERS[kind](data)


def serialize_advert(advert: Advert) -> bytes:
    """Return the bytes of an advert."""
    match advert:
        case NodeAdvert():
            return serialize_node_advert(advert)
        case EngineAdvert():
            return serialize_engine_advert(advert)
        case TopicAdvert():
            return serialize_topic_advert(advert)
        case DomainAdvert():
            return serialize_domain_advert(advert)
        case _:  # pragma: no cover
            assert_never(advert)


def signer_of(advert: Advert) -> Identity:
    """Return the identity that has to sign an advert."""
    if isinstance(advert, EngineAdvert) and is_derived(advert.identity):
        return advert.node
    return advert.identity


def node_of_advert(advert: Advert) -> Identity | None:
    """Return the node that an advert is of, for a node and an engine."""
    match advert:
        case NodeAdvert(identity=node) | EngineAdvert(node=node):
            return node
        case _:
            return None


def _address(reader: RecordReader) -> AdvertAddress:
    reader.enter("an address", 2)
    route = reader.text("the route", MAX_ROUTE_TEXT, 1)
    weight = reader.number("the weight", MAX_WEIGHT)
    reader.leave()
    return AdvertAddress(route, weight)


def _age(reader: RecordReader) -> tuple[int, int]:
    """Read the version and the time, with which each advert ends."""
    version = reader.number("the version", MAX_ADVERT_VERSION)
    created = reader.number("the time")
    reader.leave()
    reader.end()
    return version, created


_PARSERS: Final[dict[AdvertKind, Callable[[bytes], Advert]]] = {
    AdvertKind.ENGINE: parse_engine_advert,
    AdvertKind.NODE: parse_node_advert,
    AdvertKind.TOPIC: parse_topic_advert,
    AdvertKind.DOMAIN: parse_domain_advert,
}
