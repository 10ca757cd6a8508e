"""Several tracers where a node has room for one."""

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
    """Gives each message to several tracers: the first is around the second, and so on.

    ```python
    node.tracer = TracerChain(HopTracer(node), OpenTelemetryTracer())
    ```

    Args:
        *tracers: The tracers. Each looks at its own part of the tracing text.

    Attributes:
        tracers: As given.
    """

    __slots__ = ("tracers",)

    def __init__(self, *tracers: Tracer) -> None:
        self.tracers: Final = tracers

    def follow(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Have a message handled, within each of them."""
        for tracer in reversed(self.tracers):
            handle = partial(tracer.follow, worker, handle=handle)
        return handle(message)


def hop_tracer_of(tracer: Tracer | None) -> HopTracer | None:
    """Return the tracer of hops that a tracer is, or has in it."""
    if isinstance(tracer, HopTracer):
        return tracer
    if isinstance(tracer, TracerChain):
        return next(filter(None, map(hop_tracer_of, tracer.tracers)), None)
    return None
