"""Limits of circuits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..options import Count, Range, Seconds, Size, check_options
from ._circuit_frames import MAX_UNSETTLED
from ._delivery_limits import Percent

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
        max_share: What one connection, or one principal that is not anonymous, may have of
            `max_circuits`, and of what a container or a link to a neighbour may have, in percent.
            Beyond: another circuit is refused. A program of the node itself has no share.
        max_anonymous_share: What all connections that are not authenticated may have of them
            together, in percent, so that many of them leave room to others; of those that a
            neighbour passes on, it is a part of the share of the neighbour. Beyond: the same.
        max_neighbour_share: What one neighbour may have of them, in percent. Beyond: the same.
        max_unsettled: Unsettled deliveries of an end. Beyond: a producer may not send; a producer
            that sends all the same loses the circuit.
        answer_timeout: Time for the answer to an attach, a detach or a close, in seconds. Beyond:
            the attach is refused, or the circuit is lost.
        max_waiting: Bytes of frames of an end that wait for a slow link. Beyond: the circuit is
            lost.
        max_delivery: Bytes of a delivery that an end of a Python program puts together of its
            parts. Beyond: the circuit is closed.
        max_suspended: Ends that have accepted, and wait for the attach that resumes their circuit.
            Beyond: the oldest one is over.
        resume_within: Time for which they wait, in seconds. Beyond: they are over.
        reattach_first: Time after which an end that has attached does so again after a loss, in
            seconds; each further time it is twice as long.
        reattach_longest: The longest of these times, in seconds.
        reattach_within: Time for which it tries to, in seconds. Beyond: it is over.
        circuit_idle: Time within which each side of a circuit has to send something, in seconds; an
            end does so three times as often. Beyond: the circuit is lost.

    Raises:
        ValueError: A value is out of its range.
    """

    max_circuits: Count = 10_000
    max_peer_circuits: Count = 1_000
    max_share: Percent = 25
    max_anonymous_share: Percent = 75
    max_neighbour_share: Percent = 75
    max_unsettled: UnsettledCount = MAX_UNSETTLED
    answer_timeout: Seconds = 10.0
    max_waiting: Size = 4 * 1024 * 1024
    max_delivery: Size = 16 * 1024 * 1024
    max_suspended: Count = 1_000
    resume_within: Seconds = 60.0
    reattach_first: Seconds = 0.1
    reattach_longest: Seconds = 5.0
    reattach_within: Seconds = 60.0
    circuit_idle: Seconds = 300.0

    def __post_init__(self) -> None:
        check_options(self)
