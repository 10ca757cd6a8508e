"""The section of the page on messages to names."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NameOutcomes", "NameRow"]


@dataclass(frozen=True, slots=True)
class NameRow:
    """Outcomes of the messages to a name, or of the copies that one consumer was handed.

    Attributes:
        name: The name.
        consumer: The consumer, or the route of a redirect; empty for the name as a whole.
        received: Messages that entered the network; 0 of a consumer.
        accepted: Those that were accepted.
        settled: Those that were pre-settled, and handed on.
        rejected: Those that were rejected.
        released: Those that were released.
        modified: Those that are in doubt.
        dropped: Those that became dead letters.
        canceled: Those that nothing waited for any more.
        held: How often a message was put on hold.
        redirected: How often one was redirected.
    """

    name: str
    consumer: str
    received: int
    accepted: int
    settled: int
    rejected: int
    released: int
    modified: int
    dropped: int
    canceled: int
    held: int
    redirected: int


@dataclass(frozen=True, slots=True)
class NameOutcomes:
    """Outcomes by name and consumer.

    Attributes:
        rows: A name with the most messages first, each followed by its consumers.
        more: The number of rows that are not shown.
    """

    rows: tuple[NameRow, ...]
    more: int = 0
