"""`Dispatcher`: what a program does with the dispatch by name of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import Address, AddressLike, Route, RouteLike
from ...protocol.dispatch import (
    MAX_COST,
    Conflict,
    Name,
    NameKind,
    NamePattern,
    Provision,
    ProvisionsChange,
    Semantics,
    check_node_name,
    read_provisions,
    temporary_name,
)
from ...protocol.options import Count, check_value
from ...protocol.security import Principal
from .._errors import LimitReached
from ..broker import Broker
from ..routing._given import as_route
from ..runtime._policy import MailboxOptions
from ._access import PrincipalOf, may_consume, may_produce
from ._consumer import Consumer, ConsumerWorker, Handler
from ._consumer_record import Accept, ConsumerRecord
from ._credited import CreditedConsumer, CreditedProducer
from ._dispatch_worker import DISPATCH, DispatchWorker
from ._ends import ConsumerEnd, ConsumerLink, ProducerEnd, ProducerLink
from ._errors import ConsumerRefused
from ._hold_store import HoldStore
from ._inspection import (
    DispatcherStatistics,
    NameStatistics,
    NetworkNode,
    name_rows,
    network_rows,
    statistics_of,
)
from ._name_state import NameState
from ._options import DispatchOptions
from ._producer import AnonymousProducer, Producer
from ._served import check_default, check_provision
from ._tag_consumers import TagConsumers

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Dispatcher", "WatchFunction"]

WatchFunction: TypeAlias = Callable[[str, int], object]
"""Function that is called with a name and the number of its consumers here and of other nodes with
consumers, each time that there is a change. On the loop; it must not block."""

_OPTIONS: Final = DispatchOptions()


class Dispatcher:
    """The dispatcher of a node: messages to names, which are resolved by the rules of 34 and 35.

    ```python
    dispatcher = await Dispatcher.attach(node)
    dispatcher.provision("orders", Semantics(pattern=RoutingPattern.BALANCED))
    await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    outcome = await producer.send(b"12 apples")
    answer = await node.request("34#orders", b"12 pears")  # from anywhere on the node
    ```

    A program of the node may use each name. Roles, as of `Access`, are those of the peer of a link
    that a message came over, and of the `principal` that `consume` and `produce` are called for.

    Nothing of it can be reached from outside, unless it is exposed: `34#orders` for peers that may
    send to that name, `DISPATCH` for nodes that may be neighbours. All its methods are called on
    the node's loop.

    Args:
        worker: Its worker.

    Attributes:
        address: The address of its worker.
    """

    def __init__(self, worker: DispatchWorker) -> None:
        self.address: Final = DISPATCH
        self._worker: Final = worker
        self._core: Final = worker.core
        # Temporary names that were made for links, and are not consumed yet.
        self._temporary: Final[dict[str, None]] = {}

    @classmethod
    async def attach(
        cls,
        node: Node,
        options: DispatchOptions = _OPTIONS,
        *,
        principal_of: PrincipalOf | None = None,
        broker: Broker | None = None,
    ) -> Dispatcher:
        """Start the dispatcher of a node.

        Args:
            node: The node.
            options: The options.
            principal_of: Returns the principal of the peer of a link, such as
                `onward.transports.link_principals(node)`. Without it no peer has a role, and
                names that are for some roles take no message of a peer.
            broker: The broker of the node, for names that are provisioned by tags. It has one more
                subscription to its events.

        Raises:
            AddressInUse: The node has a dispatcher.
            HoldStoreInUse: Another process has the file of messages on hold.
            HoldStoreFailed: That file cannot be opened.
            BadName: The name of the node cannot be one of a network.
        """
        check_value("options", options, DispatchOptions)
        check_default(options.default, options)
        store: HoldStore | None = None
        if options.hold_file:
            most = options.max_held_on_disk, options.max_held_bytes_on_disk
            store = HoldStore(options.hold_file, *most)
        worker = DispatchWorker(options, principal_of, store)
        mailbox = MailboxOptions(limit=_MAILBOX)
        try:
            await node.start(lambda: worker, address=DISPATCH, mailbox=mailbox)
        except BaseException:
            if store is not None:
                store.close()
            raise
        worker.restore()
        made = cls(worker)
        if broker is not None:
            worker.tags = TagConsumers(worker.core, broker, made._attach_destination)
        return made

    def _attach_destination(self, name: Name, route: Route) -> Consumer:
        """Attach a destination of the broker, which accepts by its answer."""
        number, window = self._core.number(), self._core.semantics_of(name).window
        return self._attach(name, number, route, None, window, Accept.REPLY, None)

    @property
    def node(self) -> Node:
        """The node that it is attached to."""
        return self._core.node

    @property
    def node_name(self) -> str:
        """The name of the node in the network."""
        return self._core.own

    # --- provisions -------------------------------------------------------------------------

    def provision(self, pattern: str, semantics: Semantics) -> None:
        """Provision a pattern of names; names in use have these semantics from now on.

        Raises:
            BadPattern: The pattern cannot be read, or names of this kind cannot be provisioned.
            PatternInUse: There is one of an equal pattern: see `update`.
            TooManyProvisions: There are `DispatchLimits.max_provisions`.
            BadSemantics: They are of circuits, which a dispatcher of a node does not serve; of a
                hold on disk without `DispatchOptions.hold_file`; or of tags, for several names.
        """
        made = Provision(NamePattern.parse(pattern), semantics)
        check_provision(made, self._core.options)
        self._worker.provisions.add(made)
        self._worker.provisioned([made])

    def update(self, pattern: str, semantics: Semantics) -> None:
        """Give a pattern other semantics. What is under way goes on.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        made = Provision(NamePattern.parse(pattern), semantics)
        check_provision(made, self._core.options)
        self._worker.provisions.replace(made)
        self._worker.provisioned([made])

    def load(self, content: str | bytes, file: str = "provisions") -> ProvisionsChange:
        """Provision what a file has, in the place of all that was loaded from it before.

        Names in use have the new semantics from now on; what is under way goes on. If the file
        does not say the default, that of the options holds.

        Args:
            content: The content of the file, as of `read_provisions`.
            file: The name of the file.

        Returns:
            What has become different.

        Raises:
            FileError: The file has problems; the error lists all of them.
            BadSemantics: It has some that a dispatcher of a node does not serve.
            PatternInUse: A program has provisioned an equal pattern.
            TooManyProvisions: There would be more than `DispatchLimits.max_provisions`.
        """
        provisions, options = self._worker.provisions, self._core.options
        read = read_provisions(content, file, options.limits)
        for each in read.provisions:
            check_provision(each, options)
        default = read.default or options.default
        check_default(default, options)
        change = provisions.load(read.provisions, file)
        provisions.default = default
        self._worker.provisioned((*change.added, *change.changed), change.withdrawn)
        return change

    def withdraw(self, pattern: str) -> None:
        """Withdraw a provision. What is under way goes on.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        gone = self._worker.provisions.withdraw(NamePattern.parse(pattern))
        self._worker.provisioned([], [gone])

    def conflicts(self) -> tuple[tuple[Conflict, ...], int]:
        """Return what another node understands differently, and the number of all conflicts."""
        return self._worker.provisions.conflicts(self._worker.topology.network.names())

    # --- consumers and producers ------------------------------------------------------------

    async def consume(
        self,
        name: str,
        consumer: Handler | RouteLike,
        *,
        window: int = 250,
        accept: Accept | None = None,
        owner: AddressLike | None = None,
        principal: Principal | None = None,
    ) -> Consumer:
        """Attach a consumer to a name.

        Args:
            name: The name.
            consumer: A function that handles deliveries, or the route of a worker.
            window: Messages that it has at a time: handed over and not settled.
            accept: When a delivery is accepted; by default, once a handler has returned, and once
                a worker has replied.
            owner: A worker with which the consumer ends.
            principal: The principal that consumes; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name takes no further consumer, is one of another node, is
                temporary (see `temporary`), or is for other roles.
            UnknownAddress: The route begins with a worker that is not there.
        """
        read = self._core.parse(name)
        if (reason := _ELSEWHERE.get(read.kind)) is not None:
            raise ConsumerRefused(read.text, reason)
        self._check_consumer(read, principal)
        return await self._consume(read, consumer, window, accept, owner)

    async def temporary(
        self,
        consumer: Handler | RouteLike,
        *,
        window: int = 250,
        accept: Accept | None = None,
        owner: AddressLike | None = None,
    ) -> Consumer:
        """Attach a consumer to a new temporary name, such as one for replies.

        The name is `Consumer.name`. Each node of the network can send to it, as it has the name of
        this node; it cannot be guessed, and ends with the consumer or its owner.

        Args:
            consumer: As of `consume`, as are the others.
            window: Messages that it has at a time.
            accept: When a delivery is accepted.
            owner: A worker with which the name ends.

        Raises:
            ConsumerRefused: `DispatchOptions.max_names` is reached.
            UnknownAddress: The route begins with a worker that is not there.
        """
        name = temporary_name(self._core.own, token_bytes(16))
        return await self._consume(name, consumer, window, accept, owner)

    async def _consume(
        self,
        name: Name,
        consumer: Handler | RouteLike,
        window: int,
        accept: Accept | None,
        owner: AddressLike | None,
    ) -> Consumer:
        check_value("window", window, Count)
        by_handler = callable(consumer)
        accept = accept or (Accept.HANDLED if by_handler else Accept.REPLY)
        wrong = (Accept.REPLY,) if by_handler else (Accept.HANDLED, Accept.SELF)
        if accept in wrong:
            raise ValueError(f"a consumer of this kind cannot accept by {accept.value!r}")
        core = self._core
        number = core.number()
        route: Route
        worker: ConsumerWorker | None = None
        if callable(consumer):
            handler = worker = ConsumerWorker(core, consumer)
            mailbox = MailboxOptions(limit=max(window, 1))
            route = (await self._worker.start_child(lambda: handler, mailbox=mailbox),)
        else:
            route = as_route(consumer)
        return self._attach(name, number, route, worker, window, accept, owner)

    def _attach(
        self,
        name: Name,
        number: int,
        route: Route,
        worker: ConsumerWorker | None,
        window: int,
        accept: Accept,
        owner: AddressLike | None,
    ) -> Consumer:
        core = self._core
        try:
            state = self._state(name)
        except ConsumerRefused:
            self._forget(worker, ())
            raise
        cell = core.node.parts.table.cell_at(route[0])
        record = ConsumerRecord(
            number,
            route,
            window,
            accept,
            remote=cell is not None and cell.worker.leaves_node,
            ended=_ignore,
            state=state,
            worker=worker,
        )
        if worker is not None:
            worker.record = record
        made = Consumer(state, record, core)
        watched = [route[0]] if owner is None else [route[0], _address(owner)]
        try:
            unwatch = [
                core.node.watch(each, lambda: core.detach(state, record, "its worker has stopped"))
                for each in watched
            ]
            self._worker.records[number] = lambda: self._forget(worker, unwatch)
            state.add_consumer(record)
        except Exception:
            core.released(record)
            core.tidy(state)
            raise
        return made

    def _forget(self, worker: ConsumerWorker | None, unwatch: Iterable[Callable[[], None]]) -> None:
        for each in unwatch:
            each()
        if worker is not None:
            worker.stop()

    async def produce(
        self,
        name: str,
        *,
        owner: AddressLike | None = None,
        principal: Principal | None = None,
    ) -> Producer:
        """Attach a producer to a name.

        Args:
            name: The name.
            owner: A worker with which the producer ends.
            principal: The principal that sends; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is unavailable, is for other roles, or has too many producers.
            UnknownAddress: There is no such owner.
        """
        core = self._core
        read = core.parse(name)
        if not may_produce(self._worker.provisions.semantics_of(read), principal):
            raise ConsumerRefused(read.text, _ROLES)
        state = self._state(read)
        producer = Producer(core, state, core.number())
        core.producers[producer.number] = producer
        try:
            if owner is not None:
                producer.end_with(owner)
            state.add_producer(producer.number)
        except Exception:
            del core.producers[producer.number]
            core.tidy(state)
            raise
        return producer

    async def produce_any(
        self, *, owner: AddressLike | None = None, principal: Principal | None = None
    ) -> AnonymousProducer:
        """Attach a producer that says the name with each message.

        Args:
            owner: A worker with which the producer ends.
            principal: The principal that sends, which is checked for each message; `None` for this
                program itself.

        Raises:
            LimitReached: There are `DeliveryLimits.max_producers` such producers.
            UnknownAddress: There is no such owner.
        """
        core, most = self._core, self._core.options.deliveries.max_producers
        if len(core.anonymous) >= most:
            raise LimitReached("anonymous producers", most)
        window = core.options.anonymous_window
        producer = AnonymousProducer(core, core.number(), window, principal)
        if owner is not None:
            producer.end_with(owner)
        core.producers[producer.number] = producer
        core.anonymous.add(producer.number)
        return producer

    # --- ends with credit of their own ------------------------------------------------------

    def open_producer(
        self, name: str | None, end: ProducerEnd, principal: Principal | None = None
    ) -> ProducerLink:
        """Attach a producer that is given credit by calls, for a transport with credit of its own.

        Args:
            name: The name; `None` for an anonymous producer, which names each message.
            end: Its end. It may get its credit before this returns.
            principal: The principal that sends; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is unavailable, is for other roles, or has too many producers.
        """
        core, state = self._core, None
        if name is not None:
            read = core.parse(name)
            if not may_produce(self._worker.provisions.semantics_of(read), principal):
                raise ConsumerRefused(read.text, _ROLES)
            state = self._state(read)
        made = CreditedProducer(core, end, state, principal)
        core.producers[made.number] = made
        try:
            if state is not None:
                state.add_producer(made.number)
            elif len(core.anonymous) >= core.options.deliveries.max_producers:
                raise ConsumerRefused("", "max_producers is reached")
            else:
                core.anonymous.add(made.number)
                made.woken()
        except ConsumerRefused:
            del core.producers[made.number]
            if state is not None:
                core.tidy(state)
            raise
        return made

    def open_consumer(
        self, name: str, end: ConsumerEnd, principal: Principal | None = None
    ) -> ConsumerLink:
        """Attach a consumer that gives credit by calls, for a transport with credit of its own.

        It has no credit at first.

        Args:
            name: The name, which is of this node if it is temporary or topological.
            end: Its end.
            principal: The principal that consumes; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name takes no further consumer, is one of another node, or is for
                other roles.
        """
        core = self._core
        read = core.parse(name)
        if read.node not in ("", core.own):
            raise ConsumerRefused(read.text, "it is one of another node")
        if read.kind is NameKind.TEMPORARY and read.text not in self._temporary:
            # Each that is asked by way of it knows it, and may not take the answers to others.
            raise ConsumerRefused(read.text, "a temporary name is consumed once")
        self._check_consumer(read, principal)
        state = self._state(read)
        made = CreditedConsumer(core, end, state)
        try:
            made.attach()
        except ConsumerRefused:
            core.tidy(state)
            raise
        self._temporary.pop(read.text, None)
        return made

    def _check_consumer(self, name: Name, principal: Principal | None) -> None:
        semantics = self._core.semantics_of(name)
        if not may_consume(semantics, principal):
            raise ConsumerRefused(name.text, _ROLES)
        if semantics.tags:
            raise ConsumerRefused(name.text, "its consumers are those that match its tags")

    def temporary_name(self) -> str:
        """Return a new temporary name of this node, which cannot be guessed.

        It is consumed by `open_consumer` once. Beyond 1,000 that are not, the oldest never are.
        """
        name = temporary_name(self._core.own, token_bytes(16)).text
        self._temporary[name] = None
        if len(self._temporary) > _MOST_TEMPORARY:
            del self._temporary[next(iter(self._temporary))]
        return name

    def _state(self, name: Name) -> NameState:
        state = self._core.states.get(name.text) or self._worker.make(name)
        if state is None:
            raise ConsumerRefused(name.text, "max_names is reached")
        return state

    def watch(self, name: str, function: WatchFunction) -> Callable[[], None]:
        """Call a function each time that a name gains or loses consumers.

        Returns:
            A function that ends the watch.
        """
        text = self._core.parse(name).text
        functions = self._worker.watches.setdefault(text, [])
        functions.append(function)

        def unwatch() -> None:
            if function in functions:
                functions.remove(function)
            if not functions and self._worker.watches.get(text) is functions:
                del self._worker.watches[text]

        return unwatch

    # --- the network ------------------------------------------------------------------------

    async def neighbour(
        self, to: str | Address, cost: int | None = None, *, name: str = ""
    ) -> Address:
        """Join another dispatcher over a link.

        The other node exposes `DISPATCH` at its listener. What that node sends to names here is
        let in by `DISPATCH` alone; the route behind a name is checked as any other.

        Args:
            to: The URI to connect to, or the address of a link.
            cost: The cost of the link, by default `DispatchOptions.cost`.
            name: The name that the other dispatcher must have; empty: any. A link to another one is
                closed.

        Returns:
            The address of the link.

        Raises:
            BadName: A node cannot be called so.
        """
        if name:
            check_node_name(name)
        cost = self._core.options.cost if cost is None else cost
        check_value("cost", cost, Count)
        if cost > MAX_COST:
            raise ValueError(f"a cost is at most {MAX_COST}, not {cost}")
        if isinstance(to, Address):
            self._core.node.expose(to, DISPATCH)
            link = to
        else:
            link = await self._core.node.connect(to, expose=[DISPATCH])
        self._worker.topology.add_link(link, cost, name)
        return link

    def names(self) -> list[NameStatistics]:
        """Return the figures of each name that has consumers, producers or messages, by name."""
        return name_rows(self._core, self._worker.provisions)

    def nodes(self) -> list[NetworkNode]:
        """Return the nodes of the network as this one knows them, itself first."""
        return network_rows(self._core, self._worker.topology.network)

    def statistics(self) -> DispatcherStatistics:
        """Return the figures of the dispatcher at this moment."""
        return statistics_of(self._core, self._worker.topology.network)


_MAILBOX: Final = 10_000
"""Messages of neighbours, and of other threads, that wait for the dispatcher. Beyond: senders
wait, or the message is lost with `MailboxFull`, as with any worker."""


_MOST_TEMPORARY: Final = 1000
"""Temporary names that were made and are not consumed yet; beyond, the oldest are forgotten."""

_ROLES: Final = "it is for other roles"

_ELSEWHERE: Final = {
    NameKind.TOPOLOGICAL: "it is one of other nodes: there, _local/… is consumed",
    NameKind.TEMPORARY: "temporary names are made by the node",
}
"""The kinds of names that have no consumers of one's own choice, and the reason."""


def _ignore(_reason: str) -> None:
    """Receive the end of a consumer that is not attached yet."""


def _address(given: AddressLike) -> Address:
    return as_route(given)[0]
