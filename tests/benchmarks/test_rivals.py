"""What is measured is measured rightly: loads through the bare relay, and the sums."""

from __future__ import annotations

import array
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

rawload: Any = import_module("_rawload")
mixedload: Any = import_module("_mixedload")
nats: Any = import_module("_nats")
rivals: Any = import_module("_rivals")
versus: Any = import_module("_versus")
wire: Any = import_module("_wire")
run: Any = import_module("run")
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


def test_a_rival_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_quantiles() -> None:
    ordered = [float(each) for each in range(1, 1001)]
    assert [versus.quantile(ordered, share) for share in (0.5, 0.99, 0.999)] == [501, 991, 1000]
    assert versus.quantile([7.0], 0.999) == 7.0


def test_the_cpu_of_a_process_is_that_of_its_clock() -> None:
    before = rawload.cpu_seconds(os.getpid())
    assert 0 < before <= rawload.cpu_seconds(os.getpid())


def test_the_soak_is_no_benchmark() -> None:
    assert "soak" not in [file.stem for file in run.benchmarks([])]
    with pytest.raises(SystemExit, match="no such benchmark: soak"):
        run.benchmarks(["soak"])


def test_growth_is_the_slope_after_the_warm_up() -> None:
    mebibyte = 1 << 20
    warm = [(float(at), at * mebibyte) for at in range(25)]
    flat = [(float(at), 25 * mebibyte) for at in range(25, 101)]
    rising = [(float(at), (at - 25) * 1024 + 25 * mebibyte) for at in range(25, 101)]
    assert soak.growth([]) == soak.growth(warm[:3]) == 0.0
    assert soak.growth([*warm[::30], *flat]) == pytest.approx(0.0, abs=1e-6)
    assert soak.growth([*warm[::30], *rising]) == pytest.approx(60.0)


@pytest.mark.slow
def test_a_short_soak_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "0.02", "--seed", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
