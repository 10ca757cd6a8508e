"""The parser, exit statuses, and how every command ends on a signal."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen
from typing import cast

import pytest

from onward.cli import main
from onward.cli._arguments import Commands
from onward.cli._main import _MODULES, _parser
from onward.cli._status import Status
from tests.support.commands import TIMEOUT, Far, onward
from tests.support.compiled import COMPILED
from tests.support.counts import exhaustive
from tests.support.fixtures import Capsys, Patch

COMMANDS = ("broker", "node", "send", "request", "routes")

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"

SIGNALS = pytest.mark.parametrize("number", [*exhaustive(signal.SIGINT), signal.SIGTERM])


def ended(process: Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal; return the exit status and what was printed since."""
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def test_every_command_has_its_section_in_the_reference(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    commands = re.findall(r"^    ([a-z][a-z-]+)\b", capsys.readouterr().out, re.MULTILINE)
    sections = re.findall(r"^## onward ([a-z-]+)", PAGE.read_text(), re.MULTILINE)
    assert len(commands) > 30
    assert set(commands) - set(sections) == set()


def test_a_command_is_in_the_module_of_the_table() -> None:
    def helps(command: str) -> dict[str, str]:
        for each in _parser(command)._actions:
            if isinstance(each, argparse._SubParsersAction):
                commands = cast("Commands", each)
                return {name: parser.format_help() for name, parser in commands.choices.items()}
        raise AssertionError("there are commands")

    every = helps("")
    assert list(every) == list(_MODULES)
    for command, text in every.items():
        alone = helps(command)
        assert alone[command] == text
        servers = {"_broker", "_node", "_dispatch"}
        assert {_MODULES[name] for name in alone} <= {_MODULES[command], *servers}


def test_a_command_imports_no_broker_that_has_no_need_of_it() -> None:
    program = (
        "import sys, onward.cli\n"
        "try: onward.cli.main(['token', '--help'])\n"
        "finally: print([each for each in sys.modules if each.startswith('onward.actors.broker')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"usage: onward {command}" in capsys.readouterr().out


def test_help_names_every_command_and_exit_status(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    assert [command for command in COMMANDS if f"    {command} " not in printed] == []
    assert [status for status in Status if f"\n  {status.value}  " not in printed] == []


def test_the_version_says_whether_it_is_compiled(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    kind = "compiled" if COMPILED else "pure Python"
    python = ".".join(map(str, sys.version_info[:3]))
    assert capsys.readouterr().out == f"onward {version('onward')} ({kind}, Python {python})\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("brew",), "invalid choice: 'brew'"),
        (("request", "1#a#b"), "bad address '1#a#b': more than one '#'"),
        (("send", ""), "the route is empty"),
        (("node", "--worker", "echo"), "'echo' is not NAME=KIND"),
        (("node", "--worker", "a=teapot"), "with a KIND of echo, forward, hop, print"),
        (("node", "--worker", "1#a=echo"), "1#a is not a local address"),
        (("node", "--expose", "300#a"), "the type is not a number from 0 to 255"),
        (("broker", "--no-route-timeout", "-1"), "'-1' is not a number of seconds"),
        (("routes", "--timeout", "nan"), "'nan' is not a number of seconds"),
        (("routes", "--timeout", "soon"), "'soon' is not a number of seconds"),
    ],
)
def test_a_wrong_command_line_has_status_2(
    words: tuple[str, ...], told: str, capsys: Capsys
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert told in capsys.readouterr().err


class Input:
    """A standard input that cannot be read."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.buffer = self
        self.read = read


def test_a_signal_before_anything_is_done_has_status_1(monkeypatch: Patch, capsys: Capsys) -> None:
    def interrupted() -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Input(interrupted))
    assert main(["send", "echo", "-"]) == Status.FAILED
    assert capsys.readouterr().err == "onward send: interrupted\n"


def test_a_signal_while_modules_are_imported_has_status_1(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    def interrupted(command: str) -> argparse.ArgumentParser:
        raise KeyboardInterrupt

    monkeypatch.setattr("onward.cli._main._parser", interrupted)
    assert main(["routes"]) == Status.FAILED
    assert capsys.readouterr().err == "onward routes: interrupted\n"


def test_an_error_of_the_system_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    def broken() -> bytes:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(sys, "stdin", Input(broken))
    assert main(["send", "echo", "-"]) == Status.FAILED
    assert capsys.readouterr().err == "onward send: the disk is on fire\n"


def test_the_entry_point_and_the_module_are_the_same_command() -> None:
    script = Path(sys.executable).with_name("onward")
    for command in ([str(script)], [sys.executable, "-m", "onward.cli"]):
        done = subprocess.run(
            [*command, "request", "nobody"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("onward request: no such worker: 0#nobody (begin with a node")


@SIGNALS
def test_a_signal_stops_a_broker(number: signal.Signals) -> None:
    with onward("broker", "--listen", "rsocket+tcp://127.0.0.1:0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening rsocket+tcp://127.0.0.1:")
        status, out, err = ended(process, number)
    assert (status, err) == (0, "")
    assert out.startswith("stopped: 0 connections taken")


@SIGNALS
def test_a_signal_stops_a_node(number: signal.Signals) -> None:
    with onward("node", "--listen", "tcp://127.0.0.1:0", "--worker", "a=echo") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening tcp://127.0.0.1:")
        status, out, err = ended(process, number)
    assert (status, err) == (0, "")
    assert out == "stopped: 0 messages handled, dead letters: none\n"


@SIGNALS
def test_a_signal_stops_a_request_that_is_in_doubt_then(number: signal.Signals, far: Far) -> None:
    with onward("request", f"1#{far.where} => silent", "hello") as process:
        assert far.silent.came.wait(TIMEOUT)
        assert ended(process, number) == (3, "", "onward request: interrupted\n")


@SIGNALS
def test_a_signal_stops_a_send_to_a_peer_that_does_not_read(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with onward("send", f"1#{host}:{port} => a", "-", "--hex") as process:
            assert process.stdin is not None
            process.stdin.write("00" * 8_000_000)
            process.stdin.close()
            process.stdin = None
            peer, _ = server.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                peer.sendall(b"\x01")
                # More than the preamble: the message is on its way.
                assert len(peer.recv(1) + peer.recv(1)) == 2
                assert ended(process, number) == (3, "", "onward send: interrupted\n")


@SIGNALS
def test_a_signal_stops_a_question_to_a_broker(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with onward("routes", "--broker", f"rsocket+tcp://{host}:{port}") as process:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                assert peer.recv(1)
                assert ended(process, number) == (3, "", "onward routes: interrupted\n")


def test_output_that_nobody_reads_ends_a_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "onward.cli", "node", "--listen", "tcp://127.0.0.1:0"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("closed", ["<&-", *exhaustive(">&-", "2>&-"), "<&- >&- 2>&-"])
def test_a_connection_gets_no_number_of_a_standard_file(closed: str, far: Far) -> None:
    # uvloop aborts the process as it closes one.
    script = f'exec "$@" {closed}'
    request = ("request", f"1#{far.where} => echo", "-")
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "onward.cli", *request]
    done = subprocess.run(command, capture_output=True, input=b"", timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stderr) == (Status.OK, b"")


def test_a_standard_file_that_is_closed_is_the_null_device() -> None:
    code = "import sys; from onward.cli import main; main(['draw', '-']); print(sys.stdin.read())"
    command = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (0, b"\n")
