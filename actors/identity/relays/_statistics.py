"""What a node has relayed and what it holds for that, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....protocol.identity import HoldingRefusal, PeelOutcome, RelayStatus

__all__ = ["RelayStatistics"]


@dataclass(frozen=True, slots=True)
class RelayStatistics:
    """The relaying of a node at one moment.

    Attributes:
        relayed: Messages and answers of others that were passed on, sealed or in the clear.
        relayed_size: Their bytes.
        sealed: Messages of this node that were sealed and given to a first relay.
        refused: Messages that were not relayed, by their status.
        outcomes: Sealed messages that came for this node as a relay or as their end, by what was
            done with them.
        held: Messages that wait for a link.
        held_size: Their bytes.
        reservations: Reservations that other nodes have here and that are not over.
        reserved: Reservations that this node has at relays.
        handles: Answers of others that may come.
        expected: Answers to messages of this node that may come.
        layers: Layers that were opened and are remembered until they expire.
        charged: Messages and answers that were charged to reservations here.
        charged_size: Their bytes.
        rate_refused: Messages that came faster than a node may send.
        held_refused: Messages and answers that could not be held, by the limit that was reached.
    """

    relayed: int
    relayed_size: int
    sealed: int
    refused: Mapping[RelayStatus, int]
    outcomes: Mapping[PeelOutcome, int]
    held: int
    held_size: int
    reservations: int
    reserved: int
    handles: int
    expected: int
    layers: int
    charged: int
    charged_size: int
    rate_refused: int
    held_refused: Mapping[HoldingRefusal, int]
