"""`onward up`, in this process and simulated; and what it says of files that are wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import pytest

from onward.actors.topology import KINDS
from onward.cli import main
from onward.cli._main import _parser
from onward.cli._run import Interrupted, StopRequest
from onward.cli._status import Status
from onward.cli._up import _in_process, read_file
from tests.support.commands import TIMEOUT, printed
from tests.support.fixtures import Capsys, Patch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"
FILES = sorted(EXAMPLES.glob("[0-9]*.toml"))
CLUSTER = EXAMPLES / "cluster.toml"

ECHO = '[nodes.a.workers]\necho = "echo"\n'
ASK = '[[requests]]\nfrom = "a"\nroute = "echo"\npayload = "x"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of one node."""
    path = tmp_path / "t.toml"
    path.write_text(ECHO)
    return path


def test_there_are_five_examples_of_growing_size() -> None:
    sizes = [len(read_file(str(file)).nodes) for file in FILES]
    assert len(sizes) == 5
    assert sizes == sorted(sizes)
    assert sizes[-1] == 12


def test_the_largest_has_six_hops_over_three_transports() -> None:
    plan = read_file(str(FILES[-1]))
    uris = {each.id: each.uri for each in plan.listeners}
    assert {uri.partition("://")[0] for uri in uris.values()} == {"tcp", "uds", "ws"}
    node, hops = "phone", list[str]()
    for step in plan.requests[0].route:
        for link in plan.links_from(node):
            if link.address == step:
                node = link.to_node
                hops.append(uris[link.to_listener].partition("://")[0])
                break
    assert (node, hops) == ("shop", ["ws", "tcp", "tcp", "uds", "uds", "ws"])


