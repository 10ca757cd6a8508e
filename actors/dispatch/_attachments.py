"""The consumers and producers of a node: how each is attached, and what ends with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import Address, AddressLike, Route, RouteLike
from ...protocol.dispatch import Name, NameKind, Refusal, Share, temporary_name
from ...protocol.options import Count, check_value
from ...protocol.security import Principal
from .._errors import LimitReached
from ..routing._given import as_route
from ..runtime._cell import Cell
from ..runtime._policy import MailboxOptions
from ._access import may_consume, may_produce
from ._consumer import Consumer, ConsumerWorker, Handler
from ._consumer_record import Accept, ConsumerRecord
from ._credited import CreditedConsumer, CreditedProducer
from ._ends import ConsumerEnd, ProducerEnd
from ._errors import ConsumerRefused
from ._name_state import NameState
from ._producer import AnonymousProducer, Producer

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._sender import Sender

__all__ = ["Attachments"]


class _Watched(NamedTuple):
    """A worker with which consumers end.

    Attributes:
        unwatch: Ends the watch of it.
        alone: The worker, as all that a consumer ends with.
        records: The consumers, by their numbers.
    """

    unwatch: Callable[[], None]
    alone: tuple[Cell]
    records: dict[int, ConsumerRecord]


class Attachments:
    """The consumers and producers of a node.

    Args:
        core: The dispatcher.

    Attributes:
        producers: The producers, by number.
        anonymous: The anonymous ones, by number.
        watched: By worker the end of its watch, and the consumers that end with it.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self.producers: Final[dict[int, Sender | CreditedProducer]] = {}
        self.anonymous: Final[dict[int, AnonymousProducer | CreditedProducer]] = {}
        self.watched: Final[dict[Cell, _Watched]] = {}
        # By name the producers that were attached for a principal.
        self._principals: Final[dict[str, dict[int, Principal]]] = {}
        # Temporary names that were made for links, and are not consumed yet.
        self._temporary: Final[dict[str, None]] = {}

    def _state(self, name: Name, share: Share | None = None) -> NameState:
        state = self._core.names.find(name, share)
        if state is None:
            full = share is None or self._core.names.is_full
            raise ConsumerRefused(name.text, Refusal.NAMES if full else Refusal.SHARE)
        return state

    # --- consumers --------------------------------------------------------------------------

    async def consume(
        self,
        name: str,
        consumer: Handler | RouteLike,
        window: int,
        accept: Accept | None,
        owner: AddressLike | None,
        principal: Principal | None,
    ) -> Consumer:
        """Attach a consumer to a name; see `Dispatcher.consume`."""
        read = self._core.parse(name)
        if (reason := _ELSEWHERE.get(read.kind)) is not None:
            raise ConsumerRefused(read.text, reason)
        self._check_consumer(read, principal)
        return await self._consume(read, consumer, window, accept, owner, principal)

    async def temporary(
        self,
        consumer: Handler | RouteLike,
        window: int,
        accept: Accept | None,
        owner: AddressLike | None,
    ) -> Consumer:
        """Attach a consumer to a new temporary name; see `Dispatcher.temporary`."""
        name = temporary_name(self._core.own, token_bytes(16))
        return await self._consume(name, consumer, window, accept, owner, None)

    async def _consume(
        self,
        name: Name,
        consumer: Handler | RouteLike,
        window: int,
        accept: Accept | None,
        owner: AddressLike | None,
        principal: Principal | None,
    ) -> Consumer:
        check_value("window", window, Count)
        by_handler = callable(consumer)
        accept = accept or (Accept.HANDLED if by_handler else Accept.REPLY)
        wrong = (Accept.REPLY,) if by_handler else (Accept.HANDLED, Accept.SELF)
        if accept in wrong:
            raise ValueError(f"a consumer of this kind cannot accept by {accept.value!r}")
        core = self._core
        if not callable(consumer):
            route = as_route(consumer)
            return self._attach(name, route, None, window, accept, owner, principal)
        worker = ConsumerWorker(core, consumer)
        mailbox = MailboxOptions(limit=max(window, 1))
        address = await core.worker.start_child(lambda: worker, mailbox=mailbox)
        return self._attach(name, (address,), worker, window, accept, owner, principal)

    def attach_destination(
        self, name: Name, route: Route, principal: Principal | None, wished: bool
    ) -> Consumer:
        """Attach a destination of the broker, which accepts by its answer.

        Args:
            name: The name.
            route: The route to it.
            principal: The principal of its connection; `None` for a worker of this node.
            wished: Whether it has asked for the name itself.
        """
        if wished:
            if (reason := _ELSEWHERE.get(name.kind)) is not None:
                raise ConsumerRefused(name.text, reason)
            self._check_consumer(name, principal)
        else:
            principal = None  # this node has provisioned that it is one
        window = self._core.provisioning.semantics_of(name).window
        return self._attach(name, route, None, window, Accept.REPLY, None, principal)

    def _attach(
        self,
        name: Name,
        route: Route,
        worker: ConsumerWorker | None,
        window: int,
        accept: Accept,
        owner: AddressLike | None,
        principal: Principal | None,
    ) -> Consumer:
        core = self._core
        try:
            share = core.share_of(principal)
            state = self._state(name, share)
        except ConsumerRefused:
            if worker is not None:
                worker.stop()
            raise
        cell = core.node.parts.table.cell_at(route[0])
        record = ConsumerRecord(
            core.number(),
            route,
            window,
            accept,
            remote=cell is not None and cell.worker.leaves_node,
            ended=_ignore,
            state=state,
            worker=worker,
            principal=principal,
            share=share,
        )
        if worker is not None:
            worker.record = record
        made = Consumer(state, record, core)
        watched = [route[0]] if owner is None else [route[0], _address(owner)]
        try:
            for each in watched:
                self._watch(each, record)
            state.add_consumer(record)
        except Exception:
            self.released(record)
            core.names.tidy(state)
            raise
        return made

    def detach(self, record: ConsumerRecord, reason: Refusal | None) -> None:
        """Detach a consumer."""
        record.state.remove_consumer(record.number, reason)
        self._core.names.tidy(record.state)

    def check_access(self, state: NameState) -> None:
        """Detach the consumers and producers of a name that would be refused now."""
        semantics = self._core.provisioning.semantics_of(state.name)
        for record in list(state.consumers.values()):
            if not may_consume(semantics, record.principal):
                self.detach(record, Refusal.ROLES)
        for number, principal in list(self._principals.get(state.name.text, {}).items()):
            if not may_produce(semantics, principal):
                self.producers[number].detach(Refusal.ROLES)

    def released(self, record: ConsumerRecord) -> None:
        """End what ends with a consumer that is detached."""
        for cell in record.watched:
            if (watch := self.watched.get(cell)) is None:
                continue
            watch.records.pop(record.number, None)
            if not watch.records:
                watch.unwatch()
                del self.watched[cell]
        record.watched = ()
        if record.worker is not None:
            record.worker.stop()

    def _watch(self, address: Address, record: ConsumerRecord) -> None:
        """Detach a consumer when a worker has stopped: all consumers of a worker share a watch."""
        cell = self._core.node.parts.table.cell(address)
        if cell not in self.watched:
            unwatch = self._core.node.watch(address, lambda: self._stopped(cell))
            self.watched[cell] = _Watched(unwatch, (cell,), {})
        watch = self.watched[cell]
        watch.records[record.number] = record
        # Consumers that end with one worker alone share the tuple of it.
        record.watched = (*record.watched, cell) if record.watched else watch.alone

    def _stopped(self, cell: Cell) -> None:
        # What it has not read is released, and not in doubt as what it has.
        self._core.schedule.perform()
        if (watch := self.watched.pop(cell, None)) is not None:
            for record in list(watch.records.values()):
                self.detach(record, Refusal.GONE)

    def handled(self, record: ConsumerRecord) -> None:
        """Receive word that a consumer has handled a pre-settled message."""
        if record.state.consumers.get(record.number) is record:
            record.state.handled(record)

    def _check_consumer(self, name: Name, principal: Principal | None) -> None:
        semantics = self._core.provisioning.semantics_of(name)
        if not may_consume(semantics, principal):
            raise ConsumerRefused(name.text, Refusal.ROLES)
        if semantics.tags:
            raise ConsumerRefused(name.text, Refusal.TAGS)

    # --- producers --------------------------------------------------------------------------

    def produce(
        self, name: str, owner: AddressLike | None, principal: Principal | None
    ) -> Producer:
        """Attach a producer to a name; see `Dispatcher.produce`."""
        share = self._core.share_of(principal)
        state = self._state(self._for_producer(name, principal), share)
        producer = Producer(self._core, state, self._core.number(), share)
        self._add(producer, principal)
        try:
            if owner is not None:
                producer.end_with(owner)
            state.add_producer(producer.number, share)
        except Exception:
            self.gone(producer.number)
            self._core.names.tidy(state)
            raise
        return producer

    def produce_any(
        self, owner: AddressLike | None, principal: Principal | None
    ) -> AnonymousProducer:
        """Attach a producer that says the name with each message; see `Dispatcher.produce_any`."""
        core, most = self._core, self._core.options.deliveries.max_producers
        window = core.options.anonymous_window
        producer = AnonymousProducer(core, core.number(), window, principal)
        if self._has_most(producer.share) is not None:
            raise LimitReached("anonymous producers", most)
        if owner is not None:
            producer.end_with(owner)
        self._add(producer, principal)
        self._add_anonymous(producer)
        return producer

    def _has_most(self, share: Share | None) -> Refusal | None:
        """Return the reason why there cannot be one more anonymous producer."""
        most = self._core.options.deliveries.max_producers
        if len(self.anonymous) >= most:
            return Refusal.PRODUCERS
        one = share is None or share.may_have("anonymous", 1, most)
        return None if one else Refusal.SHARE

    def _add_anonymous(self, producer: AnonymousProducer | CreditedProducer) -> None:
        self.anonymous[producer.number] = producer
        if producer.share is not None:
            producer.share.count("anonymous", 1)

    def _for_producer(self, name: str, principal: Principal | None) -> Name:
        read = self._core.parse(name)
        if not may_produce(self._core.provisioning.semantics_of(read), principal):
            raise ConsumerRefused(read.text, Refusal.ROLES)
        return read

    def _add(self, producer: Sender | CreditedProducer, principal: Principal | None) -> None:
        self.producers[producer.number] = producer
        if principal is not None and producer.state is not None:
            # An anonymous producer is checked for each message.
            of_name = self._principals.setdefault(producer.state.name.text, {})
            of_name[producer.number] = principal

    def gone(self, number: int) -> bool:
        """Forget a producer that is detached; return whether it was attached."""
        producer = self.producers.pop(number, None)
        if producer is None:
            return False
        if self.anonymous.pop(number, None) is not None and producer.share is not None:
            producer.share.count("anonymous", -1)
        state = producer.state
        if state is not None and (of_name := self._principals.get(state.name.text)) is not None:
            of_name.pop(number, None)
            if not of_name:
                del self._principals[state.name.text]
        return True

    def blocked_anonymous(self, before: float) -> int:
        """Return the number of anonymous producers without credit that have sent nothing since.

        Args:
            before: A time, in seconds.
        """
        producers = self.anonymous.values()
        return sum(not each.credit and each.last_sent < before for each in producers)

    def woken(self, number: int) -> None:
        """Wake the sends of a producer that wait for credit."""
        producer = self.producers.get(number)
        if producer is not None:
            producer.woken()

    # --- ends with credit of their own ------------------------------------------------------

    def open_producer(
        self,
        name: str | None,
        end: ProducerEnd,
        principal: Principal | None,
        client: Hashable,
    ) -> CreditedProducer:
        """Attach a producer that is given credit by calls; see `Dispatcher.open_producer`."""
        core = self._core
        share, state = core.share_of(principal, client), None
        if name is not None:
            state = self._state(self._for_producer(name, principal), share)
        made = CreditedProducer(core, end, state, principal, client)
        self._add(made, principal)
        try:
            if state is not None:
                state.add_producer(made.number, share)
            elif (reason := self._has_most(share)) is not None:
                raise ConsumerRefused("", reason)
            else:
                self._add_anonymous(made)
                made.woken()
        except ConsumerRefused:
            self.gone(made.number)
            if state is not None:
                core.names.tidy(state)
            raise
        return made

    def open_consumer(
        self, name: str, end: ConsumerEnd, principal: Principal | None, client: Hashable
    ) -> CreditedConsumer:
        """Attach a consumer that gives credit by calls; see `Dispatcher.open_consumer`."""
        core = self._core
        read = core.parse(name)
        if read.node not in ("", core.own):
            raise ConsumerRefused(read.text, Refusal.ELSEWHERE)
        if read.kind is NameKind.TEMPORARY and read.text not in self._temporary:
            # Each that is asked by way of it knows it, and may not take the answers to others.
            raise ConsumerRefused(read.text, Refusal.CONSUMED)
        self._check_consumer(read, principal)
        share = core.share_of(principal, client)
        state = self._state(read, share)
        made = CreditedConsumer(core, end, state, principal, share)
        try:
            made.attach()
        except ConsumerRefused:
            core.names.tidy(state)
            raise
        self._temporary.pop(read.text, None)
        return made

    def temporary_name(self) -> str:
        """Return a new temporary name of this node; see `Dispatcher.temporary_name`."""
        name = temporary_name(self._core.own, token_bytes(16)).text
        self._temporary[name] = None
        if len(self._temporary) > _MOST_TEMPORARY:
            del self._temporary[next(iter(self._temporary))]
        return name

    def close(self) -> None:
        """End all of them, since the dispatcher stops."""
        for producer in list(self.producers.values()):
            producer.stop()
        states = list(self._core.names.states.values())
        for state in states:
            state.stop()  # all of them: what one lets go of must not go to another
        for state in states:
            for number in list(state.consumers):
                state.remove_consumer(number, Refusal.STOPPED)
            state.stopped()


_MOST_TEMPORARY: Final = 1000
"""Temporary names that were made and are not consumed yet; beyond, the oldest are forgotten."""

_ELSEWHERE: Final = {
    NameKind.TOPOLOGICAL: Refusal.TOPOLOGICAL,
    NameKind.TEMPORARY: Refusal.TEMPORARY,
}
"""The kinds of names that have no consumers of one's own choice, and the reason."""


def _ignore(_reason: Refusal) -> None:
    """Receive the end of a consumer that is not attached yet."""


def _address(given: AddressLike) -> Address:
    return as_route(given)[0]
