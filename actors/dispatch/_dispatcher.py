"""`Dispatcher`: what a program does with the dispatch by name of a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from ...protocol import Address, AddressLike, RouteLike
from ...protocol.dispatch import Ages, Conflict, ProvisionsChange, Semantics
from ...protocol.options import check_value
from ...protocol.security import Principal
from ..broker import Broker
from ..runtime._policy import MailboxOptions
from ..runtime._slices import whole
from ._access import PrincipalOf
from ._consumer import Consumer, Handler
from ._consumer_record import Accept
from ._core import DispatchCore
from ._dispatch_worker import DISPATCH, DispatchWorker
from ._dispatcher_circuits import DispatcherCircuits
from ._ends import ConsumerEnd, ConsumerLink, ProducerEnd, ProducerLink
from ._hold_store import HoldStore
from ._inspection import (
    DispatcherStatistics,
    NameStatistics,
    NetworkNode,
    ages_of,
    name_rows,
    network_rows,
    statistics_of,
)
from ._options import DispatchOptions
from ._producer import AnonymousProducer, Producer
from ._served import check_default
from ._tag_consumers import TagConsumers
from ._watches import WatchFunction

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Dispatcher"]

_OPTIONS: Final = DispatchOptions()


class Dispatcher(DispatcherCircuits):
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
        core: Its parts.

    Attributes:
        address: The address of its worker.
    """

    def __init__(self, core: DispatchCore) -> None:
        super().__init__(core)
        self.address: Final = DISPATCH

    @classmethod
    async def attach(
        cls,
        node: Node,
        options: DispatchOptions = _OPTIONS,
        *,
        principal_of: PrincipalOf | None = None,
        broker: Broker | None = None,
        clock: Callable[[], float] | None = None,
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
            clock: Returns the time since the Unix epoch, in seconds, such as that of a simulation;
                by default that of the machine.

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
        worker = DispatchWorker(options, principal_of, store, clock)
        mailbox = MailboxOptions(limit=_MAILBOX)
        try:
            await node.start(lambda: worker, address=DISPATCH, mailbox=mailbox)
        except BaseException:
            if store is not None:
                store.close()
            raise
        core = worker.core
        try:
            core.restore()
            if broker is not None:
                attach = core.attachments.attach_destination
                core.provisioning.tags = TagConsumers(core, broker, attach)
        except BaseException:
            await node.stop_worker(DISPATCH)
            raise
        return cls(core)

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
            BadSemantics: They are of a hold on disk without `DispatchOptions.hold_file`, or of
                tags for several names, or without a broker.
        """
        self._core.provisioning.add(pattern, semantics)

    def update(self, pattern: str, semantics: Semantics) -> None:
        """Give a pattern other semantics. What is under way goes on.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        self._core.provisioning.replace(pattern, semantics)

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
        return self._core.provisioning.load(content, file)

    def withdraw(self, pattern: str) -> None:
        """Withdraw a provision. What is under way goes on.

        Raises:
            UnknownProvision: There is none of this pattern.
        """
        self._core.provisioning.withdraw(pattern)

    def conflicts(self) -> tuple[tuple[Conflict, ...], int]:
        """Return what another node understands differently, and the number of all conflicts."""
        core = self._core
        return core.provisioning.provisions.conflicts(core.topology.network.names())

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
        attachments = self._core.attachments
        return await attachments.consume(name, consumer, window, accept, owner, principal)

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
        return await self._core.attachments.temporary(consumer, window, accept, owner)

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
        return self._core.attachments.produce(name, owner, principal)

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
        return self._core.attachments.produce_any(owner, principal)

    # --- ends with credit of their own ------------------------------------------------------

    def open_producer(
        self,
        name: str | None,
        end: ProducerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> ProducerLink:
        """Attach a producer that is given credit by calls, for a transport with credit of its own.

        Args:
            name: The name; `None` for an anonymous producer, which names each message.
            end: Its end. It may get its credit before this returns.
            principal: The principal that sends; `None` for this program itself.
            client: The connection that it is of, whatever is equal for those of one connection.
                It has a share of the limits: see `DeliveryLimits.max_share`.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is unavailable, is for other roles, or has too many producers.
        """
        return self._core.attachments.open_producer(name, end, principal, client)

    def open_consumer(
        self,
        name: str,
        end: ConsumerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> ConsumerLink:
        """Attach a consumer that gives credit by calls, for a transport with credit of its own.

        It has no credit at first.

        Args:
            name: The name, which is of this node if it is temporary or topological.
            end: Its end.
            principal: The principal that consumes; `None` for this program itself.
            client: The connection that it is of, as of `open_producer`.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name takes no further consumer, is one of another node, or is for
                other roles.
        """
        return self._core.attachments.open_consumer(name, end, principal, client)

    def temporary_name(self) -> str:
        """Return a new temporary name of this node, which cannot be guessed.

        It is consumed by `open_consumer` once. Beyond 1,000 that are not, the oldest never are.
        """
        return self._core.attachments.temporary_name()

    def watch(self, name: str, function: WatchFunction) -> Callable[[], None]:
        """Call a function each time that a name gains or loses consumers, at whichever node.

        It is not called for those that are known already.

        Returns:
            A function that ends the watch.

        Raises:
            BadName: The name cannot be read.
            LimitReached: There are `DispatchOptions.max_names`.
        """
        return self._core.watches.add(self._core.parse(name), function)

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
        return await self._core.topology.join(to, cost, name)

    def names(self) -> list[NameStatistics]:
        """Return the figures of each name that has consumers, producers or messages, by name.

        All are read at once. The management service of the node reads them in slices.
        """
        return whole(name_rows(self._core, self._core.provisioning.provisions))

    def nodes(self) -> list[NetworkNode]:
        """Return the nodes of the network as this one knows them, itself first."""
        return network_rows(self._core, self._core.topology.network)

    def statistics(self) -> DispatcherStatistics:
        """Return the figures of the dispatcher at this moment."""
        return statistics_of(self._core, self._core.topology.network)

    def ages(self) -> Ages:
        """Return what has waited for long, of all names and of the anonymous producers.

        Each name is looked at: 2 ms for a thousand of them.
        """
        return whole(ages_of(self._core))


_MAILBOX: Final = 10_000
"""Messages of neighbours, and of other threads, that wait for the dispatcher. Beyond: senders
wait, or the message is lost with `MailboxFull`, as with any worker."""
