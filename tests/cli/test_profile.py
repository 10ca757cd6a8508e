"""`onward profile`: the stacks of a running broker, for its operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.cli.test_operate import files, listening
from tests.support.commands import onward
from tests.support.fixtures import Capsys

__all__ = ["files"]


def test_operators_see_where_the_time_goes(files: Path, capsys: Capsys) -> None:
    with onward("broker", *listening(files)) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        by = ["--broker", uri, "--token-file"]
        assert main(["profile", "--seconds", "1", *by, str(files / "operator")]) == Status.OK
        lines = capsys.readouterr().out.splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) > 10
        assert any("Runner.run (asyncio/runners.py:" in line for line in lines)
        status = main(["profile", "--seconds", "1", *by, str(files / "reader")])
        assert status == Status.FAILED
        refused = f"onward profile: {uri}: not allowed: operate\n"
        assert capsys.readouterr().err == refused


def test_a_profile_has_a_longest_time(capsys: Capsys) -> None:
    assert main(["profile", "--seconds", "61"]) == Status.USAGE
    assert "--seconds is at most 60" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": "a profile is being taken already"}, "a profile is being taken already"),
        ([], "the broker's answer is no profile"),
    ],
)
def test_a_refusal_of_the_broker_is_told(
    answer: object, text: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(*_: object) -> object:
        return answer

    monkeypatch.setattr("onward.cli._client.ask_broker", answered)
    assert main(["profile"]) == Status.FAILED
    assert capsys.readouterr().err == f"onward profile: {text}\n"
