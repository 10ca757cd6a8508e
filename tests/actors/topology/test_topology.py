"""A topology in one process: what starts when, what is undone, and what requests come to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors.topology import (
    RequestOutcome,
    RunningNode,
    Topology,
    TopologyFailed,
    factories,
    read,
)
from onward.actors.tracing import trace
from onward.protocol import LinkDown, NodeStopped, UnknownAddress
from onward.protocol.topology import TopologyError
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.actors.topology.own import Tells
from tests.support.fixtures import Caplog

OWN = "tests.actors.topology.own"

TWO = """
[nodes.near]
[nodes.far.workers]
echo = "echo"
[nodes.far.listeners]
main = { uri = "memory://topology-far", expose = ["echo"] }
[[links]]
from = "near"
to = "far"
"""


def requests(*tables: str) -> str:
    return TWO + "".join(f'[[requests]]\nfrom = "near"\n{table}\n' for table in tables)


async def outcomes(text: str) -> tuple[RequestOutcome, ...]:
    async with await Topology.start(read(text, "t.toml")) as topology:
        return await topology.check()


async def test_nodes_are_joined_as_the_file_says() -> None:
    async with await Topology.start(read(TWO)) as topology:
        assert topology.uris == {"far.main": "memory://topology-far"}
        answer = await topology.node("near").request("far => echo", b"hi")
        assert answer.payload == b"hi"
        near = topology.node("near")
    with pytest.raises(NodeStopped):
        await near.request("far => echo", b"hi")
    await topology.stop()


@pytest.mark.parametrize(
    ("request_", "ok", "told"),
    [
        ('route = "far => echo"\npayload = "x"\nexpect = "x"', True, "'x'"),
        ('route = "far => echo"\npayload = "x"', True, "'x'"),
        ('route = "far => echo"\npayload = "x"\nexpect = "y"', False, "'x' instead of 'y'"),
        ('route = "far => echo"\npayload = "x"\nerror = "z"', False, "'x' instead of 'z'"),
        ('route = "nobody"\nerror = "no such worker"', True, "no such worker: 0#nobody"),
        ('route = "nobody"\nerror = "late"', False, "no such worker: 0#nobody"),
        ('route = "far"\nerror = "late"\ntimeout = 0.01', False, "the onward route is empty"),
    ],
)
async def test_what_requests_come_to(request_: str, ok: bool, told: str) -> None:
    (outcome,) = await outcomes(requests(request_))
    assert (outcome.ok, outcome.told) == (ok, told)
    verdict = "ok" if ok else "FAILED"
    assert str(outcome).startswith(f"{verdict}  t.toml:10: requests[0]  {told}  ")


async def test_a_request_that_is_wrong_in_itself_fails() -> None:
    # An error that says nothing of delivery.
    text = requests('route = "9#x"\npayload = "x"')
    (outcome,) = await outcomes(text)
    assert not outcome.ok


def test_how_long_a_request_took_is_said_in_whole_milliseconds() -> None:
    (request,) = read(requests('route = "far => echo"')).requests
    assert str(RequestOutcome(request, True, "x", 0.0004)).endswith("x  < 1 ms")
    assert str(RequestOutcome(request, True, "x", 0.0123)).endswith("x  12 ms")


async def test_a_request_is_made_again_for_as_long_as_it_may() -> None:
    text = requests(
        'route = "nobody"\nerror = "never"\nwithin = 0.12', 'route = "far => echo"\nwithin = 100'
    )
    late, early = await outcomes(text)
    assert (late.ok, early.ok) == (False, True)
    assert late.seconds == pytest.approx(0.12)
    assert early.seconds < 0.01


@pytest.mark.real_time
async def test_workers_start_when_those_they_may_ask_have_started() -> None:
    # The file has them the other way round.
    text = f"""
