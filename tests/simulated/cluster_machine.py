"""A state machine of anything that can happen to a cluster, for Hypothesis to choose from."""

from __future__ import annotations

from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simulated.cluster_broker import Broker
from tests.simulated.clusters import SKEW, Plan, World

CLIENTS: Final = 8
SOME: Final = st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=CLIENTS, unique=True)
"""Some of the destinations."""
HOSTS: Final = st.integers(0, 5)
"""Hosts; those beyond the last one are counted from the first again."""
TIMES: Final = st.sampled_from((0.01, 0.3, 2.0, 7.0, 40.0))


class ClusterMachine(RuleBasedStateMachine):
    """A cluster to which anything happens in any order; at the end it is healed and settles.

    Attributes:
        BROKERS: The numbers of brokers that a cluster may have.
        kind: The kind of broker: the real one, or one that is broken on purpose.
        world: The cluster.
    """

    BROKERS: ClassVar[tuple[int, ...]] = (4,)
    kind: ClassVar[type[Broker]] = Broker
    world: World

    def make_world(self, plan: Plan, seed: int) -> World:
        """Return a cluster in which nothing has happened."""
        return World(plan, seed, self.kind)

    @initialize(
        seed=st.integers(0, 1000),
        size=st.integers(0, 1),
        delays=st.sampled_from(((0.001, 0.01), (0.05, 1.0))),
        log_changes=st.sampled_from((0, 3, 1000)),
        peer_hold=st.sampled_from((1.0, 6.0, 30.0)),
        slow=st.sampled_from((0.0, 0.5)),
        everything=st.booleans(),
    )
    def begin(
        self,
        seed: int,
        size: int,
        delays: tuple[float, float],
        log_changes: int,
        peer_hold: float,
        slow: float,
        everything: bool,
    ) -> None:
        brokers = self.BROKERS[size % len(self.BROKERS)]
        plan = Plan(brokers, CLIENTS, 0, 1.0, delays, log_changes, 1024, peer_hold, slow, 2)
        self.world = self.make_world(plan, seed)
        for number in range(brokers if everything else 1):
            self.world.start(number)
        if everything:
            for client in self.world.clients:
                client.wanted = True
                client.later()

    def number(self, host: int) -> int:
        """Return the number of a host that there is."""
        return host % self.world.plan.brokers

    def broker(self, host: int) -> Broker | None:
        """Return the broker of a host, if it is there and does not hang."""
        broker = self.world.brokers.get(self.number(host))
        if broker is None or not broker.alive or self.world.network.is_stalled(broker):
            return None
        return broker

    @rule(host=HOSTS)
    def start(self, host: int) -> None:
        there = self.world.brokers.get(self.number(host))
        if there is None or not there.alive:
            self.world.start(self.number(host))

    @rule(host=HOSTS, silently=st.booleans(), again=st.booleans())
    def crash(self, host: int, silently: bool, again: bool) -> None:
        broker = self.broker(host)
        if broker is not None:
            broker.crash(silently=silently)
            if again:
                self.world.start(broker.number)

    @rule(host=HOSTS)
    def stop(self, host: int) -> None:
        broker = self.broker(host)
        if broker is not None:
            self.world.leave(broker)

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

    @rule(host=HOSTS, other=HOSTS, both=st.booleans(), time=TIMES)
    def cut(self, host: int, other: int, both: bool, time: float) -> None:
        one, other = self.number(host), self.number(other)
        if one != other:
            self.world.cut([(one, other), (other, one)] if both else [(one, other)], time)

    @rule()
    def heal(self) -> None:
        self.world.network.heal()

    @rule(numbers=SOME, unnoticed=st.booleans())
    def move(self, numbers: list[int], unnoticed: bool) -> None:
        for number in numbers:
            client = self.world.clients[number]
            client.wanted = True
            client.move(unnoticed=unnoticed)

    @rule(numbers=SOME)
    def go(self, numbers: list[int]) -> None:
        for number in numbers:
            client = self.world.clients[number]
            client.wanted = False
            client.leave()

    @rule(host=HOSTS, multicast=st.booleans())
    def request(self, host: int, multicast: bool) -> None:
        broker = self.broker(host)
        if broker is not None:
            self.world.request(broker, multicast=multicast)

    @rule(host=HOSTS, number=st.integers(0, CLIENTS - 1))
    def request_by_id(self, host: int, number: int) -> None:
        broker = self.broker(host)
        if broker is not None:
            route_id = self.world.clients[number].route_id
            self.world.request(broker, multicast=False, route_id=route_id)

    @rule(time=TIMES)
    def advance(self, time: float) -> None:
        self.world.advance(time)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            assert self.world.outcome.violations == []

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.world.outcome.violations:
            self.world.settle()
            assert self.world.outcome.violations == []
