"""A client of brokers: requesters, and destinations made of handlers; asynchronous or blocking."""

from ._background import BackgroundClient, BlockingElements
from ._client import Client, ClientStatistics, connect
from ._errors import CredentialsRefused, RequestCanceled, RequestRejected
from ._options import (
    BrokersOptions,
    ClientOptions,
    KeepaliveOptions,
    LoadOptions,
    PayloadOptions,
    RetryOptions,
)

__all__ = [
    "BackgroundClient",
    "BlockingElements",
    "BrokersOptions",
    "Client",
    "ClientOptions",
    "ClientStatistics",
    "CredentialsRefused",
    "KeepaliveOptions",
    "LoadOptions",
    "PayloadOptions",
    "RequestCanceled",
    "RequestRejected",
    "RetryOptions",
    "connect",
]
