"""Whether all that was taken has been accounted for, by each broker and over each link.

Two equations, over what is counted in flows, which are never sampled:

    broker:  sent = delivered + dropped + unroutable + missing - duplicated
    link:    sent = received + dropped + missing - duplicated

In one window neither need hold: what is taken in one window ends in a later one. So `missing` and
`duplicated` are running totals, from the first window there is to the end of the row's, and those
of the last window are what counts. They are kept for each kind of request and each run of a
broker, where they cannot make up for one another, and then added up.

Where a day ends there is always something in hand. What comes after it tells what has become of
it: of what is in hand at midnight no more can be lost than what is open at any later time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import is_asked, is_outcome, start_of, total_where, with_columns_of

__all__ = ["AUDIT_SECONDS", "audit", "audit_totals"]

AUDIT_SECONDS: Final = 60
"""How long a window of the audit is, in seconds, if nothing else is said."""

_DROPPED: Final = (
    Outcome.DROP,
    Outcome.REJECTED,
    Outcome.INVALID,
    Outcome.CANCELED,
    Outcome.FAILED,
)
_COUNTED: Final = ("sent", "received", "delivered", "dropped", "unroutable")
_ROW: Final = ("window_start", "src", "dst")


def audit(
    flows: DataFrame,
    nodes: DataFrame | None = None,
    window_seconds: int = AUDIT_SECONDS,
    until: datetime | None = None,
) -> DataFrame:
    """Set what was taken against what became of it.

    A broker's row has its name as `src` and an empty `dst`: `sent` are the requests read,
    `received` the copies handed to destinations, `delivered` what ended well, `dropped` what was
    dropped, rejected, invalid, canceled or failed, `unroutable` what had no destination. A link's
    row has the log of the sending end as `src` and the link as `dst`: `sent` at that end,
    `received` at the other, `dropped` by the link.

    A link that is recorded at one end only has null for the other: nothing can be said, so
    nothing is missing. A receiving end that got nothing at all and recorded nothing looks
    the same.

    Args:
        flows: The table `flows`, from the start of the brokers or of a time when nothing was in
            hand. What was in hand at its start shows as duplicated, at its end as missing.
        nodes: The table `dim_node`, for the names of links; without it they are numbers in hex.
        window_seconds: How long a window is; a flow counts in the one it began in.
        until: Return the windows that begin before this. Flows from then on do not count as sent or
            ended; what they show to have ended of what was in hand in a series' last window before
            is neither missing nor duplicated there.

    Returns:
        The report `audit`. The counts are those of the window; `missing` and `duplicated` are
        running totals to its end.

    Raises:
        ValueError: `window_seconds` is less than 1.
    """
    if window_seconds < 1:
        raise ValueError(f"window_seconds is {window_seconds}: it has to be at least 1")
    windows = flows.withColumn("window_start", start_of("window_start", window_seconds))
    counts = _brokers(windows).unionByName(_links(windows, nodes))
    return with_columns_of(_balanced(counts, until), "audit")


def _brokers(flows: DataFrame) -> DataFrame:
    def asked(*outcomes: Outcome) -> Column:
        return total_where(is_asked() & is_outcome(*outcomes), "frames")

    # What workers handle is taken along for the balance alone, where it adds nothing: a flow that
    # there was no room for in its window does not say what was asked.
    taken = total_where(is_outcome(Outcome.RECEIVED), "frames")
    ended = total_where(is_outcome(Outcome.DELIVER, Outcome.UNROUTABLE, *_DROPPED), "frames")
    return (
        flows.filter(sf.col("kind") != int(Kind.LINK))
        .groupBy("window_start", sf.col("broker").alias("src"), "epoch", "kind")
        .agg(
            asked(Outcome.RECEIVED).alias("sent"),
            asked(Outcome.FORWARD).alias("received"),
            asked(Outcome.DELIVER).alias("delivered"),
            asked(*_DROPPED).alias("dropped"),
            asked(Outcome.UNROUTABLE).alias("unroutable"),
            (taken - ended).alias("open"),
        )
        .filter(sf.greatest(*_COUNTED, sf.abs("open")) > 0)
        .select(
            "window_start",
            "src",
            sf.lit("").alias("dst"),
            sf.struct("epoch", sf.col("kind").cast("int").alias("kind")).alias("series"),
            *_COUNTED,
            "open",
        )
    )


def _links(flows: DataFrame, nodes: DataFrame | None) -> DataFrame:
    at_sender = is_outcome(Outcome.FORWARD, Outcome.DROP)
    at_receiver = is_outcome(Outcome.RECEIVED)
    whole = Window.partitionBy("dest_node")
    counted = (
        flows.filter(sf.col("kind") == int(Kind.LINK))
        .groupBy("window_start", "dest_node")
        .agg(
            sf.min(sf.when(at_sender, sf.col("broker"))).alias("sender"),
            sf.min(sf.when(at_receiver, sf.col("broker"))).alias("receiver"),
            total_where(is_outcome(Outcome.FORWARD), "frames").alias("sent"),
            total_where(at_receiver, "frames").alias("received"),
            total_where(is_outcome(Outcome.DROP), "frames").alias("dropped"),
        )
        .withColumn("sender", sf.min("sender").over(whole))
        .withColumn("receiver", sf.min("receiver").over(whole))
    )
    named = counted.withColumn("name", sf.lit(None).cast("string"))
    if nodes is not None:
        # A name's row may come more than once, from several runs.
        names = nodes.groupBy(sf.col("node").alias("dest_node")).agg(sf.min("name").alias("name"))
        named = counted.join(names, "dest_node", "left")
    both = sf.col("sender").isNotNull() & sf.col("receiver").isNotNull()
    balance = sf.col("sent") - sf.col("received") - sf.col("dropped")
    return named.select(
        "window_start",
        sf.coalesce("sender", sf.lit("")).alias("src"),
        sf.coalesce("name", sf.lower(sf.hex("dest_node"))).alias("dst"),
        sf.struct(sf.lit(0).alias("epoch"), sf.lit(int(Kind.LINK)).alias("kind")).alias("series"),
        sf.when(sf.col("sender").isNotNull(), sf.col("sent")).alias("sent"),
        sf.when(sf.col("receiver").isNotNull(), sf.col("received")).alias("received"),
        sf.lit(0).cast("bigint").alias("delivered"),
        "dropped",
        sf.lit(0).cast("bigint").alias("unroutable"),
        sf.when(both, balance).otherwise(0).alias("open"),
    )


def _balanced(counts: DataFrame, until: datetime | None) -> DataFrame:
    """Add up what is open in each series, and then the series of a row, window by window.

    A series has no row for a window in which nothing was counted. What it adds to the total is
    therefore told by its changes, which are 0 there.
    """
    so_far = Window.partitionBy("src", "dst", "series").orderBy("window_start")
    running = counts.withColumn("running", sf.sum("open").over(so_far))
    if until is not None:
        running = _settled(running, until)
    missing = sf.greatest(sf.col("running"), sf.lit(0))
    duplicated = sf.greatest(-sf.col("running"), sf.lit(0))
    changes = (
        running.select(*_ROW, "series", *_COUNTED, missing.alias("m"), duplicated.alias("d"))
        .withColumn("m", sf.col("m") - sf.lag("m", 1, 0).over(so_far))
        .withColumn("d", sf.col("d") - sf.lag("d", 1, 0).over(so_far))
        .groupBy(*_ROW)
        .agg(*(sf.sum(name).alias(name) for name in (*_COUNTED, "m", "d")))
    )
    rows = Window.partitionBy("src", "dst").orderBy("window_start")
    return changes.select(
        *_ROW,
        *_COUNTED,
        sf.sum("m").over(rows).alias("missing"),
        sf.sum("d").over(rows).alias("duplicated"),
    )


def _settled(running: DataFrame, until: datetime) -> DataFrame:
    """Leave the windows before a time; the last of each series knows what came after."""
    series = Window.partitionBy("src", "dst", "series").orderBy("window_start")
    later = series.rowsBetween(0, Window.unboundedFollowing)
    is_before = sf.col("window_start") < sf.lit(until)
    is_last = sf.coalesce(sf.lead("window_start").over(series) >= sf.lit(until), sf.lit(True))
    least, most = sf.min("running").over(later), sf.max("running").over(later)
    settled = sf.when(sf.col("running") > 0, sf.greatest(least, sf.lit(0))).otherwise(
        sf.least(most, sf.lit(0))
    )
    return (
        running.withColumn("settled", sf.when(is_last, settled).otherwise(sf.col("running")))
        .filter(is_before)
        .withColumn("running", sf.col("settled"))
        .drop("settled")
    )


def audit_totals(audited: DataFrame) -> DataFrame:
    """Return the audit's verdict: one row for each broker and link.

    Args:
        audited: The report `audit`.

    Returns:
        The columns of the report without `window_start`: counts added up over all windows, and
        what was missing and duplicated at the end of the last.
    """
    return (
        audited.groupBy("src", "dst")
        .agg(
            *(sf.sum(name).alias(name) for name in _COUNTED),
            sf.max_by("missing", "window_start").alias("missing"),
            sf.max_by("duplicated", "window_start").alias("duplicated"),
        )
        .select("src", "dst", *_COUNTED, "missing", "duplicated")
    )
