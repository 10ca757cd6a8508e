"""A link that is tied to a circuit: what one of them says, the other is told.

> Each router in the chain holds pairs of link termini that are tied together. The router then
> simply exchanges all deliveries, delivery state changes, and link state changes between the two
> termini.

A message goes on as it arrives, part by part: it is never whole here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from types import MappingProxyType
from typing import Final

from ...actors.dispatch import CircuitLink
from ...protocol.dispatch import (
    MAX_CONDITION,
    MAX_DESCRIPTION,
    CircuitCondition,
    CircuitMisuse,
    DetachKind,
    Reattach,
)
from ._attaches import check_attach, read_attach, read_window, write_attach
from ._deliveries import Delivery, Pointer
from ._delivery_states import read_state, write_state
from ._link_base import LinkHost, called_by_dispatcher
from ._port import Refused
from ._proton import MODIFIED, AmqpLink, Condition, detach

__all__ = ["CONDITIONS", "RoutedLink", "Tie"]

CONDITIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        CircuitCondition.NO_ROUTE: "amqp:not-found",
        CircuitCondition.ROUTE_LOOP: "amqp:not-found",
        CircuitCondition.ROUTE_LOST: "amqp:link:detach-forced",
        CircuitCondition.CIRCUITS_FULL: "amqp:resource-limit-exceeded",
        CircuitCondition.PEER_CIRCUITS_FULL: "amqp:resource-limit-exceeded",
        CircuitCondition.SHARE_FULL: "amqp:resource-limit-exceeded",
        CircuitCondition.ANSWER_TIMEOUT: "amqp:link:detach-forced",
        CircuitCondition.IDLE: "amqp:link:detach-forced",
        CircuitCondition.CREDIT_EXCEEDED: "amqp:link:transfer-limit-exceeded",
        CircuitCondition.UNSETTLED_EXCEEDED: "amqp:resource-limit-exceeded",
        CircuitCondition.BAD_FRAME: "amqp:internal-error",
        CircuitCondition.TOO_SLOW: "amqp:resource-limit-exceeded",
        CircuitCondition.END_FAILED: "amqp:internal-error",
        CircuitCondition.UNAUTHORIZED: "amqp:unauthorized-access",
    }
)
"""What a client is told for each reason of a node. Reasons of the other end pass as they are."""

_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        CircuitCondition.NO_ROUTE: "no container has this name",
        CircuitCondition.SHARE_FULL: "a share of the circuits is used up",
        CircuitCondition.ROUTE_LOST: "the way to the other end is lost",
    }
)


class Tie(Enum):
    """The state of a link that is tied to a circuit."""

    OPENING = "the other end has not answered"
    OPEN = "it is attached at both ends"
    BROKEN = "its circuit is lost, and is attached again"
    CLOSING = "the peer has detached, and the other end has not"
    OVER = "it has ended here"


class RoutedLink:
    """A link that is tied to a circuit. It is the `CircuitLinkEnd` of the dispatcher.

    Args:
        link: The link.
        host: Its connection.
        accepts: Whether it is of the end that accepts: its peer is a container, which this node has
            asked for the link, and which has to answer first.
        freed: Called with the link once it has ended at both ends.

    Attributes:
        host: As given.
    """

    def __init__(
        self,
        link: AmqpLink,
        host: LinkHost,
        freed: Callable[[AmqpLink], object],
        *,
        accepts: bool = False,
    ) -> None:
        self.host: Final = host
        self._link = link
        self._accepts: Final = accepts
        self._freed: Final = freed
        self._circuit: CircuitLink | None = None
        self._failed: Refused | None = None  # why both have ended, perhaps before its circuit came
        self._tie = Tie.OPENING
        self._opened = accepts
        self._deliveries: dict[bytes, Delivery] = {}
        # The same ones by their keys, each with its tag and the last state told.
        self._tags: dict[Pointer, tuple[Delivery, bytes, bytes]] = {}
        self._window = 0  # bytes that the other end takes at a time; 0: any number
        self._open: bytes | None = None  # the tag of a message that has come in part
        self._settled = False  # whether the other end has settled that one

    def begin(self, circuit: CircuitLink) -> None:
        """Begin with its circuit, which may have answered already."""
        self._circuit = circuit
        if self._failed is not None:
            self._end_circuit(circuit, self._failed)
        self.flowed()

    # --- the dispatcher -------------------------------------------------------------------------

    @called_by_dispatcher
    def attached(self, properties: bytes) -> None:
        """Answer the client as the other end has done, or go on after a loss."""
        self._window = read_window(properties)
        if self._tie is Tie.OPENING:
            link, engine = self._link, self.host.engine
            names = link.remote_source.address, link.remote_target.address
            try:
                items = check_attach(
                    self.host.proton, properties, engine.peer_max_frame, link.name, *names
                )
            except Refused as refused:
                self._fail(refused)
                return
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.snd_settle_mode = link.remote_snd_settle_mode
            write_attach(link, items)
            # A client knows an address by the name that it has asked for.
            link.source.address, link.target.address = names
            link.open()
            self._opened = True
        if self._tie in (Tie.OPENING, Tie.BROKEN):
            self._tie = Tie.OPEN
            for delivery, tag, told in tuple(self._tags.values()):
                # What the peer has said of it while the circuit was lost.
                if delivery.key in self._tags:
                    self._told(delivery, tag, told)
            self.flowed()
            self.host.wake()

    @called_by_dispatcher
    def refused(self, condition: str, description: str) -> None:
        """Refuse the link of the client, or end it if it cannot be attached again."""
        self._end(DetachKind.CLOSED, condition, description)

    @called_by_dispatcher
    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Pass the state of a delivery to the peer."""
        delivery = self._deliveries.get(tag)
        if delivery is None:
            return
        if state:
            write_state(self.host.engine, self.host.proton, delivery, state)
        if settled and tag == self._open:
            self._settled = True  # Proton ends a message by this, so that it is done with the rest.
        elif settled:
            self._forget(tag)
            delivery.settle()
            self.flowed()
        self.host.wake()

    @called_by_dispatcher
    def unresolved(self, tag: bytes) -> None:
        """Report to the peer that the other end does not know a delivery: it is in doubt."""
        self._doubt(tag)
        self.host.wake()

    @called_by_dispatcher
    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """End the link as its circuit has ended, or wait for the next one."""
        self._cut()
        circuit = self._circuit
        if again and circuit is not None and self._tie is Tie.OPEN:
            self._tie = Tie.BROKEN
            if circuit.reattach is not Reattach.RESUME:
                for tag in tuple(self._deliveries):
                    self._doubt(tag)
            self.host.wake()
            return
        self._end(how, condition, description)

    def _end(self, how: DetachKind, condition: str, description: str) -> None:
        if self._tie is Tie.OVER:
            return
        asked, self._tie = self._tie is Tie.CLOSING, Tie.OVER
        self._deliveries.clear()
        self._tags.clear()
        link = self._link
        if not self._opened:
            # AMQP 1.0, part 2, section 2.6.3: a link that is refused is answered with an attach
            # "with null for the source or target", and then closed.
            (link.target if link.is_receiver else link.source).type = 0
            link.open()
        if condition:
            text = _TEXTS.get(condition, description)
            named = CONDITIONS.get(condition, condition)
            link.condition = self.host.engine.condition(named, text)
        if how is DetachKind.DETACHED:
            detach(link)
        else:
            link.close()
        if asked:
            self._freed(link)
        self.host.wake()

    @abstractmethod
    def _cut(self) -> None:
        """Give up a message that has come in part."""

    def _doubt(self, tag: bytes) -> None:
        delivery = self._deliveries.get(tag)
        if delivery is None:
            return
        self._forget(tag)
        if self._link.is_receiver:
            delivery.local.failed = True
            delivery.update(MODIFIED)
        delivery.settle()

    def _begin_message(self, tag: bytes, delivery: Delivery) -> None:
        """Begin with a message, which has come in part or as a whole."""
        self._open, self._settled = tag, False
        self._deliveries[tag] = delivery
        self._tags[delivery.key] = delivery, tag, b""

    def _forget(self, tag: bytes) -> None:
        delivery = self._deliveries.pop(tag, None)
        if delivery is not None:
            self._tags.pop(delivery.key, None)

    # --- the peer -------------------------------------------------------------------------------

    def answered(self) -> None:
        """Receive the attach of a container, which accepts the circuit unless it refuses."""
        link, circuit = self._link, self._circuit
        asked = link.remote_source if link.is_receiver else link.remote_target
        if circuit is None or self._tie is not Tie.OPENING or not asked.type:
            return  # AMQP 1.0, part 2, section 2.6.3: it is refused, and its end follows.
        try:
            circuit.accept(read_attach(self.host.proton, link, self.host.window))
        except Refused as refused:
            self._fail(refused)
            return
        except CircuitMisuse:
            return  # It has ended, and that is told next.
        self._tie = Tie.OPEN
        self.flowed()

    def changed(self, delivery: Pointer) -> None:
        """Pass on what the peer has sent, and what it says of deliveries."""
        found = self._tags.get(delivery)
        if found is not None:
            self._told(*found)
        self._moved()

    def _told(self, delivery: Delivery, tag: bytes, told: bytes) -> None:
        """Pass on what the peer says of a delivery, beside what it has said before."""
        circuit = self._circuit
        if circuit is not None and self._tie is Tie.OPEN:
            state, settled = read_state(self.host.proton, delivery), delivery.settled
            if settled and tag != self._open:
                self._forget(tag)
                with suppress(CircuitMisuse):  # It has ended, and that is told next.
                    circuit.dispose(tag, state, settled=True)
                delivery.settle()
                self.flowed()
            elif state != told:
                self._tags[delivery.key] = delivery, tag, state
                with suppress(CircuitMisuse):
                    circuit.dispose(tag, state, settled=False)

    @abstractmethod
    def _moved(self) -> None:
        """Read what the peer has sent."""

    @abstractmethod
    def flowed(self) -> None:
        """Pass credit on."""

    def resume(self) -> None:
        """Go on once the peer has read what was held back for it; here nothing is."""

    def detach(self, *, closed: bool) -> bool:
        """Pass the detach of the peer on; return whether the other end will answer it."""
        circuit, tie = self._circuit, self._tie
        if circuit is None or tie is Tie.OVER:
            return False
        name, text = _reason(self._link.remote_condition)
        if self._accepts and tie is Tie.OPENING:
            self._tie = Tie.OVER
            with suppress(CircuitMisuse):
                circuit.refuse(name or "amqp:not-found", text)
            return False
        self._tie = Tie.CLOSING
        with suppress(CircuitMisuse):
            circuit.detach(closed=closed, condition=name, description=text)
        return True

    def gone(self) -> None:
        """End the circuit after the connection or the session of its link."""
        circuit, tie = self._circuit, self._tie
        self._tie = Tie.OVER
        self._link = self.host.engine.stray_link
        self._deliveries.clear()
        self._tags.clear()
        if circuit is None or tie is Tie.OVER:
            return
        with suppress(CircuitMisuse):
            if self._accepts and tie is Tie.OPENING:
                circuit.refuse(CircuitCondition.ROUTE_LOST)
            elif tie is not Tie.CLOSING:
                circuit.detach(closed=True, condition=CircuitCondition.ROUTE_LOST)

    def _fail(self, reason: Refused) -> None:
        """End both the circuit and the link, since one end has said what the other cannot take."""
        self._failed = reason
        self._end(DetachKind.CLOSED, reason.condition, reason.description)
        if self._circuit is not None:
            self._end_circuit(self._circuit, reason)

    @staticmethod
    def _end_circuit(circuit: CircuitLink, reason: Refused) -> None:
        with suppress(CircuitMisuse):
            circuit.detach(closed=True, condition=reason.condition, description=reason.description)


def _reason(found: Condition | None) -> tuple[str, str]:
    """Return the condition and the text that a peer has told, cut to what a circuit carries."""
    if found is None:
        return "", ""
    condition = (found.name or "").encode(errors="ignore")[:MAX_CONDITION]
    text = (found.description or "").encode(errors="ignore")[:MAX_DESCRIPTION]
    return condition.decode(errors="ignore"), text.decode(errors="ignore")
