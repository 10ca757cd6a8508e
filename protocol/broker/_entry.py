"""What a routing table keeps of a route, and what it says of an update.

A table of a cluster has hundreds of thousands of routes, of a few hundred kinds: those of one
service with equal tags, connected to one broker, differ in their ids and times only. So what they
have in common is kept once, as a `RouteKind`, and a route's own RouteId tag is written when it is
asked for.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeVar

from .._closed import close_class
from ._ids import format_id
from ._index import TagIndex
from ._keys import Key, WellKnownKey
from ._owner import split_times, times_of
from ._places import TagPlaces
from ._postings import HOME_KEY
from ._route_add import RouteText
from ._tags import OWN_ID, OWN_KEY, Tag, TagList, normal_form

__all__ = [
    "MAX_KINDS",
    "Entry",
    "Expected",
    "RouteKind",
    "RouteKinds",
    "TargetEntry",
    "Update",
    "home_tag",
]

MAX_KINDS: Final = 4096
"""Most kinds of routes that are remembered, to be shared by further routes; then all are forgotten.
Kinds in use stay with their routes. The same goes for the other parts of tags in two parts."""
FIRST_SWEEP: Final = 256
"""Kinds of routes at which those of routes that have left are looked for, and forgotten; the next
time is when there are twice as many as were left."""

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE_NAME: Final = int(WellKnownKey.SERVICE_NAME)
_NO_TAG: Final = int(WellKnownKey.NO_TAG)
_BY_DEFAULT: Final = frozenset((_ROUTE_ID, _SERVICE_NAME, OWN_ID[0]))

Target = TypeVar("Target")


def home_tag(broker_id: bytes) -> Tag:
    """Return the tag by which the index finds the routes of a home broker.

    Neither a wire nor a text can name its key, and no route shows it.
    """
    return HOME_KEY, broker_id.hex()


class RouteKind(TagPlaces):
    """The properties that routes have in common.

    Attributes:
        broker_id: 16 bytes: the home broker, to which their destinations are connected.
        service_name: Their name.
        tags: Their tags in normal form, as the index has them: `OWN_ID` stands for the RouteId of
            each, and the last one is that of the home broker.
        shared: Whatever else the table's owner keeps for all of them; `None` until it does.
    """

    __slots__ = ("broker_id", "service_name", "shared")

    def __init__(self, broker_id: bytes, service_name: str, tags: TagList) -> None:
        super().__init__(tags)
        self.broker_id: Final = broker_id
        self.service_name: Final = service_name
        self.shared: Any = None

    @property
    def common(self) -> TagList:
        """The tags that all of them have, without a RouteId of their own."""
        return tuple([tag for tag in self.tags[:-1] if tag[0] != OWN_KEY])

    def tags_of(self, route_id: bytes) -> TagList:
        """Return the tags of one of them, the default tags included."""
        return tuple(
            [
                (_ROUTE_ID, format_id(route_id)) if tag[0] == OWN_KEY else tag
                for tag in self.tags[:-1]
            ]
        )


class RouteKinds:
    """The kinds of the routes of a table.

    Args:
        index: The index of the table, for the tags that it has already.
    """

    def __init__(self, index: TagIndex) -> None:
        self._index = index
        self._kinds: dict[tuple[bytes, str, TagList], RouteKind] = {}
        # The same by texts that routes share.
        self._of_texts: dict[tuple[bytes, RouteText], RouteKind] = {}
        self._rests: dict[TagList, TagPlaces] = {}
        # The same by list, as frames that were read in parts share it: a hash is of all its tags.
        self._same: dict[int, tuple[TagList, TagPlaces]] = {}
        self._sweep_at = min(FIRST_SWEEP, MAX_KINDS)

    def of_text(self, broker_id: bytes, text: RouteText, route_id: bytes) -> RouteKind:
        """Return the kind of a route by its name and tags, as `of` does."""
        key = broker_id, text
        kind = self._of_texts.get(key)
        if kind is None:
            kind = self.of(broker_id, text.service_name, text.tags, route_id)
            # What names ids in its own way may name that of one route among those with the text.
            own = text.tags and text.tags[-1][0] == OWN_KEY == kind.tags[-2][0]
            if own and _ROUTE_ID not in [tag[0] for tag in text.tags]:
                if len(self._of_texts) >= MAX_KINDS:
                    self._of_texts.clear()
                self._of_texts[key] = kind
        return kind

    def of(self, broker_id: bytes, service_name: str, tags: TagList, route_id: bytes) -> RouteKind:
        """Return the kind of a route.

        Args:
            broker_id: Its home broker.
            service_name: Its name.
            tags: The tags it came with; ServiceName and RouteId are added if absent.
            route_id: Its id.
        """
        # A broker adds the RouteId behind all others.
        last = tags[-1] if tags else None
        if last is None or last[0] != OWN_KEY:
            if last == (_ROUTE_ID, format_id(route_id)):
                tags = (*tags[:-1], OWN_ID)
            elif not any(tag[0] == _ROUTE_ID for tag in tags):
                # Default Tags: "Each routable destination MUST have two tags automatically added
                # its ROUTE_ADD frame by the Broker if they are not already present."
                tags = (*tags, OWN_ID)
        key = broker_id, service_name, tags
        kind = self._kinds.get(key)
        if kind is None:
            kind = RouteKind(broker_id, service_name, self._indexed(key, route_id))
            # What names ids in its own way is not of a kind with others.
            if _ROUTE_ID not in [tag[0] for tag in tags]:
                if len(self._kinds) >= self._sweep_at:
                    self._sweep()
                self._kinds[key] = kind
        return kind

    def _sweep(self) -> None:
        """Forget the kinds with a tag that no route carries any more; at the limit perhaps all."""
        # New dictionaries would need the hash of each key that stays.
        for key in [key for key, kind in self._kinds.items() if not self._carried(kind)]:
            del self._kinds[key]
        for text in [text for text, kind in self._of_texts.items() if not self._carried(kind)]:
            del self._of_texts[text]
        if self._sweep_at >= MAX_KINDS and len(self._kinds) > MAX_KINDS // 2:
            self._kinds.clear()  # not once for each further kind
        self._sweep_at = min(max(FIRST_SWEEP, 2 * len(self._kinds)), MAX_KINDS)

    def _carried(self, kind: RouteKind) -> bool:
        """Whether there is a route with each tag of a kind."""
        index = self._index
        return kind.dropped == index.dropped or index.carries(kind.tags)

    def of_service(self, broker_id: bytes, service_name: str) -> RouteKind:
        """Return a new kind with the first part of the tags of a service's routes: its name."""
        tags = self._index.known(((_SERVICE_NAME, service_name), home_tag(broker_id)))
        return RouteKind(broker_id, service_name, tags)

    def rest_of(self, tags: TagList) -> TagPlaces:
        """Return the other part of a route's tags; ServiceName and RouteId are left out of them."""
        same = self._same.get(id(tags))
        if same is not None and same[0] is tags:
            return same[1]
        found = self._rests.get(tags)
        if found is None:
            others = [tag for tag in normal_form(tags) if tag[0] not in _BY_DEFAULT]
            found = TagPlaces(self._index.known((*others, OWN_ID)))
            if len(self._rests) >= MAX_KINDS:
                self._rests.clear()
            self._rests[tags] = found
        if len(self._same) >= MAX_KINDS:
            self._same.clear()
        self._same[id(tags)] = tags, found
        return found

    def _indexed(self, key: tuple[bytes, str, TagList], route_id: bytes) -> TagList:
        broker_id, service_name, given = key
        keys = [tag[0] for tag in given]
        if _is_usual(keys) and len(set(given)) == len(given):
            return self._index.known((*given, home_tag(broker_id)))
        tags: dict[Tag, None] = {}
        named = False
        for tag in normal_form(given):
            if tag[0] == _ROUTE_ID and tag[1] == format_id(route_id):
                tags[OWN_ID] = None
            else:
                named = named or tag[0] == _SERVICE_NAME
                tags[tag] = None
        if not named:
            # Default Tags: "These tags will be automatically added so that each tag can be routed
            # to via ServiceName or RouteId."
            last = tags.popitem()[0] if tags and next(reversed(tags)) == OWN_ID else None
            tags[_SERVICE_NAME, service_name] = None
            if last is not None:
                tags[last] = None
        return self._index.known((*tags, home_tag(broker_id)))


