"""One end of a circuit: credit, deliveries and the unsettled map, without I/O.

What a consumer gives as credit the producer gets, to the unit; what one end sends the other gets
once and in order, until a loss. After a loss both ends know. Which deliveries have arrived they do
not know then: each keeps a map of what is unsettled, and if the circuit is resumed, the two maps
are exchanged and become one:

- A delivery in both maps has arrived. Its state is the consumer's.
- One that only the producer has is in doubt: it has not arrived, or was settled by a frame that was
  lost. The producer is told (`CircuitUnresolved`) and may send it again.
- One that only the consumer has was settled by the producer.
"""

from __future__ import annotations

from typing import Final

from ._circuit_codec import parse_circuit_frame, serialize_circuit_frame
from ._circuit_deliveries import TOO_MANY, Broken, CircuitDeliveries
from ._circuit_events import CircuitDown, CircuitEvent, CircuitMisuse
from ._circuit_frames import (
    MAX_CREDIT,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
    UnsettledMap,
)
from ._circuit_limits import CircuitLimits
from ._circuit_pair import unexpected
from ._circuit_states import CIRCUIT_END, CircuitCondition, EndInput, EndState
from ._errors import LaterVersion

__all__ = ["CircuitEnd"]

_PINGS: Final = 3
"""How often an end sends something within the idle time."""


