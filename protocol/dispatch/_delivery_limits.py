"""Limits of the deliveries of a name."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import Count, Seconds, Size, check_options

__all__ = ["DeliveryLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    """Limits of what a name keeps of its deliveries at one node.

    Attributes:
        max_unsettled: Unsettled deliveries of a name. Beyond: a further one is released and
            counted.
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
    finished_tokens: Size = 4_096
    max_tries: Count = 16
    try_time: Seconds = 30.0
    duplicate_ids: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)
