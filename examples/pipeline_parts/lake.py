"""From logs to a page: the commands of the pipeline one after the other, and what has to come out.

They are what one would type. Here they share one session of Spark, which saves its start for each.
"""

from __future__ import annotations

import json
import shlex
import uuid
from datetime import date
from pathlib import Path
from typing import Any

from demo_parts.stage import check, heading, say
from pyspark.sql import SparkSession, functions as sf

from onward.cli import main
from onward.pipeline import TEST, build_session
from onward.pipeline.ingest import Lake


def onward(*words: str) -> None:
    """Run a command, as from a shell; it has to succeed."""
    print(f"\n$ onward {shlex.join(words)}", flush=True)
    status = main(words)
    check(status == 0, f"onward {words[1]} ended with status {status}")


def candidate(folder: Path) -> None:
    """Write the broker's table with one more shop."""
    table = (folder / "table.jsonl").read_text()
    oslo = {
        "route": str(uuid.uuid5(uuid.NAMESPACE_DNS, "oslo")),
        "service": "shop",
        "tags": {"town": "oslo"},
    }
    (folder / "candidate.jsonl").write_text(f"{table}{json.dumps(oslo)}\n")


def run(folder: Path, day: date) -> None:
    """Ingest, rehearse, report, audit; and check what came out."""
    heading("With Spark: the lake, a rehearsal, the reports, the audit")
    log, at, page = folder / "log", folder / "lake", folder / "report.html"
    candidate(folder)
    # So little data is done before a compiler that takes longer to start would pay.
    spark = build_session("onward-demo", TEST)
    try:
        words = ("--log", str(log), "--lake", str(at), "--checkpoint", str(folder / "checkpoint"))
        onward("pipeline", "ingest", *words)
        here = ("--lake", str(at), "--day", day.isoformat())
        onward(
            *(
                "pipeline",
                "replay",
                *here,
                "--broker",
                "eu",
                "--fail-if-lost",
                "--max-moved",
                "0.5",
            ),
            *("--table", str(folder / "table.jsonl")),
            *("--candidate", str(folder / "candidate.jsonl")),
        )
        onward(
            *("pipeline", "report", *here, "--html", str(page)),
            *("--slo", "stock in 20 ms:stock:20:0.95", "--slo", "pay works:pay:-:0.99"),
        )
        onward("pipeline", "audit", "--lake", str(at))
        onward("pipeline", "index", "build", "--lake", str(at), "--out", str(folder / "index"))
        verify(spark, Lake(at), day)
    finally:
        spark.stop()


def verify(spark: SparkSession, lake: Lake, day: date) -> None:
    """Check that the reports say what has happened."""
    heading("What the reports say")

    def rows(report: str, *columns: Any) -> list[Any]:
        return lake.report(spark, report, day).agg(*columns).collect()

    loops = lake.report(spark, "path_anomalies", day).filter("kind = 'loop'").count()
    check(loops > 0, "no loop was found")
    say("paths", f"{loops} messages went in a circle")
    nobody = rows("unroutable", sf.sum("frames").alias("frames"))[0].frames
    check(bool(nobody), "nothing was unroutable")
    say("demand", f"{nobody:,} requests asked for what nobody has")
    churn = rows("route_churn", sf.sum("flaps").alias("flaps"))[0]
    check(churn.flaps > 0, "Lyon's end and return were not seen")
    say("churn", f"{churn.flaps} destination was soon back")
    hot = rows("hot_keys", sf.max("share").alias("share"))[0].share
    check(hot is not None and hot > 0.2, "the hot key was not seen")
    say("shards", f"one key has {hot:.0%} of the requests by shard")
    dropped = rows("audit", sf.sum("dropped").alias("dropped"))[0].dropped
    check(dropped > 0, "nothing was lost with Lyon")
    say("audit", f"{dropped:,} requests failed, and each is accounted for")
