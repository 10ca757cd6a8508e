"""Brokers of a topology that form a cluster, over real sockets in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.topology import Topology, TopologyFailed, read
from onward.transports.simulated import SimulatedNetwork, simulate

pytestmark = [pytest.mark.real_time, pytest.mark.slow]

FILE = Path(__file__).resolve().parents[3] / "examples" / "topologies" / "cluster.toml"
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


def test_brokers_are_not_simulated() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(TopologyFailed, match="a broker cannot be in a simulated network"):
            await Topology.start(read(ALONE, "t.toml"), network=network)

    simulate(scenario, seed=1)
