"""Brokers that know each other's routes, without I/O.

```python
log = RouteLog(home, instance)
log.add(RouteAdd(home, route_id, timestamp, "orders", tags))
feed = RouteFeed(log, Position.parse(request))
subscription.receive(Element.parse(feed.next(now)), now, clock)  # RoundBegan, RouteAdded, …
```
"""

from ._duplicates import (
    AskLater,
    Beaten,
    DuplicateRequest,
    DuplicateSearch,
    DuplicateSearchStatistics,
    Earlier,
)
from ._elements import (
    ELEMENT_HEADER_SIZE,
    LENGTH_SIZE,
    MAX_ELEMENT,
    MIN_BATCH,
    BatchSize,
    Element,
    ElementKind,
    Position,
)
from ._errors import ClusterFrameError, ElementTooBig
from ._feed import RouteFeed, RouteFeedStatistics
from ._filter_feed import FilterFeed
from ._filter_log import FILTER_ROUTE, FilterLog, FilterLogStatistics
from ._groups import (
    FOLDED_KEY,
    GROUPS_ROUTE,
    RouteGroups,
    RouteGroupsStatistics,
    group_id,
)
from ._info import (
    BROKER_INFO_ROUTE,
    BROKERS_ROUTE,
    CLIENTS_SERVICE,
    CLUSTER_VERSION,
    DRAINING,
    OWNERS,
    REMOTE_BROKER_INFO_ROUTE,
    ROUTES_ROUTE,
    UP,
    PeerInfo,
    parse_infos,
    serialize_infos,
)
from ._java import (
    ROUTE_JOIN_ROUTE,
    java_info,
    java_places,
    java_route,
    parse_java_route,
    with_seed_uri,
)
from ._limits import ClusterLimits
from ._links import LinkRefusal, LinkRefused, LinkRole
from ._membership import Membership
from ._membership_tasks import (
    Compare,
    Dial,
    KnownBroker,
    Linked,
    MembershipStatistics,
    MembershipTask,
    Tell,
)
from ._ownership import (
    SUSPENDED_SERVICE,
    RoutePlace,
    SuspendedPlaces,
    inherited,
    is_foreign,
    may_take,
    standing,
    suspended_place,
    zone_ids,
)
from ._places import (
    MAX_PLACES,
    OWNER_SALT_SIZE,
    OWNERS_ROUTE,
    PLACES_ROUTE,
    OwnedPlace,
    answer_owned_places,
    answer_places,
    parse_owned_places,
    parse_places,
    salted_owner,
)
from ._presence import Presence, PresenceAction, PresenceActions
from ._presence_states import PRESENCE, PresenceInput, PresenceState
from ._route_filter import FILTER_SALT_SIZE, FilterSize, RouteFilter
from ._route_log import RouteLog, RouteLogStatistics
from ._subscription import (
    CaughtUp,
    RoundBegan,
    RoundEnded,
    RouteAdded,
    RouteRefused,
    RouteRemoved,
    RouteSubscription,
    RouteSubscriptionStatistics,
    SubscribeAgain,
    SubscriptionEvent,
)
from ._subscription_states import SUBSCRIPTION, SubscriptionInput, SubscriptionState
from ._zone_filter import FilterNews, ZoneFilter, ZoneFilterStatistics

__all__ = [
    "BROKERS_ROUTE",
    "BROKER_INFO_ROUTE",
    "CLIENTS_SERVICE",
    "CLUSTER_VERSION",
    "DRAINING",
    "ELEMENT_HEADER_SIZE",
    "FILTER_ROUTE",
    "FILTER_SALT_SIZE",
    "FOLDED_KEY",
    "GROUPS_ROUTE",
    "LENGTH_SIZE",
    "MAX_ELEMENT",
    "MAX_PLACES",
    "MIN_BATCH",
    "OWNERS",
    "OWNERS_ROUTE",
    "OWNER_SALT_SIZE",
    "PLACES_ROUTE",
    "PRESENCE",
    "REMOTE_BROKER_INFO_ROUTE",
    "ROUTES_ROUTE",
    "ROUTE_JOIN_ROUTE",
    "SUBSCRIPTION",
    "SUSPENDED_SERVICE",
    "UP",
    "AskLater",
    "BatchSize",
    "Beaten",
    "CaughtUp",
    "ClusterFrameError",
    "ClusterLimits",
    "Compare",
    "Dial",
    "DuplicateRequest",
    "DuplicateSearch",
    "DuplicateSearchStatistics",
    "Earlier",
    "Element",
    "ElementKind",
    "ElementTooBig",
    "FilterFeed",
    "FilterLog",
    "FilterLogStatistics",
    "FilterNews",
    "FilterSize",
    "KnownBroker",
    "LinkRefusal",
    "LinkRefused",
    "LinkRole",
    "Linked",
    "Membership",
    "MembershipStatistics",
    "MembershipTask",
    "OwnedPlace",
    "PeerInfo",
    "Position",
    "Presence",
    "PresenceAction",
    "PresenceActions",
    "PresenceInput",
    "PresenceState",
    "RoundBegan",
    "RoundEnded",
    "RouteAdded",
    "RouteFeed",
    "RouteFeedStatistics",
    "RouteFilter",
    "RouteGroups",
    "RouteGroupsStatistics",
    "RouteLog",
    "RouteLogStatistics",
    "RoutePlace",
    "RouteRefused",
    "RouteRemoved",
    "RouteSubscription",
    "RouteSubscriptionStatistics",
    "SubscribeAgain",
    "SubscriptionEvent",
    "SubscriptionInput",
    "SubscriptionState",
    "SuspendedPlaces",
    "Tell",
    "ZoneFilter",
    "ZoneFilterStatistics",
    "answer_owned_places",
    "answer_places",
    "group_id",
    "inherited",
    "is_foreign",
    "java_info",
    "java_places",
    "java_route",
    "may_take",
    "parse_infos",
    "parse_java_route",
    "parse_owned_places",
    "parse_places",
    "salted_owner",
    "serialize_infos",
    "standing",
    "suspended_place",
    "with_seed_uri",
    "zone_ids",
]
