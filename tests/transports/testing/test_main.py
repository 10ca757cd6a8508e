from __future__ import annotations

import runpy
import sys

import pytest

from onward.transports import MemoryTransport
from onward.transports.testing.__main__ import main


def test_a_table_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory://cli-{n}", "--case", "order_is_kept", "the_tracing_text"]) == 0
    assert capsys.readouterr().out == (
        "ok      order_is_kept     The messages of one link arrive in the order they were sent, "
        "each once\n"
        "ok      the_tracing_text  The tracing text crosses\n"
        "memory://cli-{n}: 2 ok, 0 failed, 0 not claimed\n"
    )


def test_a_claim_that_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory://cli-{n}", "--claims", "reconnects", "--patience", "0.2"]
    assert main([*arguments, "--case", "a_link_that_comes_back"]) == 1
    assert "FAILED  a_link_that_comes_back" in capsys.readouterr().out


def test_claims_that_are_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory://cli-{n}", "--not", "ordered", "many", "--case", "order_is_kept"]
    assert main([*arguments, "many_links_to_one_listener"]) == 0
    assert "0 ok, 0 failed, 2 not claimed" in capsys.readouterr().out


def test_a_class_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{MemoryTransport.__module__}:MemoryTransport"
    arguments = ["memory://cli-{n}", "--transport", name, "--case", "answers_come_back"]
    assert main([*arguments, "--address-type", "9", "--max-payload", "9", "--too-large", "9"]) == 0
    assert "1 ok" in capsys.readouterr().out


def test_an_event_loop_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory://cli-{n}", "--loop", "uvloop:new_event_loop"]
    assert main([*arguments, "--case", "answers_come_back"]) == 0
    assert "1 ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["x://", "--transport", "no.such.module:Thing"], "No module named"),
        (["x://", "--transport", "asyncio:Thing"], "has no attribute 'Thing'"),
        (["x://", "--transport", ""], "Empty module name"),
        (["x://", "--loop", "asyncio:no_such_loop"], "has no attribute 'no_such_loop'"),
        (["x://", "--case", "no_such_case"], "no case 'no_such_case'; there are: routes_of"),
        (["x://", "--claims", "no_such_claim"], "invalid choice"),
    ],
)
def test_arguments_that_are_wrong(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_as_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "memory://cli-{n}", "--case", "the_tracing_text"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("onward.transports.testing", run_name="__main__")
    assert caught.value.code == 0
    assert "1 ok" in capsys.readouterr().out
