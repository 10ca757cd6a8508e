"""A link by which the peer receives, tied to a circuit of which this end is the consumer."""

from __future__ import annotations

from contextlib import suppress

from ...protocol.dispatch import CircuitMisuse, DetachKind
from ._attaches import QUARTERS
from ._deliveries import Delivery
from ._link_base import called_by_dispatcher
from ._port import Refused
from ._routed import RoutedLink, Tie

__all__ = ["RoutedOutgoingLink"]


class RoutedOutgoingLink(RoutedLink):
    """A link by which the peer receives, tied to a circuit."""

    _sending: Delivery | None = None
    _drain = False
    _unread = 0  # bytes for the peer, without the parts that it has read

    # --- the dispatcher -------------------------------------------------------------------------

    @called_by_dispatcher
    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Send a message, or a part of one."""
        if self._tie is not Tie.OPEN:
            return
        self._unread += len(payload)
        if self._unread > max(self.host.options.max_unsent, len(payload)):
            # A program sends without regard for the window; an edge does not.
            self.host.drop("not read")
            self._fail(Refused("amqp:resource-limit-exceeded", "the receiver does not read"))
            return
        delivery = self._sending
        if delivery is None:
            delivery = self._sending = self.host.engine.binding.begin(self._link, tag)
            self._begin_message(tag, delivery)
        # AMQP 1.0, part 2, section 2.7.5: "For subsequent transfers in a multi-transfer delivery if
        # the settled flag is left unset then it MUST be interpreted as true if and only if the
        # value of the settled flag on any of the preceding transfers was true".
        self._settled = self._settled or settled
        if aborted:
            self._abort("aborted")
        else:
            self._link.stream(payload)
            if not more:
                self._sent(tag, delivery)
            self.resume()
        self.host.wake()

    def resume(self) -> None:
        """Report to the other end what the peer has read, so that more comes."""
        part = self.host.window // QUARTERS
        circuit = self._circuit
        if circuit is None or self._unread < part or self._tie is not Tie.OPEN:
            return
        unsent = self.host.engine.unsent()
        while self._unread - part >= unsent:
            self._unread -= part
            if self._window:
                with suppress(CircuitMisuse):  # It has ended, and that is told next.
                    circuit.grant(0, drain=self._drain)

    def _sent(self, tag: bytes, delivery: Delivery) -> None:
        self._link.advance()
        self._sending = self._open = None
        if self._settled:
            self._forget(tag)
            delivery.settle()
        elif delivery.settled:  # the peer has done so in the middle
            self._told(*self._tags[delivery.key])

    def _cut(self) -> None:
        self._abort("cut short")

    def _abort(self, reason: str) -> None:
        tag, delivery = self._open, self._sending
        self._sending = self._open = None
        if delivery is not None and tag is not None:
            self.host.drop(reason)
            self._forget(tag)
            delivery.abort()

    @called_by_dispatcher
    def drained(self, credit: int) -> None:
        """Give the credit of the peer back that the other end does not use."""
        del credit  # it is all of it
        if self._tie is Tie.OPEN and self._link.drain_mode:
            self._link.drained()
            self.host.wake()

    def flow(self, credit: int, drain: bool) -> None:
        """Receive credit, which only a consumer gives."""

    def ready(self) -> None:
        """Receive word that frames have gone, of which there were none."""

    # --- the peer -------------------------------------------------------------------------------

    def gone(self) -> None:
        """End the circuit after the connection or the session of its link."""
        self._sending = None
        super().gone()

    def flowed(self) -> None:
        """Pass the credit of the peer on, and its wish to drain."""
        circuit = self._circuit
        if circuit is None or self._tie is not Tie.OPEN:
            return
        # The credit of a message that is sent in part is used at the circuit, and not here yet.
        more = max(0, self._link.credit - (self._sending is not None) - circuit.credit)
        drain = self._link.drain_mode
        if more or drain is not self._drain:
            self._drain = drain
            with suppress(CircuitMisuse):  # It has ended, and that is told next.
                circuit.grant(more, drain=drain)

    def _moved(self) -> None:
        """Read nothing: the peer sends no messages."""

    def _end(self, how: DetachKind, condition: str, description: str) -> None:
        self._cut()
        super()._end(how, condition, description)
