"""From logs to a page: the commands of the pipeline one after the other, and what has to come out.

They are what one would type. Here they share one session of Spark, which saves its start for each.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import uuid
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from demo_parts.stage import check, heading, say
from pyspark.sql import SparkSession, functions as sf

from onward.cli import main
from onward.pipeline import TEST, build_session
from onward.pipeline.ingest import Lake
from onward.protocol.eventlog import Kind, Outcome, name_id

from .pace import Tally

ASKING = ("web", "mobile", "kiosk")
"""The services that ask brokers."""


@dataclass(frozen=True)
class Seen:
    """The traffic as seen from outside.

    Attributes:
        tallies: The counts of the requesters, by the name of the broker or node that was asked.
        saved: When the table of `eu` was saved.
    """

    tallies: Mapping[str, Tally]
    saved: datetime


def onward(*words: str) -> str:
    """Run a command, as from a shell; it has to succeed. Return what it has printed."""
    print(f"\n$ onward {shlex.join(words)}", flush=True)
    kept = io.StringIO()
    with redirect_stdout(kept):
        status = main(words)
    print(kept.getvalue(), end="", flush=True)
    check(status == 0, f"onward {words[1]} ended with status {status}")
    return kept.getvalue()


def number_of(what: str, printed: str) -> int:
    """Return the number that stands before a word."""
    found = re.search(rf"([\d,]+) {what}", printed)
    return int(found[1].replace(",", "")) if found else 0


def candidate(folder: Path) -> None:
    """Write the broker's table with one more shop."""
    table = (folder / "table.jsonl").read_text()
    oslo = {
        "route": str(uuid.uuid5(uuid.NAMESPACE_DNS, "oslo")),
        "service": "shop",
        "tags": {"town": "oslo"},
    }
    (folder / "candidate.jsonl").write_text(f"{table}{json.dumps(oslo)}\n")


def run(folder: Path, day: date, seen: Seen) -> None:
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
        gates = ("--fail-if-lost", "--max-moved", "0.5")
        onward(
            *("pipeline", "replay", *here, "--broker", "eu", *gates),
            *("--table", str(folder / "table.jsonl")),
            *("--candidate", str(folder / "candidate.jsonl")),
        )
        onward(
            *("pipeline", "report", *here, "--html", str(page)),
            *("--slo", "stock in 20 ms:stock:20:0.95", "--slo", "pay works:pay:-:0.99"),
        )
        onward("pipeline", "audit", "--lake", str(at))
        then = ("--at", seen.saved.isoformat(), "--broker", "eu")
        out = str(folder / "index")
        built = onward("pipeline", "index", "build", "--lake", str(at), "--out", out, *then)
        check(number_of("routes", built) > 0, "the index has no routes")
        # What the broker itself has saved, against what its log says.
        table = ("--snapshot", str(folder / "table.jsonl"), "--against", str(at))
        held = onward("pipeline", "index", "verify", *table, *then)
        check(number_of("routes", held) > 0, "the log has no routes")
        verify(spark, Lake(at), day, seen)
    finally:
        spark.stop()


def verify(spark: SparkSession, lake: Lake, day: date, seen: Seen) -> None:
    """Check that the reports say what has happened."""
    heading("What the reports say")

    def rows(report: str, *columns: Any) -> list[Any]:
        return lake.report(spark, report, day).agg(*columns).collect()

    loops = lake.report(spark, "path_anomalies", day).filter("kind = 'loop'").count()
    circles = seen.tallies["near"].circles
    check(loops == circles > 0, f"{loops} loops were found, and {circles} were sent")
    say("paths", f"{loops} messages went in a circle")
    nobody = rows("unroutable", sf.sum("frames").alias("frames"))[0].frames
    check(bool(nobody), "nothing was unroutable")
    say("demand", f"{nobody:,} requests asked for what no destination has")
    churn = rows("route_churn", sf.sum("flaps").alias("flaps"))[0]
    check(churn.flaps > 0, "Lyon's end and return were not seen")
    say("churn", f"{churn.flaps} destination was soon back")
    hot = rows("hot_keys", sf.max("share").alias("share"))[0].share
    check(hot is not None and hot > 0.2, "the hot key was not seen")
    say("shards", f"one key has {hot:.0%} of the requests by shard")
    dropped = rows("audit", sf.sum("dropped").alias("dropped"))[0].dropped
    check(dropped > 0, "nothing was lost with Lyon")
    say("audit", f"{dropped:,} requests failed, and each is accounted for")
    compare(spark, lake, day, seen)


def compare(spark: SparkSession, lake: Lake, day: date, seen: Seen) -> None:
    """Check that audit and matrix have exactly what the requesters have seen."""
    asked = [name_id(name) for name in ASKING]
    audit = lake.report(spark, "audit", day).filter("dst = ''").groupBy("src")
    told = {
        row.src: row
        for row in audit.agg(
            *(sf.sum(name).alias(name) for name in ("sent", "delivered", "dropped", "unroutable"))
        ).collect()
    }
    for broker in ("eu", "us"):
        tally, row = seen.tallies[broker], told[broker]
        # What else the broker was asked: the demo watches its table.
        others = {
            each.outcome: each.frames
            for each in lake.table(spark, "flows", day=day)
            .filter((sf.col("broker") == broker) & ~sf.col("origin_node").isin(asked))
            # Requests: what workers of the broker tell each other is in no row of the audit.
            .filter(~sf.col("kind").isin(int(Kind.MESSAGE), int(Kind.LINK)))
            .groupBy("outcome")
            .agg(sf.sum("frames").alias("frames"))
            .collect()
        }
        sent = row.sent - others.get(int(Outcome.RECEIVED), 0)
        well = row.delivered - others.get(int(Outcome.DELIVER), 0)
        ended = row.delivered + row.dropped + row.unroutable
        check(ended == row.sent, f"{broker} read {row.sent}, and {ended} have ended")
        check(sent == tally.sent, f"{broker} was sent {tally.sent}, and its audit has {sent}")
        check(
            well == tally.answered,
            f"{tally.answered} requests to {broker} ended well, and its audit has {well}",
        )
    wrong = sum(seen.tallies[each].sent - seen.tallies[each].answered for each in ("eu", "us"))
    matrix = lake.report(spark, "traffic_matrix", day).filter(sf.col("origin_node").isin(asked))
    failed = matrix.agg(sf.sum("failed")).collect()[0][0]
    check(failed == wrong, f"{wrong} requests failed, and the matrix has {failed}")
    say(
        "compare",
        f"audit and matrix have what the requesters have seen; {failed:,} requests failed",
    )
