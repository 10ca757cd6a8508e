"""What zones ask each other about routes: the places of those with some ids, and their owners.

The request is ids of 16 bytes, and the answer has for each the timestamp (8 bytes) and the home
broker (16 bytes), or zeros. With rules a salt of 16 bytes precedes the ids, and another one the
answer. This has then for each route the hash (16 bytes) of its owner with both salts, zeros if it
is not known, and since when the owner has had the id (8 bytes). A hash serves to compare: to others
that read it, it tells nothing of another request, and since each end chooses a salt, neither can
have a table of the hashes of principals before.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from .._words import counted
from ..broker import ID_SIZE
from ._errors import ClusterFrameError
from ._ownership import RoutePlace

__all__ = [
    "MAX_PLACES",
    "OWNERS_ROUTE",
    "OWNER_SALT_SIZE",
    "PLACES_ROUTE",
    "OwnedPlace",
    "answer_owned_places",
    "answer_places",
    "parse_owned_places",
    "parse_places",
    "salted_owner",
]

PLACES_ROUTE: Final = "onward.cluster.routes-of"
"""The route by which a broker asks another zone whether it has routes, and where."""

OWNERS_ROUTE: Final = "onward.cluster.owners-of"
"""The route by which it asks a broker with `PeerInfo.owners` for their owners as well."""

MAX_PLACES: Final = 1024
"""Most route ids of one request."""

OWNER_SALT_SIZE: Final = 16
"""Bytes of the salt of a request for owners, and of that of its answer."""

_PLACE: Final = Struct(">Q16s")
_OWNED: Final = Struct(">Q16s16sQ")
_NOT_TOLD: Final = bytes(16)


class OwnedPlace(NamedTuple):
    """A registration of a route as another zone has told it.

    Attributes:
        place: The registration, without its owner.
        owner: Its owner with both salts; `None` if it is not told.
    """

    place: RoutePlace
    owner: bytes | None


def salted_owner(owner: str, salts: bytes) -> bytes:
    """Return the owner of a route as an answer tells it: 16 bytes.

    Args:
        owner: As `owner_text` makes it.
        salts: That of the request, and that of the answer behind it.
    """
    return blake2b(owner.encode(), digest_size=16, key=salts).digest()


def _ids_of(data: bytes) -> list[bytes]:
    """Read the route ids of a request.

    Raises:
        ClusterFrameError: They are none, or more than `MAX_PLACES`.
    """
    if len(data) % ID_SIZE or not 0 < len(data) <= MAX_PLACES * ID_SIZE:
        raise ClusterFrameError(f"{counted(len(data), 'byte')} for the ids of routes")
    return [data[at : at + ID_SIZE] for at in range(0, len(data), ID_SIZE)]


def answer_places(data: bytes, place_of: Callable[[bytes], RoutePlace | None]) -> bytes:
    """Answer a request for the places of routes.

    Args:
        data: The request.
        place_of: Gives the place of a route by its id, if this zone has it.

    Raises:
        ClusterFrameError: It is none, or has more than `MAX_PLACES` ids.
    """
    places = map(place_of, _ids_of(data))
    return b"".join(
        _PLACE.pack(each.timestamp, each.broker_id) if each else bytes(_PLACE.size)
        for each in places
    )


def answer_owned_places(
    data: bytes, place_of: Callable[[bytes], RoutePlace | None], salt: bytes
) -> bytes:
    """Answer a request for the places of routes and their owners; see `answer_places`.

    Args:
        data: The request.
        place_of: Gives the place of a route by its id, if this zone has it.
        salt: A random one of 16 bytes.
    """
    salts, places = data[:OWNER_SALT_SIZE] + salt, map(place_of, _ids_of(data[OWNER_SALT_SIZE:]))
    answers = (
        bytes(_OWNED.size)
        if each is None
        else _OWNED.pack(
            each.timestamp,
            each.broker_id,
            _NOT_TOLD if each.owner is None else salted_owner(each.owner, salts),
            each.claim[0],
        )
        for each in places
    )
    return b"".join((salt, *answers))


def parse_places(data: bytes, count: int) -> list[RoutePlace | None]:
    """Read the answer to a request for the places of so many routes.

    Raises:
        ClusterFrameError: It is none.
    """
    _check_size(data, count, _PLACE)
    return [RoutePlace(*found) if found[0] else None for found in _PLACE.iter_unpack(data)]


def parse_owned_places(data: bytes, count: int) -> tuple[bytes, list[OwnedPlace | None]]:
    """Read the answer to a request for the places of so many routes and their owners.

    Returns:
        Its salt, and the places.

    Raises:
        ClusterFrameError: It is none.
    """
    salt, answers = data[:OWNER_SALT_SIZE], data[OWNER_SALT_SIZE:]
    _check_size(answers, count, _OWNED)
    return salt, [
        OwnedPlace(RoutePlace(at, home, since=since), None if owner == _NOT_TOLD else owner)
        if at
        else None
        for at, home, owner, since in _OWNED.iter_unpack(answers)
    ]


def _check_size(data: bytes, count: int, each: Struct) -> None:
    if len(data) != count * each.size:
        size, routes = counted(len(data), "byte"), counted(count, "route")
        raise ClusterFrameError(f"{size} for the places of {routes}")
