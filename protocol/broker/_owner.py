"""The owner of a route, as brokers with rules tell it to each other.

With rules a principal cannot take over the route id of another one. So that this holds at each
broker of a cluster, ROUTE_ADD has the owner as its first tag. It is a hash: it serves to compare,
and tells no name. It comes into no table of tags, and is asked for by no request.

Of two zones with an owner each for a route id, the one that has had it first keeps it. An owner
that connects anew has a new registration, and has the id *since* an earlier one. That time stands
behind the owner in the same tag, if it is not the timestamp: a tag of its own would need room in
each list of tags, and the text of a frame is read in parts with one such tag only.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from ._fields import MAX_TIMESTAMP
from ._tags import TagList

if TYPE_CHECKING:
    from ._route_add import RouteAdd

__all__ = [
    "MAX_OWNED",
    "NO_OWNER",
    "OWNER_KEY",
    "Ownership",
    "bounded_since",
    "owner_text",
    "parse_owner",
    "read_owner",
    "split_owner",
    "split_times",
    "times_of",
    "with_owner",
]

OWNER_KEY: Final = "onward.owner"
"""The key of the tag, which no destination may register."""

NO_OWNER: Final = ""
"""The owner of a worker of a broker, which no principal can be."""

MAX_OWNED: Final = 30 * 86_400
"""Longest time before a registration for which its owner counts as such, in seconds; an earlier
time counts as that one. So a wrong time that a broker has told is not passed on for ever."""

_MOST: Final = MAX_OWNED * 1000
_TIME_BITS: Final = MAX_TIMESTAMP.bit_length()

MAX_OWNERS: Final = 4096
"""Most owners of which each is kept once for all of its routes. At the limit some are forgotten,
and then told routes have one of their own."""

_DIGEST: Final = 12
_SINCE: Final = "@"
_SINCE_RAW: Final = _SINCE.encode()
_MAX_DIGITS: Final = 15


Ownership: TypeAlias = tuple[str, int, str | bytes | None]
"""An owner, since when it has had a route id, and the value of the tag that both were read from."""


def owner_text(name: str, method: str, issuer: str) -> str:
    """Return the value of the tag for a principal: 16 characters."""
    parts = (text.encode() for text in (name, method, issuer))
    data = b"".join(len(part).to_bytes(4) + part for part in parts)
    return urlsafe_b64encode(sha256(data).digest()[:_DIGEST]).decode()


def bounded_since(since: int, timestamp: int) -> int:
    """Return since when the owner of a registration has had the route id, within bounds.

    It is neither after the registration, nor more than `MAX_OWNED` before it.

    Args:
        since: What is told, in milliseconds since the Unix epoch; 0 for the registration itself.
        timestamp: That of the registration, likewise.
    """
    if not 0 < since < timestamp:
        return timestamp
    return max(since, timestamp - _MOST)


def times_of(timestamp: int, since: int) -> int:
    """Return both times of a registration as one number, which takes less memory than two.

    Args:
        timestamp: See `bounded_since`.
        since: Likewise.

    Returns:
        The timestamp, and from bit 63 on for how long its owner had had the route id then, within
        bounds.
    """
    if not 0 < since < timestamp:
        return timestamp
    return timestamp | min(timestamp - since, _MOST) << _TIME_BITS


def split_times(times: int) -> tuple[int, int]:
    """Return the two times that `times_of` has put together; 0 for since if it is the timestamp.

    Args:
        times: What it has returned, or that inverted.
    """
    if times < 0:
        times = ~times
    timestamp, owned = times & MAX_TIMESTAMP, times >> _TIME_BITS
    return timestamp, timestamp - owned if owned else 0


def with_owner(route: RouteAdd, owner: str, since: int = 0) -> RouteAdd:
    """Return a route with the tag of its owner.

    A destination of which other brokers are told is registered with room for it.

    Args:
        route: The route.
        owner: See `owner_text`.
        since: Since when its owner has had the route id; 0 for its timestamp.
    """
    value = f"{owner}{_SINCE}{since}" if since else owner
    return replace(route, tags=((OWNER_KEY, value), *route.tags))


def split_owner(tags: TagList) -> tuple[str | None, int, TagList]:
    """Return the owner in the tags of a ROUTE_ADD, and the other tags.

    Returns:
        The owner as `owner_text` makes it, `None` if it is not told; since when it has had the
        route id, 0 for the timestamp of the route; and the tags.
    """
    if not tags or tags[0][0] != OWNER_KEY:
        return None, 0, tags
    return *read_owner(tags[0][1]), tags[1:]


def read_owner(value: str | None) -> tuple[str, int]:
    """Return the owner in the value of the tag, and since when it has had the route id.

    Equal owners are one object, as each route in a table of a cluster refers to its own.
    """
    owner, _, since = (value or NO_OWNER).partition(_SINCE)
    known = since.isdecimal() and since.isascii() and len(since) <= _MAX_DIGITS
    return _shared(owner), int(since) if known else 0


def parse_owner(value: bytes) -> Ownership | None:
    """Read the value of the tag as `read_owner` does, from a frame.

    Returns:
        The owner, since when it has had the route id, and the value; `None` if it is no plain text.
    """
    owner, behind, since = value.partition(_SINCE_RAW)
    alone = _owners.get(owner) or _alone(owner)
    if alone is None or not behind:
        return alone
    if since.isdigit() and len(since) <= _MAX_DIGITS:
        return alone[0], int(since), value
    return (alone[0], 0, value) if since.isascii() else None


@lru_cache(MAX_OWNERS)
def _shared(owner: str) -> str:
    """Return the object for an owner."""
    return owner


# By their bytes. To keep the order of their use would cost more than to read some of them anew.
_owners: Final[dict[bytes, Ownership]] = {}


def _alone(value: bytes) -> Ownership | None:
    """Return the same for a value without a time, in UTF-8, and keep it."""
    try:
        read = _shared(value.decode()), 0, value
    except UnicodeDecodeError:
        return None
    if len(_owners) >= MAX_OWNERS:
        _owners.clear()
    _owners[value] = read
    return read
