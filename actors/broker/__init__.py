"""The broker: tag index, routes, forwarders, local services and management."""

from ._broker import Broker, Registration
from ._exchange import Exchange, MergeRules, Merging, exchange_of
from ._management import MANAGEMENT_SERVICE
from ._multicast import Multicast
from ._options import BrokerOptions, ChoiceOptions, MulticastOptions, WaitingOptions
from ._reports import BrokerStatistics
from ._unicast import Unicast
from .local._handlers import (
    Answer,
    ApplicationError,
    Handlers,
    HandlersStatistics,
    Interaction,
    Request,
    route_of,
)
from .local._served import ServiceWorker
from .local._service import Handling, Incoming, Outlet
from .local._typed_handlers import TypedHandlers
from .table._events import BrokerEvent, EventKind, Events, Subscription
from .table._explain import Mismatch, Resolution
from .table._index import TagIndexWorker
from .table._route import BrokerRoute, Destination, RouteStatistics, RouteWorker
from .table._selector import Ask, Selector

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
    "ChoiceOptions",
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
    "MulticastOptions",
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
    "TypedHandlers",
    "Unicast",
    "WaitingOptions",
    "exchange_of",
    "route_of",
]
