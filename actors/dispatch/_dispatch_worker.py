"""The worker of a dispatcher: its rules, what comes from neighbours, and its timers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...protocol import (
    DELIVERY,
    NAME,
    Address,
    AddressError,
    Message,
    NotExposed,
    is_error_reply,
    read_error_reply,
)
from ...protocol.dispatch import (
    ACCEPTED,
    ALL_NODES,
    MODIFIED,
    RELEASED,
    BadName,
    BadTransit,
    ConsumerTarget,
    LaterVersion,
    LinkTarget,
    Name,
    NameKind,
    Network,
    Provision,
    Provisions,
    Target,
    Transit,
    check_node_name,
    decode_disposition,
    decode_transit,
    read_end,
    read_token,
)
from ...protocol.security import ANONYMOUS
from .._worker import Worker
from ..runtime._timer import Timer
from ._access import PrincipalOf, may_produce, restricts
from ._arrival import Arrival, TransitWay
from ._consumer_record import Accept, ConsumerRecord
from ._core import DispatchCore, without
from ._hold_store import HoldStore
from ._inspection import (
    ADDRESSES,
    DISPATCHER,
    NETWORK,
    json_rows,
    name_rows,
    network_rows,
    statistics_of,
)
from ._name_state import NameState
from ._options import DispatchOptions
from ._served import check_told
from ._stored import StoredMessages, served
from ._tag_consumers import TagConsumers
from ._topology import Topology

if TYPE_CHECKING:
    from ._dispatcher import WatchFunction

__all__ = ["DISPATCH", "DispatchWorker"]

DISPATCH: Final = Address(0, b"dispatch")
"""The address of the worker of a dispatcher: expose it at a listener for neighbours."""


class DispatchWorker(Worker):
    """The worker of a dispatcher.

    Args:
        options: The options.
        principal_of: Returns the principal of the peer of a link; `None`: no peer has one.
        store: The file of messages on hold; `None`: no name holds on disk.
    """

    def __init__(
        self,
        options: DispatchOptions,
        principal_of: PrincipalOf | None,
        store: HoldStore | None = None,
    ) -> None:
        super().__init__()
        self.options: Final = options
        self._principal_of: Final = principal_of
        self._store: Final = store
        self.provisions: Provisions
        self.tags: TagConsumers | None = None
        self.watches: Final[dict[str, list[WatchFunction]]] = {}
        self.records: Final[dict[int, Callable[[], None]]] = {}
        self._thread = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._network_timer: Timer | None = None
        self._network_at = 0.0
        self._actions: Final = deque[Callable[[], object]]()
        self.core: DispatchCore
        self.topology: Topology

    def on_start(self) -> None:
        """Add the rules."""
        self._thread = threading.get_ident()
        node = self.node
        own = check_node_name(self.options.node_name or node.name)
        started = int(time.time() * 1000)
        network = Network(own, started, self.options.network, node.loop.time())
        paths = network.snapshot
        self.core = core = DispatchCore(node, own, self.address, self.options, paths)
        core.alarm = self._alarm
        core.soon = self._soon
        core.make = self.make
        self.provisions = Provisions(
            own, self.options.default, self.options.limits, network.nodes_of, self._check_told
        )
        core.semantics_of = self.provisions.semantics_of
        if self._store is not None:
            core.ways.stored = StoredMessages(core, self._store)
        self._follow_access()
        core.watched = self._watched
        core.released = self._released
        self.topology = Topology(self, core, network)
        core.announce = self.topology.announce
        owner = self._placed
        node.add_rule(NAME, self.resolve, owner=owner)
        node.add_rule(DELIVERY, self.resolve, owner=owner)
        node.parts.undeliverable.ends[DELIVERY] = core.failed
        node.parts.reports[ADDRESSES] = lambda: json_rows(name_rows(core, self.provisions))
        node.parts.reports[DISPATCHER] = lambda: json_rows([statistics_of(core, network)])
        node.parts.reports[NETWORK] = lambda: json_rows(network_rows(core, network))
        self.topology.drive()

    def on_stop(self) -> None:
        """Remove the rules, and end what is under way."""
        owner = self._placed
        self.node.remove_rule(NAME, owner=owner)
        self.node.remove_rule(DELIVERY, owner=owner)
        self.node.parts.undeliverable.ends.pop(DELIVERY, None)
        for question in (ADDRESSES, DISPATCHER, NETWORK):
            self.node.parts.reports.pop(question, None)
        self.topology.close()
        if self.tags is not None:
            self.tags.stop()
        if self._store is not None:
            self._store.close()  # what is under way stays on disk, and goes on after the next start
        for producer in list(self.core.producers.values()):
            producer.stop()
        for state in list(self.core.states.values()):
            for number in list(state.consumers):
                state.remove_consumer(number, "the dispatcher has stopped")

    # --- the rules --------------------------------------------------------------------------

    def resolve(self, message: Message) -> None:
        """Receive a message with a name or a token as its first address.

        Raises:
            AddressError: The address cannot be read.
        """
        if threading.get_ident() != self._thread:
            # The names belong to the loop's thread: go through the mailbox, and its limit.
            onward = (self.address, *message.onward_route)
            self.node.parts.router.dispatch(message._replace(onward_route=onward))
            return
        first = message.onward_route[0]
        try:
            if first.type == NAME:
                self.core.enter(message)
            elif first.value[:1] == b"t":
                self._transit(message, first)
            else:
                self._outcome(message, first)
        except LaterVersion as error:
            self.core.counts["of a later version"] += 1
            raise AddressError(first, str(error)) from error
        except (BadName, BadTransit) as error:
            raise AddressError(first, error.reason) from error

    def handle_message(self, message: Message) -> None:
        """Handle what comes from a neighbour, or was sent on another thread."""
        rest = message.onward_route[1:]
        if not rest:
            self.topology.receive(message)
            return
        context = message.context
        outside = None if context is None else context.outside
        first = rest[0]
        if outside is not None and first.type != DELIVERY and not outside.allows(first):
            self.node.lose(message, NotExposed(first))
            return
        if first.type not in (NAME, DELIVERY):
            self.node.lose(message, NotExposed(first))
            return
        try:
            self.resolve(message._replace(onward_route=rest))
        except AddressError:
            self.core.counts["addresses that cannot be read"] += 1
            self.node.dead_letter(message, "unreadable address")

    def _transit(self, message: Message, first: Address) -> None:
        """Receive a message of the dispatcher before this one."""
        transit = decode_transit(first.value)
        core, link, back = self.core, message.source, message.return_route
        if transit.ingress == core.own:
            # No copy comes back to where its message entered; what enters here has other rights.
            raise BadTransit("a message that has entered here")
        if link is None or not self.topology.is_link(message):
            core.counts["messages of no neighbour"] += 1
            self.node.lose(message, NotExposed(DISPATCH))
            return
        way: TransitWay | None = None
        if not transit.settled:
            if not back or back[0] != link or back[-1].type != DELIVERY:
                raise BadTransit("an unsettled message without a way back")
            way = TransitWay(back, str(link), read_token(back[-1].value, b"r"))
        self._bind_transit(message, transit, str(link), way)

    def _bind_transit(
        self, message: Message, transit: Transit, link: str, way: TransitWay | None
    ) -> None:
        core = self.core
        now = core.now()
        until = now + transit.ttl / 1000 if transit.ttl else None
        arrival = Arrival(
            without(message, message.onward_route[1:]),
            transit.settled,
            transit.identity,
            link,
            way,
            transit.path,
            until,
            now + transit.wait / 1000 if transit.wait else until,
            transit.redirected,
        )
        core.bind(core.parse(transit.name), arrival)

    def _outcome(self, message: Message, first: Address) -> None:
        """Receive a reply, an error reply or a disposition for a copy."""
        core = self.core
        ended = read_end(first.value)
        if ended is not None:
            if message.source is not None and self.topology.is_link(message):
                core.source_ended(str(message.source), ended[0], settled=ended[1])
            return
        if first.value[:1] == b"d":
            token = read_token(first.value, b"d")
            told = decode_disposition(message.payload)
            core.disposition(token, told.state, self._target(message, token), told.tally)
            return
        token = read_token(first.value, b"r")
        if core.traced.is_report(message):
            if not core.traced.pass_on(token, message):
                core.counts["reports of hops that could not be passed on"] += 1
            return
        target = self._target(message, token)
        if is_error_reply(message):
            failure = read_error_reply(message)
            certain = failure is not None and failure.certain
            core.disposition(token, RELEASED if certain else MODIFIED, target)
            return
        found = core.tokens.get(token)
        if found is None:
            core.counts["outcomes that came late or for no delivery"] += 1
            self.node.dead_letter(message, "late answer")
            return
        if target is None or target == found[1]:
            core.answer_of(token, message)
        core.disposition(token, ACCEPTED, target)

    def _target(self, message: Message, token: bytes) -> Target | None:
        """Return the target that a message comes from; `None` for a worker of this node.

        What comes over a link counts only for a copy that was sent over it.
        """
        source = message.source
        cell = None if source is None else self.node.parts.table.cell_at(source)
        if source is None or cell is None or not cell.worker.leaves_node:
            return None
        found = self.core.tokens.get(token)
        if found is not None and isinstance(found[1], ConsumerTarget):
            record = found[0].consumers.get(found[1].consumer)
            if record is not None and record.route[0] == source:
                return record.target
        return LinkTarget(str(source))

    # --- names ------------------------------------------------------------------------------

    def make(self, name: Name) -> NameState | None:
        """Make the state of a name; `None` at `DispatchOptions.max_names`."""
        states = self.core.states
        if len(states) >= self.options.max_names:
            return None
        state = states[name.text] = NameState(
            self.core, name, served(self.provisions.semantics_of(name))
        )
        if name.kind is NameKind.TOPOLOGICAL and name.node == ALL_NODES:
            self._add_own_copy(state)
        self.topology.joined(state)
        return state

    def _add_own_copy(self, state: NameState) -> None:
        """Make this node one of those that get a copy of what is sent to all nodes."""
        name, window = state.name, self.options.max_names
        number = self.core.number()
        record = ConsumerRecord(
            number,
            (self.address,),
            window,
            Accept.REPLY,
            remote=False,
            ended=lambda _: None,
            state=state,
            local=Name(NameKind.LOCAL, name.local_text),
        )
        state.add_consumer(record)

    def provisioned(self, added: Iterable[Provision], removed: Iterable[Provision] = ()) -> None:
        """Announce provisions of this node to others, and give each name its semantics."""
        self.topology.tell_provisions(added, removed)
        self.refresh()

    def _check_told(self, provision: Provision) -> None:
        check_told(provision, self.options)

    def refresh(self) -> None:
        """Give each name the semantics that it has now."""
        self._follow_access()
        for state in list(self.core.states.values()):
            state.update(served(self.provisions.semantics_of(state.name)))
            self.core.tidy(state)
        if self.tags is not None:
            # Which destinations here consume is for this node to say, and for no other alone.
            own = {each.pattern.written: each.semantics.tags for each in self.provisions}
            self.tags.provisioned(
                each
                for each in self.provisions.deciding()
                if own.get(each.pattern.written) == each.semantics.tags
            )
        self.restore()

    def restore(self) -> None:
        """Go on with messages on disk, of names that hold there."""
        if self.core.ways.stored is not None:
            self.core.ways.stored.restore()

    def _follow_access(self) -> None:
        """Check roles if a name has any, which costs each message a look-up."""
        deciding = (each.semantics for each in (*self.provisions, *self.provisions.deciding()))
        all_semantics = (self.provisions.default, *deciding)
        guarded = any(map(restricts, all_semantics))
        self.core.allows = self._allows if guarded else None

    def _allows(self, name: Name, message: Message) -> bool:
        """Whether the sender of a message may send to a name."""
        source = message.source
        if source is None or self.node.parts.table.is_inside(source):
            return True
        found = None if self._principal_of is None else self._principal_of(source)
        return may_produce(self.provisions.semantics_of(name), found or ANONYMOUS)

    def _watched(self, state: NameState) -> None:
        for function in tuple(self.watches.get(state.name.text, ())):
            try:
                function(state.name.text, state.paths)
            except Exception as error:  # noqa: BLE001 - user code
                self.node.parts.run_queue.fault("watching a name", error)

    def _released(self, record: ConsumerRecord) -> None:
        ended = self.records.pop(record.number, None)
        if ended is not None:
            ended()

    # --- timers -----------------------------------------------------------------------------

    def _soon(self, action: Callable[[], object]) -> None:
        """Perform an action in a later turn; all that wait share a timer."""
        if not self._actions:
            self.after(0, self._run)
        self._actions.append(action)

    def _run(self) -> None:
        for _ in range(len(self._actions)):
            try:
                self._actions.popleft()()
            except Exception as error:  # noqa: BLE001 - the others must be performed too
                self.node.parts.run_queue.fault("an action of a dispatcher", error)
        if self._actions:
            self.after(0, self._run)

    def _alarm(self, at: float) -> None:
        if self._timer is not None and self._timer.active and self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.after(max(0.0, at - self.core.now()), self._due)

    def _due(self) -> None:
        self._timer = None
        self.core.due()

    def alarm_network(self, at: float) -> None:
        """Drive the network at a time, in seconds, if nothing is due before."""
        if (
            self._network_timer is not None
            and self._network_timer.active
            and self._network_at <= at
        ):
            return
        if self._network_timer is not None:
            self._network_timer.cancel()
        self._network_at = at
        self._network_timer = self.after(max(0.0, at - self.core.now()), self._drive)

    def _drive(self) -> None:
        self._network_timer = None
        self.topology.drive()
