"""A link by which the peer sends, tied to a circuit of which this end is the producer."""

from __future__ import annotations

from contextlib import suppress

from ...actors.dispatch import CircuitLink
from ...protocol.dispatch import MAX_TAG, CircuitMisuse
from ._attaches import QUARTERS
from ._deliveries import PART, Delivery
from ._link_base import called_by_dispatcher
from ._port import Refused
from ._proton import MODIFIED, RELEASED
from ._routed import RoutedLink, Tie

__all__ = ["RoutedIncomingLink"]


class RoutedIncomingLink(RoutedLink):
    """A link by which the peer sends, tied to a circuit."""

    _aborting = False
    _drain = False
    _drained = False  # the drain flag of the last flow
    _on_way = 0  # bytes that the other end has not read, as far as it is known

    # --- the dispatcher -------------------------------------------------------------------------

    @called_by_dispatcher
    def flow(self, credit: int, drain: bool) -> None:
        """Give the peer the credit of the other end."""
        if not credit and drain is self._drained:
            # The other end has read a part of what is on its way.
            self._on_way = max(0, self._on_way - self._window // QUARTERS)
            self._moved()
            return
        self._drain = self._drained = drain
        self._give()
        # What came before there was credit again, after a loss.
        self._moved()

    @called_by_dispatcher
    def ready(self) -> None:
        """Read on, once the link to the next node takes more."""
        self._moved()

    def drained(self, credit: int) -> None:
        """Receive credit back, which only a producer gives."""

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Receive a message, which only a consumer does."""

    def _give(self) -> None:
        circuit = self._circuit
        if circuit is None or self._tie is not Tie.OPEN:
            return
        # The credit of a message that has come in part is used at the circuit, and not here yet.
        given = self._link.credit - (self._open is not None)
        more = max(0, min(circuit.credit, circuit.limit - len(self._deliveries)) - given)
        if not self._drain:
            if more or self._link.drain_mode:
                self._link.flow(more)
        elif more + given > 0:
            self._link.drain(more)
        else:
            self._give_back(circuit)
        self.host.wake()

    def _give_back(self, circuit: CircuitLink) -> None:
        self._drain = False
        with suppress(CircuitMisuse):  # It has ended, and that is told next.
            circuit.drained()

    def _cut(self) -> None:
        if self._open is not None and not self._aborting:
            # The rest of it is read, and goes nowhere.
            self._aborting = True
            self._forget(self._open)
            self.host.drop("cut short")

    # --- the peer -------------------------------------------------------------------------------

    def gone(self) -> None:
        """End the circuit after the connection or the session of its link."""
        self._cut()
        super().gone()

    def flowed(self) -> None:
        """See whether the peer has given credit back, and give what it may have."""
        circuit = self._circuit
        if circuit is None or self._tie is not Tie.OPEN:
            return
        if self._link.drained() > 0:
            self._give_back(circuit)
        self._give()
        self._moved()

    def _moved(self) -> None:
        current = self.host.engine.binding.current
        while (delivery := current(self._link)) is not None and self._read(delivery):
            pass

    def _read(self, delivery: Delivery) -> bool:
        """Pass a part of a message on; return whether there may be another one."""
        if delivery.partial and not (delivery.pending or delivery.aborted):
            return False
        circuit = self._circuit
        if self._aborting or circuit is None or self._tie in (Tie.CLOSING, Tie.OVER):
            return self._skip(delivery)
        if self._tie is not Tie.OPEN or circuit.waiting:
            return False
        if self._window and self._on_way >= self._window:
            return False
        tag = self._open
        if tag is None:
            tag = delivery.tag
            if not circuit.credit:
                # What the peer was given before a loss it may use once there is credit again.
                if self._link.credit <= 0:
                    self._fail(Refused("amqp:link:transfer-limit-exceeded"))
                return False
            if len(tag) > MAX_TAG:
                self._fail(Refused("amqp:invalid-field", f"a tag of over {MAX_TAG} bytes"))
                return False
            if tag in self._deliveries:
                self._fail(Refused("amqp:invalid-field", "the tag is in use"))
                return False
            if len(self._deliveries) >= circuit.limit and not delivery.settled:
                self._fail(Refused("amqp:resource-limit-exceeded", "too much is unsettled"))
                return False
            self._begin_message(tag, delivery)
        return self._pass(circuit, delivery, tag)

    def _pass(self, circuit: CircuitLink, delivery: Delivery, tag: bytes) -> bool:
        aborted = delivery.aborted
        most = min(PART, self._window - self._on_way) if self._window else PART
        part = b"" if aborted else self.host.engine.binding.read(self._link, most)
        more = not aborted and (delivery.partial or delivery.pending > 0)
        settled = delivery.settled and not aborted
        self._on_way += len(part)
        with suppress(CircuitMisuse):  # It has ended, and that is told next.
            circuit.send(tag, part, more=more, aborted=aborted, settled=settled)
        if more:
            return True
        self._open = None
        self._link.advance()
        if aborted:
            self.host.drop("aborted")
        if aborted or settled or self._settled:
            self._forget(tag)
            delivery.settle()
            self._give()
        return True

    def _skip(self, delivery: Delivery) -> bool:
        """Read what goes nowhere."""
        read = self.host.engine.binding.read
        while not delivery.aborted and read(self._link):
            pass
        if delivery.partial and not delivery.aborted:
            return False
        self._link.advance()
        if self._aborting:
            self._aborting, self._open = False, None
            delivery.local.failed = True
            delivery.update(MODIFIED)
        elif delivery.settled and not delivery.aborted:
            self.host.drop("link closed")
        elif not delivery.aborted:
            delivery.update(RELEASED)  # Without a state, it could be taken for success.
        delivery.settle()
        return True
