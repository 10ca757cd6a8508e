"""A name at a node with all that can happen to it, and a model of what became of its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar

from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    NOT_FOUND,
    RECEIVED,
    RELEASED,
    ConsumerEnded,
    ConsumerTarget,
    CopyEnded,
    CreditChange,
    Delivery,
    DeliveryLimits,
    DeliveryState,
    Dropped,
    Gate,
    Hand,
    Hold,
    Last,
    LinkTarget,
    NameEvent,
    NamePaths,
    NameState,
    NodeTotals,
    Paths,
    Redirect,
    Redirected,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    SendOn,
    Settlement,
    Target,
    Told,
    join_links,
    node_digest,
)

T = TypeVar("T")

RETRY: Final = Retry(rounds=2, first=1.0, longest=4.0, hold=Hold(messages=3, age=20.0))
MULTICAST: Final = RoutingPattern.MULTICAST
SEMANTICS: Final = (
    Semantics(window=3),
    Semantics(window=2, gate=Gate.CREDIT),
    Semantics(window=3, undeliverable=(RETRY, Last.RELEASE)),
    Semantics(window=4, undeliverable=(RETRY, Redirect("34#other"), Last.REJECT)),
    Semantics(window=3, gate=Gate.OPEN, undeliverable=(Redirect("34#other"), RETRY, Last.DROP)),
    Semantics(window=3, reliability=Reliability(settle=Settlement.AT_ONCE, deduplicate=5.0)),
    Semantics(pattern=RoutingPattern.CLOSEST, window=3, reliability=Reliability(deduplicate=5.0)),
    *(Semantics(pattern=RoutingPattern.DIRECT, window=3, second=each) for each in Second),
    *(
        Semantics(pattern=MULTICAST, window=3, reliability=Reliability(accepts=n, deadline=6.0))
        for n in (0, 1, 2)
    ),
    Semantics(pattern=MULTICAST, window=3, undeliverable=(RETRY, Last.RELEASE)),
    Semantics(pattern=RoutingPattern.UNAVAILABLE),
)
LIMITS: Final = DeliveryLimits(
    max_unsettled=9,
    max_unsettled_size=80,
    max_tries=3,
    try_time=15.0,
    finished_tokens=4,
    duplicate_ids=4,
    max_consumers=3,
    max_producers=2,
)
LINKS: Final = {"a": {"x": 1, "y": 1}, "x": {"a": 1, "z": 1}, "y": {"a": 1, "z": 2}, "z": {}}
STATES: Final[tuple[DeliveryState, ...]] = (
    ACCEPTED,
    ACCEPTED,
    Rejected("no", ""),
    RELEASED,
    RELEASED,
    MODIFIED,
    RECEIVED,
)


@dataclass(eq=False)
class Sent:
    """A message, and what has become of it."""

    number: int
    settled: bool
    delivery: Delivery[int]
    told: list[object] = field(default_factory=list[object])
    silent: bool = False
    """Whether nothing may be told any more."""
    copies: int = 0
    """Copies that were handed over or sent on."""
    dropped: int = 0
    redirected: bool = False
    tried_redirect: bool = False
    doubt: int = 0
    """Copies that a target may have."""
    has: set[Target] = field(default_factory=set[Target])
    """Targets that have it, or have had it and did not release it."""
    asked: Counter[Target] = field(default_factory=Counter[Target])
    rounds: int = 0


class NameWorld:
    """A name at the node `a`, its surroundings, and the model.

    Args:
        choose: Chooses a number below another one.
        variant: The class under test.
    """

    def __init__(
        self, choose: Callable[[int], int], variant: type[NameState[int]] = NameState
    ) -> None:
        self.choose = choose
        self.totals = NodeTotals(LIMITS)
        random = Random(1)
        self.state = variant("a", self._one(SEMANTICS), lambda: random.randbytes(8), self.totals)
        self.now = 0.0
        self.number = 0
        self.sent: dict[int, Sent] = {}
        self.open: dict[bytes, tuple[Target, Sent]] = {}
        self.tokens: list[bytes] = []
        self.consumers: dict[int, int] = {}
        self.by_credit: dict[int, int] = {}
        self.presettled = Counter[int]()
        self.producers: dict[int, int] = {}
        self.draining: set[int] = set()
        self.up: set[str] = set()
        self.paths_told = 0
        self.paths()

    ACTIONS: Final = (
        *("send", "send", "produce", "plain", "plain", "arrive", "arrive"),
        *("join", "join", "leave", "answer", "answer", "answer", "handle", "give_credit"),
        *("drain", "give_back", "nodes", "paths", "lose_link", "end_source", "settle_first"),
        *("unproduce", "forge", "tick", "tick", "update"),
    )

    def run(self, steps: int) -> None:
        """Take steps, then let all come to its end."""
        for _ in range(steps):
            self.act(self._one(self.ACTIONS))
        self.finish()

    def act(self, action: str) -> None:
        """Take a step, do what the name asks for, and look at what is true at any time."""
        getattr(self, action)()
        self.perform()

    def _one(self, values: Sequence[T]) -> T:
        return values[self.choose(len(values))]

    # --- messages ---------------------------------------------------------------------------

    def _message(self, source: object, ingress: str = "a", token: bytes | None = None) -> Sent:
        self.number += 1
        number = self.number
        settled = token is None and self.choose(3) == 0
        if self.choose(12) == 0 and number > 1:
            number -= 1  # an identity that was there before
        delivery = Delivery(
            self.number,
            7,
            source,
            (ingress, b"instance", number.to_bytes(8)),
            settled=settled,
            path=() if ingress == "a" else (node_digest("x"),),
            token=token,
            until=self.now + self.choose(9) if self.choose(3) == 0 else None,
            deadline=self.now + 30.0,
        )
        made = self.sent[self.number] = Sent(self.number, settled, delivery)
        return made

    def plain(self) -> None:
        """Send a message without a producer."""
        self.state.bind(self._message("plain").delivery, self.now)

    def arrive(self) -> None:
        """Receive a message of a neighbour."""
        if "x" in self.up:
            token = None if self.choose(3) == 0 else (self.number + 1).to_bytes(8)
            self.state.bind(self._message("x", "x", token).delivery, self.now)

    def send(self) -> None:
        """Send a message of a producer, which may be beyond its credit."""
        if not self.producers:
            return
        producer = self._one(list(self.producers))
        made = self._message(producer)
        credit = self.producers[producer]
        if not self.state.send(producer, made.delivery, self.now):
            assert credit == 0, "refused within its credit"
            del self.sent[made.number]
            return
        assert credit > 0, "taken beyond its credit"
        self.producers[producer] -= 1

    def settle_first(self) -> None:
        """Have a sender settle."""
        waiting = [each for each in self.sent.values() if not each.settled and not each.told]
        waiting = [each for each in waiting if each.delivery.token is None and not each.silent]
        waiting = [each for each in waiting if not each.redirected]
        if waiting:
            made = self._one(waiting)
            made.silent = True
            self.state.sender_settled(made.delivery, self.now)

    def end_source(self) -> None:
        """Have the node before settle or abandon a delivery, or say so of an unknown one."""
        of_links = [each for each in self.sent.values() if each.delivery.token is not None]
        if of_links:
            made = self._one(of_links)
            made.silent = True
            settled, token = self.choose(2) == 0, made.delivery.token or b""
            self.state.source_ended("x", token, self.now, settled=settled)

    # --- targets ----------------------------------------------------------------------------

    def answer(self) -> None:
        """Have a target tell a state of a copy that it has."""
        if self.open:
            token = self._one(list(self.open))
            self._answer(token, self._one(STATES))

    def _answer(self, token: bytes, state: DeliveryState) -> None:
        target, made = self.open[token]
        if state == RELEASED:
            made.doubt -= 1
            made.has.discard(target)
        self.state.disposition(token, state, target, self.now)

    def forge(self) -> None:
        """Send dispositions that are forged, repeated or unknown: nothing comes of them."""
        for token, (target, _) in list(self.open.items())[:2]:
            other = LinkTarget("w") if isinstance(target, ConsumerTarget) else ConsumerTarget(99)
            self.state.disposition(token, ACCEPTED, other, self.now)
        for token in [*self.tokens[-2:], b"nonsense"]:
            if token not in self.open:
                self.state.disposition(token, ACCEPTED, ConsumerTarget(1), self.now)
        assert not [each for each in self.state.events() if isinstance(each, Told | CopyEnded)]

    def join(self) -> None:
        """Attach a consumer, which may be refused."""
        number, window = self.choose(4), 1 + self.choose(3)
        if number in self.consumers:
            return
        by_credit = self.choose(3) == 0
        refusal = self.state.add_consumer(
            number, window, self.now, milliseconds=self.choose(100), by_credit=by_credit
        )
        if refusal is None:
            self.consumers[number] = window
            if by_credit:
                self.by_credit[number] = 0

    def leave(self) -> None:
        """Lose a consumer."""
        if self.consumers:
            number = self._one(list(self.consumers))
            self._gone(number)
            self.state.remove_consumer(number, self.now)

    def _gone(self, number: int) -> None:
        self.consumers.pop(number, None)
        self.by_credit.pop(number, None)
        self.presettled.pop(number, None)

    def handle(self) -> None:
        """Have a consumer handle a pre-settled message."""
        for number in list(self.presettled):
            if self.presettled[number]:
                self.presettled[number] -= 1
                self.state.handled(number, self.now)
                return
        self.state.handled(77, self.now)

    def give_credit(self) -> None:
        """Give credit to a consumer that has it by calls."""
        for number in self.by_credit:
            more = self.choose(3)
            self.by_credit[number] += more
            self.state.credit(number, more, self.now)
            self.perform()
        self.state.credit(77, 1, self.now)

    def drain(self) -> None:
        """Drain a consumer."""
        for number in list(self.by_credit)[:1]:
            left = self.state.drain(number, self.now)
            self.perform()
            assert left == self.by_credit[number]
            self.by_credit[number] = 0
        assert self.state.drain(77, self.now) == 0

    # --- producers, the network, time, semantics --------------------------------------------

    def produce(self) -> None:
        """Attach a producer, which may be refused."""
        number = 10 + self.choose(3)
        if number not in self.producers:
            self.producers[number] = 0
            if self.state.add_producer(number, anonymous=self.choose(4) == 0) is not None:
                del self.producers[number]

    def unproduce(self) -> None:
        """Lose a producer."""
        if self.producers:
            number = self._one(list(self.producers))
            del self.producers[number]
            self.draining.discard(number)
            for each in self.sent.values():
                each.silent = each.silent or each.delivery.source == number
            self.state.remove_producer(number)

    def give_back(self) -> None:
        """Have a producer that has to drain give its credit back."""
        for number in list(self.draining)[:1]:
            self.draining.discard(number)
            self.producers[number] = 0
            self.state.drained(number)

    def nodes(self) -> None:
        """Let other nodes have consumers, or none."""
        told = {node: self.choose(90) for node in "xyz" if self.choose(2)}
        self.state.set_nodes(told, self.now)

    def paths(self) -> None:
        """Let the links to both neighbours be there, and the paths over them."""
        self.up = {"x", "y"}
        costs = {node: dict(peers) for node, peers in LINKS.items()}
        if self.choose(2):
            costs["z"] = {"x": 1, "y": 2}
        paths = Paths(join_links(costs), "a")
        self.state.set_paths(paths, lambda hop: hop if hop in self.up else None, self.now)

    def lose_link(self) -> None:
        """Lose a link to a neighbour."""
        link = "xy"[self.choose(2)]
        self.up.discard(link)
        for each in self.sent.values():
            each.silent = each.silent or each.delivery.source == link
        self.state.link_lost(link, self.now)

    def tick(self) -> None:
        """Let time pass."""
        self.now += (0.1, 1.0, 4.0)[self.choose(3)]
        self.state.due(self.now)
        timer = self.state.get_timer()
        assert timer is None or timer > self.now

    def update(self) -> None:
        """Provision other semantics while messages are under way."""
        self.state.update(self._one(SEMANTICS), self.now)
        for each in self.sent.values():
            each.asked.clear()

    # --- what the name asks for -------------------------------------------------------------

    def perform(self) -> None:
        """Do what the name asks for, and hold what is true at any time."""
        while events := self.state.events():
            for event in events:
                self._do(event)
        for number, credit in self.producers.items():
            assert credit == self.state.credit_of(number) >= 0
        assert self.paths_told == self.state.paths
        assert self.state.deliveries.statistics().unsettled <= LIMITS.max_unsettled
        assert 0 <= self.totals.size <= LIMITS.max_unsettled_size
        assert self.totals.consumers == len(self.consumers)
        for credit in self.by_credit.values():
            assert credit >= 0, "handed beyond the credit of a consumer"

    def _do(self, event: NameEvent[int]) -> None:
        match event:
            case Hand(consumer, token, delivery):
                assert consumer in self.consumers
                self._used(consumer)
                self._copied(ConsumerTarget(consumer), token, delivery)
                if token is None:
                    self.presettled[consumer] += 1
                self._within_window(consumer)
            case SendOn(link, token, delivery):
                self._copied(LinkTarget(link), token, delivery)
                if token is not None and link not in self.up:
                    self._answer(token, RELEASED)
            case CopyEnded(token):
                self.open.pop(token, None)
                self.tokens.append(token)
            case Told(delivery, outcome):
                self._told(self.sent[delivery.message], outcome)
            case Dropped(delivery):
                self.sent[delivery.message].dropped += 1
            case Redirected(delivery):
                self._redirected(delivery)
            case CreditChange(producer, credit, drain):
                self.producers[producer] += credit
                assert self.producers[producer] >= 0
                (self.draining.add if drain else self.draining.discard)(producer)
            case ConsumerEnded(consumer):
                self._gone(consumer)
            case NamePaths(paths):
                self.paths_told = paths
            case _:
                pass

    def _used(self, consumer: int) -> None:
        if consumer in self.by_credit:
            self.by_credit[consumer] -= 1

    def _within_window(self, consumer: int) -> None:
        target = ConsumerTarget(consumer)
        has = sum(each == target for each, _ in self.open.values()) + self.presettled[consumer]
        assert consumer in self.by_credit or has <= self.consumers[consumer], "over its window"

    def _copied(self, target: Target, token: bytes | None, delivery: Delivery[int]) -> None:
        made = self.sent[delivery.message]
        made.copies += 1
        assert (token is None) == delivery.settled
        assert target not in made.has, "handed to one target twice"
        made.has.add(target)
        if made.rounds != delivery.rounds:
            made.rounds = delivery.rounds
            made.asked.clear()
        made.asked[target] += 1
        assert made.asked[target] == 1 or isinstance(target, LinkTarget), "asked twice in a round"
        if token is not None:
            made.doubt += 1
            self.open[token] = target, made

    def _told(self, made: Sent, outcome: object) -> None:
        made.told.append(outcome)
        assert not made.settled, "told of a pre-settled message"
        assert len(made.told) == 1, "told twice"
        gone = made.delivery.source is None
        assert gone or not made.silent, "told after its producer has gone"
        if outcome in (RELEASED, NOT_FOUND):
            assert made.doubt == 0, "released, and handed over"

    def _redirected(self, delivery: Delivery[int]) -> None:
        made = self.sent[delivery.message]
        assert not made.tried_redirect, "redirected twice"
        made.tried_redirect = True
        if self.choose(2):
            made.redirected = True
            source = delivery.source
            if isinstance(source, int) and source in self.producers and not delivery.settled:
                self.state.settled(source)
        else:
            self.state.go_on(delivery, self.now)

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Lose everything, and see that each message has had its end and nothing is left."""
        self.state.set_nodes({}, self.now)
        self.perform()
        for number in list(self.consumers):
            self._gone(number)
            self.state.remove_consumer(number, self.now)
            self.perform()
        for _ in range(100):
            timer = self.state.get_timer()
            if timer is None:
                break
            self.now = max(self.now, timer)
            self.state.due(self.now)
            self.perform()
        for link in "xy":
            for each in self.sent.values():
                each.silent = each.silent or each.delivery.source == link
            self.state.link_lost(link, self.now)
            self.perform()
        for number in list(self.producers):
            self.state.remove_producer(number)
        self.producers.clear()
        self.perform()
        assert self.state.idle, "something is left"
        assert not self.open
        assert self.totals.unsettled == 0
        assert (self.totals.size, self.totals.producers, self.totals.consumers) == (0, 0, 0)
        for made in self.sent.values():
            self._ended(made)

    def _ended(self, made: Sent) -> None:
        if made.settled:
            assert made.copies + made.dropped + made.redirected >= 1, "lost without a word"
        elif not (made.silent or made.redirected):
            assert len(made.told) == 1, "without an outcome"


def walk(seed: int, variant: type[NameState[int]] = NameState, steps: int = 80) -> None:
    """Take random steps."""
    NameWorld(Random(seed).randrange, variant).run(steps)
