"""`onward workers`, `onward links` and `onward dead-letters`, asked of running processes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.commands import Far, onward
from tests.support.fixtures import Capsys, Patch


def line(process: Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URIs of a running node, for all and for its management."""
    socket = tmp_path_factory.mktemp("node") / "node.sock"
    words = ("node", "--listen", "tcp://127.0.0.1:0", "--worker", "echo=echo", "--expose", "echo")
    with onward(*words, "--management", f"uds://{socket}") as process:
        yield tuple(line(process).removeprefix("listening ") for _ in range(2))  # type: ignore[misc]


def test_what_is_in_a_node(uris: tuple[str, str], capsys: Capsys, tmp_path: Path) -> None:
    node, management = uris
    where = node.removeprefix("tcp://")
    assert main(["request", f"1#{where} => echo", "hi"]) == Status.OK
    assert main(["send", f"1#{where} => nosuch", "secret"]) == Status.OK
    capsys.readouterr()

    assert main(["workers", "--node", management]) == Status.OK
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert rows[0][:4] == ["ADDRESS", "KIND", "STATE", "WAITING"]
    (echo,) = (row for row in rows if row[0] == "0#echo")
    assert echo[1:] == ["VerboseEcho", "idle", "0", "of", "1000", "1", "0", "0", "0", "0"]

    assert main(["links", "--node", management]) == Status.OK
    printed = capsys.readouterr().out
    assert node in printed
    assert management in printed

    assert main(["dead-letters", "--node", management]) == Status.OK
    printed = capsys.readouterr().out
    assert "not exposed  0#nosuch" in printed
    assert "secret" not in printed
    assert "\nby reason: 1 not exposed\n" in printed

    assert main(["dead-letters", "--node", management, "--json"]) == Status.OK
    answer = json.loads(capsys.readouterr().out)
    assert (answer["total"], answer["rows"][0]["size"]) == (1, 6)


def test_a_node_with_exposed_management_is_shown(uris: tuple[str, str], capsys: Capsys) -> None:
    assert main(["links", "--node", uris[0], "--timeout", "0.5"]) == Status.FAILED
    assert "is its management on (--management), and exposed there?" in capsys.readouterr().err


def test_where_no_node_is_by_default_a_broker_may_be_meant(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        uri = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr("onward.cli._look.DEFAULT_URI", uri)
    assert main(["peers"]) == Status.FAILED
    assert "name the node by --node, or a broker by --broker" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["peers", "--node", uri]) == Status.FAILED
    assert "--broker" not in capsys.readouterr().err


def test_without_a_uri_every_peer_may_ask(capsys: Capsys) -> None:
    with onward("node", "--listen", "tcp://127.0.0.1:0", "--management") as process:
        uri = line(process).removeprefix("listening ")
        assert main(["workers", "--node", uri]) == Status.OK
        assert "ManagementService" in capsys.readouterr().out
        assert main(["dead-letters", "--node", uri]) == Status.OK
        assert capsys.readouterr().out == "no dead letters\n"


def test_a_broker_tells_its_workers_and_dead_letters(broker: str, capsys: Capsys) -> None:
    assert main(["workers", "--broker", broker]) == Status.OK
    assert "0#store" in capsys.readouterr().out
    assert main(["dead-letters", "--broker", broker, "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out)["node"] == "broker"


@pytest.mark.parametrize("words", [("--node", "http://a"), ("--node", "rsocket+tcp://a:1")])
def test_a_uri_of_no_node(words: tuple[str, ...], capsys: Capsys) -> None:
    assert main(["workers", *words]) == Status.USAGE
    assert "does not start with tcp:" in capsys.readouterr().err


def test_another_service_at_the_address(far: Far, capsys: Capsys) -> None:
    far.background.call(lambda: _rename(far))
    listener = far.background.listen("tcp://127.0.0.1:0", expose=["management"])
    assert main(["workers", "--node", listener.uri]) == Status.FAILED
    assert "does not answer as a management service" in capsys.readouterr().err


async def _rename(far: Far) -> None:
    far.background.node.add_address("echo", "management")


def test_rows_are_chosen_of_a_node_and_of_a_broker(
    uris: tuple[str, str], broker: str, capsys: Capsys
) -> None:
    chosen = ("--filter", "kind=VerboseEcho", "--json")
    assert main(["workers", "--node", uris[1], *chosen]) == Status.OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["address"] for row in rows] == ["0#echo"]
    assert main(["workers", "--node", uris[1], "--filter", "nonsense=1"]) == Status.USAGE
    assert "unknown field" in capsys.readouterr().err
    assert main(["workers", "--broker", broker, "--sort", "kind", "--top", "1"]) == Status.OK
    _, first, more = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["0#broker", "Broker"]
    assert more.endswith(" more")


def test_credentials_that_do_not_go_together(capsys: Capsys) -> None:
    assert main(["workers", "--user", "ida"]) == Status.USAGE
    assert "--user needs --password-file" in capsys.readouterr().err


def test_peers_are_links_to_other_nodes(uris: tuple[str, str], capsys: Capsys) -> None:
    assert main(["peers", "--node", uris[1]]) == Status.OK
    # The command's own link is one.
    headings, own = capsys.readouterr().out.splitlines()
    assert headings.split()[:3] == ["PEER", "KIND", "STATE"]
    assert "up" in own.split()
    assert main(["peers", "--node", uris[1], "--filter", "state=down", "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out)["rows"] == []
