"""What the parts of a dispatcher share, and the entry of messages."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable
from functools import lru_cache
from itertools import count
from typing import Final

from ...protocol import Address, Message
from ...protocol.dispatch import (
    ID_SIZE,
    RELEASED,
    TOKEN_SIZE,
    BadName,
    Delivery,
    Identity,
    Name,
    Network,
    NodeTotals,
    Outcome,
    Share,
    Tally,
    check_node_name,
    parse_name,
)
from ...protocol.eventlog import Outcome as Logged
from ...protocol.security import Principal
from .._worker import Worker
from ._access import UNAUTHORIZED, PrincipalOf, is_anonymous, source_of
from ._arrival import PLAIN, Arrival, PlainPath, ProducerPath, ReplyPath, without
from ._attachments import Attachments
from ._bundle_sender import BundleSender
from ._circuit_table import CircuitTable
from ._copies import Copies
from ._fast_path import FastPaths
from ._hold_store import HoldStore
from ._name_actions import NameActions
from ._name_state import NameState
from ._name_table import NameTable
from ._options import DispatchOptions
from ._provisioning import Provisioning
from ._recorded import count_end, count_received, label_of
from ._reply_paths import ReplyPaths
from ._schedule import Schedule
from ._slices import Slices
from ._stored import StoredMessages
from ._topology import Topology
from ._watches import Watches

__all__ = ["DispatchCore"]

MAX_READ: Final = 1024
"""Most names that are remembered as they were read, by their bytes; the least recently used one is
forgotten."""
_TOKENS: Final = 512
"""Tokens for which random bytes are drawn at once."""


class DispatchCore:
    """The parts of a dispatcher, and what they share. All of it on the node's loop.

    Args:
        worker: The worker of the dispatcher.
        slow: Receives a message that has no fast path.
        options: The options.
        principal_of: Returns the principal of the peer of a link; `None`: no peer has one.
        store: The file of messages on hold; `None`: no name holds on disk.
        clock: Returns the time since the Unix epoch, in seconds; `None`: that of the machine.

    Attributes:
        own: The name of the node in the network.
        paths: The paths of the network.
        counts: What was dropped or refused, by its reason.
        totals: What all names have together.
        schedule: What is performed later.
        slices: Work on many names.
        actions: What the names ask for.
        names: The names that have a state.
        copies: The copies that have no outcome yet.
        replies: The sender of outcomes.
        bundles: What waits to be sent to neighbours.
        slow: Receives a message that has no fast path.
        fast: The fast paths of names.
        attachments: The consumers and producers.
        circuits: The circuits.
        watches: The functions that watch names.
        provisioning: What names mean.
        topology: The network.
        stored: The messages on disk; `None`: no name holds there.
    """

    def __init__(
        self,
        worker: Worker,
        slow: Callable[[Message], object],
        options: DispatchOptions,
        principal_of: PrincipalOf | None,
        store: HoldStore | None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock: Final = clock
        self.worker: Final = worker
        self.node: Final = worker.node
        self.address: Final = worker.address
        self.options: Final = options
        self.own: Final = check_node_name(options.node_name or self.node.name)
        network = Network(self.own, max(1, self.milliseconds()), options.network, self.now())
        self.paths = network.snapshot
        self.counts: Final = Counter[str]()
        self.totals: Final = NodeTotals(options.deliveries, counts=self.counts)
        self._numbers: Final = count(1)
        self._instance: Final = secrets.token_bytes(ID_SIZE)
        self._ids: Final = count()
        self._tokens, self._token_at = b"", 0
        self.make_token: Final = self.token  # one method for all names, and not one for each
        self._read: Final = lru_cache(MAX_READ)(self._read_name)
        self.schedule: Final = Schedule(self, worker)
        self.slices: Final = Slices(self)
        self.actions: Final = NameActions(self)
        self.names: Final = NameTable(self)
        self.copies: Final = Copies(self)
        self.replies: Final = ReplyPaths(self)
        self.bundles: Final = BundleSender(self)
        self.slow: Final = slow
        self.fast: Final = FastPaths(self, slow)
        self.attachments: Final = Attachments(self)
        self.circuits: Final = CircuitTable(self)
        self.watches: Final = Watches(self)
        self.provisioning: Final = Provisioning(self, network, principal_of)
        self.topology: Final = Topology(self, network)
        self.stored: Final = None if store is None else StoredMessages(self, store)

    # --- small parts ------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether the dispatcher stops, with its consumers that are handlers."""
        cell = self.node.parts.table.cell_at(self.address)
        return cell is None or cell.is_stopping

    def now(self) -> float:
        """Return the time of the node's loop, in seconds."""
        return self.node.loop.time()

    def milliseconds(self) -> int:
        """Return the time since the Unix epoch, in milliseconds."""
        return int((self._clock or time.time)() * 1000)

    def number(self) -> int:
        """Return the number of a new consumer or producer."""
        return next(self._numbers)

    def identity(self) -> Identity:
        """Return an identity that no other message of the network has."""
        return self.own, self._instance, next(self._ids).to_bytes(ID_SIZE)

    def token(self) -> bytes:
        """Return the token of a copy, which cannot be guessed."""
        at = self._token_at
        if at == len(self._tokens):
            self._tokens, at = secrets.token_bytes(TOKEN_SIZE * _TOKENS), 0
        self._token_at = end = at + TOKEN_SIZE
        return self._tokens[at:end]

    def parse(self, value: bytes | str) -> Name:
        """Read a name.

        Raises:
            BadName: It is none.
        """
        return self._read(value)

    def _read_name(self, value: bytes | str) -> Name:
        return parse_name(value, self.own, self.options.limits)

    def share_of(self, principal: Principal | None, client: Hashable = None) -> Share | None:
        """Return what a source has at this node; `None`: it is the program itself.

        Args:
            principal: The principal of the source.
            client: Its connection.
        """
        source = source_of(principal, client)
        if source is None:
            return None
        return self.totals.share_of(source, anonymous=is_anonymous(principal))

    def fault(self, doing: str, error: Exception) -> None:
        """Log an error of a part or of user code, after which the others go on."""
        self.node.parts.run_queue.fault(doing, error)

    # --- entry ------------------------------------------------------------------------------

    def enter(self, message: Message) -> None:
        """Receive a message with a name as its first address.

        Raises:
            BadName: The address cannot be read.
        """
        onward, back, _, source, context = message
        name = self.parse(onward[0].value)
        deadline = None if context is None else context.deadline
        # A message without a return route has that of its link, if it came over one.
        settled = not back or (back == (source,) and not self.node.parts.table.is_inside(back[0]))
        now = self.now()
        arrival = Arrival(
            without(message, onward[1:]),
            settled,
            self.identity(),
            PLAIN,
            None if settled else PlainPath(Message(onward, back, b"", source, context)),
            until=deadline,
            deadline=now + self.options.outcome_timeout if deadline is None else deadline,
            share=self.provisioning.share_of_sender(message),
        )
        if not self.provisioning.allows(name, message):
            count_received(self.node, arrival, label_of(name))
            self._refuse(arrival)
            return
        state = self.bind(name, arrival)
        if state is not None and context is None:
            self.fast.learn(onward[0], state)

    def _refuse(self, arrival: Arrival) -> None:
        """Refuse a message of a sender that has none of the roles of the name."""
        self.counts["senders without a role of the name"] += 1
        if arrival.settled:
            count_end(arrival, Logged.DROP)
            self.node.dead_letter(arrival.message, "sender without a role of the name")
        else:
            self.replies.tell(arrival, UNAUTHORIZED)

    def refuse_token(self, name: Name, arrival: Arrival) -> None:
        """Refuse a message of a neighbour, which has its token in use for another name.

        A name refuses one of which the token is in use for itself.
        """
        count_received(self.node, arrival, label_of(name))
        self.counts["messages under a token that another name has"] += 1
        self.replies.tell(arrival, RELEASED)

    def bind(self, name: Name, arrival: Arrival) -> NameState | None:
        """Give a message to the state of its name; return that, unless there are too many."""
        state = self.names.find(name, arrival.share)
        if state is not None:
            self._bind(state, arrival)
            return state
        count_received(self.node, arrival, label_of(name))
        if arrival.settled:
            count_end(arrival, Logged.DROP)
            self.node.dead_letter(arrival.message, "more than max_names")
        else:
            self.replies.tell(arrival, RELEASED)
        return None

    def _bind(self, state: NameState, arrival: Arrival) -> None:
        state.bind(arrival)
        self.names.tidy(state)

    def keep(self, name: Name, arrival: Arrival) -> bool:
        """Write a message to disk, if its name holds there; return whether to handle it."""
        return self.stored is None or self.stored.keep(name, arrival)

    def restore(self) -> None:
        """Go on with messages on disk, of names that hold there."""
        if self.stored is not None:
            self.stored.restore()

    # --- end --------------------------------------------------------------------------------

    def redirect(self, arrival: Arrival, to: Address) -> bool:
        """Give a message to another name in a later turn; return whether it went."""
        try:
            name = self.parse(to.value)
        except BadName:
            return False
        state = self.names.find(name)
        in_time = arrival.until is None or arrival.until > self.now()
        if state is None and arrival.promised and in_time and self.stored is not None:
            self.stored.put_back(arrival)
            return True
        if state is None:
            return False
        self.schedule.soon(lambda: self._bind(state, arrival))
        return True

    def tell(
        self,
        state: NameState | None,
        delivery: Delivery[Arrival],
        outcome: Outcome,
        tally: Tally | None,
    ) -> None:
        """Send the outcome of a message.

        Args:
            state: The name that tells it, which gives its own producers their credit back.
            delivery: The message.
            outcome: The outcome.
            tally: The outcomes of its copies.
        """
        path = delivery.message.reply_path
        self.replies.tell(delivery.message, outcome, tally)
        self.settle(state, path)

    def settle(self, state: NameState | None, path: ReplyPath | None) -> None:
        """Give a producer its credit back if it is one of another name, which was redirected.

        Args:
            state: The name that has told the outcome, which gives its own producers theirs.
            path: The path that the outcome went.
        """
        if not isinstance(path, ProducerPath):
            return
        producer = self.attachments.producers.get(path.producer)
        own = None if producer is None else producer.state
        if own is not None and own is not state:
            own.settled(path.producer)
