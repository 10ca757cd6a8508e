"""The producer of a circuit, for Python programs.

States of deliveries are read as the dispositions of messages are, see `encode_disposition`, so that
a program and a client of AMQP understand each other. Other states are in doubt.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import (
    MODIFIED,
    BadTransit,
    DeliveryState,
    DetachKind,
    LaterVersion,
    Outcome,
    Received,
    decode_disposition,
)
from .._errors import LimitReached
from ..routing._given import check_payload
from ._circuit_program_end import CircuitProgramEnd

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink
    from ._core import DispatchCore

__all__ = ["CircuitProducer"]

_PART: Final = 256 * 1024
"""Bytes of a delivery that are sent in one frame."""


class CircuitProducer(CircuitProgramEnd):
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
            if told is None or isinstance(told, Received):
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


def _read_state(state: bytes) -> DeliveryState | None:
    try:
        return decode_disposition(state).state
    except (BadTransit, LaterVersion):
        return None
