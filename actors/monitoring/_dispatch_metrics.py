"""The metrics of a node's dispatcher, by the row that it has for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ...protocol.metrics import Metric
from ._metrics import counter, gauge

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["DISPATCH_FAMILIES", "dispatch_metrics"]

_FIGURES: Final = {
    "names": gauge("dispatch_names", "Names with consumers, producers or messages."),
    "unsettled": gauge("dispatch_unsettled", "Copies of messages that have no outcome yet."),
    "producers": gauge("dispatch_producers", "Producers of names."),
    "neighbours": gauge("dispatch_neighbours", "Neighbours in the network of dispatchers."),
    "circuits": gauge("dispatch_circuits", "Circuits that the node is a part of."),
    "on_disk": gauge("dispatch_on_disk", "Messages in the file of messages on hold."),
    "left_on_disk": gauge(
        "dispatch_left_on_disk", "Messages in the file alone, without room or a name on disk."
    ),
    "nodes": gauge("dispatch_nodes", "Other nodes of the network that can be reached."),
}
_AGES: Final = {
    "oldest": gauge(
        "dispatch_oldest_seconds",
        "How long a consumer or the next node has had the oldest message without an outcome.",
        across="max",
    ),
    "stuck": gauge("dispatch_stuck", "Messages that one has had for longer than `stuck_time`."),
    "consumers": gauge(
        "dispatch_blocked_consumers",
        "Consumers without credit for which a message has waited as long.",
    ),
    "producers": gauge(
        "dispatch_blocked_producers",
        "Producers without credit that have sent nothing for as long, anonymous ones included.",
    ),
}
_OUTCOMES: Final = counter(
    "dispatch_outcomes", "Messages to names that have their outcome, by the outcome.", "outcome"
)
_DROPPED: Final = counter(
    "dispatch_dropped", "Messages and frames dropped, refused or ignored, by the reason.", "reason"
)

_OF_CONTAINERS: Final = {
    "open": gauge(
        "dispatch_container_open", "Whether the connection to a container is open.", "container"
    ),
    "attached": gauge(
        "dispatch_container_links", "Links of the node that a container has attached.", "container"
    ),
    "circuits": gauge(
        "dispatch_container_circuits",
        "Links of clients that go through to a container.",
        "container",
    ),
    "attempts": gauge(
        "dispatch_container_attempts", "Attempts since a container was connected last.", "container"
    ),
    "connected": counter(
        "dispatch_container_connections",
        "Connections to a container that were opened.",
        "container",
    ),
    "refused": counter(
        "dispatch_container_refused",
        "Links of clients that had no room at a container.",
        "container",
    ),
}

DISPATCH_FAMILIES: Final = (
    *_FIGURES.values(),
    *_AGES.values(),
    _OUTCOMES,
    _DROPPED,
    *_OF_CONTAINERS.values(),
)


def dispatch_metrics(node: Node) -> Iterator[Metric | None]:
    """Yield the metrics of a node's dispatcher; none if it has no dispatcher."""
    report = node.parts.reports.get("dispatcher")
    if report is None:
        return
    (row,) = report()
    for name, family in _FIGURES.items():
        yield Metric(family, (((), row[name]),))
    ages = yield from node.parts.long_reports["ages"]()
    for name, family in _AGES.items():
        yield Metric(family, (((), ages[name]),))
    # Outcomes are four, and reasons are those that the code has.
    for name, family in (("outcomes", _OUTCOMES), ("counts", _DROPPED)):
        found = sorted(cast("Mapping[str, Any]", row[name]).items())
        yield Metric(family, tuple(((label,), count) for label, count in found))
    yield from _container_metrics(node)


def _container_metrics(node: Node) -> Iterator[Metric]:
    """Yield the metrics of the containers of AMQP, by the names that a file has given them."""
    report = node.parts.reports.get("containers")
    rows = () if report is None else report()
    if not rows:
        return
    for figure, family in _OF_CONTAINERS.items():
        # Several may have one name, such as the URI of two with other credentials.
        sums = Counter[str]()
        for row in rows:
            sums[row["name"]] += int(row[figure])
        yield Metric(family, tuple(((name,), count) for name, count in sorted(sums.items())))
