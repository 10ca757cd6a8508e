"""The unit that is printed."""

from __future__ import annotations

from configparser import ConfigParser

import pytest

from onward.cli import main
from onward.cli._status import Status
from onward.cli._systemd_unit import unit
from tests.support.fixtures import Capsys


def parsed(text: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_it_runs_the_command_with_its_options(capsys: Capsys) -> None:
    words = ["broker", "--listen", "rsocket+tcp://0.0.0.0:8001", "--quiet"]
    assert main(["systemd-unit", *words]) == Status.OK
    service = parsed(capsys.readouterr().out)["Service"]
    assert service["ExecStart"].endswith("onward " + " ".join(words))
    assert service["ExecStart"].startswith("/")
    assert service["Type"] == "notify-reload"
    # Longer than the drain at SIGTERM.
    assert int(service["TimeoutStopSec"]) > 25


def test_words_are_quoted() -> None:
    words = ["--listen", "rsocket+unix:///run/a%20b", "--log", 'two words "here"', "$HOME", ""]
    service = parsed(unit("node", words, ["/usr/bin/onward"]))["Service"]
    assert service["ExecStart"] == (
        "/usr/bin/onward node --listen rsocket+unix:///run/a%%20b "
        r'--log "two words \"here\"" $$HOME ""'
    )


@pytest.mark.parametrize(
    ("program", "home"),
    [("/usr/bin/onward", "yes"), ("/home/ann/.local/bin/onward", "read-only")],
)
def test_a_program_in_a_home_folder_can_be_run(program: str, home: str) -> None:
    assert parsed(unit("broker", [], [program]))["Service"]["ProtectHome"] == home


def test_a_system_call_that_is_denied_is_an_error_and_no_crash() -> None:
    lines = unit("broker", [], ["/usr/bin/onward"]).splitlines()
    assert "SystemCallErrorNumber=EPERM" in lines
    filters = [line for line in lines if line.startswith("SystemCallFilter=")]
    # Threads that verify passwords lower their priority; the later of two filters counts.
    assert filters[-2:] == [
        "SystemCallFilter=~@privileged @resources",
        "SystemCallFilter=setpriority",
    ]


def test_only_servers_are_services() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["systemd-unit", "routes"])
