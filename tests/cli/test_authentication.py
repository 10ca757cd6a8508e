"""The authentication of a broker's clients, by a file of principals."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from onward.actors.security import Authentication, _authenticator
from onward.cli import main
from onward.cli._access import Access
from onward.cli._broker_plan import Listening
from onward.cli._client import ask_broker
from onward.cli._status import CommandError
from onward.protocol.security import BearerToken, Credentials, UserPassword
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch


def _password(_prompt: str) -> str:
    return "pass word"


@pytest.fixture
def principals(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> tuple[Path, str]:
    """A file of principals with a token and a user, and the token."""
    path = tmp_path / "principals.toml"
    assert main(["token", "new", "bot", "--file", str(path)]) == 0
    token = capsys.readouterr().out.strip()
    monkeypatch.setattr("getpass.getpass", _password)
    assert main(["password", "ida", "--file", str(path)]) == 0
    return path, token


def listening_of(*words: str, monkeypatch: Patch) -> Listening:
    """Return the options of the listeners of `onward broker`."""
    given: list[Listening] = []

    async def serves(
        _stop: object, _uris: object, _options: object, found: Listening, **_: object
    ) -> None:
        given.append(found)

    monkeypatch.setattr("onward.cli._broker.serve", serves)
    assert main(["broker", *words]) == 0
    return given[0]


@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_broker_with_a_file_of_principals(
    principals: tuple[Path, str], anonymous: bool
) -> None:
    path, token = principals
    words = ["--listen", "rsocket+tcp://127.0.0.1:0", "--principals", str(path)]
    with onward("broker", *words, *(["--anonymous"] if anonymous else [])) as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        uri = line.removeprefix("listening ").strip()
        right: list[Credentials] = [BearerToken(token.encode()), UserPassword("ida", "pass word")]
        for credentials in right:
            found = await ask_broker(uri, "statistics", TIMEOUT, Access(credentials=credentials))
        wrong: list[Credentials] = [BearerToken(b"onw_x"), UserPassword("bob", "pass word")]
        for credentials in wrong:
            with pytest.raises(CommandError, match="refuses the credentials"):
                await ask_broker(uri, "routes", TIMEOUT, Access(credentials=credentials))
        if anonymous:
            found = await ask_broker(uri, "statistics", TIMEOUT)
            accepted = {"token": 1, "password": 1, "anonymous": 1}
            assert found["listeners"][0]["authentication"]["accepted"] == accepted
        else:
            with pytest.raises(CommandError, match="asks for credentials"):
                await ask_broker(uri, "routes", TIMEOUT)


def test_a_broker_admits_all_clients_by_default(monkeypatch: Patch) -> None:
    assert listening_of(monkeypatch=monkeypatch).authentication is None


KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


def test_a_broker_admits_clients_of_an_issuer(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    pytest.importorskip("joserfc", reason="joserfc is not installed")
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY]}))
    words = ["--jwt-issuer", "https://issuer.example", "--jwt-audience", "onward", "--jwt-keys"]
    one = ["--jwt-algorithm", "Ed25519"]
    tags = ["--jwt-role-tags", "shop: tenant=a region=eu", "--jwt-claim-tag", "org=tenant"]
    for more in ([], one, ["--anonymous"], tags):
        found = listening_of(*words, str(keys), *more, monkeypatch=monkeypatch)
        assert isinstance(found.authentication, Authentication)
    for given, text in ((str(tmp_path / "none"), "No such file"), ("http://h/k", "by https only")):
        assert main(["broker", *words, given]) == 2
        assert text in capsys.readouterr().err
    keys.write_text("{}")
    assert main(["broker", *words, str(keys)]) == 2
    assert "bad set of keys: it has no list of keys" in capsys.readouterr().err


def test_a_broker_admits_clients_by_a_plug_in(monkeypatch: Patch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        return [EntryPoint("guests", "onward.actors.security:UnixAuthenticator", group)]

    monkeypatch.setattr(_authenticator, "entry_points", installed)
    found = listening_of("--authenticator", "guests", monkeypatch=monkeypatch)
    assert isinstance(found.authentication, Authentication)
    assert found.authentication.options.per_request == "forward"
    words = "--authenticator", "guests", "--per-request", "check"
    found = listening_of(*words, monkeypatch=monkeypatch)
    assert found.authentication is not None
    assert found.authentication.options.per_request == "check"


def test_options_that_are_wrong(tmp_path: Path, capsys: Capsys) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[[tokens]]\nname = 'x'\nsha512 = 'y'\n")
    jwt = ["--jwt-keys", "k", "--jwt-issuer", "i", "--jwt-audience", "a"]
    for words, text in (
        (["--anonymous"], "--anonymous goes with --principals"),
        (["--per-request", "check"], "--per-request check goes with --principals"),
        (["--principals", str(tmp_path / "none")], "No such file"),
        (["--principals", str(broken)], "sha512"),
        (["--jwt-issuer", "i"], "need --jwt-keys"),
        (["--jwt-claim-tag", "org=tenant"], "need --jwt-keys"),
        ([*jwt, "--jwt-role-tags", "shop"], "'shop' is not ROLE: KEY=VALUE"),
        ([*jwt, "--jwt-role-tags", "shop:"], "'shop:' is not ROLE: KEY=VALUE"),
        ([*jwt, "--jwt-role-tags", "a: t=1", "--jwt-role-tags", "a:t=2"], "two values for t"),
        ([*jwt, "--jwt-claim-tag", "org"], "'org' is not CLAIM=KEY"),
        ([*jwt, "--jwt-claim-tag", "a=b", "--jwt-claim-tag", "a=c"], "has a key already"),
        (["--jwt-keys", "k"], "needs --jwt-issuer and --jwt-audience"),
        (["--authenticator", "ldap"], "no authenticator is called 'ldap'"),
    ):
        assert main(["broker", *words]) == 2
        assert text in capsys.readouterr().err


@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_node_with_a_file_of_principals(
    principals: tuple[Path, str], anonymous: bool, tmp_path: Path, capsys: Capsys
) -> None:
    path, token = principals
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "wrong").write_text("onw_wrong\n")
    words = ["--listen", "tcp://127.0.0.1:0", "--principals", str(path), "--quiet"]
    words += ["--worker", "echo=echo", "--expose", "echo"]
    with onward("node", *words, *(["--anonymous"] if anonymous else [])) as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        uri = line.removeprefix("listening ").strip()
        ask = ["request", "echo", "hi", "--connect", uri, "--timeout", str(TIMEOUT)]

        async def asked(*more: str) -> tuple[int, str]:
            status = await asyncio.to_thread(main, [*ask, *more])
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        assert await asked("--token-file", str(tmp_path / "token")) == (0, "hi\n")
        status, told = await asked("--token-file", str(tmp_path / "wrong"))
        assert status != 0
        assert "refuses the credentials: not authenticated" in told
        assert (await asked())[0] == (0 if anonymous else status)


def test_options_of_a_node_that_are_wrong(capsys: Capsys) -> None:
    assert main(["node", "--anonymous"]) == 2
    assert "--anonymous goes with --principals" in capsys.readouterr().err
