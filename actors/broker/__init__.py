"""The broker's workers: tag index, routes, forwarder, and the broker that holds them."""

from ._broker import Broker, BrokerStatistics, Registration
from ._exchange import Exchange, exchange_of
from ._index import TagIndexWorker
from ._management import MANAGEMENT_SERVICE, Management
from ._options import BrokerOptions
from ._route import BrokerRoute, Destination, RouteStatistics, RouteWorker
from ._selector import Ask, Selector
from ._unicast import Unicast

__all__ = [
    "MANAGEMENT_SERVICE",
    "Ask",
    "Broker",
    "BrokerOptions",
    "BrokerRoute",
    "BrokerStatistics",
    "Destination",
    "Exchange",
    "Management",
    "Registration",
    "RouteStatistics",
    "RouteWorker",
    "Selector",
    "TagIndexWorker",
    "Unicast",
    "exchange_of",
]
