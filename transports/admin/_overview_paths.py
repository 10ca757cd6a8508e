"""The paths of what is wrong, of the last five minutes, and of what a principal may do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ...actors.broker._management import broker_figures
from ...actors.monitoring import Monitor, Problem, Stage, WindowPoint
from ...actors.monitoring._window import INTERVAL
from ...actors.runtime._slices import in_slices
from ._messages import HttpRequest, HttpResponse, json_response
from ._paths import AdminPaths

__all__ = ["add_overview"]

_POINT = tuple(WindowPoint.__dataclass_fields__)


def add_overview(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the paths `/api/v1/problems`, `/overview` and `/self`."""
    node, broker = monitor.node, monitor.broker

    async def problems(_: HttpRequest) -> HttpResponse:
        async with paths.turn:
            found = await _problems(monitor)
        return json_response({"at": time.time(), "problems": found})

    async def overview(_: HttpRequest) -> HttpResponse:
        # Each looks at all connections: requests are relayed in between.
        async with paths.turn:
            found_problems = await _problems(monitor)
            figures = await in_slices(node.parts.workers.figures())
            listed = None if broker is None else await in_slices(broker_figures(broker))
        points = monitor.window.points()
        found: dict[str, Any] = {
            "at": time.time(),
            "problems": found_problems,
            "interval": INTERVAL,
            # By column: half the size of a row for each point.
            "points": {name: [getattr(each, name) for each in points] for name in _POINT},
            "node": {"workers": figures.worker_count, "messages": figures.handled},
            "broker": listed,
        }
        return json_response(found)

    async def self(request: HttpRequest) -> HttpResponse:
        principal = request.principal
        found: dict[str, Any] = {
            "node": node.name,
            "broker": broker is not None,
            "version": version("onward"),
            "started": monitor.began,
            "ready": all(each.passed for each in monitor.checks.run(Stage.READY)),
            "principal": None if principal is None else principal.name,
            "operate": request.operates,
            "operations": sorted(monitor.operations) if request.operates else [],
        }
        return json_response(found)

    for handler in (problems, overview, self):
        paths.add(f"/api/v1/{handler.__name__}", handler)


async def _problems(monitor: Monitor) -> list[Mapping[str, str]]:
    return [_row(each) for each in await monitor.window.problems()]


def _row(problem: Problem) -> Mapping[str, str]:
    return {
        "severity": problem.severity.value,
        "kind": problem.kind,
        "subject": problem.subject,
        "text": problem.text,
        "advice": problem.advice,
    }
