"""The worker of a circuit that a container of a Python program has accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final, TypeAlias

from ...protocol import Message
from ...protocol.dispatch import CircuitCondition
from .._worker import Worker
from ._circuit_consumer import CircuitConsumer
from ._circuit_producer import CircuitProducer
from ._errors import CircuitClosed

__all__ = ["CircuitHandler", "CircuitWorker"]

CircuitHandler: TypeAlias = Callable[
    [CircuitProducer | CircuitConsumer], Awaitable[object] | object
]
"""Function that handles one circuit: it has the end of this program until it returns."""


class CircuitWorker(Worker):
    """The worker that runs the handler of one circuit, and stops with it.

    Args:
        handler: The handler.
        circuit: The end.
    """

    def __init__(self, handler: CircuitHandler, circuit: CircuitProducer | CircuitConsumer) -> None:
        super().__init__()
        self._handler: Final = handler
        self._circuit: Final = circuit

    def on_start(self) -> None:
        """Begin with the first turn."""
        self.send((self.address,), b"")

    async def handle_message(self, message: Message) -> None:
        """Run the handler, and close the circuit."""
        del message
        try:
            result = self._handler(self._circuit)
            if isawaitable(result):
                await result
        except CircuitClosed:
            pass  # it has learned that the circuit is over, which is not its fault
        except BaseException:
            self._circuit.close(CircuitCondition.END_FAILED)
            raise
        finally:
            self._circuit.close()
            self.stop()

    def on_stop(self) -> None:
        """Close the circuit."""
        self._circuit.close()
