"""`onward drain` and `onward reload`, and who may do them."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onward.cli import _client, _operate, main
from onward.cli._status import Status
from onward.protocol.security import make_token, token_digest
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch
from tests.support.rsocket_peer import composite, setup

AUTHENTICATION = b"message/x.rsocket.authentication.v0"

OPERATOR, READER = (make_token(bytes((each,)) * 32) for each in range(2))

RULES = """\
[[rule]]
roles = ["operator"]
operate = true
request = "service=onward.management"

[[rule]]
roles = ["reader"]
read = true
request = "service=onward.management"
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the files of a broker, and the tokens of two principals."""
    entries = list[str]()
    for name, token in (("operator", OPERATOR), ("reader", READER)):
        (tmp_path / name).write_text(token)
        digest = token_digest(token.encode()).hex()
        entries.append(f'[[tokens]]\nname = "{name}"\nroles = ["{name}"]\nsha256 = "{digest}"\n')
    (tmp_path / "principals.toml").write_text("".join(entries))
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


def listening(files: Path) -> list[str]:
    """The options of a broker with principals and rules."""
    words = ["--listen", "rsocket+tcp://127.0.0.1:0"]
    words += ["--principals", str(files / "principals.toml"), "--rules", str(files / "rules.toml")]
    return words


def test_operators_reload_and_drain_and_others_do_not(files: Path, capsys: Capsys) -> None:
    words = [*listening(files), "--drain-spread", "0", "--drain-grace", "60"]

    def told(name: str, *command: str) -> tuple[int, str, str]:
        by = ["--broker", uri, "--token-file", str(files / name)]
        status = main([*command, *by])
        out, err = capsys.readouterr()
        return status, out, err

    with onward("broker", *words) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        refused = f"{uri}: not allowed: operate\n"
        assert told("reader", "reload") == (Status.FAILED, "", f"onward reload: {refused}")
        assert told("reader", "drain") == (Status.FAILED, "", f"onward drain: {refused}")
        reloaded = "reloaded: rules\nreloaded: authentication\n"
        assert told("operator", "reload") == (Status.OK, reloaded, "")
        (files / "rules.toml").write_text("[[rule]]\nrole = 3\n")
        status, _, error = told("operator", "reload")
        assert status == Status.FAILED
        assert error.startswith("onward reload: rules: ")
        undone = (Status.OK, "the drain is undone\n", "")
        told_none = "onward drain: the broker does not drain\n"
        assert told("operator", "drain", "--undo") == (Status.FAILED, "", told_none)
        with connected(uri):
            assert told("operator", "drain") == (Status.OK, "the broker drains\n", "")
            assert told("operator", "drain", "--undo") == undone
            # The broker serves, and can be drained again.
            assert told("operator", "drain") == (Status.OK, "the broker drains\n", "")
        # Without connections it ends before its grace does.
        assert process.wait(TIMEOUT) == 0


@contextmanager
def connected(uri: str) -> Generator[socket.socket]:
    """Hold a connection to a broker open."""
    host, _, port = uri.removeprefix("rsocket+tcp://").rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(setup(composite((AUTHENTICATION, b"\x81" + READER.encode()))))
        yield peer


def test_without_rules_no_client_operates_a_broker(broker: str, capsys: Capsys) -> None:
    for command in ("drain", "reload"):
        assert main([command, "--broker", broker]) == Status.FAILED
        assert f"onward {command}: " in capsys.readouterr().err


def test_operators_close_connections_and_set_levels(files: Path, capsys: Capsys) -> None:
    def told(name: str, *command: str) -> tuple[int, str, str]:
        status = main([*command, "--broker", uri, "--token-file", str(files / name)])
        out, err = capsys.readouterr()
        return status, out, err

    with onward("broker", *listening(files)) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        with connected(uri) as peer:
            assert told("reader", "kick", "1")[0] == Status.FAILED
            _, out, _ = told("reader", "connections", "--sort", "id", "--reverse", "--json")
            number = str(json.loads(out)["rows"][0]["id"])
            kicked = told("operator", "kick", number, "--text", "upgrade")
            assert kicked == (Status.OK, f"connection {number} is closed\n", "")
            assert b"upgrade" in read_all(peer)
        _, out, _ = told("reader", "connections", "--closed", "--filter", f"id={number}", "--json")
        assert json.loads(out)["rows"][0]["reason"] == "by an operator"
        missing = f"onward kick: there is no connection {number}\n"
        assert told("operator", "kick", number) == (Status.FAILED, "", missing)
        status, out, _ = told("operator", "log-level", "DEBUG", "--logger", "onward.transports")
        assert (status, out) == (Status.OK, "onward.transports logs debug and above\n")
        status, out, _ = told("operator", "log-level", "default", "--logger", "onward.transports")
        assert (status, out) == (Status.OK, "onward.transports logs warning and above\n")
        status, _, error = told("operator", "log-level", "info", "--logger", "asyncio")
        assert (status, "must be onward, or one below it" in error) == (Status.FAILED, True)
        assert "not allowed: operate" in told("reader", "log-level", "info")[2]


def read_all(peer: socket.socket) -> bytes:
    """Read until the other side closes."""
    peer.settimeout(TIMEOUT)
    found = b""
    while part := peer.recv(65536):
        found += part
    return found


def test_the_round_trip(broker: str, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_operate, "PAUSE", 0.0)
    assert main(["rtt", "--broker", broker, "--count", "3"]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("connected in ")
    assert [line.endswith(" ms") for line in lines] == [True] * 5
    assert lines[-1].startswith("median ")
    assert main(["rtt", "--broker", broker, "--count", "2", "--json"]) == Status.OK
    found = json.loads(capsys.readouterr().out)
    assert len(found["times"]) == 2
    assert min(found["times"]) > 0


def test_an_answer_of_something_else(broker: str, capsys: Capsys, monkeypatch: Patch) -> None:
    async def odd(*_: object) -> object:
        return []

    monkeypatch.setattr(_client, "ask_broker", odd)
    assert main(["reload", "--broker", broker]) == Status.FAILED
    assert "not that of an operation" in capsys.readouterr().err
