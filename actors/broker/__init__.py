"""The broker's workers: tag index, routes, forwarder, and the broker that holds them."""

from ._broker import Broker, Registration
from ._events import BrokerEvent, EventKind, Events, Subscription
from ._exchange import Exchange, MergeRules, Merging, exchange_of
from ._explain import Mismatch, Resolution
from ._handlers import (
    Answer,
    ApplicationError,
    Handlers,
    HandlersStatistics,
    Interaction,
    Request,
    route_of,
)
from ._index import TagIndexWorker
from ._management import MANAGEMENT_SERVICE
from ._multicast import Multicast
from ._options import BrokerOptions
from ._reports import BrokerStatistics
from ._route import BrokerRoute, Destination, RouteStatistics, RouteWorker
from ._selector import Ask, Selector
from ._served import ServiceWorker
from ._service import Handling, Incoming, Outlet
from ._unicast import Unicast

__all__ = [
    "MANAGEMENT_SERVICE",
    "Answer",
    "ApplicationError",
    "Ask",
    "Broker",
    "BrokerEvent",
    "BrokerOptions",
    "BrokerRoute",
    "BrokerStatistics",
    "Destination",
    "EventKind",
    "Events",
    "Exchange",
    "Handlers",
    "HandlersStatistics",
    "Handling",
    "Incoming",
    "Interaction",
    "MergeRules",
    "Merging",
    "Mismatch",
    "Multicast",
    "Outlet",
    "Registration",
    "Request",
    "Resolution",
    "RouteStatistics",
    "RouteWorker",
    "Selector",
    "ServiceWorker",
    "Subscription",
    "TagIndexWorker",
    "Unicast",
    "exchange_of",
    "route_of",
]
