"""`onward context`, and the commands that use a context."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._context import VARIABLE, apply_context
from onward.cli._main import _parser
from onward.cli._status import Status
from onward.protocol.security import make_token, token_digest
from tests.support.commands import broker_process
from tests.support.fixtures import Capsys, Patch

NOWHERE = "rsocket+tcp://127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A home without contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (VARIABLE, "ONWARD_TOKEN", "ONWARD_USER", "ONWARD_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def context(*words: str) -> None:
    assert main(["context", *words]) == Status.OK


def parsed(*words: str, **environment: str) -> argparse.Namespace:
    found = _parser().parse_args(words)
    apply_context(found, {"XDG_CONFIG_HOME": XDG[0], **environment})
    return found


XDG = [""]


@pytest.fixture(autouse=True)
def where(home: Path) -> None:
    XDG[0] = str(home)


def test_a_context_from_its_start_to_its_end(
    capsys: Capsys, home: Path, monkeypatch: Patch
) -> None:
    context("list")
    assert capsys.readouterr().out == "no contexts\n"
    monkeypatch.chdir(home)
    by = ("--token-file", "token", "--authority", "ca.pem", "--description", "Europe")
    context("add", "eu", "--broker", "rsocket+tls://eu.example:8001", *by)
    context("add", "us", "--broker", "rsocket+tcp://us.example:8001", "--select")
    context("list")
    headings, eu, us = capsys.readouterr().out.splitlines()
    assert headings.split() == ["NAME", "BROKER", "DESCRIPTION"]
    assert eu.split() == ["eu", "rsocket+tls://eu.example:8001", "Europe"]
    assert us.split() == ["*", "us", "rsocket+tcp://us.example:8001"]
    context("show")
    assert capsys.readouterr().out.splitlines()[0].split() == ["name", "us"]
    context("select", "eu")
    context("show", "--json")
    assert json.loads(capsys.readouterr().out) == {
        "name": "eu",
        "broker": "rsocket+tls://eu.example:8001",
        "description": "Europe",
        "authority": str(home / "ca.pem"),
        "token_file": str(home / "token"),
    }
    context("remove", "eu")
    context("list", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["selected"], list(found["contexts"])) == (None, ["us"])
    context("select", "us")
    context("select")
    assert main(["context", "show"]) == Status.USAGE


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "x"), "there is no context 'x': there is none"),
        (("remove", "x"), "there is no context"),
        (("select", "x"), "there is no context"),
        (("add", "a b", "--broker", NOWHERE), "is no name"),
        (("add", "a", "--broker", "http://a"), "it is the URI of a broker"),
        (
            ("add", "a", "--broker", NOWHERE, "--user", "u", "--token-file", "t"),
            "do not go together",
        ),
    ],
)
def test_what_is_wrong(words: tuple[str, ...], told: str, capsys: Capsys) -> None:
    assert main(["context", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_which_broker_a_command_reaches() -> None:
    assert parsed("routes").broker == "rsocket+tcp://127.0.0.1:8001"
    context("add", "a", "--broker", "rsocket+tcp://a:1", "--user", "ida", "--password-file", "/p")
    context("add", "b", "--broker", "rsocket+tcp://b:1", "--token-file", "/t", "--select")
    assert parsed("routes").broker == "rsocket+tcp://b:1"
    assert parsed("routes", ONWARD_CONTEXT="a").broker == "rsocket+tcp://a:1"
    assert parsed("routes", "--context", "b", ONWARD_CONTEXT="a").broker == "rsocket+tcp://b:1"
    # A broker by its URI stands for itself: it is shown no credentials of another one.
    alone = parsed("routes", "--broker", "rsocket+tcp://c:1", ONWARD_CONTEXT="a")
    assert (alone.broker, alone.user, alone.token_file) == ("rsocket+tcp://c:1", None, None)
    both = parsed("routes", "--broker", "rsocket+tcp://c:1", "--context", "a")
    assert (both.broker, both.user, both.password_file) == ("rsocket+tcp://c:1", "ida", Path("/p"))
    # Credentials are taken as a whole.
    own = parsed("routes", "--context", "a", "--token-file", "/own")
    assert (own.user, own.password_file, own.token_file) == (None, None, Path("/own"))
    # Where a command may reach something else, the context has to be named.
    assert parsed("workers").broker is None
    assert parsed("workers", "--context", "a").broker == "rsocket+tcp://a:1"
    assert parsed("request", "service=x", "--context", "a").broker == "rsocket+tcp://a:1"
    assert parsed("trace", "service=x", "--context", "b").token_file == Path("/t")
    assert parsed("draw", "x.toml").name == "draw"


def test_certificates_of_a_context() -> None:
    files = ("--certificate", "/c", "--key", "/k", "--authority", "/a", "--server-name", "n")
    context("add", "a", "--broker", "rsocket+tls://a:1", *files, "--select")
    found = parsed("routes")
    assert (found.certificate, found.key, found.authority, found.server_name) == (
        *("/c", "/k", "/a"),
        "n",
    )
    own = parsed("routes", "--certificate", "/own")
    assert (own.certificate, own.key, own.authority) == ("/own", None, "/a")


def test_commands_reach_the_broker_of_a_context(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    token = make_token(b"1" * 32)
    (tmp_path / "token").write_text(token)
    digest = token_digest(token.encode()).hex()
    principals = tmp_path / "principals.toml"
    principals.write_text(f'[[tokens]]\nname = "ida"\nsha256 = "{digest}"\n')
    with broker_process("--principals", str(principals)) as uri:
        context("add", "eu", "--broker", uri, "--token-file", str(tmp_path / "token"))
        assert token not in (tmp_path / "onward/contexts.toml").read_text()
        assert main(["connections", "--context", "eu"]) == Status.OK
        assert "as ida" in capsys.readouterr().out
        assert main(["routes"]) == Status.FAILED
        monkeypatch.setenv(VARIABLE, "eu")
        assert main(["routes"]) == Status.OK
        monkeypatch.setenv(VARIABLE, "us")
        assert main(["routes"]) == Status.USAGE
        assert "there is no context 'us': there is eu" in capsys.readouterr().err
        assert main(["check"]) == 3
        (tmp_path / "onward/contexts.toml").write_text("odd")
        assert main(["rtt", "--broker", uri, "--token-file", str(tmp_path / "token")]) == Status.OK
        assert main(["routes"]) == Status.USAGE
        assert "contexts.toml:1" in capsys.readouterr().err
