"""The services of a broker, with the figures of each.

Destinations come and go; the counts of their service stay, within a limit. What is only known of
destinations, such as the requests in progress, is added up when it is asked for, in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....protocol.broker import Entry, Query, TagSet, WellKnownKey
from ....protocol.eventlog import Outcome
from ....protocol.metrics import DurationHistogram, Durations, quantile
from .._tally import OUTCOMES, ServiceTally
from ._remote import AnyRoute, RemoteKind
from ._route import BrokerRoute

__all__ = ["OTHER", "SERVICE_COLUMNS", "ServiceStatistics", "Services", "service_row", "together"]

OTHER: Final = "other"
"""The name of all services together that are beyond the limit."""

SLICE: Final = 1000
"""Destinations that are looked at before the loop does other things."""

MAX_AT_ONCE: Final = 256
"""Services that are looked at before the loop does other things."""

MAX_UNUSED: Final = 256
"""Most services that are known without a destination and without a request until then; the one
without a destination for the longest time is forgotten. Names that come once would fill the table
of services otherwise, with nothing to show."""

_NAME: Final = int(WellKnownKey.SERVICE_NAME)


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """The figures of a service at one moment.

    Attributes:
        service: Its name.
        destinations: Its destinations in the table, at this broker.
        busy: Those of them that are overloaded now.
        in_progress: Requests that its destinations have and that have not ended.
        requests: Requests sent to its destinations since the start: each copy of a multicast, and
            messages of workers, of which no end is known.
        latency: The latency of the slowest destination, in seconds: a moving average; 0 if there
            has been no answer.
        ended: Requests that have ended since the start, by outcome. Those that no destination
            could take are among them, if they named the service. `None` if only some of its
            destinations are shown.
        durations: How long answers took. Of those within 16 ms one in 16 is measured, and counts
            as 16. `None` if only some of its destinations are shown.
        elsewhere: Its destinations at peer brokers.
        forwarded: The part of `requests` that went to those; the peer brokers count them as well.
        forwarded_ended: The part of `ended` of these. `None` if only some destinations are shown.
    """

    service: str
    destinations: int
    busy: int
    in_progress: int
    requests: int
    latency: float
    ended: Mapping[Outcome, int] | None
    durations: Durations | None
    elsewhere: int = 0
    forwarded: int = 0
    forwarded_ended: Mapping[Outcome, int] | None = None

    @property
    def success(self) -> float | None:
        """The share of the requests that were answered, of those that were not cancelled.

        `None` if there were none, or if it is not known.
        """
        if self.ended is None:
            return None
        whole = sum(self.ended.values()) - self.ended[Outcome.CANCELED]
        return self.ended[Outcome.DELIVER] / whole if whole else None


class _Sum:
    """The figures of the destinations of a service."""

    __slots__ = (
        "busy",
        "destinations",
        "elsewhere",
        "forwarded",
        "in_progress",
        "latency",
        "requests",
    )

    def __init__(self) -> None:
        self.destinations = self.elsewhere = self.busy = self.in_progress = self.requests = 0
        self.forwarded = 0
        self.latency = 0.0

    @property
    def known(self) -> bool:
        """Whether there is a destination."""
        return bool(self.destinations or self.elsewhere)

    def add(self, route: BrokerRoute) -> None:
        """Add a destination."""
        self.destinations += 1
        self.busy += route.busy
        self.in_progress += route.outstanding
        self.requests += route.requests
        self.latency = max(self.latency, route.latency)

    def add_kind(self, kind: RemoteKind) -> None:
        """Add the destinations of a kind at a peer broker."""
        self.elsewhere += kind.routes
        self.in_progress += kind.outstanding
        self.forwarded += kind.requests
        self.latency = max(self.latency, kind.latency)


class Services:
    """The counts of the services that have, or have had, destinations.

    At the limit a new service takes the place of the one that has been without a destination for
    the longest time; the counts of that one are added to those of `other`. If all have
    destinations, the new one counts as `other` itself.

    Args:
        limit: The maximum number of services with counts of their own.

    Attributes:
        other: The counts of the services beyond the limit.
        crowded: How often there was no room for a service with a destination.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._all: dict[str, ServiceTally] = {}
        # Without a destination, those that lost theirs first in front.
        self._idle: dict[str, None] = {}
        # Those of them without a request until then.
        self._unused: dict[str, None] = {}
        self.other = ServiceTally(OTHER)
        self._unknown = ServiceTally("")
        self.crowded = 0

    def __len__(self) -> int:
        """Return the number of services with counts of their own."""
        return len(self._all)

    def of(self, name: str) -> ServiceTally:
        """Return the counts of a service for one more destination."""
        if name == OTHER:
            return self.other
        found = self._all.get(name)
        if found is None:
            if len(self._all) >= self._limit:
                spare = next(iter(self._idle), None)
                if spare is None:
                    self.crowded += 1
                    return self.other
                del self._idle[spare]
                self._unused.pop(spare, None)
                self.other.merge(self._all.pop(spare))
            found = self._all[name] = ServiceTally(name)
            self._idle[name] = None
        return found

    def joined(self, service: ServiceTally) -> None:
        """Count a destination that has joined."""
        service.destinations += 1
        self._there(service)

    def left(self, route: BrokerRoute) -> None:
        """Count a destination that has left."""
        service = route.service
        service.destinations -= 1
        service.left += route.requests
        self._left(service)

    def joined_elsewhere(self, service: ServiceTally) -> None:
        """Count a destination that has joined a peer broker."""
        if not service.elsewhere:
            self._there(service)
        service.elsewhere += 1

    def left_elsewhere(self, service: ServiceTally, requests: int) -> None:
        """Count a destination that has left a peer broker, and the requests sent to it."""
        service.elsewhere -= 1
        service.at_peers().left += requests
        self._left(service)

    def _there(self, service: ServiceTally) -> None:
        """Keep a service, as it has a destination."""
        if self._all.get(service.name) is service:
            self._idle.pop(service.name, None)
            self._unused.pop(service.name, None)

    def _left(self, service: ServiceTally) -> None:
        there = service.destinations or service.elsewhere
        if there or self._all.get(service.name) is not service:
            return
        self._idle[service.name] = None
        if service.used:
            return
        unused = self._unused
        unused[service.name] = None
        if len(unused) > MAX_UNUSED:
            name = next(iter(unused))
            del unused[name]
            # A request that named it since then was counted.
            if not self._all[name].used:
                del self._all[name], self._idle[name]

    def refused(self, query: Query, outcome: int) -> None:
        """Count a request that no destination could take, if it names a service that is known."""
        for key, value in query:
            if key == _NAME and value is not None:
                # In the same steps for a service that is not known: they could tell a tenant.
                self._all.get(value, self._unknown).count(outcome)
                return

    def statistics(
        self,
        routes: Iterable[Entry[AnyRoute]],
        view: Callable[[TagSet], bool] | None = None,
        kinds: Iterable[RemoteKind] = (),
    ) -> Iterator[ServiceStatistics | None]:
        """Yield the figures of each service, and `None` where the loop may do other things.

        Args:
            routes: The destinations of this broker.
            kinds: The kinds of those of peer brokers.
            view: Whether a destination with some tags is shown. The figures are those of the
                destinations that are shown then, and services without any are left out.
        """
        sums: dict[ServiceTally, _Sum] = {}
        for number, entry in enumerate(routes, 1):
            route = entry.target
            if isinstance(route, BrokerRoute) and (view is None or view(frozenset(entry.tags))):
                sums.setdefault(route.service, _Sum()).add(route)
            if number % SLICE == 0:
                yield None
        for number, kind in enumerate(kinds, 1):
            # No rule names destinations by the RouteId that each of them has for itself.
            if view is None or view(frozenset(kind.kind.common)):
                sums.setdefault(kind.service, _Sum()).add_kind(kind)
            if number % SLICE == 0:
                yield None
        shown = tuple(sums) if view is not None else (*self._all.values(), self.other)
        for number, service in enumerate(shown, 1):
            found = sums.get(service) or _Sum()
            if view is not None:
                yield _statistics(service, found, whole=False)
            elif service is not self.other or service.used or found.known:
                yield _statistics(service, found, whole=True)
            if number % MAX_AT_ONCE == 0:
                yield None