[nodes.first.workers.x]
class = "{OWN}:Asks"
options.route = "second => x"
[nodes.second.workers.x]
class = "{OWN}:Asks"
options.route = "third => echo"
[nodes.second.listeners]
main = {{ uri = "tcp://127.0.0.1:0", expose = ["x"] }}
[nodes.third.workers]
echo = "echo"
[nodes.third.listeners]
main = {{ uri = "uds://{{dir}}/third", expose = ["echo"] }}
[[links]]
from = "first"
to = "second"
[[links]]
from = "second"
to = "third"
"""
    async with await Topology.start(read(text)) as topology:
        path = Path(topology.uris["third.main"].removeprefix("uds://"))
        assert path.exists()
        assert (await topology.node("first").request("x", b"")).payload == b"are you there"
    assert not path.parent.exists()


async def test_it_stops_in_the_reverse_order() -> None:
    Tells.events.clear()
    text = "".join(
        f'[nodes.{name}.workers.x]\nclass = "{OWN}:Tells"\n'
        f'[nodes.{name}.listeners]\nmain = "memory://topology-{name}"\n'
        for name in "abc"
    ) + "".join(f'[[links]]\nfrom = "{a}"\nto = "{b}"\n' for a, b in ("ab", "bc"))
    async with await Topology.start(read(text)):
        pass
    assert Tells.events == [
        *("c starts", "b starts", "a starts"),
        *("a stops", "b stops", "c stops"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            f'[nodes.b.workers.x]\nclass = "{OWN}:Fails"',
            "t.toml:5: nodes.b.workers.x: cannot start: no paper",
        ),
        (
            '[nodes.b.listeners]\nx = "uds:///no/such/folder/x"',
            "t.toml:6: nodes.b.listeners.x: cannot listen at uds:///no/such/folder/x: ",
        ),
        (
            '[nodes.b.listeners]\nx = "gopher://a"',
            "t.toml:6: nodes.b.listeners.x: cannot listen at gopher://a: no transport for",
        ),
        (
            '[nodes.b.listeners.x]\nuri = "memory://topology-b"\noptions.colour = "red"',
            "t.toml:5: nodes.b.listeners.x: cannot listen at memory://topology-b: no such option",
        ),
        (
            '[nodes.b.listeners]\nx = "tls://127.0.0.1:0"',
            "t.toml:6: nodes.b.listeners.x: cannot listen at tls://127.0.0.1:0: a listener with",
        ),
        (
            '[nodes.b.listeners]\nx = "tcp://nothing"',
            "t.toml:6: nodes.b.listeners.x: cannot listen at tcp://nothing: ",
        ),
        (
            '[[links]]\nfrom = "a"\nto = "memory://topology-none"\nas = "none"',
            "t.toml:5: links[0]: cannot connect to memory://topology-none: link down: ",
        ),
    ],
)
async def test_a_part_that_fails_is_named_and_the_others_are_stopped(text: str, error: str) -> None:
    first = f'[nodes.a.workers.x]\nclass = "{OWN}:Tells"\n[nodes.a.listeners]\n'
    plan = read(f'{first}main = "memory://topology-a"\n{text}', "t.toml")
    with pytest.raises(TopologyFailed) as caught:
        await Topology.start(plan)
    assert str(caught.value).startswith(error)
    assert caught.value.place.file == "t.toml"
    # What had been started is free again.
    (again,) = [node for node in plan.nodes if node.name == "a"]
    async with await Topology.start(read(f'{first}main = "memory://topology-a"')) as topology:
        assert topology.node(again.name).has("x")


async def test_a_name_that_a_worker_s_child_has_already() -> None:
    # The file is right; what comes at run time is not: the link is made, its name is not free.
    plan = read(TWO, "t.toml")
    running = RunningNode(plan, "near", factories(plan))
    await running.open()
    await running.node.start(Tells, address="far")
    far = RunningNode(plan, "far", factories(plan))
    await far.open()
    uris = await far.listen()
    with pytest.raises(TopologyFailed, match="address in use"):
        await running.link(uris)
    await running.stop()
    await far.stop()


async def test_classes_are_looked_for_before_anything_starts() -> None:
    Tells.events.clear()
    text = f'[nodes.a.workers]\nx.class = "{OWN}:Tells"\ny.class = "{OWN}:Gone"'
    with pytest.raises(TopologyError, match="Gone"):
        await Topology.start(read(text))
    assert Tells.events == []


@pytest.mark.real_time
async def test_the_folder_of_a_run_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "50% of #1?"
    folder.mkdir()
    text = TWO.replace("memory://topology-far", "uds://{dir}/far")
    plan = read(text)
    far = RunningNode(plan, "far", factories(plan), directory=str(folder))
    near = RunningNode(plan, "near", factories(plan))
    for each in (far, near):
        await each.open()
    await near.link(await far.listen())
    assert [path.name for path in folder.iterdir()] == ["far"]
    for each in (near, far):
        await each.stop()


async def test_nobody_knows_where_a_listener_will_be() -> None:
    plan = read(TWO, "t.toml")
    running = RunningNode(plan, "near", factories(plan))
    await running.open()
    with pytest.raises(TopologyFailed, match=r"the URI of far\.main is not known"):
        await running.link({})
    await running.stop()


async def test_a_link_waits_for_who_does_not_listen_yet() -> None:
    plan = read(TWO, "t.toml")
    near = RunningNode(plan, "near", factories(plan))
    far = RunningNode(plan, "far", factories(plan))
    await near.open()
    await far.open()
    uris = {"far.main": "memory://topology-far"}
    with pytest.raises(TopologyFailed) as caught:
        await near.link(uris, patience=1.0)
    assert isinstance(caught.value.__cause__, LinkDown)
    linking = asyncio.create_task(near.link(uris, patience=60.0))
    await asyncio.sleep(30)
    await far.listen()
    await linking
    await far.start_workers()
    assert (await near.node.request("far => echo", b"hi")).payload == b"hi"
    await near.stop()
    await far.stop()


async def test_a_topology_that_is_given_up_stops_what_it_has_started() -> None:
    Tells.events.clear()
    text = (
        f'[nodes.a.workers]\nx.class = "{OWN}:Tells"\n'
        f'y = {{ class = "{OWN}:Asks", options.route = "x" }}'  # which does not answer
    )
    starting = asyncio.create_task(Topology.start(read(text)))
    while Tells.events != ["a starts"]:  # noqa: ASYNC110 - a worker of the file has no event
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert Tells.events == ["a starts", "a stops"]


# --- simulated ------------------------------------------------------------------------------
SIMULATED = """
[nodes.near]
[nodes.far]
error_replies = true
[nodes.far.workers]
echo = "echo"
[nodes.far.listeners]
main.uri = "tcp://127.0.0.1:1"
main.expose = ["echo"]
main.options = { max_frame = 5, error_replies = true }
[[links]]
from = "near"
to = "far"
simulation = { latency = 0.25 }
[[requests]]
from = "near"
route = "far => echo"
payload = "hello"
[[requests]]
from = "near"
route = "far => gone"
error = "not exposed"
"""


async def test_a_simulated_network_has_the_faults_of_the_links() -> None:
    async with (
        SimulatedNetwork(1, faults=Faults(latency=(3.0, 3.0))) as network,
        await Topology.start(read(SIMULATED), network=network) as topology,
    ):
        assert topology.uris == {"far.main": "sim://far.main"}
        echoed, refused = await topology.check()
    assert (echoed.ok, echoed.told) == (True, "'hello'")
    assert echoed.seconds == pytest.approx(0.5)
    assert refused.ok


TWICE = f"""{SIMULATED}
[[links]]
from = "near"
to = "far"
as = "slowly"
simulation = {{ latency = 2.0 }}
[[links]]
from = "near"
to = "far"
as = "usual"
"""


async def test_two_links_between_the_same_nodes_have_each_its_own_faults() -> None:
    async with (
        SimulatedNetwork(1, faults=Faults(latency=(3.0, 3.0))) as network,
        await Topology.start(read(TWICE), network=network) as topology,
    ):
        near = topology.node("near")
        took: list[float] = []
        for link in ("far", "slowly", "usual"):
            began = near.loop.time()
            await near.request(f"{link} => echo", b"x", timeout=10)
            took.append(near.loop.time() - began)
    assert took == pytest.approx([0.5, 4.0, 6.0])


def test_a_simulated_run_with_a_traced_message_is_the_same_each_time() -> None:
    async def traced(network: SimulatedNetwork) -> tuple[object, object]:
        async with await Topology.start(read(SIMULATED), network=network) as topology:
            way = ["far", "echo"]
            near = topology.node("near")
            found = await trace(near, way, b"x", clock=lambda: round(near.loop.time() * 1e9))
            assert len(found.hops) > 1
            return found, network.history

    assert simulate(traced) == simulate(traced)


async def test_what_is_outside_cannot_be_simulated() -> None:
    text = '[nodes.a]\n[[links]]\nfrom = "a"\nto = "tcp://h:1"\nas = "x"'
    async with SimulatedNetwork(1) as network:
        with pytest.raises(TopologyFailed, match="tcp://h:1 is not part of the simulation"):
            await Topology.start(read(text), network=network)


async def test_nodes_of_a_simulation_are_found_by_name() -> None:
    async with (
        SimulatedNetwork(1) as network,
        await Topology.start(read(SIMULATED), network=network) as topology,
    ):
        with pytest.raises(UnknownAddress):
            await topology.node("near").request("nobody", b"")
        with pytest.raises(KeyError):
            topology.node("nobody")


async def test_a_network_that_cannot_make_a_node() -> None:
    async with SimulatedNetwork(1) as network:
        await network.node("far")
        with pytest.raises(ValueError, match="far"):
            await Topology.start(read(SIMULATED), network=network)
        assert await network.node("near")


async def test_no_worker_that_starts_late_is_taken_for_a_misspelt_name(caplog: Caplog) -> None:
    plan = read(TWO)
    far = RunningNode(plan, "far", factories(plan))
    await far.open()
    try:
        await far.listen()
        await asyncio.sleep(5)  # another node of the topology takes its time to start
        assert not caplog.records
        await far.start_workers()
        await far.node.listen("memory://topology-later", expose=["echo", "ehco"])
        await asyncio.sleep(5)
        assert [each.getMessage() for each in caplog.records] == [
            "node 'far' exposes addresses at memory://topology-later that no worker has: 0#ehco"
        ]
    finally:
        await far.stop()
