"""One end of a circuit at its node: what it is asked for, what it is told, and its way back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import (
    CircuitAttach,
    CircuitAttached,
    CircuitCondition,
    CircuitDetach,
    CircuitDown,
    CircuitEnd,
    CircuitEvent,
    CircuitMisuse,
    CircuitRefused,
    DetachKind,
    EndState,
    Name,
    Reattach,
    UnsettledMap,
    parse_circuit_frame,
    serialize_circuit_frame,
)
from ...protocol.security import Principal
from ._circuit_ends import CircuitLinkEnd, tell_end

if TYPE_CHECKING:
    from ._circuit_table import CircuitTable

__all__ = ["CircuitLink"]

_CONDITIONS: Final = frozenset(CircuitCondition)


class CircuitLink:
    """One end of a circuit, as a program or a transport uses it: see `CircuitLinkEnd`.

    A call that cannot be done now raises `CircuitMisuse`, one with a value out of its range
    `CircuitFrameError`, and nothing has changed.

    Args:
        table: The circuits of the node.
        name: The name.
        producer: Whether it is the producer.
        reattach: What becomes of the circuit when it is lost.
        asked: The attach that it is to accept; `None` if it attaches.

    Attributes:
        name: The name.
        producer: Whether it is the producer.
        reattach: What becomes of the circuit when it is lost.
        waiting: Bytes of its frames that wait for a slow link. While it is not 0, do not read on
            from where they come; see `CircuitLimits.max_waiting`.
        principal: The principal that it is for; `None` for a program of this node.
        connection: The connection that it is for; `None` for a program of this node.
        client: What its circuits are counted with, for `CircuitLimits.max_peer_circuits`.
        container: The number of the container that it is an end of; 0 if it attaches.
        number: The number of its circuit at the node; 0 if there is none.
        over: Whether there is no circuit, and there will be none.
        scheduled: When the node looks at it again, in seconds.
    """

    def __init__(
        self,
        table: CircuitTable,
        name: Name,
        producer: bool,
        reattach: Reattach,
        asked: CircuitAttach | None = None,
    ) -> None:
        self.name: Final = name
        self.producer: Final = producer
        self.waiting = 0
        self.principal: Principal | None = None
        self.connection: Hashable = None
        self.client: Hashable = None
        self.container = 0
        self.number = 0
        self.over = False
        self.scheduled: float | None = None
        self._table: Final = table
        self.reattach: Final = reattach
        self._accepts: Final = asked is not None
        self._asked = asked  # until it is accepted or refused
        self._told: CircuitLinkEnd | None = None
        self._properties = b""
        self._pure = self._new(table.key() if asked is None else asked.key)
        self._was_attached = self._up = self._leaving = False
        self._tries = 0
        self._until = 0.0  # how long it is tried to attach again
        self._at: float | None = None  # when it attaches again, or is not resumed any more

    def _new(self, key: bytes) -> CircuitEnd:
        resumable = self.reattach is Reattach.RESUME
        limits = self._table.limits
        return CircuitEnd(producer=self.producer, key=key, resumable=resumable, limits=limits)

    # --- what it is asked for ---------------------------------------------------------------

    @property
    def key(self) -> bytes:
        """The key of the circuit: 16 random bytes that both ends have."""
        return self._pure.key

    @property
    def credit(self) -> int:
        """How many deliveries may be begun."""
        return self._pure.credit

    @property
    def attached(self) -> bool:
        """Whether the circuit is there."""
        return self._pure.state is EndState.ATTACHED

    @property
    def limit(self) -> int:
        """Unsettled deliveries that both ends bear, once the circuit is there."""
        return self._pure.limit

    @property
    def unsettled(self) -> UnsettledMap:
        """The unsettled deliveries, each with the last state that the consumer has given to it."""
        return self._pure.unsettled

    @property
    def draining(self) -> bool:
        """Whether the consumer waits for all credit to be used or given back."""
        return self._pure.draining

    def has_credit(self, *, settled: bool = False) -> bool:
        """Whether a delivery may be begun.

        Args:
            settled: Whether it is settled, so that it takes no room of the unsettled ones.
        """
        return self._pure.has_credit if settled else self._pure.can_send

    def accept(self, properties: bytes = b"") -> None:
        """Accept the circuit that was asked for.

        Args:
            properties: What the other end is told, at most 16 KiB.
        """
        asked = self._take_asked()
        events = self._pure.accept(asked, self._table.now(), properties)
        self._asked, self._properties = None, properties
        for event in (CircuitAttached(properties=asked.properties), *events):
            self._table.soon(partial(self._happened, event))
        self._after(())

    def refuse(self, condition: str, description: str = "") -> None:
        """Refuse the circuit that was asked for.

        Args:
            condition: The reason as a word, 1 to 128 bytes.
            description: The reason as a text, at most 512 bytes.
        """
        self._take_asked()
        refused = CircuitRefused(condition, description)
        self._table.put(self, serialize_circuit_frame(refused))
        self._asked = None
        self._table.soon(partial(self._finish, refused))  # it may have no end to tell yet
        self._table.run()

    def _take_asked(self) -> CircuitAttach:
        if self._asked is None:
            raise CircuitMisuse("no attach waits for an answer")
        return self._asked

    def send(
        self,
        tag: bytes,
        payload: bytes,
        *,
        more: bool = False,
        aborted: bool = False,
        settled: bool = False,
    ) -> None:
        """Send a delivery as the producer, or a part of one.

        Args:
            tag: The tag of the delivery, at most 32 bytes; no other unsettled one has it.
            payload: Its bytes, or further ones; a little less than 1 MiB at most.
            more: Whether a further part follows.
            aborted: Whether the delivery is given up.
            settled: Whether it is settled, with all its parts.
        """
        if len(payload) > self._table.max_payload:
            raise CircuitMisuse(f"a part of more than {self._table.max_payload} bytes")
        now = self._table.now()
        self._pure.send(tag, payload, now, more=more, aborted=aborted, settled=settled)
        self._after(())

    def drained(self) -> None:
        """Give all credit back, as the producer."""
        self._pure.drained(self._table.now())
        self._after(())

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Give credit, as the consumer.

        Args:
            credit: How many deliveries more may come.
            drain: Whether the producer is to use all credit up now, or to give it back.
        """
        self._pure.grant(credit, self._table.now(), drain=drain)
        self._after(())

    def dispose(self, tag: bytes, state: bytes = b"", *, settled: bool = True) -> None:
        """Send the state of an unsettled delivery.

        Args:
            tag: The tag of the delivery.
            state: The state, at most 768 bytes, which nodes do not read.
            settled: Whether this end keeps nothing more of the delivery.
        """
        self._pure.dispose(tag, self._table.now(), state, settled=settled)
        self._after(())

    def detach(self, *, closed: bool = False, condition: str = "", description: str = "") -> None:
        """Detach, or close the circuit for good; `down` follows. Do nothing if it is over.

        Args:
            closed: Whether it is closed.
            condition: The reason as a word, at most 128 bytes.
            description: The reason as a text, at most 512 bytes.
        """
        if self._asked is not None:
            self.refuse(condition or CircuitCondition.ROUTE_LOST, description)
            return
        self._leaving = True
        if self._pure.state in _TIED:
            now = self._table.now()
            self._pure.detach(now, closed=closed, condition=condition, description=description)
            self._after(())
        elif self._pure.state is not EndState.DETACHING:
            self._finish(CircuitDown(DetachKind.CLOSED, condition, description))

    # --- for the circuits of the node -------------------------------------------------------

    def begin(self, end: CircuitLinkEnd, properties: bytes = b"") -> None:
        """Give it its end; one that attaches does so now."""
        self._told = end
        if not self._accepts:
            self._properties = properties
            self._attach()

    def _attach(self) -> None:
        if self._pure.state is EndState.ENDED:
            self._pure = self._new(self._table.key())
        self._at = None
        self._pure.attach(self.name.text, self._table.now(), self._properties)
        [frame] = self._pure.data_to_send()
        self._table.open(self, frame)
        self._table.arm(self)

    def resume(self, number: int, attach: CircuitAttach) -> None:
        """Accept an attach that resumes the circuit."""
        self.number, self._at = number, None
        events = self._pure.accept(attach, self._table.now(), self._properties)
        self._after([CircuitAttached(properties=attach.properties), *events])

    def take(self, data: bytes) -> None:
        """Receive a frame of its circuit."""
        if self._asked is None:
            self._after(self._pure.receive(data, self._table.now()))
        else:
            # Before it is accepted nothing comes but its end, which has an answer if an end asks.
            frame = parse_circuit_frame(data)
            if isinstance(frame, CircuitDetach) and frame.how is not DetachKind.LOST:
                refused = CircuitRefused(CircuitCondition.ROUTE_LOST)
                self._table.put(self, serialize_circuit_frame(refused))
            self.lost()

    def lost(self, *, for_good: bool = False) -> None:
        """Receive word that its circuit is gone.

        Args:
            for_good: Whether it cannot come back.
        """
        self._leaving = self._leaving or for_good
        if for_good and self._pure.state is EndState.SUSPENDED:
            self._finish(_LOST)
        elif self._asked is None:
            self._after(self._pure.lost())
        else:
            self._finish(_LOST)

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds."""
        times = [each for each in (self._at, self._pure.get_timer()) if each is not None]
        return min(times, default=None)

    def due(self, now: float) -> None:
        """Send what is due, attach again, or end what was not answered or not resumed in time."""
        self._table.soon(partial(self._due, now))
        self._table.run()

    def _due(self, now: float) -> None:
        if self._at is None or self._at > now:
            self._after(self._pure.due(now))
        elif self._accepts:
            self._finish(_NOT_RESUMED)
        else:
            self._attach()

    # --- what it is told --------------------------------------------------------------------

    def _after(self, events: Iterable[CircuitEvent]) -> None:
        """Send what the end has to send, and report what has happened."""
        for data in self._pure.data_to_send():
            self._table.put(self, data)
        for event in events:
            self._happened(event)
        self._table.arm(self)
        self._table.run()

    def _happened(self, event: CircuitEvent) -> None:
        match event:
            case CircuitDown():
                self._went_down(event)
            case CircuitRefused():
                self._was_refused(event)
            case CircuitAttached():
                self._was_attached = self._up = True
                self._tries = 0
                self._tell(event)
            case _:
                self._tell(event)

    def _went_down(self, down: CircuitDown) -> None:
        was_up, self._up, self.number = self._up, False, 0
        lost = down.how is DetachKind.LOST and self._was_attached and not self._leaving
        if not lost or not self._comes_back():
            self._finish(down)
        elif was_up:
            self._tell(down, again=True)

    def _was_refused(self, refused: CircuitRefused) -> None:
        self.number = 0
        # What a node refuses may be there later; what the other end refuses is its decision.
        may = self._was_attached and refused.condition in _CONDITIONS and not self._leaving
        if not may or not self._comes_back():
            self._finish(refused)

    def _comes_back(self) -> bool:
        """Whether it attaches again, or is kept to be resumed; arrange for that."""
        now, limits = self._table.now(), self._table.limits
        if self.reattach is Reattach.NO or (self._accepts and self.reattach is Reattach.AGAIN):
            return False
        if self._accepts:
            self._at = now + limits.resume_within
            self._table.suspend(self)
        else:
            if not self._tries:
                self._until = now + limits.reattach_within
            elif now >= self._until:
                return False
            self._at = now + min(limits.reattach_first * 2**self._tries, limits.reattach_longest)
            self._tries += 1
        self._table.arm(self)
        return True

    def _finish(self, last: CircuitDown | CircuitRefused) -> None:
        """End it for good."""
        if self.over:
            return
        if self._pure.state is EndState.SUSPENDED:
            self._pure.detach(self._table.now(), closed=True)
        self.over, self._asked, self._at, self.number = True, None, None, 0
        self._table.forget(self)
        self._tell(last)

    def _tell(self, event: CircuitEvent, *, again: bool = False) -> None:
        """Report an event to the end. If its code fails, the circuit ends."""
        try:
            if self._told is not None:
                tell_end(self._told, event, again=again)
        except Exception as error:  # noqa: BLE001 - user code
            self._table.fault(error)
            self.detach(condition=CircuitCondition.END_FAILED)

    def has_room(self) -> None:
        """Receive word that no frame of it waits for a slow link any more."""
        try:
            if self._told is not None and not self.over:
                self._told.ready()
        except Exception as error:  # noqa: BLE001 - user code
            self._table.fault(error)
            self.detach(condition=CircuitCondition.END_FAILED)


_LOST: Final = CircuitDown(DetachKind.LOST, CircuitCondition.ROUTE_LOST)
_NOT_RESUMED: Final = CircuitDown(
    DetachKind.LOST, CircuitCondition.ROUTE_LOST, "it was not resumed in time"
)
_TIED: Final = frozenset({EndState.ATTACHING, EndState.ATTACHED, EndState.RESUMING})