def _statistics(service: ServiceTally, found: _Sum, *, whole: bool) -> ServiceStatistics:
    own, there = service.ended(), service.forwarded
    forwarded, forwarded_ended = found.forwarded, dict.fromkeys(own, 0)
    durations = DurationHistogram()
    durations.merge(service.durations)
    if there is not None:
        forwarded += there.left if whole else 0
        forwarded_ended = there.ended()
        durations.merge(there.durations)
    return ServiceStatistics(
        service.name,
        found.destinations,
        found.busy,
        found.in_progress,
        found.requests + (service.left if whole else 0) + forwarded,
        found.latency,
        {each: own[each] + forwarded_ended[each] for each in own} if whole else None,
        durations.read() if whole else None,
        found.elsewhere,
        forwarded,
        forwarded_ended if whole else None,
    )


def together(services: Sequence[ServiceStatistics]) -> ServiceStatistics:
    """Return the figures of several services as those of `other`."""
    ended = {each: sum((it.ended or {}).get(each, 0) for it in services) for each in OUTCOMES}
    forwarded_ended = {
        each: sum((it.forwarded_ended or {}).get(each, 0) for it in services) for each in OUTCOMES
    }
    measured = [it.durations for it in services if it.durations is not None]
    counts = tuple(map(sum, zip(*(it.counts for it in measured), strict=True)))
    return ServiceStatistics(
        OTHER,
        sum(it.destinations for it in services),
        sum(it.busy for it in services),
        sum(it.in_progress for it in services),
        sum(it.requests for it in services),
        max(it.latency for it in services),
        ended,
        Durations(counts, sum(it.total for it in measured)),
        sum(it.elsewhere for it in services),
        sum(it.forwarded for it in services),
        forwarded_ended,
    )


SERVICE_COLUMNS: Final = (
    "service",
    "destinations",
    "elsewhere",
    "busy",
    "in_progress",
    "requests",
    "success",
    "p50",
    "p99",
    "latency",
    *OUTCOMES.values(),
    "durations",
)
"""The columns of a service in a table."""


def service_row(found: ServiceStatistics) -> dict[str, Any]:
    """Return the figures of a service as values that JSON can represent."""
    ended, durations = found.ended, found.durations
    return {
        "service": found.service,
        "destinations": found.destinations,
        "elsewhere": found.elsewhere,
        "busy": found.busy,
        "in_progress": found.in_progress,
        "requests": found.requests,
        "success": found.success,
        "p50": None if durations is None else quantile(durations, 0.5),
        "p99": None if durations is None else quantile(durations, 0.99),
        "latency": found.latency,
        **{name: None if ended is None else ended[outcome] for outcome, name in OUTCOMES.items()},
        "durations": None if durations is None else durations.counts,
    }
