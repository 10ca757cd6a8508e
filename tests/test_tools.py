"""The gates and the benchmark runner fail when they should."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.transports import Backoff, TcpOptions
from tests.support.fixtures import Capsys
from tools import coverage_gates, docs_limits, docs_logs

ROOT = Path(__file__).resolve().parent.parent


def summary(lines: tuple[int, int], branches: tuple[int, int]) -> dict[str, Any]:
    return {
        "summary": {
            "covered_lines": lines[0],
            "num_statements": lines[1],
            "covered_branches": branches[0],
            "num_branches": branches[1],
        },
        "missing_lines": list(range(7, 7 + lines[1] - lines[0])),
        "missing_branches": [[8, -1]] * (branches[1] - branches[0]),
    }


def gates(tmp_path: Path, files: dict[str, Any]) -> int:
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": files}))
    return coverage_gates.main(report)


FULL = {
    "protocol/_a.py": summary((10, 10), (4, 4)),
    "protocol/ockam/_b.py": summary((10, 10), (0, 0)),
    "actors/_c.py": summary((95, 100), (19, 20)),
    "transports/_d.py": summary((100, 100), (20, 20)),
    "cli/_e.py": summary((10, 10), (4, 4)),
    "pipeline/_f.py": summary((10, 10), (4, 4)),
}


@pytest.mark.parametrize(("module", "held"), [("json", 1), ("no_such_module", 0)])
def test_what_cannot_be_built_here_is_not_measured(
    module: str, held: int, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_gates, "BUILT", {"transports/amqp/": module})
    part = {"transports/amqp/_a.py": summary((0, 100), (0, 20))}
    assert gates(tmp_path, {**FULL, **part}) == held
    text = "transports/amqp/ is not measured, as no_such_module is not installed"
    assert (text in capsys.readouterr().out) is (not held)


def test_the_gates_hold(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_gates, "BUILT", {})
    assert gates(tmp_path, FULL) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[1:3] == [
        ["protocol/", "20/20", "100%", "4/4", "100%", "100/100%", "ok"],
        ["actors/", "95/100", "95%", "19/20", "95%", "95/95%", "ok"],
    ]


@pytest.mark.parametrize(
    ("path", "each", "named"),
    [
        ("protocol/_a.py", summary((9, 10), (4, 4)), "protocol/_a.py: lines [7]"),
        ("protocol/_a.py", summary((10, 10), (3, 4)), "branches [8->-1]"),
        ("actors/_c.py", summary((94, 100), (20, 20)), "actors/_c.py: lines [7-12]"),
        ("transports/_d.py", summary((100, 100), (18, 20)), "transports/_d.py"),
        ("transports/_d.py", summary((0, 0), (0, 0)), "transports/"),
        ("pipeline/_f.py", summary((94, 100), (20, 20)), "pipeline/_f.py: lines [7-12]"),
        ("pipeline/_f.py", summary((100, 100), (17, 20)), "pipeline/_f.py"),
    ],
)
def test_a_gate_that_does_not_hold_says_where(
    path: str, each: dict[str, Any], named: str, tmp_path: Path, capsys: Capsys
) -> None:
    assert gates(tmp_path, {**FULL, path: each}) == 1
    printed = capsys.readouterr().out
    assert named in printed
    assert "coverage gates: 1 MISSED" in printed


def test_missing_lines_are_shown_as_spans() -> None:
    assert coverage_gates.spans([3, 4, 5, 9, 11, 12]) == ["3-5", "9", "11-12"]
    assert coverage_gates.spans([]) == []


def test_a_share_is_never_rounded_up(tmp_path: Path, capsys: Capsys) -> None:
    almost = summary((99_999, 100_000), (0, 0))
    assert gates(tmp_path, {**FULL, "protocol/_a.py": almost}) == 1
    assert "99.99%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("default", "text"),
    [
        (random.random, "`random.random`"),
        (sys.exit, "`sys.exit`"),
        (Backoff(), "`Backoff()`"),
        (1_000_000, "1,000,000"),
        (64 * 1024 * 1024, "64 Mi"),
        (2.5, "2.5"),
        (True, "`True`"),
        (None, "`None`"),
    ],
)
def test_a_default_is_written_for_people(default: object, text: str) -> None:
    assert docs_limits.default_text(default) == text


def test_the_table_of_limits_is_the_same_in_every_build() -> None:
    written = docs_limits.fill(f"# Limits\n\n{docs_limits.MARK}\n")
    assert docs_limits.MARK not in written
    assert f"`{TcpOptions.__name__}`" in written
    assert " at 0x" not in written


BENCHMARK = """
import sys
sys.path.insert(0, {folder!r})
from _report import Report
report = Report("made up", noise=0.02)
report.figure("quick", float("--quick" in sys.argv), "")
report.target("ratio", {value}, "x", at_most=3.0)
report.print(as_json="--json" in sys.argv)
"""


@pytest.mark.parametrize(
    ("value", "options", "status", "closing"),
    [
        ("2.5", (), 0, "benchmarks: 1 targets met, 0 missed"),
        ("3.5", (), 0, "benchmarks: 0 targets met, 1 missed"),
        ("3.5", ("--strict",), 1, "benchmarks: 0 targets met, 1 missed"),
        ("3.5", ("--quick",), 0, "benchmarks: 1 of 1 ran"),
        ("1 / 0", (), 1, "made_up: FAILED"),
    ],
)
def test_the_benchmark_runner_sums_up(
    value: str, options: tuple[str, ...], status: int, closing: str, tmp_path: Path
) -> None:
    for name in ("run.py", "_report.py"):
        (tmp_path / name).write_text((ROOT / "benchmarks" / name).read_text())
    (tmp_path / "made_up.py").write_text(BENCHMARK.format(folder=str(tmp_path), value=value))
    run = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout.splitlines()[-1]) == (status, closing)


def test_each_line_of_the_log_has_an_event() -> None:
    lines = tuple(docs_logs.logged())
    assert len(lines) > 80
    assert [each.place for each in lines if not re.fullmatch("[a-z_]+[.][a-z_]+", each.event)] == []
    closed = next(each for each in lines if each.event == "connection.closed")
    assert (closed.level, closed.text) == ("info", "%s: closed: %s")
    assert "principal" in closed.fields


def test_a_line_without_an_event_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = docs_logs.Logged("", "info", "hello", (), "actors/_log.py:1")
    monkeypatch.setattr(docs_logs, "logged", lambda: iter([one]))
    with pytest.raises(ValueError, match=r"actors/_log.py:1: a line of the log has no event"):
        docs_logs.table()
