"""What the names of a node share: tokens, producers, links to neighbours, and the timer."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from ...protocol import (
    DELIVERY,
    NAME,
    Address,
    InDoubt,
    Message,
    OnwardError,
    Outside,
    Route,
)
from ...protocol.dispatch import (
    ACCEPTED,
    ALL_NODES,
    ID_SIZE,
    MODIFIED,
    RELEASED,
    BadName,
    BadTransit,
    Delivery,
    DeliveryState,
    Identity,
    Name,
    NameKind,
    NodeTotals,
    Outcome,
    Paths,
    Redirect,
    Semantics,
    Tally,
    Target,
    Transit,
    encode_transit,
    ended_address,
    milliseconds,
    next_wait,
    node_digest,
    parse_name,
    return_address,
)
from ._access import UNAUTHORIZED
from ._arrival import PLAIN, Arrival, CopyWay, PlainWay, ProducerWay, Way
from ._consumer_record import ConsumerRecord
from ._name_state import NameState
from ._options import DispatchOptions
from ._outcome_ways import OutcomeWays
from ._traced import TracedWays

if TYPE_CHECKING:
    from .._node import Node
    from ._credited import CreditedProducer
    from ._sender import Sender

__all__ = ["DispatchCore", "without"]


class DispatchCore:
    """The names of a node, and what they share. All of it on the node's loop.

    Args:
        node: The node.
        own: The name of the node in the network.
        address: The address of the worker of the dispatcher.
        options: The options.
        paths: The paths of the network.

    Attributes:
        states: The states of names, by the text of the name.
        tokens: The name and the target of each copy that has no outcome yet.
        producers: The producers, by number.
        anonymous: The numbers of the anonymous ones.
        counts: What was dropped or refused, by its reason.
        totals: What all names have together.
        links: The links to neighbours, by their text.
        upstream: The names of the unsettled deliveries of neighbours, by link and token.
        ways: The sender of outcomes.
    """

    def __init__(
        self, node: Node, own: str, address: Address, options: DispatchOptions, paths: Paths
    ) -> None:
        self.node: Final = node
        self.own: Final = own
        self.address: Final = address
        self.options: Final = options
        self.paths = paths
        self.states: Final[dict[str, NameState]] = {}
        self.tokens: Final[dict[bytes, tuple[NameState, Target]]] = {}
        self.producers: Final[dict[int, Sender | CreditedProducer]] = {}
        self.anonymous: Final[set[int]] = set()
        self.counts: Final = Counter[str]()
        self.totals: Final = NodeTotals(options.deliveries, counts=self.counts)
        self.links: Final[dict[str, Address]] = {}
        self.upstream: Final[dict[tuple[Hashable, bytes], NameState]] = {}
        self.ways: Final = OutcomeWays(node, self.counts, self._told, self.upstream)
        self.ways.copied = self._copied
        self.traced: Final = TracedWays(node.parts.router.dispatch)
        self._numbers: Final = count(1)
        self._instance: Final = secrets.token_bytes(ID_SIZE)
        self._ids: Final = count()
        self._digest: Final = node_digest(own)
        self._times: list[tuple[float, int, NameState]] = []
        self.alarm: Callable[[float], None] = lambda _: None
        self.soon: Callable[[Callable[[], object]], object] = node.loop.call_soon
        self.announce: Callable[[NameState, int | None], None] = lambda _, __: None
        self.watched: Callable[[NameState], None] = lambda _: None
        self.released: Callable[[ConsumerRecord], None] = lambda _: None
        self.make: Callable[[Name], NameState | None] = lambda _: None
        self.semantics_of: Callable[[Name], Semantics] = lambda _: options.default
        self.allows: Callable[[Name, Message], bool] | None = None
        """Whether a message may go to a name; `None` as long as all may go to each."""

    # --- small parts ------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of the node's loop, in seconds."""
        return self.node.loop.time()

    @staticmethod
    def milliseconds() -> int:
        """Return the time since the Unix epoch, in milliseconds."""
        return int(time.time() * 1000)

    def number(self) -> int:
        """Return the number of a new consumer or producer."""
        return next(self._numbers)

    def identity(self) -> Identity:
        """Return an identity that no other message of the network has."""
        return self.own, self._instance, next(self._ids).to_bytes(ID_SIZE)

    @staticmethod
    def token() -> bytes:
        """Return the token of a copy, which cannot be guessed."""
        return secrets.token_bytes(8)

    def parse(self, value: bytes | str) -> Name:
        """Read a name.

        Raises:
            BadName: It is none.
        """
        return parse_name(value, self.own, self.options.limits)

    # --- messages ---------------------------------------------------------------------------

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
            None if settled else PlainWay(message._replace(payload=b"")),
            until=deadline,
            deadline=now + self.options.outcome_timeout if deadline is None else deadline,
        )
        if self.allows is not None and not self.allows(name, message):
            self.refuse(arrival)
            return
        self.bind(name, arrival)

    def keep(self, name: Name, arrival: Arrival) -> bool:
        """Write a message to disk, if its name holds there; return whether to handle it."""
        stored = self.ways.stored
        return stored is None or stored.keep(name, arrival)

    def refuse(self, arrival: Arrival) -> None:
        """Refuse a message of a sender that has none of the roles of the name."""
        self.counts["senders without a role of the name"] += 1
        if arrival.settled:
            self.node.dead_letter(arrival.message, "sender without a role of the name")
        else:
            self.ways.tell(arrival, UNAUTHORIZED)

    def bind(self, name: Name, arrival: Arrival) -> None:
        """Give a message to the state of its name."""
        state = self.states.get(name.text) or self.make(name)
        if state is not None:
            state.bind(arrival)
            self.tidy(state)
            return
        self.counts["more than max_names"] += 1
        if arrival.settled:
            self.node.dead_letter(arrival.message, "more than max_names")
        else:
            self.ways.tell(arrival, RELEASED)

    def hand(self, record: ConsumerRecord, arrival: Arrival, token: bytes | None) -> None:
        """Send a message to a consumer.

        Raises:
            DeliveryError: It was certainly not handed over.
        """
        if record.local is not None:
            self._copy_to(record.local, arrival, token)
            return
        if record.hand is not None:
            record.hand(arrival.message, token)
            return
        onward, _, payload, source, context = arrival.message
        back: Route = ()
        if token is not None:
            self.traced.note(token, arrival)
            end = Address(DELIVERY, return_address(token))
            # A link remembers return routes that begin with a worker only.
            back = (self.address, end) if record.remote else (end,)
        self.node.parts.router.dispatch(
            Message((*record.route, *onward), back, payload, source, context)
        )

    def _copy_to(self, name: Name, arrival: Arrival, token: bytes | None) -> None:
        """Give a copy of a message to a name of this node, in a later turn."""
        copy = Arrival(
            arrival.message,
            token is None,
            self.identity(),
            PLAIN,
            None if token is None else CopyWay(token),
            until=arrival.until,
            deadline=self.now() + self.options.outcome_timeout,
        )
        self.soon(lambda: self.bind(name, copy))

    def _copied(self, token: bytes, outcome: Outcome, answer: Message | None) -> None:
        """Receive the outcome of such a copy."""
        if answer is not None:
            self.answer_of(token, answer)
        self.disposition(token, outcome, None)

    def send_on(
        self,
        name: Name,
        delivery: Delivery[Arrival],
        link: str,
        token: bytes | None,
    ) -> bool:
        """Send a copy to the next node; return whether it went."""
        arrival, limit = delivery.message, delivery.limit
        address = self.links.get(link)
        if address is None:
            return False
        onward, _, payload, _, context = arrival.message
        now = self.now()
        ttl = 0 if arrival.until is None else milliseconds(arrival.until - now)
        wait = 0 if limit is None or token is None else next_wait(limit - now)
        path = (*arrival.path, self._digest)
        try:
            transit = encode_transit(
                Transit(
                    name.text,
                    *arrival.identity,
                    settled=token is None,
                    redirected=delivery.redirected,
                    ttl=ttl,
                    wait=wait,
                    path=path,
                )
            )
            to = (address, self.address, Address(DELIVERY, transit), *onward)
            back: Route = ()
            if token is not None:
                self.traced.note(token, arrival)
                back = (self.address, Address(DELIVERY, return_address(token)))
            self.node.parts.router.dispatch(Message(to, back, payload, None, context))
        except (BadTransit, OnwardError):
            self.counts["copies that a link did not take"] += 1
            return False
        return True

    def redirect(self, arrival: Arrival, part: Redirect) -> bool:
        """Send a message along the route of a redirect; return whether it went."""
        route = part.route
        if route[0].type == NAME and len(route) == 1:
            try:
                name = self.parse(route[0].value)
            except BadName:
                return False
            state = self.states.get(name.text) or self.make(name)
            if state is None:
                return False
            self.soon(lambda: self._redirected(state, arrival))
            return True
        message, way = arrival.message, arrival.way
        back = way.message.return_route if isinstance(way, PlainWay) else ()
        try:
            self.node.parts.router.dispatch(
                message._replace(
                    onward_route=(*route, *message.onward_route), return_route=back, source=None
                )
            )
        except OnwardError:
            return False
        if isinstance(way, PlainWay):
            if arrival.stored and self.ways.stored is not None:
                self.ways.stored.ended(arrival, ACCEPTED, told=True)
            arrival.way = None  # the worker answers along the return route
        elif arrival.delivery is not None and not arrival.delivery.settled:
            self.tell(None, arrival.delivery, ACCEPTED, None)
        return True

    def _redirected(self, state: NameState, arrival: Arrival) -> None:
        state.bind(arrival)
        self.tidy(state)

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
        way = delivery.message.way
        self.ways.tell(delivery.message, outcome, tally)
        self.settle(state, way)

    def settle(self, state: NameState | None, way: Way | None) -> None:
        """Give a producer its credit back if it is one of another name, which was redirected.

        Args:
            state: The name that has told the outcome, which gives its own producers theirs.
            way: The way that the outcome went.
        """
        producer = self.producers.get(way.producer) if isinstance(way, ProducerWay) else None
        home = None if producer is None else producer.home
        if producer is not None and home is not None and home is not state:
            home.settled(producer.number)

    # --- outcomes ---------------------------------------------------------------------------

    def token_of(self, message: Message, record: ConsumerRecord) -> bytes | None:
        """Return the token of the delivery that a consumer has got."""
        del record
        back = message.return_route
        return back[-1].value[1:] if back else None

    def disposition(
        self, token: bytes, state: DeliveryState, target: Target | None, tally: Tally | None = None
    ) -> None:
        """Receive the state of a copy.

        Args:
            token: The token.
            state: The state.
            target: The target that tells it; `None` for a worker of this node, which knows the
                token from the message only.
            tally: The outcomes behind a link.
        """
        found = self.tokens.get(token)
        if found is None:
            self.counts["outcomes that came late or for no delivery"] += 1
            return
        name, at = found
        name.disposition(token, state, at if target is None else target, tally)
        self.tidy(name)

    def tell_end(self, link: str, token: bytes, *, settled: bool) -> None:
        """Report to a next node that the outcome of a copy is not waited for any more."""
        address = self.links.get(link)
        if address is None:
            return
        end = Address(DELIVERY, ended_address(token, settled=settled))
        try:
            message = Message((address, self.address, end), (), b"", None, None)
            self.node.parts.router.dispatch(message)
        except OnwardError:
            self.counts["ends that could not be told"] += 1

    def source_ended(self, link: str, token: bytes, *, settled: bool) -> None:
        """Receive word of the node before this one that it waits for an outcome no more."""
        state = self.upstream.pop((link, token), None)
        if state is not None:
            state.source_ended(link, token, settled=settled)
            self.tidy(state)

    def forget_upstream(self, link: str) -> None:
        """Forget the ways back over a link that is lost."""
        for each in [each for each in self.upstream if each[0] == link]:
            del self.upstream[each]

    def answer_of(self, token: bytes, message: Message) -> None:
        """Keep the reply of a consumer for the producer that waits for it."""
        found = self.tokens.get(token)
        arrival = None if found is None else found[0].arrival_of(token)
        if arrival is not None and arrival.answer is None:
            arrival.answer = message

    def answered(self, token: bytes, payload: bytes) -> None:
        """Keep the answer of a handler for the producer that waits for it."""
        self.answer_of(token, Message((), (), payload, None, None))

    def ended(self, token: bytes) -> None:
        """Forget a copy that has ended."""
        self.tokens.pop(token, None)

    def handled(self, record: ConsumerRecord) -> None:
        """Receive word that a consumer has handled a pre-settled message."""
        if record.state.consumers.get(record.number) is record:
            record.state.handled(record)

    def failed(self, end: Address, error: OnwardError) -> bool:
        """Receive word that a worker could not handle a delivery; return whether it is one."""
        value = end.value
        if len(value) != 9 or value[:1] != b"r":
            return False
        certain = not isinstance(error, InDoubt)
        self.soon(lambda: self.disposition(value[1:], RELEASED if certain else MODIFIED, None))
        return True

    # --- producers and consumers ------------------------------------------------------------

    def _told(self, way: ProducerWay, outcome: Outcome | None, answer: Message | None) -> None:
        producer = self.producers.get(way.producer)
        if producer is not None:
            producer.ended(way, outcome, answer)

    def credit(self, number: int) -> None:
        """Wake the sends of a producer that wait for credit."""
        producer = self.producers.get(number)
        if producer is not None:
            producer.woken()

    def detach(self, state: NameState, record: ConsumerRecord, reason: str) -> None:
        """Detach a consumer."""
        state.remove_consumer(record.number, reason)
        self.tidy(state)

    # --- time and space ---------------------------------------------------------------------

    def tidy(self, state: NameState) -> None:
        """Forget the state of a name of which nothing is left."""
        if self._is_idle(state) and self.states.get(state.name.text) is state:
            del self.states[state.name.text]

    @staticmethod
    def _is_idle(state: NameState) -> bool:
        name = state.name
        if name.kind in (NameKind.MOBILE, NameKind.LOCAL):
            return state.idle
        # The name itself says which nodes it is of, and those stay: nothing of it has to be kept.
        gone = name.node == ALL_NODES or not state.consumers
        return gone and not state.busy

    def arm(self, state: NameState) -> None:
        """Look at a name again when something of it is due."""
        at = state.get_timer()
        if at is None or (state.scheduled is not None and state.scheduled <= at):
            return
        state.scheduled = at
        heappush(self._times, (at, next(self._numbers), state))
        self.alarm(self._times[0][0])

    def due(self) -> None:
        """Perform what is due of all names."""
        now = self.now()
        while self._times and self._times[0][0] <= now:
            at, _, state = heappop(self._times)
            if state.scheduled != at:
                continue
            state.scheduled = None
            try:
                state.due(now)
                self.tidy(state)
            except Exception as error:  # noqa: BLE001 - the other names are due too
                self.node.parts.run_queue.fault("what is due of a name", error)
        if self._times:
            self.alarm(self._times[0][0])

    # --- the network ------------------------------------------------------------------------

    def nodes(self, name: Name, told: Mapping[str, int]) -> Mapping[str, int]:
        """Return the other nodes with consumers of a name, with their claims."""
        if name.kind is NameKind.MOBILE:
            return told
        if name.kind is NameKind.LOCAL:
            return {}
        return dict.fromkeys(self.paths.nodes if name.node == ALL_NODES else (name.node,), 0)


def without(message: Message, rest: Route) -> Message:
    """Return a message with the rest of its onward route, of which a peer has chosen no more."""
    _, _, payload, source, context = message
    if context is not None and context.outside is not None:
        outside = Outside(min(context.outside.given, len(rest)), context.outside.allows)
        context = context._replace(outside=outside if outside.given else None)
    return Message(rest, (), payload, source, context)
