"""The ends of circuits for Python programs: a producer that sends, and a consumer to iterate over.

States of deliveries are written as the dispositions of messages are, see `encode_disposition`, so
that a program and a client of AMQP understand each other. Other states are not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    BadTransit,
    CircuitMisuse,
    DeliveryState,
    DetachKind,
    Disposition,
    LaterVersion,
    Modified,
    Outcome,
    Reattach,
    Received as ReceivedState,
    Rejected,
    decode_disposition,
    encode_disposition,
)
from .._errors import LimitReached
from ..routing._given import check_payload
from ._errors import CircuitClosed

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink
    from ._core import DispatchCore

__all__ = ["CircuitConsumer", "CircuitDelivery", "CircuitProducer"]

_PART: Final = 256 * 1024
"""Bytes of a delivery that are sent in one frame."""


class _End:
    """The common part of both kinds of ends, a `CircuitLinkEnd`.

    Attributes:
        name: The name.
        link: What it calls.
        properties: What the other end has told; empty before the circuit is there.
        closed: Why there is no circuit any more; `None` as long as there is one, or may be again.
    """

    def __init__(self, link: CircuitLink) -> None:
        self.name: Final = link.name.text
        self.link: Final = link
        self.properties = b""
        self.closed: CircuitClosed | None = None
        self._waits: Final[set[asyncio.Future[None]]] = set()

    async def ready_to_use(self) -> None:
        """Wait until the circuit is there.

        Raises:
            CircuitClosed: It was refused.
        """
        await self._until(lambda: self.link.attached)

    def close(self, condition: str = "", description: str = "") -> None:
        """Close the circuit for good. What is unsettled is in doubt. Idempotent.

        Args:
            condition: The reason that the other end is told, as a word.
            description: The reason as a text.
        """
        self.link.detach(closed=True, condition=condition, description=description)

    async def _until(self, found: Callable[[], bool]) -> None:
        while True:
            if found():
                return
            if self.closed is not None:
                raise self.closed
            wait = asyncio.get_running_loop().create_future()
            self._waits.add(wait)
            try:
                await wait
            finally:
                self._waits.discard(wait)

    def _wake(self) -> None:
        for wait in self._waits:
            if not wait.done():
                wait.set_result(None)

    def attached(self, properties: bytes) -> None:
        """Record that the circuit is there."""
        self.properties = properties
        self._wake()

    def refused(self, condition: str, description: str) -> None:
        """Record that there is no circuit."""
        self._over(CircuitClosed(self.name, None, condition, description))

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is no circuit any more."""
        if not again:
            self._over(CircuitClosed(self.name, how, condition, description))
        elif self.link.reattach is not Reattach.RESUME:
            self._forget()
        self._wake()

    def ready(self) -> None:
        """Go on sending."""
        self._wake()

    def flow(self, credit: int, drain: bool) -> None:
        """Go on sending: there is credit."""
        del credit, drain
        self._wake()

    def drained(self, credit: int) -> None:
        """Record that the credit is gone."""
        del credit
        self._wake()

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Receive nothing: a producer gets no delivery."""

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Receive nothing: the deliveries of a consumer have the states that it gives."""

    def unresolved(self, tag: bytes) -> None:
        """Receive nothing: it is the consumer that says what it knows."""

    def _over(self, closed: CircuitClosed) -> None:
        if self.closed is None:
            self.closed = closed
        self._forget()
        self._wake()

    def _forget(self) -> None:
        """Forget the deliveries of a circuit that is gone."""


