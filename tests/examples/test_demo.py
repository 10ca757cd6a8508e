"""The demo does its job, and fails when something does not work."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"

TIMEOUT = 120
"""Seconds; more than the demo gives itself."""


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demo as a module."""
    monkeypatch.setattr(sys, "path", [str(DEMO.parent), *sys.path])
    spec = importlib.util.spec_from_file_location("demo_under_test", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_it_does_every_interaction_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)],
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    before, mark, table = done.stdout.partition("What was done")
    assert mark
    assert table.splitlines()[-1] == "demo: ok"
    for interaction in (
        "request/response",
        "fire-and-forget",
        "request/stream",
        "request/channel",
        "metadata push",
        "routed message over TCP",
    ):
        assert interaction in table
    # The one that was killed was in the middle of a request, and the other took over.
    assert "CANCELED" in table
    assert "beta 3" in table.partition("... after that")[2].splitlines()[0]
    # Multicast, as each interaction can be, and shards. All is checked by the demo itself.
    for interaction in ("fire-and-forget", "metadata push", "request/response", "request/stream"):
        assert f"{interaction} to all" in table
    assert "lyon; 2 others cancelled" in table
    moved = re.search(r"\.\.\. lyon is killed +300 +(\d+) moved \((\d+)%\) +all of them", table)
    assert moved is not None
    # Of three destinations one has a third of the keys, give or take what chance makes of 300.
    assert abs(int(moved[1]) - 3 * int(moved[2])) < 3
    assert 20 < int(moved[2]) < 47
    assert f"{moved[1]} moved back" in table
    # A request that no rule allows, and a client without a token, are refused; both are counted.
    assert "service=payroll: INVALID: not allowed: request" in before
    assert "REJECTED_SETUP: not authenticated" in before
    assert 'onward_denied_total{action="request"} 1' in before
    # A cluster: only requests at the broker that is killed, or at its shop, may be in doubt.
    cluster = before.partition("What the clients of the cluster saw")[2]
    for phase in ("three brokers", "... after that", "three is cut off", "both are back"):
        assert re.search(rf"{re.escape(phase)} +ann +30 +.* none$", cluster, re.MULTILINE)
    assert re.search(r"requests at three brokers +1260 +1\d+ answers, \d in doubt", table)
    # Names: each message has one outcome, and what waited on hold was delivered or redirected.
    names = before.partition("What producers saw of it")[2]
    moved = re.search(r"consumer moves +600 +(\d+) +0 +0 +(\d+) +0 +0", names)
    assert moved is not None
    assert int(moved[1]) + int(moved[2]) == 600
    for row in (
        r"on hold at first +20 +20 +0 +0 +0 +20 +0",
        r"orders, redirected +20 +20 +0 +0 +0 +20 +20",
        r"quotes, no consumer +20 +0 +0 +20 +0 +0 +0",
        r"AMQP client at c +(20 +20 +0 +0 +0 +0 +0|no Proton)",
    ):
        assert re.search(row, names), row
    assert "messages by name" in table
    # Who came by what.
    for transport in ("TCP", "WebSocket", "Unix"):
        assert transport in table.partition("The processes that took part")[2]
    # Each hop of the routed message: out by near, middle and far, back by middle and near.
    onward = [line for line in before.splitlines() if "  onward  " in line]
    assert [line.split()[0] for line in onward] == ["near", "middle", "far", "middle", "near"]


@pytest.mark.slow
def test_it_fails_if_a_process_does(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.processes, "ONWARD", (sys.executable, "-c", "pass"))
    assert demo.run() == 1
    assert "demo: FAILED: broker ended before its address came" in capsys.readouterr().out


@pytest.mark.slow
def test_it_fails_if_a_process_says_nothing(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.processes, "ONWARD", (sys.executable, "-c", "input()"))
    monkeypatch.setattr(demo.processes, "WAIT", 0.2)
    assert demo.run() == 1
    assert "did not come in 0.2 s" in capsys.readouterr().out


@pytest.mark.slow
def test_it_fails_if_it_takes_too_long(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.processes, "ONWARD", (sys.executable, "-c", "input()"))
    monkeypatch.setattr(demo, "OVERALL", 0.2)
    assert demo.run() == 1
    assert "demo: FAILED: not done in 0.2 s" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_all_its_processes(number: signal.Signals) -> None:
    # A session of its own, so that what is left of it afterwards can be seen.
    with subprocess.Popen(
        [sys.executable, str(DEMO)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            while "listening" not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(number)
            rest, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 1
    assert rest.endswith("demo: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
