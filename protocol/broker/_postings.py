"""The postings of the tag index: the numbers of the routes that carry a tag.

One posting for each tag that any route carries: the dense numbers of its routes, as a roaring
bitmap. Most tags of a big table are carried by one route only (every route has a RouteId), and for
those the number itself is the posting, at a tenth of a bitmap's memory. No empty posting is ever
kept, and the numbers of removed routes are used again.

Nearly every query names a service, so the routes of a service get numbers side by side, in
blocks that grow with the service. Its bitmap then has few of the containers, of 65,536 numbers
each, that the table's numbers are spread over, and an AND with it visits no others. Blocks have
room for further routes of their service: a third of the numbers, at most, have no route yet.

A RouteId that is the route's own needs no posting: it leads to the number by a dictionary of ids.
In a list of tags `OWN_ID` stands for it, so that routes with equal tags share one list.
"""

from __future__ import annotations

from typing import Any, Final

from pyroaring import BitMap

from .._errors import AddressError
from ._answers import KeptAnswers, Matches
from ._ids import format_id, parse_id
from ._keys import WellKnownKey
from ._places import IndexedRoute, TagPlaces, tags_of
from ._tags import OWN_KEY, Tag, TagList

__all__ = ["HOME_KEY", "Posting", "Postings"]

_MAX_BLOCK: Final = 4096
"""Most numbers in a block: a sixteenth of a container, so that few blocks are in two."""

HOME_KEY: Final = -1
"""The key of the tag that says to which broker a route is connected. No wire has it, and `tags`
leaves it out."""

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)


class Posting:
    """The routes of a tag that more than one route carries, or has carried.

    Attributes:
        tag: The tag.
        numbers: The numbers of the routes.
        size: How many there are. A bitmap has to visit all its containers to count them.
        free: Numbers for further routes of the tag, if it is a service: those of routes that have
            left. With those of the block, there are at most `size`.
        next: The first number of its block that no route has had; the block ends before `end`.
        end: See `next`.
    """

    __slots__ = ("end", "free", "next", "numbers", "size", "tag")

    def __init__(self, tag: Tag, first: int, second: int) -> None:
        self.tag: Final = tag
        self.numbers: Final = BitMap((first, second))
        self.size = 2
        self.free: list[int] | None = None
        self.next = self.end = 0

    @property
    def spare(self) -> int:
        """How many numbers it has for further routes."""
        return self.end - self.next + len(self.free or ())


