"""The metrics of a broker and of its listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from ...protocol.metrics import Metric, MetricFamily, Series
from ...protocol.rsocket import FrameType
from ..broker import Broker
from ..broker._tally import OUTCOMES, RequestTally
from ._metrics import counter, gauge

__all__ = ["BROKER_FAMILIES", "broker_metrics", "ended_requests"]

SLICE: Final = 1000
"""Open requests that are looked at before the loop does other things."""

_ROUTES = gauge("routes", "Destinations in the table, by their state: live, expected.", "state")
_DRAINING = gauge("draining", "Whether the broker drains: 1, or 0.", across="max")
_OF_BROKER: Final = {
    "waiting": gauge("waiting_requests", "Requests that wait for a destination."),
    "waiting_bytes": gauge("waiting_bytes", "Bytes of the requests that wait."),
    "oldest_wait": gauge(
        "oldest_wait_seconds", "How long the oldest of them has waited.", across="max"
    ),
    "waited": counter("requests_waited", "Requests that have waited for a destination."),
    "rejected": counter("requests_rejected", "Requests that no destination could take."),
    "lost": counter(
        "requests_lost",
        "Requests on their way to a destination, or with a worker, when it left or failed.",
    ),
    "multicast_skipped": counter(
        "multicast_skipped", "Destinations that could not take a multicast."
    ),
    "multicast_left": counter(
        "multicast_left", "Destinations that left before they had answered a multicast in full."
    ),
    "multicast_overflowed": counter(
        "multicast_overflowed", "Multicasts ended because they would have held too much."
    ),
    "sticky_forgotten": counter("sticky_forgotten", "Sticky keys forgotten because of a limit."),
    "failed_methods": counter("method_failures", "Requests on which a method failed."),
    "unknown_methods": counter(
        "unknown_methods", "Requests for an unknown method, which got the default."
    ),
    "watchers": gauge("event_watchers", "Subscriptions to the broker's events."),
}
"""The families by the name of the figure in `BrokerStatistics`."""

_OF_LISTENER: Final = {
    "connections": gauge("connections", "Connections now.", "listener"),
    "handshakes": gauge("handshakes", "TLS and WebSocket handshakes in progress.", "listener"),
    "streams": gauge("streams", "Open streams, those of all interactions.", "listener"),
    "pending_bytes": gauge("pending_bytes", "Bytes that wait for the sockets.", "listener"),
    "above_high_water": gauge(
        "peers_above_high_water", "Connections with more than high_water bytes waiting.", "listener"
    ),
    "sessions": gauge("sessions", "Sessions that can be resumed now.", "listener"),
    "suspended": gauge("sessions_suspended", "Those of them without a connection.", "listener"),
    "kept_bytes": gauge("resume_bytes", "Bytes of sent frames kept for sessions.", "listener"),
    "accepted": counter("connections_opened", "Connections accepted.", "listener"),
    "requests": counter("listener_requests", "Requests read and routed.", "listener"),
    "refused": counter(
        "requests_refused", "Requests that could not be parsed or routed at once.", "listener"
    ),
    "received_bytes": counter(
        "received_bytes", "Bytes of frames read, without TLS and WebSockets.", "listener"
    ),
    "sent_bytes": counter(
        "sent_bytes", "Bytes of frames written, without TLS and WebSockets.", "listener"
    ),
    "received_frames": counter(
        "received_frames", "Frames read and accepted, without KEEPALIVE.", "listener"
    ),
    "sent_frames": counter(
        "sent_frames", "Frames of requests and pushes written, without KEEPALIVE.", "listener"
    ),
}
"""The families by the name of the figure of a listener."""

_READ = counter(
    "requests",
    "Requests of connections that were read and may be routed. Routing is unicast, multicast or "
    "shard, by tags, or route, by the name of one.",
    "interaction",
    "routing",
)
_RUNNING = gauge(
    "requests_in_progress", "Requests of connections that have not ended.", "interaction"
)
_LONG = gauge(
    "requests_slow",
    "Those of them that have run for longer than a time. Streams and channels may be meant to.",
    "interaction",
    "over",
)
_WAITED = MetricFamily(
    "onward_request_wait_seconds",
    "histogram",
    "How long requests have waited until there was a destination, or until they were refused.",
)
_ENDED = counter(
    "requests_ended",
    "Requests of connections that have ended. Of fire-and-forget and of streams, `answered` are "
    "those that have ended without an error.",
    "interaction",
    "outcome",
)
_DURATION = MetricFamily(
    "onward_request_duration_seconds",
    "histogram",
    "From the first frame of an answered request to the last one of its answer, of one request in "
    "16; without the time that it has waited for a destination.",
    ("interaction",),
)
_TIMES: Final = {"1s": 1.0, "10s": 10.0, "60s": 60.0}
"""The ages in seconds above which a request counts as slow."""

_INTERACTIONS: Final = {
    int(FrameType.REQUEST_RESPONSE): "request_response",
    int(FrameType.REQUEST_FNF): "fire_and_forget",
    int(FrameType.REQUEST_STREAM): "request_stream",
    int(FrameType.REQUEST_CHANNEL): "request_channel",
}
_CLOSED = counter("connections_closed", "Connections that have ended.", "listener", "reason")
_TURNED_AWAY = counter(
    "connections_refused",
    "Connections refused: at a limit, or because of a failed handshake.",
    "listener",
    "reason",
)
_SLOW = counter("slow_peers_closed", "Connections closed because the peer was slow.", "listener")
_IGNORED = counter(
    "frames_dropped", "Frames ignored by the state machine of a connection.", "listener", "reason"
)
_AUTH = counter(
    "auth",
    "Decisions on peers: accepted, by the method, or refused for a cause.",
    "listener",
    "method",
    "result",
)
_CHECKED = counter(
    "request_credentials",
    "Requests with credentials of their own, by result: checked and accepted (checked), accepted "
    "as those of a request before (remembered), or refused for a cause.",
    "listener",
    "result",
)
_DENIED = counter("denied", "Actions that rules have denied.", "action")
_TLS = counter("tls_handshakes", "TLS handshakes: completed, or failed.", "listener", "result")
_NOT_AFTER = gauge(
    "tls_certificate_not_after_timestamp_seconds",
    "The time at which the certificate of a listener expires, in seconds since 1970.",
    "listener",
    across="min",
)
_RESUMES = counter(
    "resume",
    "RESUME frames by their result, and sessions that dropped frames (dropped).",
    "listener",
    "result",
)

BROKER_FAMILIES: Final = (
    _ROUTES,
    _DRAINING,
    *_OF_BROKER.values(),
    _WAITED,
    _READ,
    _RUNNING,
    _LONG,
    _ENDED,
    _DURATION,
    *_OF_LISTENER.values(),
    _CLOSED,
    _TURNED_AWAY,
    _SLOW,
    _IGNORED,
    _AUTH,
    _CHECKED,
    _DENIED,
    _TLS,
    _NOT_AFTER,
    _RESUMES,
)


_SHORTEST: Final = min(_TIMES.values())
_PUSH: Final = int(FrameType.METADATA_PUSH), "metadata_push"


def broker_metrics(broker: Broker) -> Iterator[Metric | None]:
    """Yield the metrics of a broker and of its listeners."""
    figures = broker.statistics()
    yield Metric(_ROUTES, ((("live",), figures.routes), (("expected",), figures.expected)))
    yield Metric(_DRAINING, (((), figures.draining),))
    for name, family in _OF_BROKER.items():
        yield Metric(family, (((), getattr(figures, name)),))
    yield Metric(_WAITED, (((), broker.index.waits.read()),))
    yield Metric(_READ, tuple(_by_routing(broker)))
    yield from _open_requests(broker)
    yield from _requests(broker.tally)
    yield None
    read = yield from broker.reports_in_slices()
    reports = [(name, found) for name, found in read if found]
    yield None
    for name, family in _OF_LISTENER.items():
        yield Metric(family, tuple(((uri,), found.get(name, 0)) for uri, found in reports))
    yield Metric(_CLOSED, tuple(_by_reason(reports, "closed")))
    yield Metric(_RESUMES, tuple(_by_reason(reports, "resumes")))
    yield Metric(_IGNORED, tuple(_by_reason(reports, "dropped")))
    yield Metric(_SLOW, tuple(((uri,), _slow(found)) for uri, found in reports))
    # The texts of failed handshakes are made of what peers send: one series for all of them.
    refused: list[Series] = []
    for uri, found in reports:
        failed = sum(found.get("refused_handshakes", {}).values())
        refused += [((uri, "limit"), found.get("turned_away", 0)), ((uri, "handshake"), failed)]
    yield Metric(_TURNED_AWAY, refused)
    yield from _admission(reports)
    authorization = broker.authorization
    denied = {} if authorization is None else authorization.statistics().denied
    yield Metric(_DENIED, tuple(((action,), count) for action, count in sorted(denied.items())))


def _by_routing(broker: Broker) -> Iterator[Series]:
    by_tags = broker.index.asked_by_routing().items()
    found = {routing.name.lower(): counts for routing, counts in by_tags}
    found["route"] = broker.tally.named
    for kind, interaction in (*_INTERACTIONS.items(), _PUSH):
        for routing, counts in found.items():
            yield (interaction, routing), counts[kind]


def _open_requests(broker: Broker) -> Iterator[Metric | None]:
    """Yield the figures of the requests that have not ended, which are looked through in slices."""
    ages = chain.from_iterable(listener.requests() for _, listener in broker.listeners())
    running: Counter[int] = Counter()
    long: Counter[tuple[int, str]] = Counter()
    while part := list(islice(ages, SLICE)):
        for kind, age in part:
            running[kind] += 1
            if age > _SHORTEST:
                long.update((kind, over) for over, least in _TIMES.items() if age > least)
        yield None
    yield Metric(_RUNNING, tuple(((name,), running[kind]) for kind, name in _INTERACTIONS.items()))
    yield Metric(
        _LONG,
        tuple(
            ((name, over), long[kind, over])
            for kind, name in _INTERACTIONS.items()
            for over in _TIMES
        ),
    )


def ended_requests(tally: RequestTally) -> list[Series]:
    """Return the requests that have ended, by interaction and outcome."""
    ended: list[Series] = []
    for kind, interaction in _INTERACTIONS.items():
        counts = tally.ended(kind)
        ended += [((interaction, name), counts[outcome]) for outcome, name in OUTCOMES.items()]
    return ended


def _requests(tally: RequestTally) -> Iterator[Metric]:
    yield Metric(_ENDED, ended_requests(tally))
    # A fire-and-forget has no answer.
    answered = {k: name for k, name in _INTERACTIONS.items() if k != FrameType.REQUEST_FNF}
    yield Metric(
        _DURATION, tuple(((name,), tally.durations(kind)) for kind, name in answered.items())
    )


def _admission(reports: list[tuple[str, dict[str, Any]]]) -> Iterator[Metric]:
    """Yield the metrics of TLS and of authentication, for the listeners that have them."""
    auth: list[Series] = []
    requests: list[Series] = []
    tls: list[Series] = []
    expiry: list[Series] = []
    for uri, found in reports:
        decisions: Mapping[str, Any] | None = found.get("authentication")
        if decisions is not None:
            accepted, refused = decisions["accepted"], decisions["refused"]
            auth += [((uri, method, "accepted"), count) for method, count in accepted.items()]
            auth += [((uri, "", cause), count) for cause, count in refused.items()]
            requests.append(((uri, "checked"), decisions["requests_checked"]))
            requests.append(((uri, "remembered"), decisions["requests_remembered"]))
            refused = decisions["requests_refused"]
            requests += [((uri, cause), count) for cause, count in refused.items()]
        secure: Mapping[str, Any] | None = found.get("tls")
        if secure is not None:
            handshakes: Mapping[str, int] = secure["handshakes"]
            completed = handshakes.get("completed", 0)
            tls.append(((uri, "completed"), completed))
            tls.append(((uri, "failed"), sum(handshakes.values()) - completed))
            if secure["not_after"] is not None:
                expiry.append(((uri,), secure["not_after"]))
    yield Metric(_AUTH, auth)
    yield Metric(_CHECKED, requests)
    yield Metric(_TLS, tls)
    yield Metric(_NOT_AFTER, expiry)


def _slow(figures: Mapping[str, Any]) -> int:
    count: int = figures.get("closed", {}).get("too slow", 0)
    return count


def _by_reason(reports: list[tuple[str, dict[str, Any]]], name: str) -> Iterator[Series]:
    for uri, found in reports:
        for reason, count in sorted(found.get(name, {}).items()):
            yield (uri, reason), count
