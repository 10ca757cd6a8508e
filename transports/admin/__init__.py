"""The admin interface: an HTTP server for health, metrics, and a view of a broker.

It needs the extra `admin`. [`AdminServer`][onward.transports.admin.AdminServer] is a worker that
listens; [`AdminPaths`][onward.transports.admin.AdminPaths] has its handlers.
"""

from ._asked import answer_paths
from ._guard import Permits
from ._interface import admin_paths
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._options import AdminOptions, AdminStatistics
from ._paths import AdminPaths, Handler, Needs
from ._server import AdminServer

__all__ = [
    "AdminOptions",
    "AdminPaths",
    "AdminServer",
    "AdminStatistics",
    "Handler",
    "HttpError",
    "HttpRequest",
    "HttpResponse",
    "Needs",
    "Permits",
    "admin_paths",
    "answer_paths",
    "json_response",
    "text_response",
]
