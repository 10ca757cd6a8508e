"""The unit that is printed."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._config_options import OwnSection
from onward.cli._main import parser_of
from onward.cli._status import Status
from onward.cli._systemd_unit import path_flags, unit, with_whole_paths
from tests.support.fixtures import Capsys, Patch


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


def test_names_of_files_are_made_absolute(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["broker", "--config", "onward.toml", "--rules=../rules.toml", "--princ", "p.toml"]
    words += ["--jwt-keys", "https://issuer.example/keys", "--certificate", "/etc/a.pem"]
    words += ["--jwt-issuer", "issuer", "--jwt-audience", "a", "--event-log", "log"]
    assert main(["systemd-unit", *words]) == Status.OK
    out, err = capsys.readouterr()
    command = parsed(out)["Service"]["ExecStart"].partition(" broker ")[2]
    assert command == (
        f"--config {tmp_path}/onward.toml --rules={tmp_path.parent}/rules.toml "
        f"--princ {tmp_path}/p.toml --jwt-keys https://issuer.example/keys "
        "--certificate /etc/a.pem --jwt-issuer issuer --jwt-audience a "
        f"--event-log {tmp_path}/log"
    )
    rules = f"{tmp_path.parent}/rules.toml"
    assert err.splitlines() == [
        f"onward systemd-unit: onward.toml is {tmp_path}/onward.toml in the unit",
        f"onward systemd-unit: --rules=../rules.toml is --rules={rules} in the unit",
        f"onward systemd-unit: p.toml is {tmp_path}/p.toml in the unit",
        f"onward systemd-unit: log is {tmp_path}/log in the unit",
    ]


@pytest.mark.parametrize("serves", ["broker", "node", "dispatch"])
def test_no_option_leaves_a_relative_name(serves: OwnSection, tmp_path: Path) -> None:
    parser = parser_of(serves)
    flags = path_flags(parser, serves)
    assert flags["--config"]
    for action in parser._actions:
        flag = action.option_strings[-1]
        if str(action.metavar).startswith(("FILE", "DIR")):
            assert with_whole_paths([flag, "a"], flags, tmp_path) == [flag, f"{tmp_path}/a"]
            assert with_whole_paths([f"{flag}=a"], flags, tmp_path) == [f"{flag}={tmp_path}/a"]
        elif flag in flags:
            assert with_whole_paths([flag, "a"], flags, tmp_path) == [flag, "a"]


def test_a_file_in_a_home_folder_can_be_read() -> None:
    text = unit("broker", ["--config=/home/ann/onward.toml"], ["/usr/bin/onward"])
    assert parsed(text)["Service"]["ProtectHome"] == "read-only"


def test_options_that_the_command_does_not_have_are_refused(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["systemd-unit", "node", "--rules", "a"])
    assert "unrecognized arguments: --rules a" in capsys.readouterr().err


def test_only_servers_are_services() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["systemd-unit", "routes"])
