"""Containers of AMQP of a topology: a node that sends to names, and has a queue as well."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.actors.topology import Topology, TopologyFailed, read
from onward.protocol.dispatch import ACCEPTED
from onward.transports.simulated import SimulatedNetwork, simulate
from tests.support.amqp import needs_proton

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "topologies" / "container.toml"
SOMEWHERE = "amqp://127.0.0.1:5672"

FILE = """\
[nodes.a.dispatcher.containers.shop]
uri = "{uri}"
{more}
[[nodes.a.dispatcher.containers.shop.out]]
address = "queue"
name = "orders"
[[requests]]
from = "a"
name = "orders"
payload = "two apples"
within = 20
timeout = 20
"""


@pytest.mark.peer
@pytest.mark.real_time
async def test_a_message_to_a_name_comes_into_a_container() -> None:
    needs_proton()
    async with Node("far") as node:
        far, got = await Dispatcher.attach(node), list[bytes]()
        await far.consume("queue", lambda each: got.append(each.payload))
        listener = await node.listen("amqp://127.0.0.1:0", dispatcher=far)
        plan = read(FILE.format(uri=listener.uri, more=""), "t.toml")
        async with await Topology.start(plan) as topology:
            outcomes = await topology.check()
            assert [outcome.ok for outcome in outcomes] == [True], outcomes
        assert b"two apples" in got[0]


@pytest.mark.peer
@pytest.mark.real_time
async def test_the_example_sends_into_a_container_takes_out_of_it_and_lets_links_through() -> None:
    proton = needs_proton()
    async with Node("far") as node, asyncio.timeout(60):
        far, got = await Dispatcher.attach(node), asyncio.Queue[bytes]()
        for name in ("queue.orders", "queue.vault"):
            await far.consume(name, lambda each: got.put_nowait(each.payload))
        listener = await node.listen("amqp://127.0.0.1:0", dispatcher=far)
        text = EXAMPLE.read_text()
        assert text.count(SOMEWHERE) == 2  # in a comment, and the URI
        plan = read(text.replace(SOMEWHERE, listener.uri), "container.toml")
        async with await Topology.start(plan) as topology:
            (outcome,) = await topology.check()
            assert (outcome.ok, outcome.told) == (True, "5 accepted"), outcome
            for _ in range(5):
                assert b"two apples" in await got.get()
            news = await far.produce("queue.news")
            assert await news.send(b"rain") == ACCEPTED
            running = topology._running["shop"].dispatcher
            assert running is not None
            vault = await running.dispatcher.attach_producer("vault")
            assert await vault.send(bytes(proton.Message(body=b"a ring").encode())) == ACCEPTED
            assert b"a ring" in await got.get()


LOGIN = 'user = "ann"\npassword_file = "{dir}/password"'


@pytest.mark.peer
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("uri", "more", "told"),
    [
        ("amqp://nowhere", "", "amqp://nowhere: "),
        (
            "amqps://127.0.0.1:1",
            'server_name = "x"\nauthority = "{dir}/nothing.pem"',
            "nothing.pem",
        ),
        ("amqps://127.0.0.1:1", LOGIN.replace("/password", "/nothing"), "nothing"),
        ("amqps://127.0.0.1:1", LOGIN, "others may read the secret in it: chmod 600"),
        ("amqps://127.0.0.1:1", LOGIN.replace("/password", "/bytes"), "bytes is not UTF-8"),
        ("amqp://example.org:1", LOGIN.replace("/password", "/own"), "is sent with TLS only"),
    ],
)
async def test_a_container_that_cannot_be_connected_to_so_is_said_with_its_place(
    tmp_path: Path, uri: str, more: str, told: str
) -> None:
    needs_proton()
    for name, mode, content in (
        ("password", 0o644, b"x"),
        ("own", 0o600, b"x\n"),
        ("bytes", 0o600, b"\xff"),
    ):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    plan = read(FILE.format(uri=uri, more=more.replace("{dir}", str(tmp_path))), "t.toml")
    place = r"t\.toml:1: nodes\.a\.dispatcher\.containers\.shop: cannot connect to "
    with pytest.raises(TopologyFailed, match=place) as raised:
        await Topology.start(plan)
    assert told in str(raised.value)


def test_a_container_is_no_part_of_a_simulation() -> None:
    plan = read(FILE.format(uri="amqp://h:1", more=""), "t.toml")

    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(TopologyFailed, match="amqp://h:1 is not part of the simulation"):
            await Topology.start(plan, network=network)

    simulate(scenario, seed=1)
