"""A container: it accepts or refuses the circuits that are attached to a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import Message
from ...protocol.dispatch import CircuitAttach, CircuitCondition, CircuitPool, Reattach, Refusal
from ...protocol.security import Principal
from ._circuit_ends import AcceptCircuit
from ._circuit_link import CircuitLink
from ._consumer_record import Accept, ConsumerRecord
from ._errors import ConsumerRefused
from ._name_state import NameState

if TYPE_CHECKING:
    from ._circuit_table import CircuitTable
    from ._core import DispatchCore

__all__ = ["CircuitContainer", "ContainerEnded"]

ContainerEnded: TypeAlias = Callable[[ConsumerRefused], object]
"""Function that is told why a container has ended, if it has not been closed."""


class CircuitContainer:
    """A container of a name: a consumer of it that takes circuits.

    Args:
        core: The dispatcher.
        state: The state of its name.
        accept: Gives an end to each circuit that is asked for.
        principal: The principal that serves; `None` for a program of this node.
        ended: Is told of its end.
        pool: As of `Dispatcher.serve_circuits`.

    Attributes:
        pool: As given.
        name: The name.
        number: Its number at the node.
        reason: The reason for which it has ended; `None` while it is there.
    """

    def __init__(
        self,
        core: DispatchCore,
        state: NameState,
        accept: AcceptCircuit,
        principal: Principal | None,
        ended: ContainerEnded | None,
        pool: CircuitPool | None,
    ) -> None:
        self.pool: Final = pool
        self.name: Final = state.name.text
        self.number: Final = core.number()
        self.reason: Refusal | None = None
        self._core: Final = core
        self._accept: Final = accept
        self._told: Final = ended
        self._record: Final = ConsumerRecord(
            self.number,
            (),
            core.options.circuits.max_peer_circuits,
            Accept.SELF,
            remote=False,
            ended=self._ended,
            state=state,
            by_credit=True,
            circuits=True,
            deliver=_none,
            principal=principal,
        )

    @property
    def active(self) -> bool:
        """Whether it gets circuits; one on standby does not yet."""
        return self._record.active

    def attach(self) -> None:
        """Attach it to its name.

        Raises:
            ConsumerRefused: The name takes no further container.
        """
        self._core.circuits.add_container(self)
        try:
            self._record.state.add_consumer(self._record)
        except ConsumerRefused:
            self._core.circuits.remove_container(self)
            raise

    def close(self) -> None:
        """Detach it: its circuits are lost. Idempotent."""
        if self.reason is None:
            self._core.attachments.detach(self._record, Refusal.CLOSED)

    def _ended(self, reason: Refusal) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        self._core.circuits.remove_container(self)
        if self._told is not None and reason is not Refusal.CLOSED:
            self._told(ConsumerRefused(self.name, reason))

    # --- for the circuits of the node -------------------------------------------------------

    def make(self, table: CircuitTable, attach: CircuitAttach) -> CircuitLink:
        """Return the end of a circuit that is asked for."""
        state = self._record.state
        # What the name says now holds for the life of the circuit.
        reattach = Reattach.RESUME if state.semantics.reattach is Reattach.RESUME else Reattach.NO
        link = CircuitLink(table, state.name, not attach.producer, reattach, attach)
        link.container = self.number
        return link

    def offer(self, link: CircuitLink, attach: CircuitAttach) -> None:
        """Ask the program to accept or refuse a circuit, now or later."""
        try:
            end = self._accept(attach, link)
        except Exception as error:  # noqa: BLE001 - user code
            self._core.circuits.fault(error)
            link.detach(condition=CircuitCondition.END_FAILED)
        else:
            link.begin(end)


def _none(_message: Message, _token: bytes | None) -> None:
    raise AssertionError("a message for a container")
