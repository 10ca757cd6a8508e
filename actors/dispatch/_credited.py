"""Producers and consumers with credit that is given and taken by calls: see `ProducerEnd`."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...protocol import Message
from ...protocol.dispatch import (
    MODIFIED,
    RELEASED,
    BadName,
    Outcome,
    Refusal,
    Rejected,
    Share,
)
from ...protocol.security import Principal
from ._access import UNAUTHORIZED, may_produce
from ._arrival import Arrival, ProducerPath
from ._consumer_record import Accept, ConsumerRecord
from ._ends import ConsumerEnd, OutcomeCallback, ProducerEnd
from ._errors import ConsumerRefused, ProducerClosed

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["CreditedConsumer", "CreditedProducer"]

_TOO_BIG: Final = Rejected("amqp:link:message-size-exceeded", "the message is too large")
_NO_ROOM: Final = Rejected("amqp:resource-limit-exceeded", "there are too many names")
_NO_NAME: Final = Rejected("amqp:invalid-field", "the address is no name")


class CreditedProducer:
    """A producer of one name, or an anonymous one. It is a `ProducerLink`.

    An anonymous producer has a window at any time: its credit comes back with each outcome. One of
    a name has that of its name, and is asked to drain when the name takes credit back.

    Args:
        core: The dispatcher.
        end: Its end.
        state: The state of its name; `None` for an anonymous one.
        principal: The principal that it sends for, which is checked for each name of an anonymous
            one; `None` for this program itself.
        client: Its connection.

    Attributes:
        number: Its number at this node.
        state: The state of its name.
        closed: Whether it has been closed.
        share: What its source has at this node.
        last_sent: When it sent its last message, in seconds; only of an anonymous one.
    """

    def __init__(
        self,
        core: DispatchCore,
        end: ProducerEnd,
        state: NameState | None,
        principal: Principal | None,
        client: Hashable = None,
    ) -> None:
        self.number: Final = core.number()
        self.state: Final = state
        self.closed = False
        self._core: Final = core
        self._end: Final = end
        self._principal: Final = principal
        self.share: Final = core.share_of(principal, client)
        self._given = 0  # credit that the end has and has not used
        self._draining = False
        self._sends = 0
        self._open: Final[dict[int, tuple[OutcomeCallback, NameState]]] = {}
        self._window = core.options.anonymous_window
        self.last_sent = 0.0

    @property
    def credit(self) -> int:
        """The messages that it may send at once."""
        if self.state is not None:
            return self.state.credit_of(self.number)
        return max(0, self._window - len(self._open))

    # --- for its end ------------------------------------------------------------------------

    def send(
        self, name: str | None, message: bytes, ttl: float | None, told: OutcomeCallback | None
    ) -> None:
        """Dispatch a message; see `ProducerLink.send`."""
        if self.closed:
            return
        self._given = max(0, self._given - 1)
        found = self._destination(name, message)
        if isinstance(found, Rejected):
            self._refuse(found, told)
            return
        state = found
        core, path = self._core, None
        if self.state is None:
            self.last_sent = core.now()
        elif not state.credit_of(self.number):
            self._refuse(RELEASED, told)
            return
        if told is not None:
            self._sends += 1
            self._open[self._sends] = told, state
            path = ProducerPath(self.number, self._sends)
        until = None if ttl is None else core.now() + ttl
        self._bind(
            state,
            Arrival(
                Message((), (), message, None, None),
                told is None,
                core.identity(),
                self.number,
                path,
                until=until,
                deadline=until,
                share=self.share,
            ),
        )
        core.names.tidy(state)
        if self.state is None:
            self.woken()

    def drained(self, messages: int) -> None:
        """Receive credit back; see `ProducerLink.drained`."""
        self._given = max(0, self._given - messages)
        self._draining = False
        self.woken()

    def close(self) -> None:
        """Detach it; see `ProducerLink.close`."""
        if self.closed:
            return
        self.closed = True
        core = self._core
        core.attachments.gone(self.number)
        states = {id(state): state for _, state in self._open.values()}
        if self.state is not None:
            states[id(self.state)] = self.state
        self._open.clear()
        for state in states.values():
            state.remove_producer(self.number)
            core.names.tidy(state)

    # --- for the dispatcher -----------------------------------------------------------------

    def ended(self, path: ProducerPath, outcome: Outcome | None, answer: Message | None) -> None:
        """Receive the outcome of a message."""
        del answer  # AMQP has its replies as messages of their own
        found = self._open.pop(path.send, None)
        if found is None:
            return
        found[0](outcome or MODIFIED)
        self.woken()

    def woken(self) -> None:
        """Receive word that the credit may have changed."""
        if self.closed:
            return
        credit = self.credit
        if credit > self._given:
            more, self._given = credit - self._given, credit
            self._draining = False
            self._end.credit(more)
        elif credit < self._given and not self._draining:
            self._draining = True
            self._end.drain()

    def stop(self) -> None:
        """End it, since the dispatcher stops."""
        self.close()
        self._end.end(ProducerClosed("" if self.state is None else self.state.name.text))

    def detach(self, reason: Refusal) -> None:
        """End it for a reason, as one that would be refused now."""
        self.close()
        self._end.end(ConsumerRefused("" if self.state is None else self.state.name.text, reason))

    # --- sending ----------------------------------------------------------------------------

    def _destination(self, name: str | None, message: bytes) -> NameState | Rejected:
        """Return the state of the name of a message, or why it is refused."""
        core = self._core
        if len(message) > core.node.limits.payload:
            return _TOO_BIG
        if self.state is not None:
            return self.state
        try:
            read = core.parse(name or "")
        except BadName:
            return _NO_NAME
        if not may_produce(core.provisioning.semantics_of(read), self._principal):
            return UNAUTHORIZED
        return core.names.find(read, self.share) or _NO_ROOM

    def _bind(self, state: NameState, arrival: Arrival) -> None:
        """Give a message to its name, with credit of this producer if it is one of the name."""
        if self.state is None:
            state.bind(arrival)
        elif not state.send(self.number, arrival):
            raise AssertionError("a send without credit")

    def _refuse(self, outcome: Outcome, told: OutcomeCallback | None) -> None:
        self._core.counts["messages of producers that were refused at once"] += 1
        if told is not None:
            told(outcome)
        self.woken()


class CreditedConsumer:
    """A consumer that asks for each message by credit. It is a `ConsumerLink`.

    Args:
        core: The dispatcher.
        end: Its end.
        state: The state of its name.
        principal: The principal that consumes; `None` for this program itself.
        share: What its source has at this node; `None`: it is the program itself.
    """

    def __init__(
        self,
        core: DispatchCore,
        end: ConsumerEnd,
        state: NameState,
        principal: Principal | None,
        share: Share | None,
    ) -> None:
        self._core: Final = core
        self._end: Final = end
        self._state: Final = state
        self._closed = False
        self.record: Final = ConsumerRecord(
            core.number(),
            (),
            state.semantics.window,
            Accept.SELF,
            remote=False,
            ended=_ignore,
            state=state,
            by_credit=True,
            deliver=self._deliver,
            principal=principal,
            share=share,
        )

    def attach(self) -> None:
        """Attach it to its name.

        Raises:
            ConsumerRefused: The name takes no further consumer.
        """
        self._state.add_consumer(self.record)
        self.record.ended = self._ended

    def credit(self, messages: int) -> None:
        """Ask for messages; see `ConsumerLink.credit`."""
        if not self._closed:
            self._state.credit(self.record.number, messages)
            self._core.names.tidy(self._state)

    def drain(self) -> None:
        """Give up credit; see `ConsumerLink.drain`."""
        if not self._closed:
            self._state.drain(self.record.number)
            self._end.drained()

    def close(self) -> None:
        """Detach it; see `ConsumerLink.close`."""
        if not self._closed:
            self._closed = True
            self._core.attachments.detach(self.record, None)

    def _deliver(self, message: Message, token: bytes | None) -> None:
        if token is None:
            self._end.deliver(message.payload, None)
            return
        told = partial(self._core.copies.disposition, token, target=self.record.target)
        self._end.deliver(message.payload, told)

    def _ended(self, reason: Refusal) -> None:
        if not self._closed:
            self._closed = True
            self._end.end(ConsumerRefused(self._state.name.text, reason))


def _ignore(_reason: Refusal) -> None:
    """Receive the end of a consumer that is not attached yet."""
