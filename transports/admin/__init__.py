"""The admin interface: an HTTP server for health, metrics, and a view of a broker.

It needs the extra `admin`. [`AdminServer`][onward.transports.admin.AdminServer] is a worker that
listens; [`AdminPaths`][onward.transports.admin.AdminPaths] has its handlers.
"""

from ._asked import AskWhole, answer_paths, asked
from ._guard import Permits
from ._interface import admin_paths
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._options import AdminOptions, AdminStatistics
from ._part_paths import part_paths
from ._parts import Parts
from ._paths import AdminPaths, Handler, Needs
from ._questions import QuestionLimits, Questions
from ._server import AdminServer
from ._whole import Whole, inner_paths, whole_paths

__all__ = [
    "AdminOptions",
    "AdminPaths",
    "AdminServer",
    "AdminStatistics",
    "AskWhole",
    "Handler",
    "HttpError",
    "HttpRequest",
    "HttpResponse",
    "Needs",
    "Parts",
    "Permits",
    "QuestionLimits",
    "Questions",
    "Whole",
    "admin_paths",
    "answer_paths",
    "asked",
    "inner_paths",
    "json_response",
    "part_paths",
    "text_response",
    "whole_paths",
]
