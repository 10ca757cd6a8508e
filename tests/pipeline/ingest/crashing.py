"""A driver that ingests and compacts, and kills itself, its Java and its Python workers midway.

    python crashing.py ROOT [POINT]

POINT is the beginning of what `ingest` or `compact` says it does; or a pattern of paths in the
lake after `files:`, which is looked at all the time: the moment that one exists is the end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import date
from pathlib import Path

from onward.pipeline import TEST, build_session
from onward.pipeline.ingest import compact, ingest

MAX_SEGMENTS = 3
DAY = date(2025, 11, 20)
LOOKS_EVERY = 0.0005


def die() -> None:
    """Kill everything of this session, the driver last: nobody gets to clean up."""
    ours = os.getsid(0)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (pid := int(folder.name)) != os.getpid():
            try:
                if os.getsid(pid) == ours:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    os.kill(os.getpid(), signal.SIGKILL)


def watch(lake: Path, pattern: str) -> None:
    never = threading.Event()
    while not never.wait(LOOKS_EVERY):
        try:
            if any(True for _ in lake.glob(pattern)):
                die()
        except OSError:
            # A folder went while it was looked into.
            continue


def main(root: Path, point: str) -> None:
    lake = root / "lake"
    kind, _, pattern = point.partition("files:")
    if pattern and not kind:
        threading.Thread(target=watch, args=(lake, pattern), daemon=True).start()

    def at(text: str) -> None:
        print(text, flush=True)
        if point and text.startswith(point):
            die()

    spark = build_session("onward-crashes", TEST)
    ingest(spark, root / "log", lake, root / "checkpoint", max_segments=MAX_SEGMENTS, progress=at)
    compact(spark, lake, DAY, progress=at)
    spark.stop()


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        raise SystemExit("start it in a session of its own: it kills all of its session")
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
