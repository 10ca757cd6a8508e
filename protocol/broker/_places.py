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

__all__ = ["ADDED_ONCE", "NEVER_ADDED", "PartedTags", "TagPlaces"]

NEVER_ADDED: Final = -1
"""In place of `Postings.dropped`: no route has these tags yet."""
ADDED_ONCE: Final = -2
"""Likewise: one route has had them, and the postings are looked up with the second."""


class TagPlaces:
    """The postings of the tags that several routes share, so that they are looked up once.

    Args:
        tags: The tags, as `Postings.known` returns them; `OWN_ID` may be among them.

    Attributes:
        tags: As given.
        postings: Their postings, while each of them has one.
        service: That of the service.
        dropped: `Postings.dropped` as it was then: they are the right ones as long as it is that.
            Before, one of `NEVER_ADDED` and `ADDED_ONCE`.
    """

    __slots__ = ("dropped", "postings", "service", "tags")

    def __init__(self, tags: TagList) -> None:
        self.tags: Final = tags
        self.postings: tuple[Posting, ...] = ()
        self.service: Posting | None = None
        self.dropped = NEVER_ADDED


class PartedTags(Protocol):
    """A route with tags in two parts, of which each is also that of other routes.

    It is kept in place of the list of its tags, so that a route with a combination of tags that no
    other has needs no list of its own.
    """

    @property
    def kind(self) -> TagPlaces:
        """The first part."""
        ...

    @property
    def rest(self) -> TagPlaces:
        """The other part, which ends with `OWN_ID`."""
        ...


close_class(TagPlaces)
