"""Random walks of a circuit over one to four nodes, with links that are cut at any moment.

The model knows what was sent, granted and settled since the last attach, and nothing of how a
circuit works. After each step it holds that what arrived is what was sent, in order and once, and
that no more was begun than granted; whenever nothing is under way, that both ends say the same of
the circuit, of the credit and of what is unsettled. Variants that are broken on purpose are caught
by the same walks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from onward.protocol.dispatch import (
    CircuitEnd,
    CircuitEvent,
    CircuitFrameKind,
    Circuits,
    CircuitSend,
    CircuitSide,
    CircuitTransfer,
    EndState,
)
from tests.protocol.dispatch.circuit_chain import Chain
from tests.support.counts import exhaustive, times

QUIET = {"", "route-lost", "over"}
"""Conditions of circuits of which no part has broken the protocol."""


class CircuitWalk(RuleBasedStateMachine):
    """A walk. Broken variants replace the parts that it is made of."""

    make_end: Callable[..., CircuitEnd] = CircuitEnd
    make_node: Callable[..., Circuits] = Circuits

    @initialize(nodes=st.integers(1, 4), producer=st.booleans())
    def begin(self, nodes: int, producer: bool) -> None:
        kind = type(self)
        self.chain = Chain(
            nodes, producer=producer, make_end=kind.make_end, make_node=kind.make_node
        )
        self.nodes = nodes
        self.sent: dict[int, list[CircuitTransfer]] = {}
        self.got: dict[int, list[CircuitTransfer]] = {}
        self.granted: dict[int, int] = {}
        self.seen = 0
        self.tags = 0
        self.open: bytes | None = None
        self.chain.attach()
        self.chain.run()
        self.observe()

    # --- what the ends do ---------------------------------------------------------------------

    def attached(self, *, producer: bool) -> bool:
        end = self.chain.maker if producer else self.chain.taker
        return end.state is EndState.ATTACHED

    @precondition(lambda self: self.attached(producer=False))
    @rule(credit=st.integers(0, 5), drain=st.booleans())
    def grant(self, credit: int, drain: bool) -> None:
        self.chain.taker.grant(credit, self.chain.now, drain=drain)
        attach = self.attach_of(self.chain.taker)
        self.granted[attach] = self.granted.get(attach, 0) + credit
        self.chain.flush()

    @precondition(lambda self: self.chain.maker.can_send)
    @rule(more=st.booleans(), settled=st.booleans())
    def send(self, more: bool, settled: bool) -> None:
        self.tags += 1
        self.put(CircuitTransfer(b"%d" % self.tags, b"begin", more, settled=settled))

    @precondition(lambda self: self.open is not None and self.attached(producer=True))
    @rule(more=st.booleans(), aborted=st.booleans())
    def go_on(self, more: bool, aborted: bool) -> None:
        assert self.open is not None
        if aborted:
            self.put(CircuitTransfer(self.open, b"", aborted=True))
        else:
            self.put(CircuitTransfer(self.open, b"more", more))

    def put(self, part: CircuitTransfer) -> None:
        self.chain.maker.send(
            part.tag,
            part.payload,
            self.chain.now,
            more=part.more,
            aborted=part.aborted,
            settled=part.settled,
        )
        self.open = part.tag if part.more else None
        self.sent.setdefault(self.attach_of(self.chain.maker), []).append(part)
        self.chain.flush()

    @precondition(lambda self: self.attached(producer=True) and self.chain.maker.draining)
    @rule()
    def give_back(self) -> None:
        self.chain.maker.drained(self.chain.now)
        self.chain.flush()

    @precondition(lambda self: self.attached(producer=False) and self.chain.taker.unsettled)
    @rule(which=st.integers(0, 3), state=st.sampled_from([b"a", b"b"]), settled=st.booleans())
    def dispose(self, which: int, state: bytes, settled: bool) -> None:
        self.settle_at(self.chain.taker, which, state, settled=settled)

    @precondition(lambda self: self.attached(producer=True) and self.chain.maker.unsettled)
    @rule(which=st.integers(0, 3))
    def settle(self, which: int) -> None:
        self.settle_at(self.chain.maker, which, b"", settled=True)

    def settle_at(self, end: CircuitEnd, which: int, state: bytes, *, settled: bool) -> None:
        tag, _ = end.unsettled[which % len(end.unsettled)]
        end.dispose(tag, self.chain.now, state, settled=settled)
        self.chain.flush()

    @precondition(lambda self: self.attached(producer=True) or self.attached(producer=False))
    @rule(which=st.integers(0, 7))
    def detach(self, which: int) -> None:
        """Detach an end, in one of four cases."""
        end = self.chain.ends[which % 2]
        if which < 2 and end.state is EndState.ATTACHED:
            end.detach(self.chain.now)
            self.chain.flush()

    @precondition(lambda self: self.chain.ends[0].state is EndState.SUSPENDED)
    @rule()
    def resume(self) -> None:
        self.chain.attach()

    # --- what the network does ----------------------------------------------------------------

    @precondition(lambda self: self.chain.busy())
    @rule(which=st.integers(0, 9), most=st.integers(1, 8))
    def deliver(self, which: int, most: int) -> None:
        for _ in range(most):
            if links := self.chain.busy():
                self.chain.step(links[which % len(links)])
                self.observe()

    @rule()
    def deliver_all(self) -> None:
        while links := self.chain.busy():
            self.chain.step(links[0])
            self.observe()

    @rule(place=st.integers(0, 15))
    def cut(self, place: int) -> None:
        """Cut a link, in fewer than one of three cases."""
        if place <= self.nodes:
            self.chain.cut(place)
            self.observe()

    @precondition(lambda self: not self.chain.busy())
    @rule()
    def wait(self) -> None:
        self.chain.wait(100.0)
        self.observe()

    # --- what has to hold ---------------------------------------------------------------------

    def attach_of(self, end: CircuitEnd) -> int:
        return self.chain.attaches[end is self.chain.ends[1]]

    def observe(self) -> None:
        """Take what the consumer has got since the last look."""
        events: list[CircuitEvent] = self.chain.seen(self.chain.taker)
        new = [event for event in events[self.seen :] if isinstance(event, CircuitTransfer)]
        self.seen = len(events)
        self.got.setdefault(self.attach_of(self.chain.taker), []).extend(new)
        if not self.attached(producer=True):
            self.open = None

    @invariant()
    def what_arrives_was_sent_in_this_order_and_once(self) -> None:
        for attach, got in self.got.items():
            assert got == self.sent.get(attach, [])[: len(got)]
            begun = [part for part in got if part.payload == b"begin"]
            assert len(begun) <= self.granted.get(attach, 0)

    @invariant()
    def no_part_breaks_the_protocol(self) -> None:
        for end in self.chain.ends:
            assert {down.condition for down in self.chain.downs(end)} <= QUIET

    @invariant()
    def both_ends_agree_when_nothing_is_under_way(self) -> None:
        if self.chain.busy():
            return
        maker, taker = self.chain.maker, self.chain.taker
        assert maker.state is taker.state
        assert maker.state in {EndState.ATTACHED, EndState.SUSPENDED}
        if maker.state is EndState.ATTACHED:
            attach = self.attach_of(taker)
            assert self.attach_of(maker) == attach
            assert self.got.get(attach, []) == self.sent.get(attach, [])
            assert maker.credit == taker.credit
            assert maker.unsettled == taker.unsettled


def walk(machine: type[CircuitWalk], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.filter_too_much,
                HealthCheck.data_too_large,
            ],
            # A walk that fails says enough: to shorten it takes minutes.
            phases=(Phase.generate,),
            report_multiple_bugs=False,
        ),
    )


def test_the_ends_of_a_circuit_agree() -> None:
    walk(CircuitWalk, times(40, 2000))


# --- variants that are broken on purpose ------------------------------------------------------


class Dropping(Circuits):
    """A node that loses frames of one kind."""

    kind = CircuitFrameKind.FLOW

    def receive(
        self, number: int, side: CircuitSide, data: bytes, now: float
    ) -> tuple[CircuitSend, ...]:
        sends = super().receive(number, side, data, now)
        return tuple(send for send in sends if send.data[2] != self.kind)


class DroppingDispositions(Dropping):
    kind = CircuitFrameKind.DISPOSITION


class DroppingDetaches(Dropping):
    kind = CircuitFrameKind.DETACH


class Doubling(Circuits):
    """A node that sends transfers twice."""

    def receive(
        self, number: int, side: CircuitSide, data: bytes, now: float
    ) -> tuple[CircuitSend, ...]:
        sends = super().receive(number, side, data, now)
        return sends * 2 if data[2] == CircuitFrameKind.TRANSFER else sends


class Silent(Circuits):
    """A node that tells no side of a link that is lost."""

    def link_lost(self, peer: Hashable) -> tuple[CircuitSend, ...]:
        super().link_lost(peer)
        return ()


class Greedy(CircuitEnd):
    """A producer that sends without credit."""

    @property
    def can_send(self) -> bool:
        return self.producer and self.state is EndState.ATTACHED and self._deliveries.open is None

    def send(
        self,
        tag: bytes,
        payload: bytes,
        now: float,
        *,
        more: bool = False,
        aborted: bool = False,
        settled: bool = False,
    ) -> None:
        self.credit += 1
        super().send(tag, payload, now, more=more, aborted=aborted, settled=settled)


class Forgetful(CircuitEnd):
    """An end that does not compare the unsettled maps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._deliveries.compare = lambda *_, **__: ()  # type: ignore[method-assign]


class Hoarding(CircuitEnd):
    """A producer that keeps the credit that it has given back."""

    def drained(self, now: float) -> None:
        credit = self.credit
        super().drained(now)
        self.credit = credit


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "node", [Dropping, DroppingDispositions, DroppingDetaches, Doubling, Silent]
)
def test_a_broken_node_is_caught(node: type[Circuits]) -> None:
    class Broken(CircuitWalk):
        make_node = node

    with pytest.raises(AssertionError):
        walk(Broken, 2000)


@pytest.mark.no_cover
@pytest.mark.parametrize("end", [Greedy, *exhaustive(Forgetful, Hoarding)])
def test_a_broken_end_is_caught(end: type[CircuitEnd]) -> None:
    class Broken(CircuitWalk):
        make_end = end

    with pytest.raises(AssertionError):
        walk(Broken, 2000)
