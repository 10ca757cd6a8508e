"""Limits of circuits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..options import Count, Range, Seconds, check_options
from ._circuit_frames import MAX_UNSETTLED

__all__ = ["CircuitLimits", "UnsettledCount"]

UnsettledCount: TypeAlias = Annotated[int, Range(least=1, most=MAX_UNSETTLED)]
"""Number of unsettled deliveries of a circuit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitLimits:
    """Limits of the circuits of a node, and of one end of a circuit.

    Attributes:
        max_circuits: Circuits that a node has. Beyond: another one is refused.
        max_peer_circuits: Circuits with one neighbour, or with one client or container, on either
            side. Beyond: another one is refused.
        max_unsettled: Unsettled deliveries of an end. Beyond: a producer may not send; a producer
            that sends all the same loses the circuit.
        answer_timeout: Time for the answer to an attach, a detach or a close, in seconds. Beyond:
            the attach is refused, or the circuit is lost.
        circuit_idle: Time within which each side of a circuit has to send something, in seconds; an
            end does so three times as often. Beyond: the circuit is lost.

    Raises:
        ValueError: A value is out of its range.
    """

    max_circuits: Count = 10_000
    max_peer_circuits: Count = 1_000
    max_unsettled: UnsettledCount = MAX_UNSETTLED
    answer_timeout: Seconds = 10.0
    circuit_idle: Seconds = 300.0

    def __post_init__(self) -> None:
        check_options(self)
