"""What happens at an end of a circuit, and the error of what cannot be done there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .._errors import OnwardError
from ._circuit_frames import (
    CircuitAttached,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
)

__all__ = ["CircuitDown", "CircuitEvent", "CircuitMisuse", "CircuitUnresolved"]


class CircuitMisuse(OnwardError):
    """An end of a circuit cannot do now what it is asked for. Nothing has changed.

    Attributes:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not on this circuit: {self.reason}"


@dataclass(frozen=True, slots=True)
class CircuitDown:
    """The circuit is no more.

    Attributes:
        how: Whether it was detached, closed or lost.
        condition: The reason as a word; empty for none.
        description: The reason as a text.
        partial: The tag of a delivery that was begun and has no last part; `None` for none.
    """

    how: DetachKind
    condition: str = ""
    description: str = ""
    partial: bytes | None = None


@dataclass(frozen=True, slots=True)
class CircuitUnresolved:
    """A delivery of which the consumer, when the circuit was resumed, did not know.

    Attributes:
        tag: Its tag.
    """

    tag: bytes


CircuitEvent: TypeAlias = (
    CircuitAttached
    | CircuitRefused
    | CircuitFlow
    | CircuitDrained
    | CircuitTransfer
    | CircuitDisposition
    | CircuitDown
    | CircuitUnresolved
)
"""What has happened at an end: a frame that has come, or one of its own."""
