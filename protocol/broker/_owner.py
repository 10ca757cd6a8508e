"""The owner of a route, as brokers with rules tell it to each other.

With rules a principal cannot take over the route id of another one. So that this holds at each
broker of a cluster, ROUTE_ADD has the owner as its first tag. It is a hash: it serves to compare,
and tells no name. It comes into no table of tags, and is asked for by no request.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from ._tags import TagList

if TYPE_CHECKING:
    from ._route_add import RouteAdd

__all__ = ["NO_OWNER", "OWNER_KEY", "owner_text", "split_owner", "with_owner"]

OWNER_KEY: Final = "onward.owner"
"""The key of the tag, which no destination may register."""

NO_OWNER: Final = ""
"""The owner of a worker of a broker, which no principal can be."""

_DIGEST: Final = 12


def owner_text(name: str, method: str, issuer: str) -> str:
    """Return the value of the tag for a principal: 16 characters."""
    parts = (text.encode() for text in (name, method, issuer))
    data = b"".join(len(part).to_bytes(4) + part for part in parts)
    return urlsafe_b64encode(sha256(data).digest()[:_DIGEST]).decode()


def with_owner(route: RouteAdd, owner: str) -> RouteAdd:
    """Return a route with the tag of its owner.

    A destination of which other brokers are told is registered with room for it.
    """
    return replace(route, tags=((OWNER_KEY, owner), *route.tags))


def split_owner(tags: TagList) -> tuple[str | None, TagList]:
    """Return the owner in the tags of a ROUTE_ADD, `None` if it is not told, and the other tags."""
    if tags and tags[0][0] == OWNER_KEY:
        return tags[0][1] or NO_OWNER, tags[1:]
    return None, tags
