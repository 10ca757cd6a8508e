"""`--event-log`: what is begun, and what is said if it cannot be."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.eventlog import EventLog, LogOptions
from onward.cli._event_log import add_event_log, attach, words
from onward.cli._status import CommandError, Status
from onward.protocol.eventlog import read_header


def parsed(*given: str, name: str | None = "broker") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_event_log(parser, name)
    return parser.parse_args(given)


async def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    async with Node() as node:
        await attach(node, parsed())
        assert node.recorder is None
    assert words(parsed()) == []


async def test_a_log_is_begun_with_what_was_said(tmp_path: Path) -> None:
    arguments = parsed("--event-log", str(tmp_path), "--event-log-sample", "0.5")
    async with Node() as node:
        await attach(node, arguments)
        assert node.recorder is not None
        options = node.recorder.options
        assert (options.name, options.sample_rate) == ("broker", 0.5)
    (file,) = (tmp_path / "broker").glob("*.seg")
    assert read_header(file.read_bytes()).broker == "broker"


async def test_what_is_said_to_one_process_can_be_said_to_another(tmp_path: Path) -> None:
    given = ["--event-log", str(tmp_path), "--event-log-seal", "2", "--event-log-max-bytes", "99"]
    arguments = parsed(*given, "--event-log-max-age", "7", name=None)
    assert vars(parsed(*words(arguments), name=None)) == vars(arguments)
    async with Node() as node:
        await attach(node, arguments, "shop")
        assert node.recorder is not None
        assert node.recorder.options.name == "shop"


async def test_what_cannot_be_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    async with Node() as node, Node() as other:
        with pytest.raises(CommandError, match="no name") as caught:
            await attach(node, parsed("--event-log", str(tmp_path)), "../x")
        assert caught.value.status == Status.USAGE
        with pytest.raises(CommandError, match=r"cannot write to .*file/broker"):
            await attach(node, parsed("--event-log", str(tmp_path / "file")))
        await EventLog.attach(other, LogOptions(tmp_path, "broker"))
        with pytest.raises(CommandError, match="another process writes"):
            await attach(node, parsed("--event-log", str(tmp_path)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--event-log-sample", "2"),
        ("--event-log-sample", "nan"),
        ("--event-log-sample", "some"),
        ("--event-log-seal", "0"),
        ("--event-log-max-bytes", "0"),
        ("--event-log-max-age", "-1"),
    ],
)
def test_a_bad_number_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("--event-log", "x", f"{option}={value}")
    assert option in capsys.readouterr().err
