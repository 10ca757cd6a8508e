"""Which node has a name with the pattern direct, when several have a consumer.

"Direct routing allows for only one consumer to use an address at a time." Each node with a consumer
tells since when it has one. All nodes compare the same claims, so they agree, and no other word is
needed: senders send to that node, and a consumer at another one is refused, let go or stands by, as
its name has it.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["direct_node"]


def direct_node(claims: Mapping[str, int], *, newest: bool) -> str | None:
    """Return the node that has the name; `None` if no node claims it.

    Args:
        claims: The nodes with consumers, the own one included, with the times of their attaches in
            milliseconds since the Unix epoch.
        newest: Whether the newest consumer has the name, and not the oldest.
    """
    if not claims:
        return None
    choose = max if newest else min
    return choose(claims, key=lambda node: (claims[node], node))
