"""The broker: tag index, routes, forwarders, local services and management."""

from ._broker import Broker
from ._drain import DrainPart
from ._ends import DestinationEnd, RequesterEnd, StartEnd
from ._exchange import Exchange, MulticastExchange, MulticastRules, exchange_of
from ._management import MANAGEMENT_SERVICE
from ._multicast import Multicast
from ._options import (
    BrokerOptions,
    ChoiceOptions,
    DrainOptions,
    MulticastOptions,
    WaitingOptions,
)
from ._registration import Registration
from ._reports import BrokerStatistics, LimitUse, ReportedListener
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
from .local._service import Handling, Incoming
from .local._typed_handlers import TypedHandlers
from .table._events import BrokerEvent, EventKind, Events, Subscription
from .table._explain import Mismatch, Resolution
from .table._index import TagIndexWorker
from .table._peers import ZoneFollower
from .table._remote import AnyRoute, PeerRoutes, RemoteRoute
from .table._route import BrokerRoute, Destination, RouteStatistics, RouteWorker
from .table._selector import Ask, Selector

__all__ = [
    "MANAGEMENT_SERVICE",
    "Answer",
    "AnyRoute",
    "ApplicationError",
    "Ask",
    "Broker",
    "BrokerEvent",
    "BrokerOptions",
    "BrokerRoute",
    "BrokerStatistics",
    "ChoiceOptions",
    "Destination",
    "DestinationEnd",
    "DrainOptions",
    "DrainPart",
    "EventKind",
    "Events",
    "Exchange",
    "Handlers",
    "HandlersStatistics",
    "Handling",
    "Incoming",
    "Interaction",
    "LimitUse",
    "Mismatch",
    "Multicast",
    "MulticastExchange",
    "MulticastOptions",
    "MulticastRules",
    "PeerRoutes",
    "Registration",
    "RemoteRoute",
    "ReportedListener",
    "Request",
    "RequesterEnd",
    "Resolution",
    "RouteStatistics",
    "RouteWorker",
    "Selector",
    "ServiceWorker",
    "StartEnd",
    "Subscription",
    "TagIndexWorker",
    "TypedHandlers",
    "Unicast",
    "WaitingOptions",
    "ZoneFollower",
    "exchange_of",
    "route_of",
]
