"""What the router writes into routes for itself: addresses of type 36 that are no destination.

| address | where it stands | what it says |
| --- | --- | --- |
| `36#self` | first, on the wire | the message is for the engine that it is signed to |
| `36#by:…` | behind the address of a link | how the router carries the message |
| `36#reply:…` | behind the address of a link, in a return route | an answer has a way of its own |
| `36#asks` | first in a return route, on the wire | an answer names the id of the message |
| `36#answers:…` | behind the address of a link, in a return route | the id that an answer names |

What another node sends may not have one where the router looks for it. But three of them stand in
return routes, which other nodes see if a worker here passes a message on, and may change: behind
the address of a link they can put anything. So each has 16 bytes which are not guessed: a carriage
and the id of a message have a tag by a key of this process, and a way of its own has its token.

Only a request, which has one answer, asks for its id to be named. The return routes of all else
stay as they are, so that a worker knows the sender of one message again by those of the next.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from cbor2 import dumps

from ...protocol import IDENTITY, Address, Route
from ...protocol.identity import (
    MAX_HOPS,
    BadRecord,
    DestinationKind,
    Identity,
    RecordReader,
    RoutingPrefs,
    TransportPrefs,
    read_routing_prefs,
    read_transport_prefs,
    routing_items,
    short_text,
    transport_items,
)

__all__ = [
    "ASKS",
    "ENGINE",
    "Carriage",
    "answer_address",
    "answered_at",
    "carriage_at",
    "is_reserved",
    "reply_address",
    "reply_at",
    "shown_address",
    "shown_carriage",
]

ASKS: Final = Address(IDENTITY, b"asks")
"""The address, first in the return route of such a message, of one that waits for its answer."""

ENGINE: Final = Address(IDENTITY, b"self")
"""The address, in the onward route of such a message, of the engine that it is for. An answer has
none: its route begins as the return route of the question does."""

_BY: Final = b"by:"
_REPLY: Final = b"reply:"
_ANSWERS: Final = b"answers:"
_TAG: Final = 16
_ID: Final = 8
_KEY: Final = secrets.token_bytes(32)
_REMEMBERED: Final = 1024
"""Carriages that are remembered by their addresses. Others are made again for each message."""


@dataclass(frozen=True, slots=True)
class Carriage:
    """The way of a message to an identity elsewhere.

    Attributes:
        kind: The kind of its destination.
        relays: The relays that it goes through, each of which opens one layer; none for a message
            that goes over a link as it is.
        rprefs: What it asks of its routing.
        tprefs: What it asks of its carriage.
        topic: The topic that it is published to, at the node that the link is to.
        exit: Whether the last relay lets it out.
    """

    kind: DestinationKind
    relays: tuple[Identity, ...] = ()
    rprefs: RoutingPrefs | None = None
    tprefs: TransportPrefs | None = None
    topic: Identity | None = None
    exit: bool = False

    @property
    def address(self) -> Address:
        """The address that says it."""
        return _address_of(self)


def carriage_at(route: Route) -> Carriage | None:
    """Return the carriage that a route begins with; `None` if it begins with none.

    Raises:
        BadRecord: It begins with one that cannot be read.
    """
    if route and route[0][0] == IDENTITY and route[0][1].startswith(_BY):
        return _carriage_of(route[0][1])
    return None


def reply_address(kind: DestinationKind, token: bytes) -> Address:
    """Return the address, in a return route, of an answer that has a way of its own.

    Args:
        kind: The kind of the part of the router that knows the way.
        token: What that part knows it by.
    """
    return Address(IDENTITY, _REPLY + bytes((kind,)) + token)


def reply_at(route: Route) -> tuple[DestinationKind, bytes] | None:
    """Return the part and the token of an answer, if its route begins with such an address.

    Raises:
        BadRecord: It begins with one that cannot be read.
    """
    if route and route[0][0] == IDENTITY and route[0][1].startswith(_REPLY):
        rest = route[0][1][len(_REPLY) :]
        if not rest or rest[0] > max(DestinationKind):
            raise BadRecord("an answer without a part that knows its way")
        return DestinationKind(rest[0]), rest[1:]
    return None


def answer_address(own: Identity, to: Identity, number: int) -> Address:
    """Return the address, in a return route, that says which message an answer is to.

    Args:
        own: The identity of this node that the message was for.
        to: The identity that it was of.
        number: Its id.
    """
    written = number.to_bytes(_ID, "big")
    return Address(IDENTITY, _ANSWERS + _tag(own + to + written) + written)


def answered_at(route: Route, own: Identity, to: Identity) -> int | None:
    """Return the id of the message that is answered, if a route begins with such an address.

    Raises:
        BadRecord: It begins with one that was not written for these two.
    """
    if route and route[0][0] == IDENTITY and route[0][1].startswith(_ANSWERS):
        rest = route[0][1][len(_ANSWERS) :]
        if not compare_digest(rest[:_TAG], _tag(own + to + rest[_TAG:])):
            raise BadRecord("the router has not written it")
        return int.from_bytes(rest[_TAG:], "big")
    return None


def is_reserved(address: Address) -> bool:
    """Whether an address is one that the router alone writes."""
    return address[0] == IDENTITY and address[1].startswith(_RESERVED)


_RESERVED: Final = (_BY, _REPLY, _ANSWERS, ASKS[1], ENGINE[1])


def shown_address(address: Address) -> str | None:
    """Return an address that the router alone writes as text for people; `None` for another one.

    It may be of another process, or made up: the text says what it would mean.
    """
    if not is_reserved(address):
        return None
    if address.value == ENGINE.value:
        return "(that engine)"
    if not address.value.startswith(_BY):
        return "(return way)"
    carriage = shown_carriage(address)
    if carriage is None:
        return "(way of a router)"
    if carriage.topic is not None:
        return f"(way to the topic {short_text(carriage.topic)})"
    relays = ", ".join(map(short_text, carriage.relays))
    return f"(way over {relays})" if relays else f"(way to that {carriage.kind.name.lower()})"


def shown_carriage(address: Address) -> Carriage | None:
    """Return the carriage that an address says, for people; `None` if it says none.

    It may be of another process, or made up.
    """
    if address.type != IDENTITY or not address.value.startswith(_BY):
        return None
    try:
        return _read(address.value[len(_BY) + _TAG :])
    except BadRecord:
        return None


@lru_cache(_REMEMBERED)
def _address_of(carriage: Carriage) -> Address:
    items = (
        carriage.kind,
        carriage.relays,
        routing_items(carriage.rprefs),
        transport_items(carriage.tprefs),
        carriage.topic,
        int(carriage.exit),
    )
    record = dumps(items)
    return Address(IDENTITY, _BY + _tag(record) + record)


def _tag(record: bytes) -> bytes:
    return blake2b(record, digest_size=_TAG, key=_KEY).digest()


@lru_cache(_REMEMBERED)
def _carriage_of(value: bytes) -> Carriage:
    tag, record = value[len(_BY) :][:_TAG], value[len(_BY) + _TAG :]
    if not compare_digest(tag, _tag(record)):
        raise BadRecord("the router has not written it")
    return _read(record)


def _read(record: bytes) -> Carriage:
    reader = RecordReader(record)
    reader.enter("a carriage", 6)
    kind = DestinationKind(reader.number("the kind", max(DestinationKind)))
    count = reader.enter("the relays", 0, MAX_HOPS)
    relays = tuple(reader.identity("a relay") for _ in range(count))
    reader.leave()
    rprefs, tprefs = read_routing_prefs(reader), read_transport_prefs(reader)
    topic = None if reader.is_null("the topic") else reader.identity("the topic")
    lets_out = reader.number("whether it is let out", 1) == 1
    return Carriage(kind, relays, rprefs, tprefs, topic, lets_out)
