"""Brokers that know each other's routes, without I/O.

```python
log = RouteLog(home, instance)
log.add(RouteAdd(home, route_id, timestamp, "orders", tags))
feed = RouteFeed(log, Position.parse(request))
subscription.receive(Element.parse(feed.next(now)), now, clock)  # RoundBegan, RouteAdded, …
```
"""

from ._elements import (
    ELEMENT_HEADER_SIZE,
    LENGTH_SIZE,
    MAX_ELEMENT,
    BatchSize,
    Element,
    ElementKind,
    Position,
)
from ._errors import ClusterFrameError, ElementTooBig
from ._feed import RouteFeed, RouteFeedStatistics
from ._limits import ClusterLimits
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

__all__ = [
    "ELEMENT_HEADER_SIZE",
    "LENGTH_SIZE",
    "MAX_ELEMENT",
    "SUBSCRIPTION",
    "BatchSize",
    "CaughtUp",
    "ClusterFrameError",
    "ClusterLimits",
    "Element",
    "ElementKind",
    "ElementTooBig",
    "Position",
    "RoundBegan",
    "RoundEnded",
    "RouteAdded",
    "RouteFeed",
    "RouteFeedStatistics",
    "RouteLog",
    "RouteLogStatistics",
    "RouteRefused",
    "RouteRemoved",
    "RouteSubscription",
    "RouteSubscriptionStatistics",
    "SubscribeAgain",
    "SubscriptionEvent",
    "SubscriptionInput",
    "SubscriptionState",
]
