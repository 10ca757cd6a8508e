"""What is measured is measured rightly: loads through the bare relay, and the sums."""

from __future__ import annotations

import array
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import COMPILED
from tests.support.fixtures import Patch

rawload: Any = import_module("_rawload")
mixedload: Any = import_module("_mixedload")
nats: Any = import_module("_nats")
rivals: Any = import_module("_rivals")
versus: Any = import_module("_versus")
wire: Any = import_module("_wire")
run: Any = import_module("run")
reports: Any = import_module("_report")
soak: Any = import_module("soak")

BENCHMARKS = Path(run.__file__).parent


def test_every_request_of_a_closed_loop_is_answered() -> None:
    with (
        rivals.start(rivals.RELAY) as relay,
        rawload.open_load(relay.port, requesters=2, in_flight=8) as load,
    ):
        assert load.run(101).requests == 100
        assert load.run(50).requests == 50


def test_requests_at_a_rate_are_timed_from_when_they_were_due() -> None:
    with (
        rivals.start(rivals.RELAY) as relay,
        mixedload.open_mixed_load(relay.port, mixedload.Scenario("any", in_flight=4)) as load,
    ):
        assert load.run(100).requests == 100
        took, refused = load.run_at(10_000, 0.02)
        assert len(took) == 200
        assert min(took) > 0
        assert refused == 0


def test_a_large_request_is_put_together_again() -> None:
    scenario = mixedload.Scenario("large", size=100_000, in_flight=4)
    with (
        rivals.start(rivals.RELAY) as relay,
        mixedload.open_mixed_load(relay.port, scenario) as load,
    ):
        assert load.run(20).requests == 20


def test_requests_that_need_several_destinations_are_done_with_the_last() -> None:
    board = mixedload._Board(2, 3)
    board.now = 5.0
    for _ in range(2):
        board.done(1)
    assert (board.pending, board.fresh) == (2, 0)
    board.done(1)
    assert (board.pending, board.fresh, board.done_at.tolist()) == (1, 1, [0.0, 5.0])
    with pytest.raises(RuntimeError, match="too often"):
        board.done(1)


def test_the_lines_for_nats_have_their_number_where_it_is_said() -> None:
    shape = nats.nats_shape(b"data")
    octets = shape.octets(array.array("I", [1, 0xABCDEF]))
    assert shape.read(octets).tolist() == [1, 0xABCDEF]
    request, answer = shape.request, shape.answer
    lines = wire.stamp(request.written, octets, request.number)
    assert bytes(lines) == (
        b"PUB bench _INBOX.load.00000001 4\r\ndata\r\nPUB bench _INBOX.load.00abcdef 4\r\ndata\r\n"
    )
    assert answer.arrived == b"MSG _INBOX.load.00000000 1 4\r\ndata\r\n"
    assert answer.arrived[answer.arrived_number.start :][:8] == b"00000000"


def test_a_rival_that_is_not_there_is_left_out(monkeypatch: Patch) -> None:
    monkeypatch.setenv("NATS_SERVER", "/nowhere/nats-server")
    with pytest.raises(rivals.Missing, match="/nowhere/nats-server"), rivals.start(rivals.NATS):
        pass
    monkeypatch.delenv("NATS_SERVER")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(rivals, "NATS_PLACES", "")
    with pytest.raises(rivals.Missing, match="not on the path"), rivals.start(rivals.NATS):
        pass


def test_ratios_are_made_window_by_window() -> None:
    mine, its = versus.Samples([1.0, 2.0, 30.0]), versus.Samples([1.0, 4.0, 10.0])
    assert mine.over(its) == 1.0
    assert mine.median == 2.0


class Unsteady:
    """A load whose windows never agree, on a clock that they advance."""

    def __init__(self, monkeypatch: Patch, costs: list[float]) -> None:
        self.now = 0.0
        self.used = 0.0
        self._costs = costs
        monkeypatch.setattr(versus, "time", self)
        monkeypatch.setattr(versus, "cpu_seconds", self.cpu_seconds)

    def perf_counter(self) -> float:
        return self.now

    def cpu_seconds(self, _pid: int) -> float:
        return self.used

    def run(self, requests: int) -> Any:
        self.now += 1.0
        self.used += requests * self._costs.pop(0)
        return rawload.Window(requests, 1.0)


