"""The addresses of Ockam's services, and their payloads: BARE strings."""

from __future__ import annotations

from typing import Final

from .._address import LOCAL, MAX_ADDRESS_VALUE, MAX_ROUTE_LENGTH, Address, Route
from .._errors import ProtocolError, RouteTooLong
from ..bare import BareError, BareReader, encode_string

__all__ = [
    "DISCOVERY",
    "FORWARDING_API",
    "FORWARDING_SERVICE",
    "MAX_NAME",
    "PUB_SUB",
    "REGISTER",
    "RELAY_PREFIX",
    "STATIC_FORWARDING_API",
    "STATIC_FORWARDING_SERVICE",
    "TOPIC_PREFIX",
    "ServiceError",
    "check_name",
    "decode_subscription",
    "decode_text",
    "encode_subscription",
    "named_address",
    "relayed",
]

FORWARDING_SERVICE: Final = "forwarding_service"
"""Address of the service that makes a relay at a random address."""

STATIC_FORWARDING_SERVICE: Final = "static_forwarding_service"
"""Address of the service that makes a relay at an address of its client's choice."""

FORWARDING_API: Final = "forwarding_api"
"""Address at which the relays of the first service are listed and removed."""

STATIC_FORWARDING_API: Final = "static_forwarding_api"
"""Address at which the relays of the second service are listed and taken away."""

RELAY_PREFIX: Final = "forward_to_"
"""The prefix of a relay's address; the alias follows."""

REGISTER: Final = "register"
"""The payload of a registration at the first service."""

PUB_SUB: Final = "pub_sub"
"""Address of the service that topics are subscribed at."""

TOPIC_PREFIX: Final = "pub_sub_t"
"""The prefix of a topic's address; `_` and the topic's name follow."""

DISCOVERY: Final = "discovery"
"""Address of the service that knows where other services are."""

MAX_NAME: Final = 255
"""Most bytes in UTF-8 of an alias, of a topic's, a subscriber's or a service's name."""


class ServiceError(ProtocolError):
    """A payload or a name that a service cannot take.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not understood: {self.reason}"


def decode_text(payload: bytes, what: str) -> str:
    """Read a payload that is one BARE string.

    Args:
        payload: The payload.
        what: What it should be, for the error.

    Raises:
        ServiceError: It is not one.
    """
    reader = BareReader(payload)
    try:
        text = reader.string()
        reader.finish()
    except BareError as error:
        raise ServiceError(f"{what}: {error}") from None
    return text


def check_name(name: str, what: str) -> str:
    """Return a name that can be a part of an address.

    Args:
        name: The name.
        what: The kind of name, for the error.

    Raises:
        ServiceError: It is empty, over `MAX_NAME` bytes, or has a character that does not print.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= MAX_NAME:
        raise ServiceError(f"{what} of {size} bytes, not 1 to {MAX_NAME}")
    if not name.isprintable():
        raise ServiceError(f"{what} with characters that do not print")
    return name


def named_address(prefix: str, name: str) -> Address:
    """Return the local address made of a prefix and a name.

    Raises:
        ServiceError: Together they are too long.
    """
    value = (prefix + name).encode()
    if not 0 < len(value) <= MAX_ADDRESS_VALUE:
        raise ServiceError(f"an address of {len(value)} bytes, not 1 to {MAX_ADDRESS_VALUE}")
    return Address(LOCAL, value)


def encode_subscription(name: str, topic: str) -> bytes:
    """Encode the subscription of a name to a topic: `name:topic`.

    Raises:
        ServiceError: One of the names cannot be one, or the subscriber's has a colon.
    """
    if ":" in check_name(name, "a subscriber's name"):
        raise ServiceError("a subscriber's name with a colon")
    check_name(topic, "a topic's name")
    return encode_string(f"{name}:{topic}")


def decode_subscription(payload: bytes) -> tuple[str, str]:
    """Decode a subscription: the name of the subscriber and that of the topic.

    Raises:
        ServiceError: It is no such payload.
    """
    text = decode_text(payload, "a subscription")
    name, colon, topic = text.partition(":")
    if not colon:
        raise ServiceError("a subscription without a colon")
    return check_name(name, "a subscriber's name"), check_name(topic, "a topic's name")


def relayed(stored: Route, onward: Route) -> Route:
    """Return the onward route of a message that a relay forwards.

    The relay removes its own address from the onward route and puts the stored route in front of
    the rest, without its last address: that is the worker that registered, and the rest of the
    onward route addresses a worker on its node.

    Args:
        stored: The return route of the registration.
        onward: The onward route on arrival; its first address is that of the relay.

    Raises:
        RouteTooLong: It would have more addresses than a route may.
    """
    route = (*stored[:-1], *onward[1:])
    if len(route) > MAX_ROUTE_LENGTH:
        raise RouteTooLong(len(route), MAX_ROUTE_LENGTH)
    return route
