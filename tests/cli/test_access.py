"""The credentials that commands show to a broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, Handlers, Request, WaitingOptions
from onward.actors.tracing import HopTracer
from onward.cli import main
from onward.cli._access import add_credentials, credentials_of
from onward.cli._status import CommandError
from onward.protocol.security import BearerToken, Credentials, Principal, UserPassword
from tests.support.fixtures import Capsys
from tests.support.security import gated

TOKEN, IDA = BearerToken(b"s3cret"), UserPassword("ida", "pä ss")


def given(words: list[str], environment: dict[str, str]) -> Credentials | None:
    parser = argparse.ArgumentParser()
    add_credentials(parser)
    return credentials_of(parser.parse_args(words), environment)


def test_credentials_from_files_and_the_environment(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_bytes(b"s3cret\n")
    password.write_text("pä ss\r\n")
    of_token = ["--token-file", str(token)]
    of_user, of_password = ["--user", "ida"], ["--password-file", str(password)]
    named = {"ONWARD_USER": "ida", "ONWARD_PASSWORD": "pä ss"}
    assert given([], {}) is None
    assert given(of_token, {}) == given(of_token, named) == TOKEN
    assert given([], {"ONWARD_TOKEN": "s3cret"}) == given([], {"ONWARD_TOKEN": "s3cret", **named})
    assert given([*of_user, *of_password], {"ONWARD_TOKEN": "x", "ONWARD_PASSWORD": "x"}) == IDA
    assert given(of_user, named) == given([], named) == given(of_password, named) == IDA
    assert given([], {"ONWARD_TOKEN": "", "ONWARD_USER": "ida", "ONWARD_PASSWORD": ""}) == (
        UserPassword("ida", "")
    )


@pytest.mark.parametrize(
    ("words", "environment", "text"),
    [
        (["--token-file", "none"], {}, "--token-file: none: No such file"),
        (["--token-file", "empty"], {}, "the token is empty"),
        (["--token-file", "empty", "--user", "ida"], {}, "do not go together"),
        (["--token-file", "empty", "--password-file", "empty"], {}, "do not go together"),
        (["--user", "ida"], {}, "--user needs --password-file, or ONWARD_PASSWORD"),
        (["--password-file", "empty"], {}, "--password-file needs --user, or ONWARD_USER"),
        (["--user", "ida", "--password-file", "latin"], {}, "latin is not UTF-8"),
        (["--user", "ida", "--password-file", "none"], {}, "--password-file: none: No such"),
        (["--user", "i" * 300], {"ONWARD_PASSWORD": "x"}, "the user name is over 255 bytes"),
        ([], {"ONWARD_USER": "ida"}, "--user needs"),
    ],
)
def test_credentials_that_cannot_be_shown(
    words: list[str],
    environment: dict[str, str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_bytes(b"\n")
    Path("latin").write_bytes(b"\xe4")
    with pytest.raises(CommandError, match=text):
        given(words, environment)


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """The URI of a broker that asks for credentials."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return b"for " + request.data

    with Node.in_background("shop") as background:

        async def start() -> str:
            node = background.node
            node.add_instrument(HopTracer(node))
            waiting = WaitingOptions(no_route_timeout=0.0)
            broker = await Broker.attach(node, BrokerOptions(waiting=waiting))
            broker.serve(handlers, service="orders")
            _, authentication = gated({TOKEN: Principal("bot", "test")})
            listener = await node.listen(
                "rsocket+tcp://127.0.0.1:0", broker=broker, authentication=authentication
            )
            return listener.uri

        yield background.call(start)


@pytest.mark.parametrize(
    "command",
    [
        ["routes"],
        ["statistics"],
        ["resolve", "service=orders"],
        ["workers"],
        ["dead-letters"],
        ["request", "service=orders", "x"],
        ["trace", "service=orders", "x"],
        ["watch"],
    ],
    ids=lambda words: words[0],
)
def test_commands_for_a_broker_with_authentication(
    command: list[str], uri: str, capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *words = command
    command = [name, *words, "--broker", uri]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "asks for credentials: give --token-file, or --user and --password-file" in told
    monkeypatch.setenv("ONWARD_TOKEN", "wr0ng")
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "refuses the credentials" in told
    assert "wr0ng" not in told
    if name == "watch":
        return  # goes on until it is stopped
    (tmp_path / "token").write_bytes(b"s3cret\n")
    assert main([*command, "--token-file", str(tmp_path / "token")]) == 0


@pytest.mark.parametrize("name", ["request", "send", "trace"])
def test_credentials_are_for_brokers_and_nodes_to_connect_to(
    name: str, tmp_path: Path, capsys: Capsys
) -> None:
    (tmp_path / "token").write_bytes(b"s3cret\n")
    words = [name, "1#127.0.0.1:1 => echo", "--token-file", str(tmp_path / "token")]
    assert main(words) == 2
    assert "credentials are for --connect or --broker" in capsys.readouterr().err
    assert main([*words, "--connect", "udp://127.0.0.1:1"]) == 2
    assert "udp takes no credentials" in capsys.readouterr().err
