"""A driver whose first task loses its Python worker once, in the middle of its segments.

    python retrying.py ROOT

It says how many attempts have written files of that task when they are about to get their names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onward.pipeline import TEST, build_session
from onward.pipeline.ingest import _packs, _tables, ingest
from onward.pipeline.source import _reading, load_segment

SEGMENTS_OF_A_TASK = 2
TRIES = 3


def write_packs(job: _packs.Job, numbers: Iterable[Any]) -> Iterator[Any]:
    """Do what a task does, in a worker that is killed before its second segment, if none was."""
    last = job.packs[0][-1]

    def load(log: Path, path: str) -> Any:
        if path == last:
            try:
                (job.lake.parent / "killed").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return load_segment(log, path)

    with patch.object(_packs, "load_segment", load):
        yield from _packs.write_packs(job, numbers)


def main(root: Path) -> None:
    lake = root / "lake"

    def at(text: str) -> None:
        if "naming" in text:
            names = {path.name.split(".")[2] for path in lake.rglob(".part-00000-*.new")}
            print(f"{len(names)} attempts", flush=True)

    # Workers get the function as it is here: it is of no module that they could import.
    with (
        patch.object(_reading, "MAX_FILES", SEGMENTS_OF_A_TASK),
        patch.object(_tables, "write_packs", write_packs),
    ):
        spark = build_session("onward-retries", {**TEST, "spark.master": f"local[2,{TRIES}]"})
        ingest(spark, root / "log", lake, root / "checkpoint", progress=at)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
