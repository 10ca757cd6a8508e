"""The metrics of a node's dispatcher, by the row that it has for operators."""

from __future__ import annotations

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
_OUTCOMES: Final = counter(
    "dispatch_outcomes", "Messages to names that have their outcome, by the outcome.", "outcome"
)
_DROPPED: Final = counter(
    "dispatch_dropped", "Messages and frames dropped, refused or ignored, by the reason.", "reason"
)

DISPATCH_FAMILIES: Final = (*_FIGURES.values(), _OUTCOMES, _DROPPED)


def dispatch_metrics(node: Node) -> Iterator[Metric | None]:
    """Yield the metrics of a node's dispatcher; none if it has no dispatcher."""
    report = node.parts.reports.get("dispatcher")
    if report is None:
        return
    (row,) = report()
    for name, family in _FIGURES.items():
        yield Metric(family, (((), row[name]),))
    # Outcomes are four, and reasons are those that the code has.
    for name, family in (("outcomes", _OUTCOMES), ("counts", _DROPPED)):
        found = sorted(cast("Mapping[str, Any]", row[name]).items())
        yield Metric(family, tuple(((label,), count) for label, count in found))
