"""The metrics of the services of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from ...protocol.eventlog import Outcome
from ...protocol.metrics import Metric, MetricFamily, Series
from ..broker import Broker
from ..broker._tally import OUTCOMES
from ..broker.table._services import OTHER, ServiceStatistics, together
from ._metrics import counter, gauge

__all__ = ["SERVICE_FAMILIES", "service_metrics"]

MAX_SERVICES: Final = 200
"""The maximum number of services with series of their own: the busiest; the rest are `other`."""

_DESTINATIONS = gauge("service_destinations", "Destinations of a service.", "service")
_SERVING = gauge(
    "service_requests_in_progress", "Requests with destinations of a service.", "service"
)
_LATENCY = gauge(
    "service_latency_seconds",
    "The latency of the slowest destination of a service: a moving average of its answers.",
    "service",
    across="max",
)
_BUSY = gauge("service_destinations_busy", "Overloaded destinations of a service.", "service")
_SENT = counter(
    "service_requests",
    "Requests sent to destinations of a service, each copy of a multicast.",
    "service",
)
_SERVED = counter(
    "service_requests_ended",
    "Requests to a service that have ended, with those for which it had no destination.",
    "service",
    "outcome",
)
_FORWARDED = counter(
    "service_requests_forwarded",
    "The part of onward_service_requests_total that went to destinations at peer brokers, which "
    "count them as well.",
    "service",
)
_FORWARDED_ENDED = counter(
    "service_requests_forwarded_ended",
    "The part of onward_service_requests_ended_total at peer brokers, which count them as well.",
    "service",
    "outcome",
)
_ANSWERS = MetricFamily(
    "onward_service_request_duration_seconds",
    "histogram",
    "From the first frame of a request for one response to the last one of its answer. Of answers "
    "within 16 ms one in 16 is measured, and counts as 16.",
    ("service",),
)

SERVICE_FAMILIES: Final = (
    _DESTINATIONS,
    _BUSY,
    _SERVING,
    _LATENCY,
    _SENT,
    _SERVED,
    _FORWARDED,
    _FORWARDED_ENDED,
    _ANSWERS,
)


def service_metrics(broker: Broker) -> Iterator[Metric | None]:
    """Yield the metrics of the services: of the `MAX_SERVICES` busiest, and of all others together.

    They are apart from the others, as the name of a service is a tag value: there may be many.
    """
    found: list[ServiceStatistics] = []
    for each in broker.index.service_statistics():
        if each is None:
            yield None
        else:
            found.append(each)
    named = [each for each in found if each.service != OTHER]
    busiest = nlargest(MAX_SERVICES, named, key=lambda each: each.requests)
    chosen = {each.service for each in busiest}
    shown = sorted(busiest, key=lambda each: each.service)
    if rest := [each for each in found if each.service not in chosen]:
        shown.append(together(rest))
    yield Metric(_DESTINATIONS, _each(shown, lambda it: it.destinations))
    yield Metric(_BUSY, _each(shown, lambda it: it.busy))
    yield Metric(_SERVING, _each(shown, lambda it: it.in_progress))
    yield Metric(_LATENCY, _each(shown, lambda it: it.latency))
    yield Metric(_SENT, _each(shown, lambda it: it.requests))
    yield Metric(_SERVED, _outcomes(shown, lambda it: it.ended))
    yield Metric(_FORWARDED, _each(shown, lambda it: it.forwarded))
    yield Metric(_FORWARDED_ENDED, _outcomes(shown, lambda it: it.forwarded_ended))
    yield Metric(
        _ANSWERS, tuple(((it.service,), it.durations) for it in shown if it.durations is not None)
    )


def _each(
    shown: list[ServiceStatistics], value: Callable[[ServiceStatistics], float]
) -> tuple[Series, ...]:
    return tuple(((it.service,), value(it)) for it in shown)


def _outcomes(
    shown: list[ServiceStatistics],
    ended: Callable[[ServiceStatistics], Mapping[Outcome, int] | None],
) -> tuple[Series, ...]:
    return tuple(
        ((it.service, name), (ended(it) or {}).get(outcome, 0))
        for it in shown
        for outcome, name in OUTCOMES.items()
    )
