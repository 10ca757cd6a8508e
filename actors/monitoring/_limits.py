"""The limits of a node, of its broker and of the listeners, with what is used of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..broker import Broker, LimitUse

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["limit_uses"]


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
