"""Brokers of a topology that form a cluster, over real sockets in one process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors.broker import Broker
from onward.actors.topology import Topology, TopologyFailed, read
from onward.protocol.topology import TopologyPlan
from onward.transports.simulated import Event, Faults, SimulatedNetwork, simulate
from tests.support.counts import times

pytestmark = [pytest.mark.real_time, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "topologies"
FILE = EXAMPLES / "cluster.toml"
FAULTS = EXAMPLES / "cluster_faults.toml"
ALONE = """\
[nodes.a]
workers.echo = "echo"
broker.destinations.echo = { service = "s", tags = { k = "v" } }
listeners.clients = "rsocket+tcp://127.0.0.1:0"
[[requests]]
from = "a"
route = "32#service=s k=v"
payload = "x"
expect = "x"
"""


async def test_the_brokers_of_a_cluster_reach_the_destinations_of_all() -> None:
    plan = read(FILE.read_bytes(), "cluster.toml")
    async with await Topology.start(plan) as topology:
        outcomes = await topology.check()
        assert [outcome.ok for outcome in outcomes] == [True, True, True]
        clusters = {
            name: running.broker.cluster
            for name, running in topology._running.items()
            if running.broker is not None
        }
        for name, cluster in clusters.items():
            assert cluster is not None
            assert {row.name: row.state for row in cluster.peers()} == {
                other: "up" for other in clusters if other != name
            }
        north = clusters["north"]
        assert north is not None
        assert (north.options.locality, north.options.name) == ("even", "north")


async def test_a_broker_in_no_cluster() -> None:
    async with await Topology.start(read(ALONE, "t.toml")) as topology:
        (outcome,) = await topology.check()
        assert outcome.ok, outcome


async def test_the_zone_of_a_broker() -> None:
    plan = read(FILE.read_bytes().replace(b'cluster = "shop"', b'cluster = "shop"\nzone = "z"'))
    async with await Topology.start(plan) as topology:
        assert all(outcome.ok for outcome in await topology.check())
        for running in topology._running.values():
            assert running.broker is not None
            assert running.broker.cluster is not None
            assert running.broker.cluster.options.zone == "z"


async def test_a_destination_that_cannot_be_one() -> None:
    text = ALONE.replace("{ k = ", "{ " + "k" * 200 + " = ")
    with pytest.raises(TopologyFailed, match=r"\.echo: cannot be a destination: bad address"):
        await Topology.start(read(text, "t.toml"))


async def test_a_listener_with_an_option_that_there_is_not() -> None:
    text = ALONE.replace(
        '"rsocket+tcp://127.0.0.1:0"', '{ uri = "rsocket+tcp://127.0.0.1:0", options = { x = 1 } }'
    )
    with pytest.raises(TopologyFailed, match="unknown option 'x'"):
        await Topology.start(read(text, "t.toml"))


def simulated(plan: TopologyPlan, seed: int) -> tuple[list[str], tuple[Event, ...]]:
    """Run a plan, and return its outcomes and what happened, with the events of the plan."""

    async def scenario(network: SimulatedNetwork) -> tuple[list[str], tuple[Event, ...]]:
        async with await Topology.start(plan, network=network) as topology:
            told: list[str] = []
            outcomes = [str(each) for each in await topology.check(lambda it: told.append(str(it)))]
            assert [each.name for each in topology.brokers()] == [each.name for each in plan.nodes]
            return told + outcomes, network.history

    return simulate(scenario, seed=seed, faults=Faults(**plan.simulation.faults.given()))


def test_the_brokers_of_a_cluster_in_a_simulated_network() -> None:
    plan = read(FILE.read_bytes(), "cluster.toml")
    outcomes, history = simulated(plan, 1)
    assert [each.split()[0] for each in outcomes] == ["ok", "ok", "ok"]
    assert {event.kind for event in history} == {"started", "connected"}


@pytest.mark.parametrize("seed", [6, 8, *range(9, times(10, 60))])  # two with links that replace
def test_a_cluster_that_loses_a_link_and_a_broker(seed: int) -> None:
    plan = read(FAULTS.read_bytes(), "cluster_faults.toml")
    told, history = simulated(plan, seed)
    events, outcomes = told[:6], told[6:]
    assert events == [
        "cut north | west",
        "heal north | west",
        "kill south",
        "restart south",
        "slow north | south, west",
        "heal all",
    ]
    assert len(outcomes) == 7
    assert all(outcome.startswith("ok") for outcome in outcomes), outcomes
    assert {"partition", "heal", "crashed", "detected", "refused"} <= {it.kind for it in history}
    assert simulated(plan, seed) == (told, history)


def test_a_broker_that_is_killed_and_not_started_again() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        kill = '[[simulation.events]]\nat = 1\nkill = "a"\n'
        kill += '[[simulation.requests]]\nat = 2\nfrom = "a"\nroute = "echo"\n'
        async with await Topology.start(read(ALONE + kill, "t.toml"), network=network) as topology:
            assert len(topology.brokers()) == 1
            outcomes = await topology.check()
            assert [outcome.ok for outcome in outcomes] == [True, False]
            assert topology.brokers() == ()

    simulate(scenario, seed=1)


def test_a_seed_outside_of_the_simulation() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        seeds = 'broker.cluster = "x"\nbroker.seeds = ["rsocket+tcp://far:1"]\n[[requests]]'
        plan = read(ALONE.replace("[[requests]]", seeds), "t.toml")
        told = "rsocket\\+tcp://far:1 is not part of the simulation"
        with pytest.raises(TopologyFailed, match=told):
            await Topology.start(plan, network=network)

    simulate(scenario, seed=1)


def test_a_node_that_cannot_be_started_again() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        events = '[[simulation.events]]\nat = 1\nkill = "a"\n'
        events += '[[simulation.events]]\nat = 2\nrestart = "a"\n'
        plan = read(ALONE + events, "t.toml")
        async with await Topology.start(plan, network=network) as topology:
            other = await network.node("other")
            await asyncio.sleep(1.5)
            checking = asyncio.create_task(topology.check())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await other.listen("sim://taken")
            transport = other.parts.transports.use("rsocket+sim://")
            broker = await Broker.attach(other)
            await transport.listen("rsocket+sim://a.clients", expose=frozenset(), broker=broker)
            with pytest.raises(TopologyFailed, match="cannot listen at rsocket"):
                await checking

    simulate(scenario, seed=1)