@pytest.mark.parametrize("how", ["--in-process", "--simulated"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_requests_of_the_examples_have_their_outcome(
    path: Path, how: str, capsys: Capsys
) -> None:
    assert main(["up", "--check", how, str(path)]) == Status.OK
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("requests with the expected outcome: ")
    assert "FAILED" not in out


@pytest.mark.slow
def test_brokers_of_a_cluster_in_one_process(capsys: Capsys) -> None:
    assert main(["up", "--check", "--in-process", str(CLUSTER)]) == Status.OK
    out = capsys.readouterr().out
    assert "west.clients | listening rsocket+unix://" in out
    assert out.splitlines()[-1] == "requests with the expected outcome: 3, all"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--in-process", "--simulated"])
def test_identities_of_nodes_in_one_process(how: str, capsys: Capsys) -> None:
    assert main(["up", "--check", how, str(EXAMPLES / "identities.toml")]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    if how == "--in-process":
        assert [line.split()[:3] for line in lines[:3]] == [
            ["oslo", "|", "identity"],
            ["oslo", "|", "engine"],
            ["rome", "|", "identity"],
        ]
        assert lines[1].endswith(" 0#orders")
    assert lines[-1].startswith("requests with the expected outcome: ")


def test_a_relay_between_nodes_that_can_only_dial_out(capsys: Capsys) -> None:
    file = EXAMPLES / "sealed_relay.toml"
    assert main(["up", "--check", "--simulated", str(file)]) == Status.OK
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "requests with the expected outcome: 2, all"


@pytest.mark.slow
@pytest.mark.parametrize(("how", "count"), [("--in-process", 5), ("--simulated", 8)])
def test_topics_and_domains_in_one_process(how: str, count: int, capsys: Capsys) -> None:
    assert main(["up", "--check", how, str(EXAMPLES / "topics_and_domains.toml")]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    if how == "--in-process":
        assert [(line.split()[2], line.split()[4:]) for line in lines[:4]] == [
            ("identity", []),
            ("engine", ["0#till"]),
            ("topic", ["prices"]),
            ("domain", ["shops"]),
        ]
    assert lines[-1] == f"requests with the expected outcome: {count}, all"


def test_a_request_that_comes_out_otherwise_is_a_failure(file: Path, capsys: Capsys) -> None:
    file.write_text(f'{ECHO}{ASK}{ASK}expect = "y"\n')
    assert main(["up", "--check", "--in-process", str(file)]) == Status.FAILED
    out, err = capsys.readouterr()
    assert f"FAILED  {file}:7: requests[1]  'x' instead of 'y'" in out
    assert err == "onward up: 1 of 2 requests had an unexpected outcome\n"


def test_a_topology_may_last_some_time(file: Path, capsys: Capsys) -> None:
    assert main(["up", "--in-process", "--for", "0.01", str(file)]) == Status.OK
    assert capsys.readouterr().out == f"up: {file}\n"


@pytest.mark.parametrize("how", ["--in-process", "--simulated"])
def test_what_is_in_a_file_moves_no_cursor(how: str, file: Path, capsys: Capsys) -> None:
    ask = ASK.replace('"x"', '"\\u001b[2J"')
    file.write_text(f'title = "\\u001b[2Jred"\n{ECHO}{ask}expect = "\\u001b"\n')
    assert main(["up", "--check", how, str(file)]) == Status.FAILED
    file.write_text('[nodes.a.workers]\n"\\u001b[2J" = 1')
    assert main(["up", str(file)]) == Status.USAGE
    out, err = capsys.readouterr()
    assert "\\x1b[2J" in out
    assert "\x1b" not in out + err


async def test_it_runs_until_it_is_to_stop() -> None:
    arguments = ["up", "--in-process", str(FILES[1])]
    stop = StopRequest()
    plan = read_file(arguments[-1])
    given = parsed(*arguments)
    with printed() as output:
        running = asyncio.create_task(_in_process(stop, plan, given))
        assert (await output.line()).startswith("far.main | listening tcp://127.0.0.1:")
        assert await output.line() == "up: An echo behind a relay"
        stop.wish()
        await asyncio.wait_for(running, TIMEOUT)


async def test_to_be_stopped_before_the_check_is_done_is_told() -> None:
    stop = StopRequest()
    stop.wish()
    with pytest.raises(Interrupted):
        await _in_process(stop, read_file(str(FILES[1])), parsed("up", "--check", "x"))


def parsed(*words: str) -> argparse.Namespace:
    return _parser().parse_args(words)


def test_classes_are_found_beside_the_file(file: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (file.parent / "workers_beside_a_topology.py").write_text(
        "from onward.actors import Worker\n"
        "class Twice(Worker):\n"
        "    def handle_message(self, message):\n"
        "        self.reply(message, 2 * message.payload)\n"
    )
    file.write_text(
        f'[nodes.a.workers]\necho.class = "workers_beside_a_topology:Twice"\n{ASK}expect = "xx"\n'
    )
    assert main(["up", "--check", "--in-process", str(file)]) == Status.OK, capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[nodes.a]\nworker = 1", ":2: nodes.a.worker: unknown key; "),
        ("[nodes.a\n", ":1: not TOML: "),
        (
            '[nodes.a.workers]\nx.class = "no.such:Thing"',
            ":2: nodes.a.workers.x.class: cannot import no.such: ",
        ),
    ],
)
def test_errors_of_a_file_are_printed(text: str, told: str, file: Path, capsys: Capsys) -> None:
    file.write_text(text)
    assert main(["up", "--in-process", str(file)]) == Status.USAGE
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "onward up: the topology cannot be used:"
    assert second.startswith(f"{file}{told}")


def test_a_part_that_cannot_start_is_told(file: Path, capsys: Capsys) -> None:
    file.write_text('[nodes.a.listeners]\nx = "uds:///no/such/folder/x"')
    assert main(["up", "--in-process", str(file)]) == Status.FAILED
    told = f"onward up: {file}:2: nodes.a.listeners.x: cannot listen at uds:///no/such/folder/x: "
    assert capsys.readouterr().err.startswith(told)


def test_processes_do_not_meet_in_memory(file: Path, capsys: Capsys) -> None:
    file.write_text(
        '[nodes.a]\n[nodes.b.listeners]\nx = "memory://up"\n[[links]]\nfrom = "a"\nto = "b"'
    )
    assert main(["up", str(file)]) == Status.USAGE
    told = f"{file}:4: links[0]: memory://up joins nodes of one process: run it with --in-process"
    assert capsys.readouterr().err == f"onward up: {told}\n"


NOT_PROCESSES = "--keep and --restart are for nodes that run as processes, without --check"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "which FILE?"),
        (("no-such-file.toml",), "cannot read no-such-file.toml: No such file or directory"),
        (("--seed", "3", "FILE"), "--seed goes with --simulated"),
        (("--simulated", "FILE"), "the file has no requests to make; say --for SECONDS"),
        (("--check", "FILE"), "--check: the file has no requests to make"),
        (("--check", "--in-process", "FILE"), "--check: the file has no requests to make"),
        (("--check", "--simulated", "FILE"), "--check: the file has no requests to make"),
        (
            ("--check", "--node", "a", "FILE"),
            "--check is for all nodes together, and --node for one",
        ),
        (("--keep", "--simulated", "FILE"), NOT_PROCESSES),
        (("--restart", "--node", "a", "FILE"), NOT_PROCESSES),
        (("--restart", "--in-process", "FILE"), NOT_PROCESSES),
        (("--node", "b", "FILE"), "no node 'b'; there are: a; did you mean 'a'?"),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], told: str, file: Path, capsys: Capsys) -> None:
    given = [str(file) if word == "FILE" else word for word in words]
    assert main(["up", *given]) == Status.USAGE
    assert capsys.readouterr().err == f"onward up: {told}\n"


def test_the_kinds_are_told(capsys: Capsys) -> None:
    assert main(["up", "--kinds"]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(KINDS)
    assert "observer (route, required)" in "\n".join(lines)


def test_a_file_that_is_too_big_is_not_read_whole(file: Path, capsys: Capsys) -> None:
    file.write_bytes(b"#" * (2 * 1024 * 1024))
    assert main(["up", str(file)]) == Status.USAGE
    assert "1048577 bytes are over the limit of 1048576" in capsys.readouterr().err
