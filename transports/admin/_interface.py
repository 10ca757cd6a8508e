"""All paths of the admin interface of a node."""

from __future__ import annotations

import uuid
from typing import Final

from ...actors.broker.table._table_text import event_of
from ...actors.monitoring import Monitor
from ._api import add_api
from ._console_paths import add_console
from ._debug_paths import add_debug
from ._event_paths import add_events
from ._health_paths import add_health, add_metrics
from ._operate_paths import add_operations
from ._options import AdminOptions
from ._overview_paths import add_overview
from ._paths import AdminPaths
from ._topology_paths import add_topology
from ._trace_paths import add_trace

__all__ = ["admin_paths"]

_OPTIONS: Final = AdminOptions()


def admin_paths(monitor: Monitor, options: AdminOptions = _OPTIONS) -> AdminPaths:
    """Return the paths of the admin interface.

    Args:
        monitor: The monitor of the node, which has been started.
        options: The options of the server.
    """
    paths = AdminPaths()
    add_health(paths, monitor)
    add_metrics(paths, monitor)
    add_api(paths, monitor)
    add_overview(paths, monitor)
    add_topology(paths, monitor)
    if monitor.events is not None:
        add_events(paths, monitor.events, event_of, uuid.uuid4().hex[:8], options)
    add_operations(paths, monitor)
    add_console(paths)
    add_trace(paths, monitor.node)
    add_debug(paths, monitor)
    return paths