@pytest.mark.parametrize(
    ("costs", "windows", "noted"),
    [
        ([5.0, 2.0, 2.0, 2.0, 2.0, 2.0], 4, False),
        ([5.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 9, True),
    ],
)
def test_an_unsettled_broker(
    monkeypatch: Patch, costs: list[float], windows: int, noted: bool
) -> None:
    left = list(costs)
    load = Unsteady(monkeypatch, left)
    size = versus.Size(1, 1.0, 1.0, 3.0, 3.0, 1.0, 1)
    report = reports.Report("any")
    java = rivals.Rival(rivals.JAVA, 1, 1)
    versus._settle(java, load, mixedload.Scenario("any"), size, set(), report)
    assert len(costs) - len(left) == windows
    assert any("java, any: not settled after 9 s" in note for note in report.notes) is noted


@pytest.mark.parametrize("collected", [True, False])
def test_garbage_in_a_memory_is_named(monkeypatch: Patch, collected: bool) -> None:
    def collect_garbage(_pid: int) -> bool:
        return collected

    monkeypatch.setattr(versus, "collect_garbage", collect_garbage)
    monkeypatch.setattr(versus, "SETTLING", 0.0)
    report = reports.Report("any")
    java = rivals.Rival(rivals.JAVA, os.getpid(), 1)
    for _ in range(2):
        assert versus._memory(java, report) > 0
    assert [note for note in report.notes if "garbage" in note] == report.notes
    assert len(report.notes) == (0 if collected else 1)


def test_quantiles() -> None:
    ordered = [float(each) for each in range(1, 1001)]
    assert [versus.quantile(ordered, share) for share in (0.5, 0.99, 0.999)] == [501, 991, 1000]
    assert versus.quantile([7.0], 0.999) == 7.0


def test_the_cpu_of_a_process_is_that_of_its_clock() -> None:
    before = rawload.cpu_seconds(os.getpid())
    assert 0 < before <= rawload.cpu_seconds(os.getpid())


@pytest.mark.skipif(COMPILED, reason="needs an Onward of pure Python beside this one")
def test_what_is_compiled_is_left_out_until_it_is_built(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(rivals, "COMPILED_SITE", tmp_path)
    with pytest.raises(rivals.Missing, match="make compiled"), rivals.start(rivals.COMPILED):
        pass
    # Something is there, but it is not what runs.
    (tmp_path / "some.so").touch()
    with pytest.raises(rivals.Missing, match="pure Python"), rivals.start(rivals.COMPILED):
        pass


def test_what_is_compiled_of_older_sources_is_said(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(rivals, "HERE", tmp_path / "benchmarks")
    (tmp_path / "protocol").mkdir()
    source = tmp_path / "protocol" / "a.py"
    source.touch()
    os.utime(source, (1000, 1000))
    assert rivals._older_than_sources(1000.0) == ""
    assert "older than 1 of the source files" in rivals._older_than_sources(999.0)


def test_another_broker_under_the_name_of_ours_is_said(monkeypatch: Patch) -> None:
    monkeypatch.delenv("ONWARD", raising=False)
    with rivals.start(rivals.ONWARD) as ours:
        assert ours.note == ""
    onward = Path(sys.executable).with_name("onward")
    monkeypatch.setenv("ONWARD", str(onward))
    with rivals.start(rivals.ONWARD) as named:
        assert named.note == f"onward is what ONWARD names: {onward}"


def test_the_soak_is_no_benchmark() -> None:
    assert "soak" not in [file.stem for file in run.benchmarks([])]
    with pytest.raises(SystemExit, match="no such benchmark: soak"):
        run.benchmarks(["soak"])


def test_a_destination_that_is_asked_whether_it_is_there_answers(monkeypatch: Patch) -> None:
    ours, brokers = socket.socketpair()

    def connect(port: int, name: str) -> socket.socket:
        return ours

    monkeypatch.setattr(mixedload, "connect", connect)
    with ours, brokers:
        destination = mixedload._Destination(0, b"y" * 8)
        brokers.sendall(wire.frame(0, wire.KEEPALIVE_RESPOND, b"position"))
        destination.receive(mixedload._Board(0, 1))
        assert brokers.recv(64) == wire.frame(0, wire.KEEPALIVE, b"position")


def test_a_window_begins_with_a_keepalive_of_its_destination() -> None:
    ours, brokers = socket.socketpair()
    with ours, brokers:
        brokers.sendall(wire.frame(0, wire.KEEPALIVE, bytes(8)))
        rawload.rsocket_shape().keep_alive(ours)
        assert brokers.recv(64) == wire.frame(0, wire.KEEPALIVE_RESPOND, bytes(8))
