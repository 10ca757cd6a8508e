"""The tags that several routes have in common, and where the index has them.

This module is compiled, and the postings are not: a compiled object makes a new tuple of a tag at
each reading, and the index keeps each tag once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from .._closed import close_class
from ._tags import TagList

if TYPE_CHECKING:
    from ._postings import Posting

__all__ = ["NOT_FOUND", "IndexedRoute", "TagPlaces", "tags_of"]

NOT_FOUND: Final = -1
"""In place of `Postings.dropped`: the postings have not been looked up, or there is not one of each
tag."""


class TagPlaces:
    """The postings of the tags that several routes share, so that they are looked up once.

    Args:
        tags: The tags, as `Postings.known` returns them; `OWN_ID` may be among them.

    Attributes:
        tags: As given.
        postings: Their postings, while each of them has one.
        service: That of the service.
        dropped: `Postings.dropped` as it was then: they are the right ones as long as it is that.
            Before, `NOT_FOUND`.
    """

    __slots__ = ("dropped", "postings", "service", "tags")

    def __init__(self, tags: TagList) -> None:
        self.tags: Final = tags
        self.postings: tuple[Posting, ...] = ()
        self.service: Posting | None = None
        self.dropped = NOT_FOUND


class IndexedRoute(Protocol):
    """A route in the index, which keeps nothing of it beside.

    Its tags may be in two parts, of which each is also that of other routes: then a route with a
    combination of tags that no other has needs no list of its own.
    """

    @property
    def route_id(self) -> bytes:
        """Its id, for which `OWN_ID` stands, 16 bytes; no other route has it.

        Empty: the route has no id, and `OWN_ID` is not among its tags.
        """
        ...

    @property
    def kind(self) -> TagPlaces:
        """Its tags, or the first part of them."""
        ...

    @property
    def rest(self) -> TagPlaces | None:
        """The other part, which ends with `OWN_ID`; `None` without one."""
        ...


def tags_of(route: IndexedRoute) -> TagList:
    """Return the tags of a route, with `OWN_ID` for its own."""
    rest = route.rest
    return route.kind.tags if rest is None else (*route.kind.tags, *rest.tags)


close_class(TagPlaces)
