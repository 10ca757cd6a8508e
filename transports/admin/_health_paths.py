"""The paths of health checks and of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from itertools import chain
from typing import Final

from ...actors.monitoring import Monitor, Stage
from ...protocol.metrics import Metric, metrics_text, text_format
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._paths import METRICS, AdminPaths, Handler

__all__ = ["STAGES", "add_health", "add_metrics", "in_turns", "of_service", "wanted_families"]

STAGES: Final = {
    "/livez": Stage.LIVE,
    "/readyz": Stage.READY,
    "/healthz": Stage.READY,
    "/startupz": Stage.STARTED,
}


def add_health(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the paths of the health checks, which need no authentication."""
    for path, stage in STAGES.items():
        paths.add(path, _checked(monitor, stage), needs="nothing")


def _checked(monitor: Monitor, stage: Stage) -> Handler:
    async def handle(request: HttpRequest) -> HttpResponse:
        results = monitor.checks.run(stage)
        passed = all(each.passed for each in results)
        status = HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE
        if "verbose" not in dict(request.fields()):
            return text_response("ok" if passed else f"not {stage.value}", status)
        # The text of a plug-in's check may show what is inside; a probe needs none.
        texts = await request.reads()
        checks = [
            {
                "name": each.name,
                "passed": each.passed,
                **({"problem": each.problem} if texts else {}),
            }
            for each in results
        ]
        return json_response({"stage": stage.value, "passed": passed, "checks": checks}, status)

    return handle


def add_metrics(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the path of the metrics."""
    known = frozenset((*monitor.metrics.families, *monitor.services.families))

    async def handle(request: HttpRequest) -> HttpResponse:
        names, service = wanted_families(request, known)
        wanted = text_format(request.headers.get("accept", ""))
        metrics = monitor.metrics.collect(names)
        if names is not None:
            metrics = chain(metrics, monitor.services.collect(names))
        if service is not None:
            metrics = map(of_service(service), metrics)
        return HttpResponse(in_turns(metrics_text(metrics, wanted)), wanted.value)

    paths.add(METRICS, handle)


def wanted_families(
    request: HttpRequest, known: frozenset[str]
) -> tuple[frozenset[str] | None, str | None]:
    """Return the names of the families that are asked for, and the service.

    Raises:
        HttpError: A name is unknown.
    """
    names: set[str] = set()
    service: str | None = None
    for field, value in request.fields():
        if field == "service":
            service = value
        elif field == "family":
            found = {value, f"onward_{value}"} & known
            if not found:
                raise HttpError(HTTPStatus.BAD_REQUEST, f"there is no family {value!r}")
            names |= found
        else:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"unknown field {field!r}: family or service")
    return frozenset(names) if names else None, service


def of_service(service: str) -> Callable[[Metric | None], Metric | None]:
    """Return the function that leaves the series of one service in a metric, if it has services."""

    def of(metric: Metric | None) -> Metric | None:
        if metric is None or metric.family.labels[:1] != ("service",):
            return metric
        series = tuple(each for each in metric.series if each[0][0] == service)
        return Metric(metric.family, series)

    return of


async def in_turns(text: Iterator[str]) -> AsyncIterator[bytes]:
    """Yield parts of a text, and let the loop do other things in between."""
    for part in text:
        if part:
            yield part.encode()
        await asyncio.sleep(0)
