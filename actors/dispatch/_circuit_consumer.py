"""The consumer of a circuit, for Python programs: an iterator over deliveries."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    CircuitMisuse,
    DetachKind,
    Disposition,
    Modified,
    Outcome,
    Rejected,
    encode_disposition,
)
from ._circuit_program_end import CircuitProgramEnd
from ._errors import CircuitClosed

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink

__all__ = ["CircuitConsumer", "CircuitDelivery"]


class CircuitDelivery:
    """A delivery of a circuit, as its consumer gets it.

    Attributes:
        tag: Its tag.
        payload: Its payload.
        settled: Whether it is pre-settled, so that its producer learns no outcome.
    """

    __slots__ = ("_consumer", "payload", "settled", "tag")

    def __init__(
        self, consumer: CircuitConsumer, tag: bytes, payload: bytes, settled: bool
    ) -> None:
        self.tag: Final = tag
        self.payload: Final = payload
        self.settled: Final = settled
        self._consumer: Final = consumer

    def accept(self) -> bool:
        """Accept it; return whether the producer is told, which it is not if it is over."""
        return self._consumer.settle(self, ACCEPTED)

    def reject(self, condition: str, description: str = "") -> bool:
        """Refuse it for good, as `accept`."""
        return self._consumer.settle(self, Rejected(condition, description))

    def release(self) -> bool:
        """Return it: it was certainly not handled; as `accept`."""
        return self._consumer.settle(self, RELEASED)

    def modify(self, *, failed: bool = True, undeliverable_here: bool = False) -> bool:
        """Return it as one that is in doubt, as `accept`."""
        return self._consumer.settle(self, Modified(failed, undeliverable_here))


class CircuitConsumer(CircuitProgramEnd):
    """The consumer of a circuit: an iterator over what the one producer at the other end sends.

    ```python
    async with await dispatcher.attach_consumer("prices", window=10) as prices:
        async for delivery in prices:
            delivery.accept()
    ```

    The iteration ends once the producer has detached or closed, and raises `CircuitClosed` if the
    circuit is lost.

    Args:
        link: What it calls.
        window: Deliveries that the producer may have sent and the program has not settled, or, of
            pre-settled ones, not taken. 0: the program gives credit by `grant`.
        most: Bytes of a delivery.
    """

    def __init__(self, link: CircuitLink, window: int, most: int) -> None:
        super().__init__(link)
        self._window: Final = window
        self._most: Final = most
        self._parts = bytearray()
        self._queue: Final = deque[CircuitDelivery]()

    def __aiter__(self) -> AsyncIterator[CircuitDelivery]:
        """Return itself."""
        return self

    async def __anext__(self) -> CircuitDelivery:
        """Return the next delivery.

        Raises:
            StopAsyncIteration: The producer has detached or closed.
            CircuitClosed: The circuit is lost.
        """
        try:
            await self._until(lambda: bool(self._queue))
        except CircuitClosed as closed:
            if closed.how in {DetachKind.CLOSED, DetachKind.DETACHED}:
                raise StopAsyncIteration from None
            raise
        delivery = self._queue.popleft()
        if delivery.settled:
            self._replenish()
        return delivery

    def grant(self, credit: int) -> None:
        """Ask for further deliveries, of a window of 0.

        Raises:
            CircuitMisuse: There is no circuit at the moment.
        """
        self.link.grant(credit)

    async def drain(self) -> None:
        """Wait until the producer has used all credit, or given it back.

        Raises:
            CircuitMisuse: There is no circuit at the moment.
            CircuitClosed: It has ended.
        """
        self.link.grant(0, drain=True)
        await self._until(lambda: not self.link.draining)

    def settle(self, delivery: CircuitDelivery, outcome: Outcome) -> bool:
        """Settle a delivery; see `CircuitDelivery.accept`."""
        if delivery.settled:
            return False
        try:
            self.link.dispose(delivery.tag, encode_disposition(Disposition(outcome)))
        except CircuitMisuse:
            return False
        self._replenish()
        return True

    def _replenish(self) -> None:
        if self._window and self.link.attached and not self.link.draining:
            self.link.grant(1)

    def attached(self, properties: bytes) -> None:
        """Record that the circuit is there, and ask for as much as the window has room for."""
        super().attached(properties)
        room = self._window - len(self.link.unsettled)
        if room > 0:
            self.link.grant(room)

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Receive a delivery, or a part of one."""
        if aborted:
            self._parts.clear()
            self._replenish()
            return
        if len(self._parts) + len(payload) > self._most:
            self.close("delivery-too-large", f"more than {self._most} bytes")
            return
        if more or self._parts:
            self._parts += payload
            if more:
                return
            payload = bytes(self._parts)
            self._parts.clear()
        self._queue.append(CircuitDelivery(self, tag, payload, settled))
        self._wake()

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is no circuit any more."""
        self._parts.clear()
        super().down(how, condition, description, again)

    def _forget(self) -> None:
        # What has come and was not taken is in doubt at its producer, which may send it again.
        for delivery in tuple(self._queue):
            if not delivery.settled:
                self._queue.remove(delivery)