class Postings:
    """The numbers of routes, and the postings of their tags.

    Attributes:
        ids: The numbers of the routes that were added with an id, for reading only.
        routes: The routes by number, as they were added, `None` where there is none; for reading
            only.
        dropped: How many postings have been dropped as no route was left.

    Args:
        kept: The answers, of which a change drops those that are no longer valid.
    """

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept
        self._watched = kept.watched
        self._postings: dict[Tag, int | Posting] = {}
        self.ids: Final[dict[bytes, int]] = {}
        self.routes: Final[list[Any]] = []
        self._named: int = 0  # routes with `OWN_ID`
        self._unnamed: set[int] = set()  # routes with an id and without `OWN_ID`
        self._homes = 0  # postings of home brokers
        self._free: list[int] = []  # of no service
        self.dropped = 0

    def known(self, tags: TagList) -> TagList:
        """Return equal tags, made of the objects that the index has already.

        A tag object is kept once then, however many routes carry an equal one.

        Args:
            tags: Tags in normal form; `OWN_ID` may be among them, and one of a home broker.
        """
        found: list[Tag] = []
        for tag in tags:
            posting = self._postings.get(tag)
            if isinstance(posting, Posting):
                found.append(posting.tag)
            elif posting is None:
                found.append(tag)
            else:
                found.append(next(each for each in self._indexed(posting) if each == tag))
        return tuple(found)

    def carries(self, tags: TagList) -> bool:
        """Whether there is a route with each of some tags; it need not be the same for all."""
        postings = self._postings
        return all(tag[0] == OWN_KEY or tag in postings for tag in tags)

    def numbers_of(self, tag: Tag) -> Matches:
        """Return the numbers of the routes that carry a tag, hidden ones too.

        It is no copy: it has the changes to come as well.
        """
        posting = self._posting_of(tag)
        if posting is None:
            return BitMap()
        return BitMap((posting,)) if isinstance(posting, int) else posting.numbers

    def _indexed(self, number: int) -> TagList:
        """Return a route's tags as they were added.

        Raises:
            KeyError: There is no such route.
        """
        return tags_of(self._route_at(number))

    def _route_at(self, number: int) -> IndexedRoute:
        """Return a route as it was added.

        Raises:
            KeyError: There is no such route.
        """
        route: IndexedRoute | None = self.routes[number] if 0 <= number < len(self.routes) else None
        if route is None:
            raise KeyError(number)
        return route

    def _carried(self, number: int) -> TagList:
        """Return all tags by which a route is found.

        Raises:
            KeyError: There is no such route.
        """
        route = self._route_at(number)
        tags, route_id = tags_of(route), route.route_id
        if not route_id:
            return tags
        own = (_ROUTE_ID, format_id(route_id))
        return tuple([own if tag[0] == OWN_KEY else tag for tag in tags])

    def _service_of(self, tags: TagList) -> Posting | None:
        """Return the posting of the service that tags name, if it has had two routes at once."""
        for tag in tags:
            if tag[0] == _SERVICE:
                posting = self._postings.get(tag)
                return None if isinstance(posting, int) else posting
        return None

    def _take_number(self, service: Posting | None) -> int:
        """Return a number for a new route: close to those of its service, if one is free there."""
        if service is not None:
            if service.free:
                return service.free.pop()
            if service.next < service.end:
                service.next += 1
                return service.next - 1
        if self._free:
            return self._free.pop()
        first = len(self.routes)
        end = first + 1
        if service is not None:
            end = first + max(1, min(service.size // 2, _MAX_BLOCK))
            service.next, service.end = first + 1, end
        self.routes.extend([None] * (end - first))
        return first

    def _find_places(self, places: TagPlaces, *, whole: bool) -> bool:
        """Look the postings of shared tags up; return whether each tag has one by now.

        Args:
            places: The tags, and the place of what is found.
            whole: Whether they are all tags of a route: then `OWN_ID` has to be among them.
        """
        get = self._postings.get
        found: list[Posting] = []
        service: Posting | None = None
        for tag in places.tags:
            key = tag[0]
            if key == OWN_KEY:
                whole = False
                continue
            posting = get(tag)
            if not isinstance(posting, Posting):
                return False
            found.append(posting)
            if key == _SERVICE and service is None:
                service = posting
        if whole:
            return False
        places.postings, places.service = tuple(found), service
        places.dropped = self.dropped
        return True

    def _link(self, number: int, tags: TagList, route_id: bytes) -> None:
        """Add a number to the postings of tags, and make those that there are not."""
        postings = self._postings
        unnamed = bool(route_id)
        for tag in tags:
            posting = postings.get(tag)
            if isinstance(posting, Posting):
                posting.numbers.add(number)
                posting.size += 1
            elif tag[0] == OWN_KEY:
                self._named += 1
                unnamed = False
            elif posting is None:
                postings[tag] = number
                self._homes += tag[0] == HOME_KEY
            else:
                postings[tag] = Posting(tag, posting, number)
        if unnamed:
            self._unnamed.add(number)

    def _unlink(self, number: int) -> None:
        postings = self._postings
        tags = self._indexed(number)
        if self._watched:
            self._kept.changed(self._carried(number))
        if self._unnamed:
            self._unnamed.discard(number)
        for tag in tags:
            if tag[0] == OWN_KEY:
                self._named -= 1
                continue
            posting = postings[tag]
            if not isinstance(posting, int):
                posting.numbers.discard(number)
                posting.size -= 1
                if posting.spare > posting.size:
                    if posting.free:
                        self._free.append(posting.free.pop())
                    else:
                        posting.end -= 1
                        self._free.append(posting.end)
                if posting.size:
                    continue
                self.dropped += 1
            del postings[tag]
            self._homes -= tag[0] == HOME_KEY

    def _posting_of(self, tag: Tag) -> int | Posting | None:
        """Return the posting of a tag; for a RouteId one that has the route of that id as well."""
        posting, own = self._postings.get(tag), self._own_number(tag)
        if not own:
            return posting
        if posting is None:
            return own[0]
        # Others claim the id of that route.
        found = Posting(tag, own[0], own[0])
        found.numbers.update((posting,) if isinstance(posting, int) else posting.numbers)
        found.size = len(found.numbers)
        return found

    def _own_number(self, tag: Tag) -> tuple[int, ...]:
        """Return the number of the route that has a RouteId for its own, or none.

        It takes as many steps either way.
        """
        if tag[0] != _ROUTE_ID or tag[1] is None:
            return ()
        try:
            number = self.ids.get(parse_id(tag[1]), -1)
        except AddressError:
            return ()
        return () if number < 0 or number in self._unnamed else (number,)
