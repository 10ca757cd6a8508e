"""The limits of a node, of its broker and of the listeners: their use, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...protocol.metrics import Metric
from ..broker import Broker, LimitUse
from ._metrics import counter, gauge

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["LIMIT_FAMILIES", "limit_metrics", "limit_uses"]

_LIMIT = gauge("limit", "A limit; see the page of limits.", "name", "listener")
_USED = gauge("limit_used", "How much of the limit is used.", "name", "listener")
_REACHED = counter("limit_reached", "Refusals because of the limit.", "name", "listener")

LIMIT_FAMILIES: Final = (_LIMIT, _USED, _REACHED)


def limit_uses(node: Node, broker: Broker | None = None) -> Iterator[tuple[str, LimitUse]]:
    """Yield each limit that is shared, with the URI of its listener; empty if it is of no listener.

    Args:
        node: The node.
        broker: Its broker, if it has one.
    """
    limits, parts = node.limits, node.parts
    pending = parts.router.pending
    yield "", LimitUse("node.addresses", len(parts.table.targets), limits.addresses)
    yield "", LimitUse("node.requests", parts.requests.count, limits.requests)
    yield "", LimitUse("node.pending", len(pending), limits.pending)
    yield "", LimitUse("node.pending_bytes", pending.size, limits.pending_bytes)
    yield "", LimitUse("node.waiting_bytes", parts.run_queue.waiting_bytes, limits.waiting_bytes)
    if broker is not None:
        for use in broker.limits():
            yield "", use
        for uri, listener in broker.listeners():
            for use in listener.limits():
                yield uri, use


def limit_metrics(node: Node, broker: Broker | None) -> Iterator[Metric]:
    """Yield the metrics of the limits of a node, of its broker, and of the listeners."""
    uses = tuple(limit_uses(node, broker))
    yield Metric(_LIMIT, tuple(((use.name, uri), use.limit) for uri, use in uses))
    yield Metric(_USED, tuple(((use.name, uri), use.used) for uri, use in uses))
    reached = [(uri, use.name, use.reached) for uri, use in uses]
    yield Metric(
        _REACHED, tuple(((name, uri), count) for uri, name, count in reached if count is not None)
    )
