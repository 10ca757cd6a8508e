"""The metrics of a node: its workers, messages and dead letters, and its event log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ...protocol.metrics import Metric, MetricFamily
from ..runtime._turn_times import MAX_KINDS, OTHER_KIND, TurnTimes

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["NODE_FAMILIES", "node_metrics"]

_WORKERS = MetricFamily("onward_workers", "gauge", "Workers now, by their class.", ("kind",))
_LONGEST = MetricFamily(
    "onward_mailbox_messages_max",
    "gauge",
    "The messages in the longest mailbox of the workers of a class.",
    ("kind",),
    "max",
)
_MESSAGES = MetricFamily(
    "onward_messages_total",
    "counter",
    "Messages taken from mailboxes by the workers of a class.",
    ("kind",),
)
_FAILURES = MetricFamily("onward_failures_total", "counter", "Failures of workers.", ("kind",))
_RESTARTS = MetricFamily("onward_restarts_total", "counter", "Restarts of workers.", ("kind",))
_WAIT = MetricFamily(
    "onward_message_wait_seconds",
    "histogram",
    "How long a message waits in the mailbox of a worker of a class: samples, by probes.",
    ("kind",),
)
_HANDLING = MetricFamily(
    "onward_message_handling_seconds",
    "histogram",
    "How long a worker of a class handles a message, until it first awaits: samples, each the mean "
    "of a turn.",
    ("kind",),
)
_REFUSED = MetricFamily(
    "onward_messages_refused_total", "counter", "Messages refused because a mailbox was full."
)
_DROPPED = MetricFamily(
    "onward_messages_dropped_total", "counter", "Messages dropped by a mailbox, or too late."
)
_DENIED = MetricFamily(
    "onward_messages_denied_total", "counter", "Messages that access controls denied."
)
_LETTERS = MetricFamily(
    "onward_dead_letters_total",
    "counter",
    "Messages that could not be delivered, by the reason.",
    ("reason",),
)
_ASKING = MetricFamily(
    "onward_node_requests", "gauge", "Requests of the node itself that wait for an answer."
)
_PENDING = MetricFamily(
    "onward_pending_messages", "gauge", "Messages that wait until a rule can resolve an address."
)
_RECORDS = MetricFamily(
    "onward_event_log_records_total", "counter", "Records of the event log, by kind.", ("kind",)
)
_LOST = MetricFamily(
    "onward_event_log_dropped_total",
    "counter",
    "Records that did not get into the event log, by the reason.",
    ("reason",),
)
_UNWRITTEN = MetricFamily(
    "onward_event_log_pending_bytes", "gauge", "Bytes of the event log that wait for the disk."
)
_DISK = MetricFamily(
    "onward_event_log_errors_total", "counter", "Failures of the event log's disk."
)

NODE_FAMILIES: Final = (
    _WORKERS,
    _LONGEST,
    _MESSAGES,
    _WAIT,
    _HANDLING,
    _FAILURES,
    _RESTARTS,
    _REFUSED,
    _DROPPED,
    _DENIED,
    _LETTERS,
    _ASKING,
    _PENDING,
    _RECORDS,
    _LOST,
    _UNWRITTEN,
    _DISK,
)


def node_metrics(node: Node, times: TurnTimes) -> Iterator[Metric | None]:
    """Yield the metrics of a node.

    Args:
        node: The node.
        times: The times of its workers.
    """
    figures = yield from node.parts.workers.figures()
    yield None
    for family, value in (
        (_REFUSED, figures.refused),
        (_DROPPED, figures.dropped),
        (_DENIED, figures.denied),
        (_ASKING, figures.requests),
        (_PENDING, figures.pending),
    ):
        yield Metric(family, (((), value),))
    # The reasons are bounded by `NodeLimits.dead_letter_reasons`.
    reasons = sorted(figures.dead_letter_reasons.items())
    yield Metric(_LETTERS, tuple(((reason,), count) for reason, count in reasons))
    yield from _by_kind(node)
    for family, measured in ((_WAIT, times.waits), (_HANDLING, times.handling)):
        found = sorted(measured.items())
        yield Metric(family, tuple(((kind,), each.read()) for kind, each in found))
    instruments = node.instruments
    if instruments is not None:
        yield from _event_log(instruments.figures().get("event_log"))


def _by_kind(node: Node) -> Iterator[Metric | None]:
    numbers: Counter[str] = Counter()
    longest: dict[str, int] = {}
    retired = node.parts.workers.retired_by_kind.items()
    # Of the workers that have stopped, and of those that there are.
    handled = Counter({kind: counts[0] for kind, counts in retired})
    failed = Counter({kind: counts[1] for kind, counts in retired})
    restarts = Counter({kind: counts[4] for kind, counts in retired})
    for part in node.parts.table.cells_in_slices():
        for cell in part:
            kind = type(cell.worker).__name__
            if kind not in handled and len(handled) >= MAX_KINDS:
                kind = OTHER_KIND
            numbers[kind] += 1
            handled[kind] += cell.handled
            failed[kind] += cell.failed
            restarts[kind] += cell.restarts
            longest[kind] = max(longest.get(kind, 0), len(cell.queue or ()))
        yield None
    yield Metric(_WORKERS, tuple(((kind,), count) for kind, count in sorted(numbers.items())))
    yield Metric(_LONGEST, tuple(((kind,), count) for kind, count in sorted(longest.items())))
    for family, counts in ((_MESSAGES, handled), (_FAILURES, failed), (_RESTARTS, restarts)):
        yield Metric(family, tuple(((kind,), count) for kind, count in sorted(counts.items())))


def _event_log(found: object) -> Iterator[Metric]:
    if not isinstance(found, Mapping):
        return
    figures = cast("Mapping[str, Any]", found)
    recorder, writer = figures["recorder"], figures["writer"]
    kinds = ("hops", "flows", "events")
    yield Metric(_RECORDS, tuple(((kind,), recorder[kind]) for kind in kinds))
    reasons: Counter[str] = Counter(recorder["dropped"])
    reasons["not written"] += writer["lost"]
    yield Metric(_LOST, tuple(((reason,), count) for reason, count in sorted(reasons.items())))
    yield Metric(_UNWRITTEN, (((), writer["pending"]),))
    yield Metric(_DISK, (((), writer["errors"]),))
