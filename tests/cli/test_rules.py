"""The options for the rules of a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors.security import Authorizer
from onward.cli import main
from onward.cli._broker_plan import Listening
from onward.cli._client import ask_broker
from onward.cli._status import CommandError
from onward.protocol.broker import TagSet
from onward.protocol.security import Action, Principal
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nnames = ["anonymous"]\nrequest = "service=orders"')
    return str(path)


async def test_a_broker_with_rules(rules: str) -> None:
    with onward("broker", "--listen", "rsocket+tcp://127.0.0.1:0", "--rules", rules) as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        uri = line.removeprefix("listening ").strip()
        assert await ask_broker(uri, "routes", TIMEOUT) == []
        with pytest.raises(CommandError, match=r": not allowed: read$"):
            await ask_broker(uri, "statistics", TIMEOUT)


class Policy(Authorizer):
    def allows(self, principal: Principal, action: Action, tags: TagSet) -> bool | None:
        return action is Action.READ


def test_rules_with_a_plug_in(rules: str, monkeypatch: Patch) -> None:
    given: list[Listening] = []

    async def serves(
        _stop: object, _uris: object, _options: object, found: Listening, **_: object
    ) -> None:
        given.append(found)

    def load(name: str) -> Authorizer:
        assert name == "policy"
        return Policy()

    monkeypatch.setattr("onward.cli._broker.serve", serves)
    monkeypatch.setattr("onward.cli._rules.load_authorizer", load)
    assert main(["broker", "--rules", rules, "--authorizer", "policy"]) == 0
    authorization = given[0].authorization
    assert authorization is not None
    assert authorization.allows(Principal("ida", "token"), Action.READ)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--authorizer", "policy"], "--authorizer goes with --rules"),
        (["--rules", "/nowhere.toml"], "/nowhere.toml: No such file or directory"),
    ],
)
def test_options_that_cannot_be_used(words: list[str], told: str, capsys: Capsys) -> None:
    assert main(["broker", *words]) == 2
    assert capsys.readouterr().err == f"onward broker: {told}\n"


def test_a_plug_in_that_is_not_installed(rules: str, capsys: Capsys) -> None:
    assert main(["broker", "--rules", rules, "--authorizer", "nowhere"]) == 2
    assert "no authorizer is called 'nowhere'" in capsys.readouterr().err
