"""Identities of a topology: over real sockets, and in a simulated network."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.identity import load_key_file, make_key_file
from onward.actors.topology import Topology, TopologyFailed, read
from onward.protocol.identity import Lock, identity_text
from onward.transports.simulated import SimulatedNetwork, simulate
from tests.support.identities import key_of

FILE = Path(__file__).resolve().parents[3] / "examples" / "topologies" / "identities.toml"
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


def test_a_directory_is_not_part_of_a_simulation() -> None:
    plan = read(two('directory = "d"'), "t.toml")

    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(TopologyFailed, match="d is not part of the simulation"):
            await Topology.start(plan, network=network)

    simulate(scenario, seed=1)
