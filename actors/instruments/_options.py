"""The options of diagnostics, which a node is made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol.options import Count, Seconds, check_options

if TYPE_CHECKING:
    from .._node import Node
    from ._instrument import Instrument

__all__ = ["DiagnosticsOptions"]


@dataclass(frozen=True, slots=True)
class DiagnosticsOptions:
    """The limits of diagnostics.

    Attributes:
        hold: Time a worker may await before it handles its next message, in seconds: in a
            handler, a timer's action, its start or its end. `None` switches this check off, and
            that of workers that await one another: both make handlers that await, and requests,
            slower.
        block: Time the event loop may be held by code that does not await, in seconds. `None`
            switches this check off, and its thread.
        frames: Frames of the code at fault that are shown, the innermost first.

    Raises:
        ValueError: One of them is 0 or less.
    """

    hold: Seconds | None = None
    block: Seconds | None = None
    frames: Count = 4

    def __post_init__(self) -> None:
        check_options(self)

    def instrument(self, node: Node) -> Instrument:
        """Return the diagnostics of a node."""
        # The core imports this module, and no instrument.
        from ._diagnostics import AwaitDiagnostics, Diagnostics

        if self.hold is None:
            return Diagnostics(node, self)
        return AwaitDiagnostics(node, self, self.hold)
