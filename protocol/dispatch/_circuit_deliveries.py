"""The deliveries of one end of a circuit: the unsettled map, and the one that is unfinished."""

from __future__ import annotations

from typing import Final

from ._circuit_events import CircuitEvent, CircuitUnresolved
from ._circuit_frames import CircuitDisposition, CircuitTransfer, UnsettledMap
from ._circuit_states import CircuitCondition

TOO_MANY: Final = "too many deliveries are unsettled"
"""The refusal of a delivery for which there is no room in the unsettled map."""


class CircuitDeliveries:
    """The deliveries of an end.

    Args:
        most: Unsettled deliveries that there may be.

    Attributes:
        most: The same; the lower one of both ends once they are attached.
        open: The tag of the delivery of which a further part follows; `None` for none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: bytes | None = None
        self._states: dict[bytes, bytes] = {}

    def __contains__(self, tag: object) -> bool:
        """Whether a delivery is unsettled."""
        return tag in self._states

    @property
    def unsettled(self) -> UnsettledMap:
        """The unsettled deliveries with the last state that the consumer has given to each."""
        return tuple(self._states.items())

    @property
    def has_room(self) -> bool:
        """Whether there may be one more unsettled delivery."""
        return len(self._states) < self.most

    def refusal(self, frame: CircuitTransfer, most: int | None = None) -> str | None:
        """Return why a delivery, or a part of one, may not be sent or come; `None` if it may.

        Args:
            frame: The part.
            most: Unsettled deliveries that there may be, if it is not `most` of this end.
        """
        tag = frame.tag
        if self.open is not None:
            return None if tag == self.open else "another delivery is unfinished"
        if tag in self._states:
            return "the tag is in use"
        room = len(self._states) < (self.most if most is None else most)
        return None if frame.settled or room else TOO_MANY

    def record(self, frame: CircuitTransfer) -> None:
        """Record a part that was sent, or has come."""
        tag = frame.tag
        if frame.aborted or frame.settled:
            self._states.pop(tag, None)
        elif self.open is None:
            self._states[tag] = b""
        self.open = tag if frame.more else None

    def give_up_open(self) -> bytes | None:
        """Forget the delivery that is unfinished, and return its tag."""
        tag, self.open = self.open, None
        if tag is not None:
            self._states.pop(tag, None)
        return tag

    def apply(self, tag: bytes, state: bytes, *, settled: bool, keep: bool) -> None:
        """Apply a disposition.

        Args:
            tag: The tag of an unsettled delivery.
            state: Its state.
            settled: Whether the delivery is settled.
            keep: Whether the state is the consumer's, which is kept.
        """
        if settled:
            del self._states[tag]
        elif keep:
            self._states[tag] = state

    def compare(self, theirs: UnsettledMap | None, *, producer: bool) -> tuple[CircuitEvent, ...]:
        """Compare the map with that of the other end, and make it what both agree on.

        Args:
            theirs: The map of the other end; `None` if the circuit is not resumed.
            producer: Whether this end is the producer.
        """
        found = dict(theirs or ())
        made: list[CircuitEvent] = []
        for tag, state in self.unsettled:
            if tag not in found:
                del self._states[tag]
                gone = CircuitDisposition(tag, b"", settled=True)
                made.append(CircuitUnresolved(tag) if producer else gone)
            elif producer and found[tag] != state:
                self._states[tag] = found[tag]
                made.append(CircuitDisposition(tag, found[tag]))
        return tuple(made)


class Broken(Exception):
    """The other end has broken the protocol."""

    def __init__(self, condition: CircuitCondition) -> None:
        super().__init__(condition)
        self.condition = condition
