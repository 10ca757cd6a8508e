"""The payloads of a watch: one node asks another to report the end of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from .._address import MAX_ADDRESS_VALUE, Address
from ..payloads import CBOR, PayloadError
from ._discovery import list_of
from ._names import ServiceError

__all__ = [
    "MAX_WATCH_TOKEN",
    "WATCH",
    "WatchNotice",
    "WatchRequest",
    "WatchState",
    "decode_watch_notice",
    "decode_watch_request",
    "encode_watch_notice",
    "encode_watch_request",
]

WATCH: Final = "watch"
"""Address of the service that reports the end of workers."""

MAX_WATCH_TOKEN: Final = 64
"""Most bytes of the token of a watch."""


class WatchState(IntEnum):
    """The state of a watched worker, as the service reports it."""

    ALIVE = 0
    """The worker has not stopped since the watch began."""

    STOPPED = 1
    """The worker has stopped since the watch began."""

    REFUSED = 2
    """There is no such worker, or it may not be watched."""

    FORGOTTEN = 3
    """The service does not know the watch any more, and so not what has become of the worker."""

    TOO_MANY = 4
    """There is no room for the watch now; the watcher may ask again."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The beginning of a watch, or its renewal.

    Attributes:
        token: Random bytes that identify the watch.
        address: The address of the worker.
        renews: Whether the service has reported that the worker is alive before.
    """

    token: bytes
    address: Address
    renews: bool = False


@dataclass(frozen=True, slots=True)
class WatchNotice:
    """The report of the service about one watch.

    Attributes:
        token: The token of the watch.
        state: The state of the worker.
    """

    token: bytes
    state: WatchState


def encode_watch_request(request: WatchRequest) -> bytes:
    """Return a request as a payload."""
    kind, value = request.address
    return CBOR.encode([request.token, kind, value, request.renews])


def decode_watch_request(payload: bytes) -> WatchRequest:
    """Return the request of a payload.

    Raises:
        ServiceError: It is none.
    """
    token, kind, value, renews = _fields(payload, 4, "a request to watch")
    if type(kind) is not int or not isinstance(value, bytes) or not isinstance(renews, bool):
        raise ServiceError("a request to watch with fields of other types")
    if not 0 <= kind <= 255 or not 0 < len(value) <= MAX_ADDRESS_VALUE:
        raise ServiceError(f"an address of type {kind} with {len(value)} bytes")
    return WatchRequest(_token(token), Address(kind, value), renews)


def encode_watch_notice(notice: WatchNotice) -> bytes:
    """Return a notice as a payload."""
    return CBOR.encode([notice.token, int(notice.state)])


def decode_watch_notice(payload: bytes) -> WatchNotice:
    """Return the notice of a payload.

    Raises:
        ServiceError: It is none.
    """
    token, state = _fields(payload, 2, "a notice of a watch")
    if type(state) is not int or state not in list(WatchState):
        raise ServiceError("a notice of a watch with an unknown state")
    return WatchNotice(_token(token), WatchState(state))


def _fields(payload: bytes, count: int, what: str) -> Sequence[object]:
    try:
        fields = list_of(CBOR.decode(payload), what)
    except PayloadError as error:
        raise ServiceError(str(error)) from None
    if len(fields) != count:
        raise ServiceError(f"not {what}")
    return fields


def _token(value: object) -> bytes:
    if not isinstance(value, bytes) or not 0 < len(value) <= MAX_WATCH_TOKEN:
        raise ServiceError(f"a token of a watch is 1 to {MAX_WATCH_TOKEN} bytes")
    return value
