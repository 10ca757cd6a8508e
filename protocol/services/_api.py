"""Ockam's requests and responses: a header and a body, both CBOR, together one blob.

A header is a map with numbers for keys. The body follows it at once, so the header says whether
there is one, and where it ends is found by passing over the header's one item. The whole is
BARE `data` on the wire; newer peers leave that wrapper out, and both are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar, cast

from .._errors import MalformedMessage
from ..bare import BareError, BareReader, encode_data
from ..ockam._cbor import CborReader
from ..payloads import CBOR, PayloadError
from ._names import MAX_NAME, ServiceError

__all__ = [
    "MAX_REQUEST_ID",
    "ApiRequest",
    "ApiResponse",
    "Method",
    "ResponseStatus",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

MAX_REQUEST_ID: Final = (1 << 32) - 1
"""The greatest number a request can have; a response has one of its own, and the request's."""


class Method(IntEnum):
    """The method of a request."""

    GET = 0
    POST = 1
    PUT = 2
    DELETE = 3
    PATCH = 4


class ResponseStatus(IntEnum):
    """The status of a response."""

    OK = 200
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    TIMEOUT = 408
    CONFLICT = 409
    INTERNAL_ERROR = 500
    NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request.

    Attributes:
        number: The id of the request, 0 to `MAX_REQUEST_ID`; the response names it.
        path: The path, at most `MAX_NAME` bytes; may be empty.
        method: The method.
        body: CBOR, or nothing.
    """

    number: int
    path: str
    method: Method
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response.

    Attributes:
        number: The id of the response, 0 to `MAX_REQUEST_ID`.
        to: The id of the request that it answers.
        status: The status.
        body: CBOR, or nothing.
    """

    number: int
    to: int
    status: ResponseStatus
    body: bytes = b""


# Keys of the headers' maps.
_NUMBER: Final = 1
_PATH: Final = 2
_METHOD: Final = 3
_TO: Final = 2
_STATUS: Final = 3
_HAS_BODY: Final = 4

_Code = TypeVar("_Code", Method, ResponseStatus)


def encode_request(request: ApiRequest) -> bytes:
    """Write a request."""
    return _encode(
        {_NUMBER: request.number, _PATH: request.path, _METHOD: int(request.method)}, request.body
    )


def encode_response(response: ApiResponse) -> bytes:
    """Write a response."""
    return _encode(
        {_NUMBER: response.number, _TO: response.to, _STATUS: int(response.status)}, response.body
    )


def _encode(header: dict[int, Any], body: bytes) -> bytes:
    header[_HAS_BODY] = bool(body)
    return encode_data(CBOR.encode(header) + body)


def decode_request(payload: bytes) -> ApiRequest:
    """Read a request.

    Raises:
        ServiceError: It is not one.
    """
    header, body = _decode(payload)
    path = header.get(_PATH)
    if not isinstance(path, str) or len(path.encode("utf-8", "surrogatepass")) > MAX_NAME:
        raise ServiceError("the path of a request is not a text, or is too long")
    return ApiRequest(
        _number(header, _NUMBER), path, _code(header, _METHOD, Method, "method"), body
    )


def decode_response(payload: bytes) -> ApiResponse:
    """Read a response.

    Raises:
        ServiceError: It is not one.
    """
    header, body = _decode(payload)
    return ApiResponse(
        _number(header, _NUMBER),
        _number(header, _TO),
        _code(header, _STATUS, ResponseStatus, "status"),
        body,
    )


def _decode(payload: bytes) -> tuple[dict[object, object], bytes]:
    data = _unwrapped(payload)
    reader = CborReader(data)
    try:
        reader.skip()
        header: object = CBOR.decode(data[: reader.position])
    except (MalformedMessage, PayloadError) as error:
        raise ServiceError(f"a header that cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise ServiceError("a header that is no map")
    fields = cast("dict[object, object]", header)
    body = data[reader.position :]
    has_body = fields.get(_HAS_BODY)
    if not isinstance(has_body, bool) or has_body is not bool(body):
        raise ServiceError("a header that is wrong about the body")
    return fields, body


def _unwrapped(payload: bytes) -> bytes:
    reader = BareReader(payload)
    try:
        data = reader.data()
        reader.finish()
    except BareError:
        return payload
    return data


def _number(header: dict[object, object], key: int) -> int:
    number = header.get(key)
    if type(number) is not int or not 0 <= number <= MAX_REQUEST_ID:
        raise ServiceError(f"field {key} of a header is not a number of 32 bits")
    return number


def _code(header: dict[object, object], key: int, kind: type[_Code], what: str) -> _Code:
    number = _number(header, key)
    try:
        return kind(number)
    except ValueError:
        raise ServiceError(f"{number} is no {what}") from None
