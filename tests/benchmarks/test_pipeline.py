"""The data of the pipeline's benchmark is what it says, and its lines and lanes are drawn right."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onward.protocol.broker import RoutingType, read_snapshot
from onward.protocol.eventlog import Flag, Kind, Outcome, read_segment, tagset_id

for needed in ("numpy", "pyarrow", "pyspark", "duckdb", "pyroaring"):
    pytest.importorskip(needed)

pq: Any = import_module("pyarrow.parquet")
data: Any = import_module("_pipeline_data")
lanes: Any = import_module("_pipeline_lanes")
slopes: Any = import_module("_pipeline_slopes")
PROGRAM = Path(data.__file__).with_name("pipeline.py")
# By its file: the package has the same name where tests are run.
pipeline = SimpleNamespace(**runpy.run_path(str(PROGRAM)))


def _columns(table: Any, *names: str) -> list[list[Any]]:
    return [table[name].to_pylist() for name in names]


def test_logs_have_as_many_hops_as_were_asked_for_and_a_tenth_in_flows(tmp_path: Path) -> None:
    made = data.make_logs(tmp_path, 4000)
    assert (made.hops, made.flows, made.segments) == (4000, 400, 4)
    files = sorted(tmp_path.rglob("*.seg"))
    assert len(files) == 4
    assert made.size == sum(file.stat().st_size for file in files)
    for number, file in enumerate(files):
        segment = read_segment(file.read_bytes())
        assert segment.header.broker == f"broker-{number}"
        assert segment.footer is not None
        assert (segment.footer.hops, segment.footer.flows) == (1000, 100)


def test_the_same_seed_gives_the_same_logs_and_another_gives_others(tmp_path: Path) -> None:
    def made(name: str, seed: int) -> list[bytes]:
        data.make_logs(tmp_path / name, 400, seed=seed)
        return [file.read_bytes() for file in sorted((tmp_path / name).rglob("*.seg"))]

    assert made("a", 1) == made("b", 1)
    assert made("a", 1) != made("c", 2)


def test_three_hops_of_ten_are_of_messages_that_come_in_traces_of_four() -> None:
    random = data.np.random.default_rng(1)
    made = data._hops(random, 1, 1000, data.START_US, 1_000_000)
    messages = made[made["kind"] == int(Kind.MESSAGE)]
    assert len(messages) == 300
    traces: list[int] = messages["trace"].tolist()
    assert set(Counter(traces).values()) == {4}
    assert Counter(messages["outcome"].tolist()) == {Outcome.FORWARD: 225, Outcome.DELIVER: 75}
    assert (made["weight"] == 1).all()
    assert (data.np.diff(made["ts"]) >= 0).all()
    requests = made[made["kind"] == int(Kind.RESPONSE)]
    assert ((requests["shard"] != 0) == (requests["flags"] == int(Flag.SHARD))).all()
    # What they name is in the dictionaries.
    assert 1 <= requests["tagset"].min() <= requests["tagset"].max() <= len(data.TAGSETS)
    assert 1 <= requests["route"].min() <= requests["route"].max() <= len(data.ROUTES)
    assert 1 <= made["dest"].min() <= made["dest"].max() <= len(data.NAMES)


@pytest.mark.parametrize("many", [False, True])
def test_frames_ask_for_the_tag_sets_that_are_returned(tmp_path: Path, many: bool) -> None:
    asked = data.make_frames(tmp_path / "frames", 800, many=many)
    assert len(asked) == (data.TENANTS if many else len(data.TAGSETS))
    table = pq.read_table(tmp_path / "frames")
    assert len(table) == 800
    sharded = {tagset_id(each): each.routing is RoutingType.SHARD for each in asked}
    for tagset, flags in zip(*_columns(table, "tagset_id", "flags"), strict=True):
        assert flags == (int(Flag.SHARD) if sharded[tagset] else 0)


def test_flows_and_postings_have_as_many_rows_as_were_asked_for(tmp_path: Path) -> None:
    data.make_flows(tmp_path / "flows", 500)
    flows = pq.read_table(tmp_path / "flows")
    assert len(flows) == 500
    assert flows["bytes"].to_pylist() == [300 * each for each in flows["frames"].to_pylist()]
    data.make_postings(tmp_path / "postings", 100)
    postings = pq.read_table(tmp_path / "postings")
    assert sorted(postings["number"].to_pylist()) == list(range(100))
    for keys, values in zip(*_columns(postings, "keys", "values"), strict=True):
        assert keys == ["service", "zone", "version", "host"]
        assert [value.partition("-")[0] for value in values] == keys


def test_a_candidate_lacks_some_destinations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "TENANTS", 100)
    table, candidate = data.make_tables(tmp_path / "tables")
    now, then = (
        len(list(read_snapshot(each.read_bytes()).routes())) for each in (table, candidate)
    )
    assert now == len(data.ROUTES) + 200
    assert 0.95 * now < then < now


def test_a_line_is_drawn_through_what_was_measured() -> None:
    line = slopes.fit("a lane", [(0.1, 2.3), (0.3, 2.9), (1.0, 5.0)])
    assert (round(line.fixed, 6), round(line.each, 6)) == (2.0, 3.0)
    assert line.off < 1e-9
    assert slopes.fit("a lane", [(1, 1), (2, 2), (3, 6)]).off > 0.1


BUSY = "import time\nwhile time.process_time() < 0.4: pass"


def test_processor_time_of_processes_that_came_and_went_is_counted() -> None:
    before = lanes._cores()
    # Below another, which waits for it and lives on, as Spark's Python does.
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}]); "
    program += "print(flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert lanes._cores() - before >= 0.3
        process.stdin.close()
    assert lanes._cores() - before >= 0.3  # and when that has ended too


def test_lanes_are_chosen_by_how_they_begin() -> None:
    assert pipeline.chosen("") == pipeline.LANES
    assert pipeline.chosen("hot, s") == ("scan", "hot keys", "sink")
    assert set(pipeline.QUICK_LANES) < set(pipeline.LANES)
    with pytest.raises(SystemExit, match="no such lane: cold; there are encode"):
        pipeline.chosen("cold")


def test_a_benchmark_that_is_terminated_removes_what_it_has_made(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--rows", "50000000", "--only", "scan"]
    if pipeline.missing() is not None:
        pytest.skip("no Java")
    with subprocess.Popen([*command, "--folder", str(tmp_path)], stderr=-1) as process:
        while not list(tmp_path.rglob("*.seg")):
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
