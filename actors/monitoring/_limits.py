"""The limits of a node, of its broker and of the listeners: their use, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...protocol.metrics import Metric
from ..broker import Broker, LimitUse
from ..cluster import Cluster
from ._metrics import counter, gauge

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["LIMIT_FAMILIES", "limit_metrics", "limit_uses"]

_LIMIT = gauge("limit", "A limit; see the page of limits.", "name", "listener", across="process")
_USED = gauge("limit_used", "How much of the limit is used.", "name", "listener", across="process")
_REACHED = counter(
    "limit_reached",
    "How often there was no room for something because of the limit: it was refused, or something "
    "else was given up for it. That the mailbox of a worker is full counts as a refused message.",
    "name",
    "listener",
    across="process",
)

LIMIT_FAMILIES: Final = (_LIMIT, _USED, _REACHED)


def limit_uses(
    node: Node, broker: Broker | None = None, cluster: Cluster | None = None
) -> Iterator[tuple[str, LimitUse]]:
    """Yield each limit that is shared, with the URI of its listener; empty if it is of no listener.

    Args:
        node: The node.
        broker: Its broker, if it has one.
        cluster: The broker's part in a cluster, if it has one.
    """
    for use in _node_uses(node):
        yield "", use
    if broker is not None:
        for use in broker.limits():
            yield "", use
        for uri, listener in broker.listeners():
            for use in listener.limits():
                yield uri, use
    if cluster is not None:
        for use in cluster.limits():
            yield "", use


def _node_uses(node: Node) -> Iterator[LimitUse]:
    limits, parts = node.limits, node.parts
    table, requests, queue = parts.table, parts.requests, parts.run_queue
    pending = parts.router.pending
    waiting, most = pending.size, limits.pending_bytes
    yield LimitUse("node.addresses", len(table.targets), limits.addresses, table.refused)
    yield LimitUse("node.requests", requests.count, limits.requests, requests.refused)
    yield LimitUse("node.pending", len(pending), limits.pending, pending.refused)
    yield LimitUse("node.pending_bytes", waiting, most, pending.refused_bytes)
    heavy = queue.waiting_bytes
    yield LimitUse("node.waiting_bytes", heavy, limits.waiting_bytes, queue.out_of_bytes)


def limit_metrics(
    node: Node, broker: Broker | None, cluster: Cluster | None = None
) -> Iterator[Metric]:
    """Yield the metrics of the limits of a node, of its broker, and of the listeners."""
    uses = tuple(limit_uses(node, broker, cluster))
    yield Metric(_LIMIT, tuple(((use.name, uri), use.limit) for uri, use in uses))
    yield Metric(_USED, tuple(((use.name, uri), use.used) for uri, use in uses))
    yield Metric(_REACHED, tuple(((use.name, uri), use.reached) for uri, use in uses))
