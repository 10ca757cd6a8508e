"""The entries of a discovery service: name, route and metadata of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

from .._address import MAX_ADDRESS_VALUE, MAX_ROUTE_LENGTH, Address, Route
from ..payloads import CBOR, PayloadError
from ._names import MAX_NAME, ServiceError, check_name

__all__ = [
    "MAX_METADATA",
    "MAX_METADATA_BYTES",
    "ServiceInfo",
    "decode_metadata",
    "decode_service",
    "decode_services",
    "encode_metadata",
    "encode_services",
]

MAX_METADATA: Final = 64
"""Most pairs that are known of a service beside its name and route."""

MAX_METADATA_BYTES: Final = 4096
"""Most bytes that the keys and the values of those pairs have together."""

_ID: Final = 1
_ROUTE: Final = 2
_METADATA: Final = 3


def _nothing() -> Mapping[str, bytes]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service that can be found.

    Attributes:
        name: Its name.
        route: The way to it from the node of the discovery service.
        metadata: Further properties: text to bytes.
    """

    name: str
    route: Route
    metadata: Mapping[str, bytes] = field(default_factory=_nothing)


def encode_metadata(metadata: Mapping[str, bytes]) -> bytes:
    """Write what is known of a service, as the body of a request.

    Raises:
        ServiceError: It is over a limit.
    """
    return CBOR.encode(dict(_checked(metadata)))


def decode_metadata(body: bytes) -> Mapping[str, bytes]:
    """Read what is known of a service; nothing is an empty map.

    Raises:
        ServiceError: It is no map of texts to bytes, or over a limit.
    """
    return _metadata(_plain(body)) if body else MappingProxyType({})


def encode_services(services: Sequence[ServiceInfo] | ServiceInfo) -> bytes:
    """Write one service, or several, as the body of a response.

    Raises:
        PayloadError: They are more than a payload holds.
    """
    if isinstance(services, ServiceInfo):
        return CBOR.encode(_fields(services))
    return CBOR.encode([_fields(each) for each in services])


def decode_service(body: bytes) -> ServiceInfo:
    """Read one service.

    Raises:
        ServiceError: It is not one.
    """
    return _service(_plain(body))


def decode_services(body: bytes) -> tuple[ServiceInfo, ...]:
    """Read several services.

    Raises:
        ServiceError: It is no list of services.
    """
    return tuple(map(_service, list_of(_plain(body), "the list of services")))


def _fields(service: ServiceInfo) -> dict[int, Any]:
    route = [[address.type, address.value] for address in service.route]
    return {_ID: service.name, _ROUTE: route, _METADATA: dict(service.metadata)}


def _plain(body: bytes) -> object:
    try:
        return CBOR.decode(body)
    except PayloadError as error:
        raise ServiceError(str(error)) from None


def list_of(value: object, what: str) -> Sequence[object]:
    """Return a decoded value as a list.

    Raises:
        ServiceError: It is none.
    """
    if not isinstance(value, list):
        raise ServiceError(f"{what} is no list")
    return cast("list[object]", value)


def _map(value: object, what: str) -> Mapping[object, object]:
    if not isinstance(value, dict):
        raise ServiceError(f"{what} is no map")
    return cast("dict[object, object]", value)


def _service(value: object) -> ServiceInfo:
    fields = _map(value, "a service")
    name = fields.get(_ID)
    if not isinstance(name, str):
        raise ServiceError("the name of a service is not a text")
    steps = list_of(fields.get(_ROUTE), "the route of a service")
    if len(steps) > MAX_ROUTE_LENGTH:
        raise ServiceError(f"a route of more than {MAX_ROUTE_LENGTH} addresses")
    return ServiceInfo(
        check_name(name, "a service's name"),
        tuple(map(_address, steps)),
        _metadata(fields.get(_METADATA, {})),
    )


def _address(value: object) -> Address:
    pair = list_of(value, "an address")
    number, data = pair if len(pair) == 2 else (None, None)
    if type(number) is not int or not isinstance(data, bytes):
        raise ServiceError("an address that is no type and value")
    if not 0 <= number <= 255 or not 0 < len(data) <= MAX_ADDRESS_VALUE:
        raise ServiceError(f"an address of type {number} with {len(data)} bytes")
    return Address(number, data)


def _metadata(value: object) -> Mapping[str, bytes]:
    made: dict[str, bytes] = {}
    for key, data in _map(value, "what is known of a service").items():
        if not isinstance(key, str) or not isinstance(data, bytes):
            raise ServiceError("what is known of a service is not text to bytes")
        made[key] = data
    return _checked(made)


def _checked(metadata: Mapping[str, bytes]) -> Mapping[str, bytes]:
    size = sum(len(key.encode("utf-8", "surrogatepass")) + len(metadata[key]) for key in metadata)
    if len(metadata) > MAX_METADATA or size > MAX_METADATA_BYTES:
        raise ServiceError(f"{len(metadata)} pairs of {size} bytes are known of a service")
    if any(len(key) > MAX_NAME for key in metadata):
        raise ServiceError(f"a key of more than {MAX_NAME} characters")
    return MappingProxyType(dict(metadata))
