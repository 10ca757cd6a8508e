"""Commands that send to identities: `onward send`, `request` and `trace` with `--join`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onward.actors.identity import make_key_file
from onward.cli import main
from onward.cli._join import NodeToJoin
from onward.cli._status import Status
from onward.protocol.identity import identity_text
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys
from tests.support.identities import key_of


@dataclass
class Far:
    """A node of a process, with an engine that echoes, and one that prints."""

    uri: str
    identity: str
    echo: str
    out: str
    lines: Iterator[str]


def text_of(name: str) -> str:
    return identity_text(key_of(name).identity)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    path = tmp_path_factory.mktemp("far") / "far.key"
    make_key_file(path)
    words = ("--worker", "echo=echo", "--engine", "echo", "--worker", "out=print")
    with onward(
        *("node", "--listen", "tcp://127.0.0.1:0", "--identity", str(path), "--trace"),
        *(*words, "--engine", "out", "--management"),
    ) as process:
        assert process.stdout is not None
        own, echo, out, uri = (process.stdout.readline().split() for _ in range(4))
        yield Far(uri[1], own[1], echo[1], out[1], iter(process.stdout.readline, ""))
        process.terminate()
        process.wait(TIMEOUT)


def test_a_request_to_an_engine(far: Far, capsys: Capsys) -> None:
    join = ("--join", f"{far.uri}={far.identity}")
    assert main(["request", *join, f"36#engine:{far.echo}", "hello"]) == Status.OK
    assert capsys.readouterr() == ("hello\n", "")


def test_a_request_by_an_identity(far: Far, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "own.key"
    make_key_file(path)
    words = ("--join", far.uri, "--identity", str(path))
    assert main(["request", *words, f"36#engine:{far.echo}", "hello"]) == Status.OK
    assert capsys.readouterr().out == "hello\n"


def test_a_message_is_sent_to_an_engine(far: Far, capsys: Capsys) -> None:
    words = ("--join", far.uri, f"36#engine:{far.out}", "12 apples")
    assert main(["send", *words]) == Status.OK
    assert next(far.lines) == "12 apples\n"
    assert capsys.readouterr() == ("", "")


def test_what_no_way_leads_to_is_not_delivered(far: Far, capsys: Capsys) -> None:
    route = f"36#engine:{text_of('other')}"
    words = ("--join", far.uri, "--timeout", "0.5", route, "hello")
    assert main(["send", *words]) == Status.FAILED
    assert route in capsys.readouterr().err


def test_a_trace_to_an_engine(far: Far, capsys: Capsys) -> None:
    route = f"36#engine:{far.echo}"
    assert main(["trace", "--join", far.uri, route, "hello"]) == Status.OK
    out = capsys.readouterr().out
    assert "VerboseEcho" in out
    assert "answer: hello" in out


def test_a_trace_says_what_hops_can_see(far: Far, capsys: Capsys) -> None:
    words = ("trace", "--join", far.uri, f"36#engine:{far.echo}", "hello")
    assert main([*words, "--json"]) == Status.OK
    sights = json.loads(capsys.readouterr().out)["sights"]
    assert [each["hop"] for each in sights] == [
        f"the node of engine {far.echo[:12]}",
        "others on the way",
    ]
    assert main(["trace", *words[1:]]) == Status.OK
    assert "CANNOT SEE" in capsys.readouterr().out


def test_the_nodes_that_have_joined(far: Far, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "near.key"
    own = identity_text(make_key_file(path).identity)
    assert main(["identities", "--node", far.uri]) == Status.OK
    assert own not in capsys.readouterr().out
    join = ("--join", f"{far.uri}={far.identity}")
    with onward("node", "--listen", "tcp://127.0.0.1:0", "--identity", str(path), *join) as near:
        assert near.stdout is not None
        while "listening" not in near.stdout.readline():
            pass
        out = ""
        while own not in out:
            assert main(["identities", "--node", far.uri]) == Status.OK
            out = capsys.readouterr().out
        assert "the other" in out
        near.terminate()
        near.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (f"36#engine:{text_of('far')[:-1]}", "is no identity: one has 56 characters, not 55"),
        (f"36#motor:{text_of('far')}", "is no identity: it begins with one of engine, node, "),
        (f"36#relay:{text_of('hub')} => 36#engine:{text_of('far')}?hops=x", "has no such value"),
        (f"36#node:{text_of('far')}", "leads to no worker: add one, as in '36#node:... => NAME'"),
    ],
)
@pytest.mark.parametrize("command", ["send", "request", "trace"])
def test_a_mistyped_route_is_told_before_a_node_is_joined(
    command: str, end: str, told: str, capsys: Capsys
) -> None:
    assert main([command, "--join", "tcp://127.0.0.1:1", end, "hello"]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_another_node_than_the_expected_one(far: Far, capsys: Capsys) -> None:
    join = f"{far.uri}={text_of('other')}"
    assert main(["request", "--join", join, f"36#engine:{far.echo}", "hello"]) == Status.FAILED
    assert "no link between nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--identity", "f"), "--identity needs --join"),
        (("--join", "tcp://h:1", "--connect", "tcp://h:1"), "--connect and --join do not go"),
        (("--join", "tcp://h:1", "--broker", "rsocket+tcp://h:1"), "--join and --broker do not"),
        (("--join", "h:1"), "--join: 'h:1' does not start with"),
        (("--join", "tcp://h:1=aera"), "--join 'tcp://h:1=aera': "),
    ],
)
@pytest.mark.parametrize("command", ["request", "trace"])
def test_options_that_do_not_go_together(
    command: str, words: tuple[str, ...], told: str, capsys: Capsys
) -> None:
    assert main([command, *words, "36#engine:a", "hello"]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_a_uri_may_have_an_equals_sign_in_its_query() -> None:
    own = key_of("a").identity
    with_query = "ws://h/a?b=c"
    assert NodeToJoin.parse(with_query) == NodeToJoin(with_query)
    assert NodeToJoin.parse(f"{with_query}={identity_text(own)}") == NodeToJoin(with_query, own)
    assert NodeToJoin.parse(f"tcp://h:1={identity_text(own)}") == NodeToJoin("tcp://h:1", own)