def _is_usual(keys: list[Key]) -> bool:
    """Whether tags with some keys are in normal form, with default tags, if none is there twice.

    Brokers tell them so: with the RouteId behind all others.
    """
    return (
        bool(keys)
        and keys[-1] == OWN_KEY
        and _SERVICE_NAME in keys
        and _ROUTE_ID not in keys
        and _NO_TAG not in keys
    )


class Entry(Generic[Target]):
    """One registration of a route. Two registrations are never equal.

    A table may have so many that one object for each has to do: then the target is the entry
    itself, of a class that extends this one.

    Attributes:
        route_id: 16 bytes.
        kind: What it has in common with others: home broker, name and tags.
        times: Its timestamp, and since when its owner has had the route id; see `times_of`. It is
            inverted, and so negative, while another entry has its place, and once it is gone.
    """

    __slots__ = ("kind", "route_id", "times")

    def __init__(self, route_id: bytes, kind: RouteKind, timestamp: int) -> None:
        self.route_id: Final = route_id
        self.kind: Final = kind
        self.times = timestamp

    @property
    def timestamp(self) -> int:
        """Time of the registration, in milliseconds since the Unix epoch."""
        return split_times(self.times)[0]

    @property
    def owned_since(self) -> int:
        """Since when its owner has had the route id, likewise; 0 for the timestamp."""
        return split_times(self.times)[1]

    def own_since(self, since: int) -> None:
        """Set since when its owner has had the route id, as `bounded_since` bounds it."""
        times = times_of(self.timestamp, since)
        self.times = times if self.times >= 0 else ~times

    def set_shown(self, *, shown: bool) -> None:
        """Set whether it is in the index, and no other entry has its place."""
        if (self.times >= 0) != shown:
            self.times = ~self.times

    @property
    def target(self) -> Target:
        """The value by which the owner of the table reaches the destination."""
        raise NotImplementedError

    @property
    def rest(self) -> TagPlaces | None:
        """The tags that are not those of its kind; `None` if those are all."""
        return None

    @property
    def broker_id(self) -> bytes:
        """16 bytes: the home broker, to which the destination is connected."""
        return self.kind.broker_id

    @property
    def service_name(self) -> str:
        """The route's name."""
        return self.kind.service_name

    @property
    def tags(self) -> TagList:
        """Its tags in normal form, the default tags included."""
        return self.kind.tags_of(self.route_id)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Its place among the entries of other home brokers for its route id: the largest wins."""
        return self.timestamp, self.kind.broker_id


class TargetEntry(Entry[Target]):
    """An entry with a target beside it."""

    __slots__ = ("target",)

    # The member descriptor of the slot takes the place of the property.
    target: Target

    def __init__(self, route_id: bytes, kind: RouteKind, timestamp: int, target: Target) -> None:
        super().__init__(route_id, kind, timestamp)
        self.target = target  # pyright: ignore[reportIncompatibleMethodOverride]


class Expected:
    """A route that is known of and not there yet: nothing is routed to it.

    Attributes:
        route_id: 16 bytes.
        broker_id: 16 bytes: the broker it was connected to.
        kind: What it has in common with others.
        timestamp: Time of the registration, in milliseconds since the Unix epoch.
        weight: Its share of the requests where a method goes by weight.
    """

    __slots__ = ("broker_id", "kind", "route_id", "timestamp", "weight")

    def __init__(
        self, route_id: bytes, broker_id: bytes, kind: RouteKind, timestamp: int, weight: float
    ) -> None:
        self.route_id: Final = route_id
        self.broker_id: Final = broker_id
        self.kind: Final = kind
        self.timestamp: Final = timestamp
        self.weight: Final = weight

    @property
    def rest(self) -> TagPlaces | None:
        """As of an entry."""
        return None

    @property
    def service_name(self) -> str:
        """The route's name."""
        return self.kind.service_name

    @property
    def tags(self) -> TagList:
        """Its tags in normal form, the default tags included."""
        return self.kind.tags_of(self.route_id)


class Update(NamedTuple, Generic[Target]):
    """The result of an update.

    Attributes:
        applied: Whether it changed the table; if not, it was not newer than what the
            table knows.
        entry: The route's entry now; `None` if it has none.
        previous: The entry of the same home broker that an applied update replaced or removed, if
            there was one.
        other: The entry of another home broker that an applied update hid, as `entry` is shown in
            its place; or, if it removed the one that had hidden it, showed: then it is `entry`.
    """

    applied: bool
    entry: Entry[Target] | None
    previous: Entry[Target] | None
    other: Entry[Target] | None = None


close_class(Entry)
close_class(Expected)
close_class(RouteKind)
close_class(TargetEntry)