class CircuitProducer(_End):
    """The producer of a circuit: what it sends goes to the one consumer at the other end.

    ```python
    async with await dispatcher.attach_producer("orders") as orders:
        outcome = await orders.send(b"12 apples")
    ```
    """

    def __init__(self, link: CircuitLink, core: DispatchCore) -> None:
        super().__init__(link)
        self._core: Final = core
        self._open: Final[dict[bytes, asyncio.Future[Outcome]]] = {}
        self._turn: Final = asyncio.Lock()
        self._numbers: Final = count(1)
        self._sending = 0
        self._lost = 0

    async def __aenter__(self) -> CircuitProducer:
        """Return it."""
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the circuit."""
        self.close()

    @property
    def credit(self) -> int:
        """How many deliveries more the consumer has asked for."""
        return self.link.credit

    async def send(self, payload: bytes) -> Outcome:
        """Send a delivery once there is credit, and wait for its outcome.

        Returns:
            The outcome; *modified* if it is in doubt, as the circuit is lost or resumed without it,
            or the consumer has told a state that cannot be read.

        Raises:
            CircuitClosed: It was certainly not handed over: the circuit has ended before.
            LimitReached: `DispatchOptions.max_waiting` sends wait for credit.
            PayloadTooBig: The payload is over the limit of the node.
        """
        tag = next(self._numbers).to_bytes(8)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            await self._deliver(tag, payload, outcome)
            return await outcome
        finally:
            self._open.pop(tag, None)

    async def send_settled(self, payload: bytes) -> None:
        """Send a delivery once there is credit, of which no outcome is told.

        Raises:
            CircuitClosed: It was certainly not handed over.
            LimitReached: As of `send`, as is the next one.
            PayloadTooBig: The payload is over the limit of the node.
        """
        await self._deliver(next(self._numbers).to_bytes(8), payload, None)

    async def _deliver(
        self, tag: bytes, payload: bytes, outcome: asyncio.Future[Outcome] | None
    ) -> None:
        check_payload(payload, self._core.node.limits)
        most = self._core.options.max_waiting
        if self._sending >= most:
            raise LimitReached("sends over a circuit that wait for credit", most)
        self._sending += 1
        try:
            async with self._turn:
                while not await self._send_parts(tag, payload, outcome):
                    pass  # the circuit was lost in the middle: it goes over the next one
        finally:
            self._sending -= 1
            self._give_back()

    async def _send_parts(
        self, tag: bytes, payload: bytes, outcome: asyncio.Future[Outcome] | None
    ) -> bool:
        """Send the parts of a delivery; return whether all of them went over one circuit."""
        link, settled = self.link, outcome is None
        await self._until(lambda: link.has_credit(settled=settled) and not link.waiting)
        lost = self._lost
        for at in range(0, max(len(payload), 1), _PART):
            more = at + _PART < len(payload)
            link.send(tag, payload[at : at + _PART], more=more, settled=settled)
            if not more:
                break
            try:
                await self._until(lambda: self._lost != lost or not link.waiting)
            except asyncio.CancelledError:
                if self._lost == lost and link.attached:
                    link.send(tag, b"", aborted=True)
                raise
            if self._lost != lost:
                return False
        if outcome is not None:
            self._open[tag] = outcome
        return True

    def _give_back(self) -> None:
        """Give the credit back that the consumer wants to have back and no send needs."""
        link = self.link
        if link.attached and link.draining and not (self._sending and link.credit):
            link.drained()

    def flow(self, credit: int, drain: bool) -> None:
        """Go on sending: there is credit."""
        super().flow(credit, drain)
        self._give_back()

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is no circuit any more."""
        self._lost += 1
        super().down(how, condition, description, again)

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Receive the state of a delivery."""
        told = _read_state(state)
        if not settled:
            if told is None or isinstance(told, ReceivedState):
                return
            # The consumer wants the producer to settle first.
            self.link.dispose(tag, state)
        self._decide(tag, told if isinstance(told, Outcome) else MODIFIED)

    def unresolved(self, tag: bytes) -> None:
        """Receive word that the consumer does not know a delivery."""
        self._decide(tag, MODIFIED)

    def _decide(self, tag: bytes, outcome: Outcome) -> None:
        waits = self._open.pop(tag, None)
        if waits is not None and not waits.done():
            waits.set_result(outcome)

    def _forget(self) -> None:
        for tag in tuple(self._open):
            self._decide(tag, MODIFIED)


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


class CircuitConsumer(_End):
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

    async def __aenter__(self) -> CircuitConsumer:
        """Return it."""
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the circuit."""
        self.close()

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


def _read_state(state: bytes) -> DeliveryState | None:
    try:
        return decode_disposition(state).state
    except (BadTransit, LaterVersion):
        return None
