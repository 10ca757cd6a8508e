"""Identities of a topology: over real sockets, and in a simulated network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onward.actors.identity import load_key_file, make_key_file
from onward.actors.topology import RunningNode, Topology, TopologyFailed, factories, read
from onward.protocol.identity import Lock, identity_text
from onward.transports.simulated import SimulatedNetwork, simulate
from tests.support.identities import key_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "topologies"
FILE = EXAMPLES / "identities.toml"
GROUPS = EXAMPLES / "topics_and_domains.toml"
TWO = """\
[nodes.a]
workers.echo = "echo"
listeners.main = "tcp://127.0.0.1:0"
identity = { engines = ["echo"], %s }
[nodes.b]
identity = {}
[[links]]
from = "b"
to = "a"
join = %s
[[requests]]
from = "b"
route = "36#engine:{a.echo}"
expect = ""
"""


def two(identity: str = "", join: str = "true") -> bytes:
    return (TWO % (identity, join)).replace(", }", " }").encode()


@pytest.mark.real_time
async def test_engines_and_nodes_are_asked_over_sockets() -> None:
    async with await Topology.start(read(FILE.read_bytes(), "identities.toml")) as topology:
        assert sorted(topology.identities) == ["oslo", "oslo.orders", "rome"]
        outcomes = await topology.check()
    assert [outcome.ok for outcome in outcomes] == [True, True], outcomes


def test_a_simulated_network_has_the_same_identities_in_each_run() -> None:
    plan = read(FILE.read_bytes(), "identities.toml")

    def run() -> tuple[dict[str, str], list[str]]:
        async def scenario(network: SimulatedNetwork) -> tuple[dict[str, str], list[str]]:
            async with await Topology.start(plan, network=network) as topology:
                outcomes = await topology.check()
                assert all(outcome.ok for outcome in outcomes), outcomes
                return topology.identities, [outcome.told for outcome in outcomes]

        return simulate(scenario, seed=5)

    assert run() == run()


@pytest.mark.real_time
async def test_topics_and_domains_over_sockets() -> None:
    async with await Topology.start(read(GROUPS.read_bytes(), "groups.toml")) as topology:
        names = ["bergen", "oslo", "oslo.till", "prices", "rome", "shops"]
        assert sorted(topology.identities) == names
        outcomes = await topology.check()
    assert [outcome.ok for outcome in outcomes] == [True] * 5, outcomes


def test_topics_and_domains_last_over_a_cut() -> None:
    plan = read(GROUPS.read_bytes(), "groups.toml")

    def run() -> list[tuple[bool, str]]:
        async def scenario(network: SimulatedNetwork) -> list[tuple[bool, str]]:
            async with await Topology.start(plan, network=network) as topology:
                return [(each.ok, each.told) for each in await topology.check()]

        return simulate(scenario, seed=3)

    told = run()
    assert [ok for ok, _ in told] == [True] * 8
    assert told == run()


INNER = """\
[nodes.a]
workers.echo = "echo"
listeners.main = "tcp://127.0.0.1:0"
[nodes.a.identity]
topics.inner = { engine = "echo", scope = "shops", publishers = ["a"] }
domains.shops.members = ["a", "b"]
serve.echo = { domain = "shops", expose = ["list"] }
[nodes.a.workers.log]
kind = "record"
also = ["list"]
[nodes.b]
workers.log = { kind = "record", also = ["list"] }
[nodes.b.identity]
subscribe.log = { topic = "inner", scope = "shops" }
[[links]]
from = "b"
to = "a"
join = true
[[requests]]
from = "a"
route = "36#topic:{inner}"
payload = "x"
error = "no answer in time"
timeout = 0.3
[[requests]]
from = "b"
route = "list"
expect = "x"
[[requests]]
from = "b"
route = "36#domain:{shops} => list"
expect = ""
"""


def test_a_topic_whose_scope_is_a_domain() -> None:
    async def scenario(network: SimulatedNetwork) -> list[bool]:
        async with await Topology.start(read(INNER, "t.toml"), network=network) as topology:
            return [each.ok for each in await topology.check()]

    assert simulate(scenario, seed=1) == [True, True, True]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'domains.shops.members = ["a", "b"]',
            'domains.shops.members = ["a"]',
            "t.toml:14: nodes.b.identity.subscribe.log: cannot subscribe to inner: the topic ",
        ),
        (
            'subscribe.log = { topic = "inner", scope = "shops" }',
            'join = ["shops"]',
            "t.toml:13: nodes.b.identity: cannot join shops: a says DENIED",
        ),
        (
            "topics.inner = {",
            'topics.other = { engine = "echo", seed = "x" }\ntopics.inner = { seed = "x",',
            "t.toml:6: nodes.a.identity.topics.inner: cannot be created: the topic ",
        ),
    ],
)
def test_what_other_nodes_refuse_is_told_with_its_line(old: str, new: str, told: str) -> None:
    text = INNER.replace('["a", "b"]', '["a"]') if "join" in new else INNER
    plan = read(text.replace(old, new), "t.toml")

    async def scenario(network: SimulatedNetwork) -> str:
        with pytest.raises(TopologyFailed) as failed:
            await Topology.start(plan, network=network)
        return str(failed.value)

    assert simulate(scenario, seed=1).startswith(told)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('reserve = ["a"]', "3: nodes.c.identity: cannot reserve at a"),
        ("domains.d.members = ['a']", "4: nodes.c.identity.domains.d: cannot have members"),
        ('topics.t = { engine = "e", scope = "any", publishers = ["a"] }', "4: nodes.c.identity"),
        ('serve.e = "shops"', "4: nodes.c.identity.serve.e: cannot serve"),
        ('subscribe.e = "inner"', "4: nodes.c.identity.subscribe.e: cannot subscribe to inner"),
        ('join = ["shops"]', "3: nodes.c.identity: cannot join shops"),
    ],
)
async def test_a_node_that_runs_alone_has_to_know_identities_by_seeds(line: str, told: str) -> None:
    link = '[[links]]\nfrom = "c"\nto = "a"\njoin = true\n'
    text = f"""[nodes.c.workers]\ne = "echo"\n[nodes.c.identity]\n{line}\n{INNER}{link}"""
    plan = read(text, "t.toml")
    running = RunningNode(plan, "c", factories(plan))

    async def start() -> None:
        await running.start_workers()
        await running.subscribe()

    try:
        await running.open()
        await running.listen()
        with pytest.raises(TopologyFailed) as failed:
            await start()
    finally:
        await running.stop()
    unknown = "shops" if "shops" in line else "inner" if "inner" in line else "a"
    assert str(failed.value).startswith(f"t.toml:{told}")
    end = f"the identity of {unknown} is not known here: give it a seed"
    assert str(failed.value).endswith(end)


@pytest.mark.real_time
async def test_keys_of_files(tmp_path: Path) -> None:
    own, words, locked = tmp_path / "a.key", tmp_path / "words", tmp_path / "locked.key"
    words.write_text("correct horse\n")
    words.chmod(0o600)
    quick = Lock(bytes(16), bytes(12), log_n=1, r=1)
    identity = identity_text(make_key_file(own).identity)
    make_key_file(locked, passphrase="correct horse", lock=quick)
    encrypted = identity_text(load_key_file(locked, "correct horse").identity)
    for given, text in (
        (f'key_file = "{own}"', identity),
        (f'key_file = "{locked}", passphrase_file = "{words}"', encrypted),
    ):
        directory = f'{given}, directory = "{tmp_path}/{text[:8]}.directory"'
        plan = read(two(directory), "t.toml")
        async with await Topology.start(plan) as topology:
            assert topology.identities["a"] == text
            assert all(outcome.ok for outcome in await topology.check())
        assert (tmp_path / f"{text[:8]}.directory").exists()


@pytest.mark.parametrize(
    ("identity", "join", "told"),
    [
        ('key_file = "missing.key"', "true", "t.toml:4: nodes.a.identity: cannot have an identity"),
        (
            'seed = "a"',
            f'"{identity_text(key_of("other").identity)}"',
            "t.toml:7: links[0]: cannot connect to tcp://127.0.0.1:",
        ),
        (
            'reserve = ["b"]',
            "true",
            "t.toml:4: nodes.a.identity: cannot reserve at b: ",
        ),
        (
            'relay = ["all"]',
            "true",
            "t.toml:4: nodes.a.identity: cannot have an identity: 'all' is not one of from:",
        ),
        ('seed = "a"', '"aera"', "t.toml:7: links[0]: cannot connect to tcp://127.0.0.1:"),
    ],
)
async def test_what_cannot_be_is_told_with_its_line(identity: str, join: str, told: str) -> None:
    with pytest.raises(TopologyFailed) as failed:
        await Topology.start(read(two(identity, join), "t.toml"))
    assert str(failed.value).startswith(told)


WITHOUT = """\
import asyncio, sys
sys.modules["cryptography"] = None
from onward.actors.topology import Topology, TopologyFailed, read
try:
    asyncio.run(Topology.start(read(sys.argv[1].encode(), "t.toml")))
except TopologyFailed as error:
    print(error)
"""


def test_without_the_extra_it_says_which() -> None:
    # In a process of its own: here the packages of identities are imported.
    command = [sys.executable, "-W", "error", "-c", WITHOUT, two('seed = "a"').decode()]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    told = "t.toml:4: nodes.a.identity: an identity needs the extra: install onward[identity]\n"
    assert (said.stdout, said.stderr) == (told, "")


def test_a_directory_is_not_part_of_a_simulation() -> None:
    plan = read(two('directory = "d"'), "t.toml")

    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(TopologyFailed, match="d is not part of the simulation"):
            await Topology.start(plan, network=network)

    simulate(scenario, seed=1)
