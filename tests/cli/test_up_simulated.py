"""`onward up --simulated`: the outcome of requests, what happens, and the same run each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.fixtures import Capsys, Patch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"
CITY = EXAMPLES / "5_city.toml"
CLUSTER = EXAMPLES / "cluster.toml"
FAULTS = EXAMPLES / "cluster_faults.toml"

ECHO = '[nodes.a.workers]\necho = "echo"\n'
KILL = '[[simulation.events]]\nat = 2\nkill = "a"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of one node."""
    path = tmp_path / "t.toml"
    path.write_text(ECHO)
    return path


def run(capsys: Capsys, file: Path, *words: str) -> str:
    """Run a file, and return what is printed."""
    assert main(["up", "--simulated", *words, str(file)]) == Status.OK
    return capsys.readouterr().out


def test_a_simulated_run_is_the_same_each_time(capsys: Capsys) -> None:
    assert run(capsys, CITY) == run(capsys, CITY)
    assert run(capsys, CITY, "--seed", "3") != run(capsys, CITY, "--seed", "4")
    assert run(capsys, CITY, "--seed", "12").startswith("simulated with seed 12: ")


def test_the_brokers_of_a_cluster(capsys: Capsys) -> None:
    lines = run(capsys, CLUSTER, "--check").splitlines()
    assert lines[0].startswith("simulated with seed 1: 0.01")
    assert lines[1].startswith("writes over links of brokers: ")
    assert [line.split() for line in lines[2:6]] == [
        ["BROKER", "PEERS", "UP", "PEER", "ROUTES", "LINKS", "LOST"],
        ["north", "2", "of", "2", "1", "0"],
        ["south", "2", "of", "2", "1", "0"],
        ["west", "2", "of", "2", "2", "0"],
    ]
    assert lines[-1] == "requests with the expected outcome: 3, all"


def test_a_cluster_that_loses_a_link_and_a_broker(capsys: Capsys) -> None:
    lines = run(capsys, FAULTS).splitlines()
    assert lines[:6] == [
        "at 5.000 s: cut north | west",
        "at 15.000 s: heal north | west",
        "at 60.000 s: kill south",
        "at 80.000 s: restart south",
        "at 120.000 s: slow north | south, west",
        "at 130.000 s: heal all",
    ]
    assert [line.split() for line in lines[9:12]] == [
        ["north", "2", "of", "2", "1", "1"],
        ["south", "2", "of", "2", "1", "0"],
        ["west", "2", "of", "2", "2", "1"],
    ]
    assert lines[-1] == "requests with the expected outcome: 7, all"


@pytest.mark.slow
def test_brokers_do_the_same_in_each_process(capsys: Capsys) -> None:
    told = run(capsys, FAULTS, "--seed", "9")
    command = [sys.executable, "-m", "onward.cli", "up", "--simulated", "--seed", "9", str(FAULTS)]
    for seed in ("1", "2"):
        done = subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert done.stdout == told


def test_a_broker_that_stays_killed(file: Path, capsys: Capsys) -> None:
    file.write_text(CLUSTER.read_text() + KILL.replace('"a"', '"south"'))
    out = run(capsys, file)
    assert "at 2.000 s: kill south\n" in out
    assert ["south", "killed", "0", "0"] in [line.split() for line in out.splitlines()]


def test_events_are_enough_for_a_run(file: Path, capsys: Capsys) -> None:
    file.write_text(ECHO + KILL)
    assert main(["up", "--simulated", "--check", str(file)]) == Status.USAGE
    capsys.readouterr()
    first, second = run(capsys, file).splitlines()
    assert first == "at 2.000 s: kill a"
    assert second.startswith("simulated with seed 1: 2.000 s; ")


def test_requests_of_a_simulation_are_made_there_only(file: Path, capsys: Capsys) -> None:
    file.write_text(f'{ECHO}[[simulation.requests]]\nfrom = "a"\nroute = "echo"\nat = 3\n')
    assert main(["up", "--in-process", "--check", str(file)]) == Status.USAGE
    assert capsys.readouterr().err == "onward up: --check: the file has no requests to make\n"
    lines = run(capsys, file, "--check").splitlines()
    assert lines[0].startswith("simulated with seed 1: 3.000 s; ")
    assert lines[-1] == "requests with the expected outcome: 1, all"


def test_a_simulation_may_last_some_virtual_time(file: Path, capsys: Capsys) -> None:
    (line,) = run(capsys, file, "--for", "3600").splitlines()
    assert line.startswith("simulated with seed 1: 3600.000 s; ")


def test_an_interrupted_simulation_in_doubt(file: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onward.cli._up_simulated.simulate", interrupted)
    assert main(["up", "--simulated", "--for", "1", str(file)]) == Status.IN_DOUBT
    assert capsys.readouterr().err == "onward up: interrupted\n"
