"""A tracer that combines several tracers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...protocol import Message
from ..instruments._observer import Tracer
from ._hops import HopTracer

if TYPE_CHECKING:
    from .._worker import Worker

__all__ = ["TracerChain", "hop_tracer_of"]


class TracerChain(Tracer):
    """A tracer that nests several tracers: the first encloses the second, and so on.

    ```python
    node.tracer = TracerChain(HopTracer(node), OpenTelemetryTracer())
    ```

    Args:
        *tracers: The tracers. Each reads its own part of the tracing text.

    Attributes:
        tracers: As given.
    """

    __slots__ = ("tracers",)

    def __init__(self, *tracers: Tracer) -> None:
        self.tracers: Final = tracers

    def follow(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Handle a message within all tracers."""
        for tracer in reversed(self.tracers):
            handle = partial(tracer.follow, worker, handle=handle)
        return handle(message)


def hop_tracer_of(tracer: Tracer | None) -> HopTracer | None:
    """Return the hop tracer that a tracer is or contains."""
    if isinstance(tracer, HopTracer):
        return tracer
    if isinstance(tracer, TracerChain):
        return next(filter(None, map(hop_tracer_of, tracer.tracers)), None)
    return None