class CircuitEnd:
    """One end of a circuit.

    After each call the caller sends what `data_to_send` returns, in order.

    Args:
        producer: Whether it is the producer.
        key: 16 random bytes; those of the attach at the end that accepts.
        resumable: Whether it keeps its unsettled map when the circuit is detached or lost.
        limits: The limits.

    Attributes:
        producer: Whether it is the producer.
        key: The key of the circuit.
        state: Its state.
        credit: How many deliveries may be begun.
        draining: Whether the consumer waits for all credit to be used or given back.
        ignored: Number of dispositions of deliveries that are settled, and of frames of a later
            version.
    """

    def __init__(
        self,
        *,
        producer: bool,
        key: bytes,
        resumable: bool = False,
        limits: CircuitLimits | None = None,
    ) -> None:
        self.producer = producer
        self.key = key
        self.state = EndState.IDLE
        self.credit = 0
        self.draining = False
        self.ignored = 0
        self._resumable = resumable
        self._limits = limits or CircuitLimits()
        self._deliveries = CircuitDeliveries(self._limits.max_unsettled)
        self._closing = False
        self._out: list[bytes] = []
        self._answer_by = 0.0
        self._heard = 0.0
        self._sent = 0.0

    @property
    def unsettled(self) -> UnsettledMap:
        """The unsettled deliveries with the last state that the consumer has given to each."""
        return self._deliveries.unsettled

    @property
    def limit(self) -> int:
        """Unsettled deliveries that both ends bear, once the circuit is there."""
        return self._deliveries.most

    @property
    def has_credit(self) -> bool:
        """Whether another settled delivery may be begun."""
        free = self.state is EndState.ATTACHED and self._deliveries.open is None
        return self.producer and free and self.credit > 0

    @property
    def can_send(self) -> bool:
        """Whether another unsettled delivery may be begun."""
        return self.has_credit and self._deliveries.has_room

    def data_to_send(self) -> list[bytes]:
        """Return the frames that have to be sent, once."""
        made, self._out = self._out, []
        return made

    def attach(self, name: str, now: float, properties: bytes = b"") -> None:
        """Attach, or attach again after a detach or a loss.

        Raises:
            CircuitMisuse: The circuit is there, or is over.
            CircuitFrameError: The name or the properties are too long.
        """
        after = self._after(EndInput.ATTACH)
        resumed = self.unsettled if after is EndState.RESUMING else None
        most = self._limits.max_unsettled
        self._send(
            CircuitAttach(name, self.producer, self.key, b"", most, properties, resumed), now
        )
        self.state = after
        self._answer_by = now + self._limits.answer_timeout
        self._heard = now

    def accept(
        self, attach: CircuitAttach, now: float, properties: bytes = b""
    ) -> tuple[CircuitEvent, ...]:
        """Accept an attach, or one that resumes this circuit.

        Raises:
            CircuitMisuse: The circuit is there, or is over.
            CircuitFrameError: Both ends are of one kind, or the properties are too long.
        """
        after = self._after(EndInput.ACCEPT)
        if attach.producer is self.producer or attach.key != self.key:
            raise CircuitFrameError("the attach is not for this end")
        resumed = attach.unsettled is not None and self._resumable
        most = self._limits.max_unsettled
        self._send(CircuitAttached(most, properties, self.unsettled if resumed else None), now)
        self.state = after
        self._heard = now
        self._deliveries.most = min(most, attach.limit)
        return self._deliveries.compare(attach.unsettled, producer=self.producer)

    def detach(
        self, now: float, *, closed: bool = False, condition: str = "", description: str = ""
    ) -> None:
        """Detach, or close the circuit for good. A suspended end that is closed is over at once.

        Raises:
            CircuitMisuse: There is no circuit.
            CircuitFrameError: The condition or the description is too long.
        """
        if closed and self.state is EndState.SUSPENDED:
            self.state = self._after(EndInput.CLOSED)
            return
        after = self._after(EndInput.DETACH)
        how = DetachKind.CLOSED if closed else DetachKind.DETACHED
        self._send(CircuitDetach(how, condition, description), now)
        self.state = after
        self._closing = closed
        self._answer_by = now + self._limits.answer_timeout

    def lost(self) -> tuple[CircuitEvent, ...]:
        """End the circuit, of which the first link is gone."""
        if self.state in _UNTIED:
            return ()
        return self._down(CircuitDown(DetachKind.LOST, CircuitCondition.ROUTE_LOST))

    def send(
        self,
        tag: bytes,
        payload: bytes,
        now: float,
        *,
        more: bool = False,
        aborted: bool = False,
        settled: bool = False,
    ) -> None:
        """Send a delivery, or a part of one.

        Args:
            tag: The tag of the delivery, at most 32 bytes.
            payload: Its bytes, or further ones; together with all else at most 1 MiB.
            now: The time, in seconds.
            more: Whether a further part follows.
            aborted: Whether the delivery is given up.
            settled: Whether it is settled, with all its parts.

        Raises:
            CircuitMisuse: There is no credit, the tag is in use, another delivery is unfinished, or
                there are as many unsettled ones as the two ends bear.
            CircuitFrameError: The tag or the payload is too long.
        """
        self._check_role(producer=True)
        deliveries, frame = self._deliveries, CircuitTransfer(tag, payload, more, aborted, settled)
        if (begins := deliveries.open is None) and not self.credit:
            raise CircuitMisuse("there is no credit")
        if (wrong := deliveries.refusal(frame)) is not None:
            raise CircuitMisuse(wrong)
        self._send(frame, now)
        self.credit -= begins
        deliveries.record(frame)

    def drained(self, now: float) -> None:
        """Give all credit back.

        Raises:
            CircuitMisuse: It is no producer, or there is no circuit.
        """
        self._check_role(producer=True)
        self._send(CircuitDrained(self.credit), now)
        self.credit = 0
        self.draining = False

    def grant(self, credit: int, now: float, *, drain: bool = False) -> None:
        """Give credit.

        Args:
            credit: How many deliveries more may come.
            now: The time, in seconds.
            drain: Whether the producer shall use all credit up, or give it back.

        Raises:
            CircuitMisuse: It is no consumer, there is no circuit, or the credit is too much.
            CircuitFrameError: The credit is no number that may be given.
        """
        self._check_role(producer=False)
        if self.credit + credit > MAX_CREDIT:
            raise CircuitMisuse(f"a credit of over {MAX_CREDIT}")
        self._send(CircuitFlow(credit, drain), now)
        self.credit += credit
        self.draining = drain

    def dispose(self, tag: bytes, now: float, state: bytes = b"", *, settled: bool = True) -> None:
        """Send the state of a delivery, or that it is settled.

        Raises:
            CircuitMisuse: The delivery is settled, or there is no circuit.
            CircuitFrameError: The state is too long.
        """
        if self.state is not EndState.ATTACHED:
            raise CircuitMisuse(f"it is {self.state.name.lower()}")
        if tag not in self._deliveries:
            raise CircuitMisuse("the delivery is settled")
        self._send(CircuitDisposition(tag, state, settled), now)
        self._deliveries.apply(tag, state, settled=settled, keep=not self.producer)

    def receive(self, data: bytes, now: float) -> tuple[CircuitEvent, ...]:
        """Process a frame. One that breaks the protocol ends the circuit, and the peer is told."""
        if self.state in _UNTIED:
            self.ignored += 1
            return ()
        self._heard = now
        try:
            return self._take(parse_circuit_frame(data), now)
        except LaterVersion:
            self.ignored += 1
            return ()
        except CircuitFrameError as error:
            return self._break(CircuitCondition.BAD_FRAME, error.reason, now)
        except Broken as broken:
            return self._break(broken.condition, "", now)

    def get_timer(self) -> float | None:
        """Return the time at which `due` has to be called, or `None`."""
        if self.state in _UNTIED:
            return None
        if self.state is not EndState.ATTACHED:
            return self._answer_by
        idle = self._limits.circuit_idle
        return min(self._heard + idle, self._sent + idle / _PINGS)

    def due(self, now: float) -> tuple[CircuitEvent, ...]:
        """Send what is due, or end a circuit of which nothing was heard."""
        timer = self.get_timer()
        if timer is None or now < timer:
            return ()
        if self.state is not EndState.ATTACHED:
            return self._break(CircuitCondition.ANSWER_TIMEOUT, "", now)
        if now >= self._heard + self._limits.circuit_idle:
            return self._break(CircuitCondition.IDLE, "", now)
        self._send(CircuitAlive(), now)
        return ()

    def _after(self, given: EndInput) -> EndState:
        after = CIRCUIT_END.get((self.state, given))
        if after is None:
            raise CircuitMisuse(f"it is {self.state.name.lower()}")
        return after

    def _send(self, frame: CircuitFrame, now: float) -> None:
        self._out.append(serialize_circuit_frame(frame))
        self._sent = now

    def _check_role(self, *, producer: bool) -> None:
        if self.producer is not producer:
            raise CircuitMisuse(f"it is the {'producer' if self.producer else 'consumer'}")
        if self.state is not EndState.ATTACHED:
            raise CircuitMisuse(f"it is {self.state.name.lower()}")

    def _take(self, frame: CircuitFrame, now: float) -> tuple[CircuitEvent, ...]:
        match frame:
            case CircuitAttached() | CircuitRefused():
                return self._take_answer(frame)
            case CircuitDetach():
                return self._take_detach(frame, now)
            case CircuitAlive():
                return ()
            case CircuitAttach():
                raise unexpected(frame, "that may not come here")
            case _ if self.state in _ASKING:
                raise unexpected(frame, "that may not come here")
            case CircuitFlow() if self.producer:
                self._take_flow(frame)
            case CircuitDrained() if not self.producer:
                self._use(frame.credit)
                self.draining = False
            case CircuitTransfer() if not self.producer:
                self._take_transfer(frame)
            case CircuitDisposition(tag, state, settled):
                if tag not in self._deliveries:
                    self.ignored += 1
                    return ()
                self._deliveries.apply(tag, state, settled=settled, keep=self.producer)
            case _:
                raise unexpected(frame, "that may not come here")
        return (frame,)

    def _take_answer(self, frame: CircuitAttached | CircuitRefused) -> tuple[CircuitEvent, ...]:
        if isinstance(frame, CircuitRefused):
            if self.state is EndState.DETACHING:
                return self._down(CircuitDown(DetachKind.LOST, frame.condition, frame.description))
            after = CIRCUIT_END.get((self.state, EndInput.REFUSED))
        else:
            after = CIRCUIT_END.get((self.state, EndInput.ATTACHED))
        if after is None:
            raise unexpected(frame, "that may not come here")
        self.state = after
        if isinstance(frame, CircuitRefused):
            return (frame,)
        self._deliveries.most = min(self._limits.max_unsettled, frame.limit)
        return (frame, *self._deliveries.compare(frame.unsettled, producer=self.producer))

    def _take_detach(self, frame: CircuitDetach, now: float) -> tuple[CircuitEvent, ...]:
        if self.state in _ASKING and frame.how is not DetachKind.LOST:
            raise unexpected(frame, "that may not come here")
        if self.state is EndState.ATTACHED and frame.how is not DetachKind.LOST:
            self._send(CircuitDetach(frame.how), now)
        how = frame.how
        if self._closing and how is DetachKind.DETACHED:
            how = DetachKind.CLOSED
        return self._down(CircuitDown(how, frame.condition, frame.description))

    def _take_flow(self, frame: CircuitFlow) -> None:
        self.credit += frame.credit
        self.draining = frame.drain
        if self.credit > MAX_CREDIT:
            raise Broken(CircuitCondition.CREDIT_EXCEEDED)

    def _take_transfer(self, frame: CircuitTransfer) -> None:
        deliveries = self._deliveries
        if deliveries.open is None:
            self._use(1)
        if (wrong := deliveries.refusal(frame, self._limits.max_unsettled)) is not None:
            if wrong is TOO_MANY:
                raise Broken(CircuitCondition.UNSETTLED_EXCEEDED)
            raise CircuitFrameError(wrong)
        deliveries.record(frame)

    def _use(self, credit: int) -> None:
        if credit > self.credit:
            raise Broken(CircuitCondition.CREDIT_EXCEEDED)
        self.credit -= credit

    def _down(self, down: CircuitDown) -> tuple[CircuitEvent, ...]:
        partial = self._deliveries.give_up_open()
        over = self._closing or down.how is DetachKind.CLOSED or not self._resumable
        self.state = self._after(EndInput.CLOSED if over else EndInput.DETACHED)
        self.credit = 0
        self.draining = False
        return (CircuitDown(down.how, down.condition, down.description, partial),)

    def _break(
        self, condition: CircuitCondition, description: str, now: float
    ) -> tuple[CircuitEvent, ...]:
        self._send(CircuitDetach(DetachKind.LOST, condition, description), now)
        return self._down(CircuitDown(DetachKind.LOST, condition, description))


_UNTIED: Final = frozenset({EndState.IDLE, EndState.SUSPENDED, EndState.ENDED})
_ASKING: Final = frozenset({EndState.ATTACHING, EndState.RESUMING})
