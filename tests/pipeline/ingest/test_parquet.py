"""Files that tasks write: bounds that hold, encodings, and nothing that counts before its name."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onward.pipeline import LAKE_TABLES
from onward.pipeline._errors import LakeError
from onward.pipeline.ingest import _parquet
from onward.pipeline.ingest._files import remove_unnamed
from onward.pipeline.ingest._parquet import PartFiles, Partition, Written, name_files
from onward.pipeline.source import arrow_schema, columns_of
from tests.support.fixtures import Patch

DAY = date(2026, 11, 20)
FLOWS = arrow_schema(columns_of(LAKE_TABLES["flows"]))


def rows(count: int, first: int = 0) -> Any:
    row: dict[str, Any] = dict.fromkeys(FLOWS.names, 1) | {"broker": "b1"}
    made = [row | {"seq": first + at} for at in range(count)]
    return pa.RecordBatch.from_pylist(made, schema=FLOWS)


def at(hour: int) -> Partition:
    return Partition("flows", DAY, hour)


def read(lake: Path, written: Written) -> list[int]:
    with pq.ParquetFile(lake / written.path) as file:
        seqs: list[int] = file.read().column("seq").to_pylist()
    return seqs


def test_a_file_is_not_seen_before_it_has_its_name(tmp_path: Path) -> None:
    with PartFiles(tmp_path, 7, 3) as files:
        files.add(at(8), rows(5))
        # What another attempt at the same task writes is beside it.
        with PartFiles(tmp_path, 7, 3) as others:
            others.add(at(8), rows(5))
    folder = tmp_path / "flows/date=2026-11-20/hour=8/batch=7"
    assert len(list(folder.iterdir())) == 2
    assert list(folder.glob("*.parquet")) == []

    assert name_files(tmp_path, files.written) == {folder}
    assert remove_unnamed([folder]) == 1

    assert [path.name for path in folder.iterdir()] == ["part-00003-0.parquet"]
    pattern = str(tmp_path / "flows/*/*/*/*.parquet")
    query = "select count(*), min(seq), max(seq) from read_parquet($p)"
    assert duckdb.execute(query, {"p": pattern}).fetchall() == [(5, 0, 4)]


def test_a_file_that_is_gone_is_no_file_less(tmp_path: Path) -> None:
    with PartFiles(tmp_path, 0, 0) as files:
        files.add(at(8), rows(1))
    (tmp_path / files.written[0].path).unlink()
    with pytest.raises(LakeError, match=r"/\.part-\S+ is not there\. .* share.* run it again"):
        name_files(tmp_path, files.written)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_parquet, "OPEN_FILES", 1)

    def fail() -> None:
        with PartFiles(tmp_path, 0, 0) as files:
            files.add(at(8), rows(1))
            files.add(at(9), rows(1))
            assert len(files.written) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("refused", ["write_table", "__init__"])
def test_a_task_out_of_memory_leaves_no_file(
    refused: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    real = getattr(pq.ParquetWriter, refused)
    calls: list[Any] = []

    def second(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(self)
        if len(calls) == 2:
            raise pa.ArrowMemoryError("realloc of size 64 failed")
        return real(self, *args, **options)

    def write() -> None:
        # What is held is written at the end, when no error of its own ends the block.
        with PartFiles(tmp_path, 0, 0) as files:
            files.add(at(8), rows(1))
            files.add(at(9), rows(1))

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, refused, second)
        with pytest.raises(pa.ArrowMemoryError):
            write()
    assert len(calls) == 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_unwritable_lake_is_told_with_what_to_do(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "hops").write_bytes(b"")

    def write(place: Partition) -> None:
        with PartFiles(tmp_path, 0, 0) as files:
            files.add(at(8), rows(1))
            files.add(place, rows(1))

    with pytest.raises(LakeError, match=r"cannot be written: .*irectory.*run it again"):
        write(Partition("hops", DAY, 8))
    assert list(tmp_path.rglob(".part*")) == []

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    # Found out when the file is ended.
    monkeypatch.setattr(_parquet, "sync", full)
    with pytest.raises(LakeError, match="No space left on device"):
        write(at(9))
    assert list(tmp_path.rglob(".part*")) == []


def test_of_too_many_files_the_least_recent_is_closed(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_parquet, "OPEN_FILES", 2)
    with PartFiles(tmp_path, 0, 0) as files:
        for number, hour in enumerate((0, 1, 0, 2, 1, 0)):
            files.add(at(hour), rows(1, first=number))

    found = [(each.place.hour, read(tmp_path, each)) for each in files.written]
    assert found == [(1, [1]), (0, [0, 2]), (2, [3]), (1, [4]), (0, [5])]
    names = [Path(each.path).name.partition(".")[2].partition(".")[0] for each in files.written]
    assert names == ["part-00000-0", "part-00000-0", "part-00000-0", "part-00000-1", "part-00000-1"]


def test_row_groups_are_as_large_as_they_should_be(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_parquet, "GROUP_ROWS", 10)
    with PartFiles(tmp_path, 0, 0) as files:
        for first in range(0, 28, 4):
            files.add(at(0), rows(4, first=first))
    (written,) = files.written
    about = pq.read_metadata(tmp_path / written.path)
    groups = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    assert (groups, written.rows) == ([12, 12, 4], 28)
    assert read(tmp_path, written) == list(range(28))


def test_what_is_held_has_a_bound(tmp_path: Path, monkeypatch: Patch) -> None:
    kept = [_parquet.alone(rows(count))[1] for count in (400, 1200, 600)]
    monkeypatch.setattr(_parquet, "HELD_BYTES", sum(kept) - 1)
    with PartFiles(tmp_path, 0, 0) as files:
        files.add(at(0), rows(400))
        files.add(at(1), rows(1200))
        files.add(at(0), rows(600, first=400))
        files.add(at(1), rows(1, first=1200))
    groups = {
        each.place.hour: pq.read_metadata(tmp_path / each.path).num_row_groups
        for each in files.written
    }
    # The one that had more was written as it was; the other was held until the end.
    assert groups == {0: 1, 1: 2}
    assert sorted(each.rows for each in files.written) == [1000, 1201]


def test_the_bound_is_of_the_rows_that_are_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    # Each batch ends with a row of the next hour, as where two clocks differ: cut out, it would
    # keep the whole batch, which weighs as much as 10,000 of its kind.
    count, batches = 10_000, 12
    size = rows(count).nbytes
    monkeypatch.setattr(_parquet, "HELD_BYTES", 3 * size)
    before = pa.total_allocated_bytes()
    most = 0
    with PartFiles(tmp_path, 0, 0) as files:
        for number in range(batches):
            batch = rows(count, first=number * count)
            files.add(at(8), batch.slice(0, count - 1))
            files.add(at(9), batch.slice(count - 1))
            del batch
            most = max(most, pa.total_allocated_bytes() - before)

    assert 2 * size < most < 4 * size
    assert sorted(each.rows for each in files.written) == [batches, batches * (count - 1)]
    few, many = sorted(files.written, key=lambda each: each.rows)
    assert read(tmp_path, few) == [number * count - 1 for number in range(1, batches + 1)]
    assert len(set(read(tmp_path, many))) == batches * (count - 1)


def test_only_what_is_less_than_half_of_a_batch_is_copied() -> None:
    batch = rows(1_000)
    address = batch.column("seq").buffers()[1].address
    for cut, copied in ((batch, False), (batch.slice(300), False), (batch.slice(0, 300), True)):
        made, kept = _parquet.alone(cut)
        assert made.equals(cut)
        assert (made.column("seq").buffers()[1].address != address) is copied
        assert kept >= made.get_total_buffer_size() >= made.nbytes


def test_columns_are_encoded_as_they_are_best_read(tmp_path: Path) -> None:
    written: dict[str, dict[str, set[str]]] = {}
    for table in ("hops", "route_events", "dim_tagset"):
        schema = arrow_schema(columns_of(LAKE_TABLES[table]))
        row: dict[str, Any] = {field.name: 1 for field in schema} | {
            field.name: "x" for field in schema if pa.types.is_string(field.type)
        }
        row |= {"tags": [("a", "b")]} if "tags" in row else {}
        batch = pa.RecordBatch.from_pylist([row] * 100, schema=schema)
        with PartFiles(tmp_path, 0, 0) as files:
            files.add(Partition(table), batch)
        about = pq.read_metadata(tmp_path / files.written[0].path)
        leaves = [about.row_group(0).column(number) for number in range(about.num_columns)]
        assert {leaf.compression for leaf in leaves} == {"ZSTD"}
        written[table] = {leaf.path_in_schema: set(leaf.encodings) for leaf in leaves}
        # No types that only Arrow knows.
        assert about.metadata is None

    hops = written["hops"]
    for name in ("seq", "ts", "latency_us"):
        assert hops.pop(name) == {"DELTA_BINARY_PACKED", "RLE"}
    for name in ("trace_id", "shard_hash"):
        assert hops.pop(name) == {"PLAIN", "RLE"}
    others = {**hops, **written["dim_tagset"]}
    assert {"broker", "bytes", "tags.key_value.key", "tags.key_value.value"} < set(others)
    assert all("RLE_DICTIONARY" in encodings for encodings in others.values())
    assert "RLE_DICTIONARY" in written["route_events"]["tags.key_value.value"]
