"""`--event-log`: what is begun, and what is said if it cannot be."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from onward.actors import Node
from onward.actors.eventlog import EventLog, LogOptions, Recorder
from onward.cli import _broker_serve, _node, main
from onward.cli._broker_serve import serve
from onward.cli._client import ask_broker
from onward.cli._event_log import add_event_log, attach, told, total, words
from onward.cli._run import StopRequest
from onward.cli._statistics import show
from onward.cli._status import CommandError, Status
from onward.protocol.eventlog import read_header
from tests.support.commands import TIMEOUT, printed
from tests.support.fixtures import Capsys, Patch


def parsed(*given: str, name: str | None = "broker") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_event_log(parser, name)
    return parser.parse_args(given)


async def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    async with Node() as node:
        await attach(node, parsed())
        assert node.find_instrument(Recorder) is None
    assert words(parsed()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--event-log-sample", "0.5"),
        ("--event-log-arrivals",),
        ("--event-log-seal", "5"),
        ("--event-log-flush", "5"),
        ("--event-log-fsync", "never"),
        ("--event-log-max-bytes", "5"),
        ("--event-log-max-age", "5"),
        ("--event-log-name", "shop"),
    ],
)
def test_log_options_without_a_log(words: tuple[str, ...], tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[nodes.one]\nworkers = { echo = "echo" }\n')
    commands = [["broker"], ["node"], ["up", str(file)]]
    for command in commands[: 2 if words[0] == "--event-log-name" else 3]:
        assert main([*command, *words]) == Status.USAGE
        said = f"onward {command[0]}: {words[0]} goes with --event-log DIR\n"
        assert capsys.readouterr().err == said


async def test_a_log_is_begun_with_what_was_said(tmp_path: Path) -> None:
    arguments = parsed("--event-log", str(tmp_path), "--event-log-sample", "0.5")
    async with Node() as node:
        await attach(node, arguments)
        recorder = node.find_instrument(Recorder)
        assert recorder is not None
        options = recorder.options
        assert (options.name, options.sample_rate) == ("broker", 0.5)
    (file,) = (tmp_path / "broker").glob("*.seg")
    assert read_header(file.read_bytes()).broker == "broker"


async def test_what_is_said_to_one_process_can_be_said_to_another(tmp_path: Path) -> None:
    given = ["--event-log", str(tmp_path), "--event-log-seal", "2", "--event-log-max-bytes", "99"]
    given += ["--event-log-flush", "0.5", "--event-log-fsync", "block"]
    arguments = parsed(*given, "--event-log-max-age", "7", name=None)
    assert vars(parsed(*words(arguments), name=None)) == vars(arguments)
    async with Node() as node:
        await attach(node, arguments, "shop")
        recorder = node.find_instrument(Recorder)
        assert recorder is not None
        options = recorder.options
        assert options.name == "shop"
        assert (options.flush_seconds, options.fsync) == (0.5, "block")


async def test_what_cannot_be_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    async with Node() as node, Node() as other:
        with pytest.raises(CommandError, match="no name") as caught:
            await attach(node, parsed("--event-log", str(tmp_path)), "../x")
        assert caught.value.status == Status.USAGE
        with pytest.raises(CommandError, match=r"from 0\.001 to 86400, not 1e-07") as caught:
            await attach(node, parsed("--event-log", str(tmp_path), "--event-log-flush", "1e-7"))
        assert caught.value.status == Status.USAGE
        with pytest.raises(CommandError, match=r"cannot write to .*file/broker"):
            await attach(node, parsed("--event-log", str(tmp_path / "file")))
        await EventLog.attach(other, LogOptions(tmp_path, "broker"))
        with pytest.raises(CommandError, match="another process writes"):
            await attach(node, parsed("--event-log", str(tmp_path)))
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "epoch").write_bytes(b"2147483647")
        with pytest.raises(
            CommandError, match=r"--event-log: .*old has a file of epoch .* move it"
        ):
            await attach(node, parsed("--event-log", str(tmp_path)), "old")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--event-log-sample", "2"),
        ("--event-log-sample", "nan"),
        ("--event-log-sample", "some"),
        ("--event-log-seal", "0"),
        ("--event-log-max-bytes", "0"),
        ("--event-log-flush", "0"),
        ("--event-log-fsync", "sometimes"),
        ("--event-log-max-age", "-1"),
    ],
)
def test_a_bad_number_is_refused(option: str, value: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        parsed("--event-log", "x", f"{option}={value}")
    assert option in capsys.readouterr().err


# --- what is said of it -------------------------------------------------------------------
def test_what_is_lost_and_what_is_wrong_is_said_in_a_line() -> None:
    recorder = {"hops": 4, "flows": 3, "events": 2, "dropped": {"full": 5, "late": 1}}
    writer = {"pending": 0, "recovered": 1, "bad": 2, "deleted_unread": 0}
    figures = {"recorder": recorder, "writer": writer, "trouble": "cannot write"}
    assert told(figures) == (
        "event log: 4 hops, 3 flows, 2 events; 6 of them lost: 5 full, 1 late; "
        "1 files of earlier runs recovered; 2 files set aside; cannot write"
    )


async def test_the_totals_say_what_was_recorded(tmp_path: Path) -> None:
    stop = StopRequest()
    arguments = parsed("--event-log", str(tmp_path))
    with printed() as output:
        serving = asyncio.create_task(
            serve(stop, ["rsocket+tcp://127.0.0.1:0"], opened=lambda node: attach(node, arguments))
        )
        uri = (await output.line()).removeprefix("listening ")
        figures = await ask_broker(uri, "statistics", TIMEOUT)
        stop.wish()
        await serving
    line = output.getvalue().splitlines()[-1]
    assert "0 lost; event log: 0 hops, " in line
    assert line.endswith(" events; 0 lost")
    log = figures["event_log"]
    assert log["trouble"] == ""
    assert log["recorder"]["dropped"] == {}
    assert log["writer"]["deleted_unread"] == 0
    assert show(figures).splitlines()[-1].startswith("event log: 0 hops")


async def test_a_node_without_one_says_nothing_of_it(tmp_path: Path) -> None:
    async with Node() as node:
        pass
    assert total(node) == ""
    async with Node() as node:
        await attach(node, parsed("--event-log", str(tmp_path)))
    assert total(node) == "; event log: 0 hops, 0 flows, 1 event; 0 lost"


@pytest.mark.parametrize(("command", "module"), [("broker", _broker_serve), ("node", _node)])
def test_a_node_is_called_as_its_log_is_so_that_several_logs_can_be_told_apart(
    command: str, module: ModuleType, tmp_path: Path, monkeypatch: Patch
) -> None:
    called: list[str] = []

    def named(name: str, **_: object) -> Node:
        called.append(name)
        raise CommandError("that is all")

    monkeypatch.setattr(module, "Node", named)
    assert main([command]) != Status.OK
    assert main([command, "--event-log", str(tmp_path)]) != Status.OK
    assert main([command, "--event-log", str(tmp_path), "--event-log-name", "eu-1"]) != Status.OK
    assert called == [command, command, "eu-1"]
