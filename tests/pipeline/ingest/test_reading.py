"""The lake's reference: its columns, and reading it with something else than Spark."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from onward.pipeline import LAKE_TABLES
from onward.pipeline.ingest import Lake, LakeState
from onward.pipeline.ingest._parts import LakeFiles
from onward.pipeline.source import columns_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "pipeline-lake.md"
_SECTION = re.compile(r"^## (\w+)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \| ([\w<>,]+) \| ", re.MULTILINE)


def test_the_page_has_the_columns_of_every_table() -> None:
    told = {name: dict(_ROW.findall(text)) for name, text in _SECTION.findall(PAGE.read_text())}
    for table, ddl in LAKE_TABLES.items():
        assert told[table] == columns_of(ddl), table
        assert list(told[table]) == list(columns_of(ddl)), table


def test_duckdb_reads_what_was_committed(tmp_path: Path) -> None:
    frames = pa.table({"frames": [3, 4]})
    for batch in (0, 1):
        folder = tmp_path / f"flows/date=2026-11-20/hour=8/batch={batch}"
        folder.mkdir(parents=True)
        pq.write_table(frames, folder / "part-0.parquet")
    LakeFiles(tmp_path).commit(LakeState(batch=0))

    def total(path: Path) -> object:
        # --8<-- [start:duckdb]
        files = Lake(path).files("flows", day=date(2026, 11, 20))
        query = "select sum(frames) from read_parquet($files)"
        (found,) = duckdb.execute(query, {"files": files}).fetchall()
        # --8<-- [end:duckdb]
        return found

    assert total(tmp_path) == (7,)
