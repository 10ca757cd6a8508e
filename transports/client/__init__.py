"""A client of brokers: requesters, and destinations made of handlers."""

from ._client import Client, ClientStatistics, connect
from ._errors import RequestCanceled, RequestRejected
from ._options import ClientOptions

__all__ = [
    "Client",
    "ClientOptions",
    "ClientStatistics",
    "RequestCanceled",
    "RequestRejected",
    "connect",
]
