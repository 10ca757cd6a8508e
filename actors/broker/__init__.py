"""The broker's workers: tag index, routes, forwarder, and the broker that holds them."""

from ._broker import Broker, BrokerStatistics, Registration
from ._exchange import Exchange, exchange_of
from ._index import TagIndex
from ._management import MANAGEMENT_SERVICE, Management
from ._options import BrokerOptions
from ._route import Destination, Route, RouteStatistics, RouteWorker
from ._unicast import Unicast

__all__ = [
    "MANAGEMENT_SERVICE",
    "Broker",
    "BrokerOptions",
    "BrokerStatistics",
    "Destination",
    "Exchange",
    "Management",
    "Registration",
    "Route",
    "RouteStatistics",
    "RouteWorker",
    "TagIndex",
    "Unicast",
    "exchange_of",
]
