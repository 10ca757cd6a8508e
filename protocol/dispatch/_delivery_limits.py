"""Limits of the deliveries of names, and what all names of a node have together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..options import Count, Seconds, Size, check_options

__all__ = ["DeliveryLimits", "NodeTotals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    """Limits of what a name keeps of its deliveries at one node.

    Attributes:
        max_unsettled: Unsettled deliveries of a name. Beyond: a further one is released and
            counted.
        max_unsettled_size: Bytes of the messages of unsettled deliveries of all names of a node
            together, those on hold included. Beyond: as with `max_unsettled`. Pre-settled
            messages are bounded by the hold of their name, and by the windows of its consumers.
        max_node_consumers: Consumers of all names of a node. Beyond: a further one is refused and
            counted.
        max_node_producers: Producers of all names of a node. Beyond: as with consumers.
        max_consumers: Consumers of one name at a node, standbys included. Beyond: the same.
        max_producers: Producers of one name at a node, and anonymous producers of a node. Beyond:
            the same.
        finished_tokens: Tokens of ended copies that are kept, so that a disposition that comes
            late or twice is known. Beyond: the oldest are forgotten, and their dispositions count
            as unknown.
        max_tries: Targets that are asked for one delivery, if each releases it. Beyond: it is
            released.
        try_time: Time from the first bind on in which a released delivery is sent to another
            target, in seconds. Later: it is released.
        duplicate_ids: Deliveries of a name that are remembered by their identity, to know
            duplicates. Beyond: the oldest are forgotten and counted.

    Raises:
        ValueError: A value is out of its range.
    """

    max_unsettled: Count = 100_000
    max_unsettled_size: Count = 256 * 1024 * 1024
    max_node_consumers: Count = 100_000
    max_node_producers: Count = 100_000
    max_consumers: Count = 1_000
    max_producers: Count = 10_000
    finished_tokens: Size = 4_096
    max_tries: Count = 16
    try_time: Seconds = 30.0
    duplicate_ids: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(slots=True)
class NodeTotals:
    """The figures of all names of a node together, which they share, so that limits hold for it.

    Attributes:
        limits: The limits.
        unsettled: Number of unsettled deliveries.
        size: Bytes of their messages.
        consumers: Number of consumers.
        producers: Number of producers.
        counts: What was dropped or refused, by its reason.
    """

    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    unsettled: int = 0
    size: int = 0
    consumers: int = 0
    producers: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
