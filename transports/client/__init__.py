"""A client of the broker in Python: destinations that serve with handlers, and requesters."""

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
