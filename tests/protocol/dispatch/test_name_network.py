"""A name at several nodes, with all that they say to each other as bytes, and links that fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, TypeVar

import pytest

from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RELEASED,
    Announced,
    ConsumerActive,
    ConsumerEnded,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    Delivery,
    DeliveryState,
    Disposition,
    Hand,
    Hold,
    Last,
    LinkTarget,
    NameEvent,
    NameState,
    NodeTotals,
    Outcome,
    Paths,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    SendOn,
    Tally,
    Target,
    Told,
    Transit,
    decode_disposition,
    decode_transit,
    encode_disposition,
    encode_transit,
    ended_address,
    join_links,
    next_wait,
    node_digest,
    read_end,
)
from tests.support.counts import times

T = TypeVar("T")
OUTCOMES: Final[tuple[Outcome, ...]] = (
    ACCEPTED,
    ACCEPTED,
    RELEASED,
    MODIFIED,
    Rejected("no", ""),
)
NODES: Final = "abcd"
ONCE: Final = Reliability(deduplicate=1000.0)
RETRY: Final = Retry(first=1.0, longest=4.0, hold=Hold(messages=9, age=20.0))
SEMANTICS: Final = {
    "balanced": Semantics(reliability=ONCE),
    "held": Semantics(reliability=ONCE, undeliverable=(RETRY, Last.RELEASE)),
    "closest": Semantics(pattern=RoutingPattern.CLOSEST, reliability=ONCE),
    **{
        f"direct, {each.value}": Semantics(
            pattern=RoutingPattern.DIRECT, second=each, reliability=ONCE
        )
        for each in Second
    },
    **{
        f"multicast, {accepts}": Semantics(
            pattern=RoutingPattern.MULTICAST,
            reliability=Reliability(accepts=accepts, deduplicate=1000.0, deadline=8.0),
        )
        for accepts in (1, 3, ALL)
    },
}


@dataclass(eq=False)
class Sent:
    """A message of the network, and what has become of it."""

    number: int
    ingress: str
    told: list[Outcome] = field(default_factory=list[Outcome])
    handed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    doubt: int = 0
    accepted: int = 0


class Network:
    """Nodes with a name, links between them, and a model.

    Args:
        random: Chooses what happens.
        semantics: The semantics of the name.
        variant: The class under test.
    """

    def __init__(
        self, random: Random, semantics: Semantics, variant: type[NameState[int]] = NameState
    ) -> None:
        self.random = random
        self.now = 0.0
        self.semantics = semantics
        self.states: dict[str, NameState[int]] = {}
        self.totals = {node: NodeTotals() for node in NODES}
        self.links = {pair: 1 + random.randrange(3) for pair in ("ab", "bc", "cd", "ad")}
        if random.random() < 0.5:
            self.links["ac"] = 1
        self.cut: set[str] = set()
        self.wires: dict[tuple[str, str], deque[tuple[bytes, bytes, int]]] = {}
        self.claims: dict[str, int] = {}
        self.sent: dict[int, Sent] = {}
        self.open: list[tuple[str, bytes, int, Sent]] = []
        self.consumers: dict[str, set[int]] = {node: set() for node in NODES}
        self.active: dict[str, set[int]] = {node: set() for node in NODES}
        for node in NODES:
            tokens = partial(Random(random.random()).randbytes, 8)
            self.states[node] = variant(node, semantics, tokens, self.totals[node])
        self.heal()

    def _one(self, values: Sequence[T]) -> T:
        return values[self.random.randrange(len(values))]

    def run(self, steps: int) -> None:
        """Take steps, let the network come to rest, then lose everything."""
        actions = (*["send"] * 3, *["carry"] * 8, *["answer"] * 3, "join", "leave", "break_link")
        for _ in range(steps):
            getattr(self, self._one((*actions, "heal", "tick")))()
            self.perform()
        self.heal()
        self.settle()
        if self.semantics.pattern is RoutingPattern.DIRECT:
            there = any(self.consumers.values())
            assert sum(map(len, self.active.values())) == there, "several have a direct name"
        self.finish()

    # --- what happens -----------------------------------------------------------------------

    def send(self) -> None:
        number = len(self.sent) + 1
        ingress = self._one(NODES)
        self.sent[number] = Sent(number, ingress)
        identity = (ingress, b"instance", number.to_bytes(8))
        delivery = Delivery(number, 1, "plain", identity, deadline=self.now + 60.0)
        self.states[ingress].bind(delivery, self.now)

    def join(self) -> None:
        node, number = self._one(NODES), self.random.randrange(3)
        if number not in self.consumers[node]:
            milliseconds = self.random.randrange(100)
            state = self.states[node]
            if state.add_consumer(number, 2, self.now, milliseconds=milliseconds) is None:
                self.consumers[node].add(number)

    def leave(self) -> None:
        node = self._one(NODES)
        for number in list(self.consumers[node])[:1]:
            self.forget(node, number)
            self.states[node].remove_consumer(number, self.now)

    def forget(self, node: str, number: int) -> None:
        self.consumers[node].discard(number)
        self.active[node].discard(number)
        self.open = [each for each in self.open if (each[0], each[2]) != (node, number)]

    def answer(self) -> None:
        if self.open:
            each = self._one(self.open)
            self.open.remove(each)
            node, token, number, sent = each
            outcome = self._one(OUTCOMES)
            sent.doubt -= outcome == RELEASED
            sent.accepted += outcome == ACCEPTED
            if outcome == RELEASED:
                sent.handed.discard((node, number))
            self.states[node].disposition(token, outcome, ConsumerTarget(number), self.now)

    def break_link(self) -> None:
        pair = self._one(list(self.links))
        if pair not in self.cut:
            self.cut.add(pair)
            for node, peer in ((pair[0], pair[1]), (pair[1], pair[0])):
                self.wires.pop((node, peer), None)
            for node, peer in ((pair[0], pair[1]), (pair[1], pair[0])):
                self.states[node].link_lost(peer, self.now)
                self.perform()
            self.told_paths()

    def heal(self) -> None:
        self.cut.clear()
        self.told_paths()

    def told_paths(self) -> None:
        costs: dict[str, dict[str, int]] = {node: {} for node in NODES}
        for pair, cost in self.links.items():
            one, other = pair[0], pair[1]
            if pair not in self.cut:
                costs[one][other] = costs[other][one] = cost
        for node, state in self.states.items():
            neighbours = {peer: peer for peer in costs[node]}
            state.set_paths(Paths(join_links(costs), node), neighbours.get, self.now)
            self.perform()
        self.told_claims()

    def told_claims(self) -> None:
        for node, state in self.states.items():
            state.set_nodes({k: v for k, v in self.claims.items() if k != node}, self.now)
            self.perform()

    def tick(self) -> None:
        self.now += self._one((0.1, 3.0))
        for state in self.states.values():
            state.due(self.now)
        self.told_claims()

    # --- what nodes say to each other -------------------------------------------------------

    def put(self, node: str, peer: str, address: bytes, payload: bytes, message: int = 0) -> None:
        if "".join(sorted((node, peer))) not in self.cut:
            self.wires.setdefault((node, peer), deque()).append((address, payload, message))

    def carry(self) -> bool:
        """Carry what is next on some link; return whether there was something."""
        full = [wire for wire, waiting in self.wires.items() if waiting]
        if not full:
            return False
        peer, node = wire = self._one(full)
        address, payload, message = self.wires[wire].popleft()
        state = self.states[node]
        if address[:1] == b"t":
            transit = decode_transit(address)
            until = self.now + transit.wait / 1000
            delivery = Delivery(
                message, 1, peer, transit.identity, path=transit.path, token=payload, deadline=until
            )
            state.bind(delivery, self.now)
        elif (ended := read_end(address)) is not None:
            state.source_ended(peer, ended[0], self.now, settled=ended[1])
        else:
            told = decode_disposition(payload)
            state.disposition(address[1:], told.state, LinkTarget(peer), self.now, told.tally)
        return True

    def perform(self) -> None:
        busy = True
        while busy:
            busy = False
            for node, state in self.states.items():
                for event in state.events():
                    busy = True
                    self._do(node, event)

    def _do(self, node: str, event: NameEvent[int]) -> None:
        match event:
            case Hand(consumer, token, delivery):
                sent = self.sent[delivery.message]
                assert token is not None
                assert (node, consumer) not in sent.handed, "handed to a consumer twice"
                if self.semantics.pattern is not RoutingPattern.MULTICAST:
                    assert not sent.accepted, "handed over after it was accepted"
                sent.handed.add((node, consumer))
                sent.doubt += 1
                self.open.append((node, token, consumer, sent))
            case SendOn(link, token, delivery):
                assert token is not None
                wait = next_wait((delivery.limit or 0.0) - self.now)
                path = (*delivery.path, node_digest(node))
                transit = Transit("orders", *delivery.identity, wait=wait, path=path)
                self.put(node, link, encode_transit(transit), token, delivery.message)
            case CopyEnded(token, LinkTarget(link), end):
                if end in (CopyEnd.ABANDONED, CopyEnd.SETTLED):
                    self.put(node, link, ended_address(token, settled=False), b"")
            case CopyEnded(token):
                self.open = [each for each in self.open if each[1] != token]
            case Told(delivery, outcome):
                self._told(node, delivery, outcome)
            case ConsumerEnded(consumer):
                self.forget(node, consumer)
            case ConsumerActive(consumer, active):
                change = self.active[node].add if active else self.active[node].discard
                change(consumer)
            case Announced(claim):
                self.claims.pop(node, None)
                if claim is not None:
                    self.claims[node] = claim
            case _:
                pass

    def _told(self, node: str, delivery: Delivery[int], outcome: Outcome) -> None:
        sent = self.sent[delivery.message]
        if delivery.token is not None:
            frame = encode_disposition(Disposition(outcome, tally=delivery.tally))
            self.put(node, str(delivery.source), b"d" + delivery.token, frame)
            return
        assert node == sent.ingress
        sent.told.append(outcome)
        assert len(sent.told) == 1, "two outcomes"
        if outcome == RELEASED:
            assert sent.doubt == 0, "released, and handed over"
        if outcome == ACCEPTED and self.semantics.reliability.accepts != ALL:
            assert sent.accepted >= self.semantics.reliability.accepts, "accepted by too few"

    # --- the end ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Carry all that is under way, until nothing is."""
        for _ in range(20):
            self.told_claims()
            while self.carry():
                self.perform()

    def finish(self) -> None:
        for node in NODES:
            for number in list(self.consumers[node]):
                self.forget(node, number)
                self.states[node].remove_consumer(number, self.now)
                self.perform()
        self.settle()
        for _ in range(60):
            self.now += 20.0
            for state in self.states.values():
                state.due(self.now)
            self.perform()
            self.settle()
        for node, state in self.states.items():
            assert state.idle, f"something is left at {node}: {state.deliveries.statistics()}"
            assert self.totals[node].size == 0
        for sent in self.sent.values():
            assert len(sent.told) == 1, "without an outcome"


def run_many(seeds: int, name: str, variant: type[NameState[int]] = NameState) -> None:
    for seed in range(seeds):
        Network(Random(seed), SEMANTICS[name], variant).run(100)


@pytest.mark.parametrize("name", SEMANTICS)
def test_random_networks(name: str) -> None:
    run_many(times(5, 40), name)


class ForgetsClaims(NameState[int]):
    def set_nodes(self, nodes: Mapping[str, int], now: float) -> None:
        super().set_nodes(dict.fromkeys(nodes, 0), now)


class LosesTallies(NameState[int]):
    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> None:
        if tally is not None and tally.accepted:
            tally = Tally(accepted=3 * tally.accepted)
        super().disposition(token, state, target, now, tally)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        (ForgetsClaims, "direct, refuse"),
        (ForgetsClaims, "direct, standby"),
        (LosesTallies, "multicast, 3"),
    ],
)
def test_a_broken_variant_is_caught(variant: type[NameState[int]], name: str) -> None:
    with pytest.raises(AssertionError):
        run_many(200, name, variant)
