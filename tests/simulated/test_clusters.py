"""Clusters in virtual time: what is promised holds whatever the seed."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simulated.broken_clusters import BROKEN, CountsAPartAsTheWhole, catches
from tests.simulated.cluster_broker import Broker
from tests.simulated.clusters import SKEW, Plan, World, checked_run, run
from tests.support.counts import UNMEASURED, runs, times

AT_ONCE = 20
RARELY_CAUGHT = (CountsAPartAsTheWhole,)
"""Those that fifty runs may hide."""


@pytest.mark.slow
@pytest.mark.parametrize("first", runs(40, 600, AT_ONCE))
def test_a_cluster_that_is_healed_has_one_table(first: int) -> None:
    found = {seed: checked_run(seed)[2] for seed in range(first, first + AT_ONCE)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=each.__name__,
            marks=[pytest.mark.exhaustive] if each in RARELY_CAUGHT else [],
        )
        for number, each in enumerate(BROKEN)
    ],
)
def test_a_broker_that_is_broken_on_purpose_is_caught(number: int) -> None:
    assert any(catches(BROKEN[number], seed) for seed in range(300))


def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run(7) == run(7) != run(8)


BROKERS, CLIENTS = 4, 8
HOSTS, OTHERS = st.integers(0, BROKERS - 1), st.integers(1, BROKERS - 1)
TIMES = st.sampled_from((0.01, 0.3, 2.0, 7.0, 40.0))


class ClusterMachine(RuleBasedStateMachine):
    """A cluster to which anything happens in any order; at the end it is healed and settles."""

    world: World

    @initialize(
        seed=st.integers(0, 1000),
        delays=st.sampled_from(((0.001, 0.01), (0.05, 1.0))),
        log_changes=st.sampled_from((0, 3, 1000)),
        peer_hold=st.sampled_from((1.0, 6.0, 30.0)),
        slow=st.sampled_from((0.0, 0.5)),
    )
    def begin(
        self,
        seed: int,
        delays: tuple[float, float],
        log_changes: int,
        peer_hold: float,
        slow: float,
    ) -> None:
        plan = Plan(BROKERS, CLIENTS, 0, 1.0, delays, log_changes, 1024, peer_hold, slow, 2)
        self.world = World(plan, seed)
        self.world.start(0)

    def broker(self, host: int) -> Broker | None:
        """Return the broker of a host, if it is there and does not hang."""
        broker = self.world.brokers.get(host)
        if broker is None or not broker.alive or self.world.network.is_stalled(broker):
            return None
        return broker

    @rule(host=HOSTS)
    def start(self, host: int) -> None:
        there = self.world.brokers.get(host)
        if there is None or not there.alive:
            self.world.start(host)

    @rule(host=HOSTS, silently=st.booleans(), again=st.booleans())
    def crash(self, host: int, silently: bool, again: bool) -> None:
        broker = self.broker(host)
        if broker is not None:
            broker.crash(silently=silently)
            if again:
                self.world.start(host)

    @rule(host=HOSTS, time=TIMES)
    def stall(self, host: int, time: float) -> None:
        broker = self.broker(host)
        if broker is not None:
            self.world.stall(broker, time)

    @rule(host=HOSTS, skew=st.integers(-SKEW, SKEW))
    def set_clock(self, host: int, skew: int) -> None:
        broker = self.broker(host)
        if broker is not None:
            broker.clock_skew = skew

    @rule(host=HOSTS, other=OTHERS, both=st.booleans(), time=TIMES)
    def cut(self, host: int, other: int, both: bool, time: float) -> None:
        other = (host + other) % BROKERS
        ways = [(host, other), (other, host)] if both else [(host, other)]
        self.world.cut(ways, time)

    @rule(number=st.integers(0, CLIENTS - 1), unnoticed=st.booleans())
    def move(self, number: int, unnoticed: bool) -> None:
        client = self.world.clients[number]
        client.wanted = True
        client.move(unnoticed=unnoticed)

    @rule(number=st.integers(0, CLIENTS - 1))
    def go(self, number: int) -> None:
        client = self.world.clients[number]
        client.wanted = False
        client.leave()

    @rule(host=HOSTS, multicast=st.booleans())
    def request(self, host: int, multicast: bool) -> None:
        broker = self.broker(host)
        if broker is not None:
            self.world.request(broker, multicast=multicast)

    @rule(time=TIMES)
    def advance(self, time: float) -> None:
        self.world.advance(time)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            assert self.world.outcome.violations == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            assert self.world.outcome.violations == []


TestCluster = UNMEASURED(ClusterMachine.TestCase)
TestCluster.settings = settings(max_examples=times(15, 300), stateful_step_count=30, deadline=None)
