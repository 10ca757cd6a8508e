"""Dispatchers of a topology, which send by name: over real sockets, and in a simulated network."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from onward.actors.topology import Topology, TopologyFailed, read
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.support.transports import eventually

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "topologies"
FILE = EXAMPLES / "dispatch.toml"
ONE = """\
[nodes.a]
workers.echo = "echo"
listeners.main = "tcp://127.0.0.1:0"
[nodes.a.dispatcher]
consumers.echo = "orders"
[[nodes.a.dispatcher.name]]
pattern = "lost"
last = "reject"
[[requests]]
from = "a"
name = "orders"
[[requests]]
from = "a"
name = "lost"
timeout = 0.2
outcome = "released"
[[requests]]
from = "a"
name = "orders"
outcome = "rejected"
"""


@pytest.mark.real_time
async def test_names_of_three_nodes_over_sockets() -> None:
    async with await Topology.start(read(FILE.read_bytes(), "dispatch.toml")) as topology:
        outcomes = await topology.check()
        assert [outcome.ok for outcome in outcomes] == [True, True, True], outcomes
        running = topology._running["shop"].dispatcher
        assert running is not None
        assert {node.node: node.cost for node in running.dispatcher.nodes()} == {
            "shop": 0,
            "hub": 10,
            "store": 11,
        }


def test_names_while_a_link_is_cut_in_a_simulated_network() -> None:
    plan = read(FILE.read_bytes(), "dispatch.toml")

    def run() -> list[str]:
        async def scenario(network: SimulatedNetwork) -> list[str]:
            told: list[str] = []
            async with await Topology.start(plan, network=network) as topology:
                outcomes = await topology.check(lambda event: told.append(str(event)))
                return told + [str(each) for each in outcomes]

        return simulate(scenario, seed=4, faults=Faults(**plan.simulation.faults.given()))

    told = run()
    assert told[:2] == ["cut hub | store", "heal hub | store"]
    assert [each.split()[0] for each in told[2:]] == ["ok"] * 4, told
    assert "5 accepted" in told[-1]
    assert run() == told  # the clock of the dispatchers is that of the network


@pytest.mark.real_time
async def test_a_destination_of_a_broker_consumes_a_name() -> None:
    plan = read((EXAMPLES / "destinations.toml").read_bytes(), "destinations.toml")
    async with await Topology.start(plan) as topology:
        (outcome,) = await topology.check()
        assert (outcome.ok, outcome.told) == (True, "20 accepted")
        running = topology._running["store"].dispatcher
        assert running is not None
        options = running.dispatcher._core.options
        assert (options.name_slice, options.deliveries.settle_time) == (100, 300)


ROLES = """\
[nodes.shop.dispatcher]
[nodes.store.dispatcher]
neighbour_roles = ["neighbour"]
[nodes.store]
listeners.main = {{ uri = "uds://{{dir}}/store", principals = "{file}" }}
[[links]]
from = "shop"
to = "store"
cost = 1
"""


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users of Unix sockets")
@pytest.mark.parametrize(("role", "joined"), [("neighbour", 2), ("guest", 1)])
async def test_neighbours_have_a_role_of_the_file_of_principals(
    tmp_path: Path, role: str, joined: int
) -> None:
    file = tmp_path / "peers.toml"
    file.write_text(f'[[unix]]\nname = "p"\nroles = ["{role}"]\nuid = {os.getuid()}\n')
    async with await Topology.start(read(ROLES.format(file=file), "t.toml")) as topology:
        running = topology._running["store"].dispatcher
        assert running is not None
        dispatcher = running.dispatcher
        refused = "frames of peers that may not be neighbours"
        if joined == 1:
            await eventually(lambda: dispatcher.statistics().counts.get(refused))
        else:
            await eventually(lambda: len(dispatcher.nodes()) == joined)
        assert len(dispatcher.nodes()) == joined


async def test_a_file_of_principals_that_is_not_there_is_said_with_its_place() -> None:
    plan = read(ROLES.format(file="no/such.toml"), "t.toml")
    with pytest.raises(TopologyFailed, match=r"t\.toml:5: .*cannot listen.*no/such\.toml"):
        await Topology.start(plan)


def test_principals_are_no_part_of_a_simulation() -> None:
    plan = read(ROLES.format(file="no/such.toml"), "t.toml")

    async def scenario(network: SimulatedNetwork) -> None:
        async with await Topology.start(plan, network=network) as topology:
            running = topology._running["store"].dispatcher
            assert running is not None
            await asyncio.sleep(5)
            assert len(running.dispatcher.nodes()) == 2

    simulate(scenario, seed=1)


async def test_the_outcomes_of_producers_are_told() -> None:
    async with await Topology.start(read(ONE, "t.toml")) as topology:
        outcomes = await topology.check()
    assert [(each.ok, each.told) for each in outcomes] == [
        (True, "1 accepted"),
        (True, "1 released"),
        (False, "1 accepted"),
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            'undeliverable = [{ hold = 1, disk = true }]\npattern = "x"',
            "cannot provision x: .*hold_file",
        ),
        (
            'pattern = "orders"\nsecond = "refuse"\nrouting = "unavailable"',
            "cannot be a consumer of orders: ",
        ),
    ],
)
async def test_what_is_not_served_is_said_with_its_place(more: str, told: str) -> None:
    plan = read(f"{ONE}[[nodes.a.dispatcher.name]]\n{more}\n", "t.toml")
    with pytest.raises(TopologyFailed, match=rf"t\.toml:\d+: nodes\.a\.dispatcher.*: {told}"):
        await Topology.start(plan)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('hold_file = "x.db"', "x.db is not part of the simulation"),
        ('[nodes.a.listeners]\nclients = "amqp://h:1"', "amqp://h:1 is not part of a simulation"),
    ],
)
def test_what_is_no_part_of_a_simulation(line: str, told: str) -> None:
    text = ONE.replace("[nodes.a.dispatcher]", f"[nodes.a.dispatcher]\n{line}", 1)
    if "listeners]" in line:
        text = ONE.replace('listeners.main = "tcp://127.0.0.1:0"', 'listeners.c = "amqp://h:1"')
    plan = read(text, "t.toml")

    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(TopologyFailed, match=told):
            await Topology.start(plan, network=network)

    simulate(scenario, seed=1)
