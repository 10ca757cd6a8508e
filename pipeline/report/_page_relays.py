"""The section of the page on what relays of identities pass on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RelayLoad", "RelayRow", "RelayTotal"]


@dataclass(frozen=True, slots=True)
class RelayTotal:
    """The load of a relay over the day.

    Attributes:
        relay: The name of its log.
        relayed: Messages and answers that it passed on.
        bytes: Their bytes.
        refused: Messages that it refused.
        busiest: Those passed on in its busiest hour.
    """

    relay: str
    relayed: int
    bytes: int
    refused: int
    busiest: int


@dataclass(frozen=True, slots=True)
class RelayRow:
    """Messages and answers of a relay from one node to another, or those that it refused.

    Attributes:
        relay: The name of its log.
        origin: The node before it; empty of a relay in the anonymous profile, and of refusals.
        to: The node after it; the status of what was refused.
        relayed: Messages and answers that were passed on.
        bytes: Their bytes.
        refused: Messages that were refused.
    """

    relay: str
    origin: str
    to: str
    relayed: int
    bytes: int
    refused: int


@dataclass(frozen=True, slots=True)
class RelayLoad:
    """The relays of a day.

    Attributes:
        relays: The relays, the one that passed on most first.
        rows: Between which nodes, those with the most messages first.
        more_relays: The number of relays that are not shown.
        more: The number of rows that are not shown.
    """

    relays: tuple[RelayTotal, ...]
    rows: tuple[RelayRow, ...]
    more_relays: int = 0
    more: int = 0
