"""The audit: a balance of requests and messages for each broker and each link.

Two equations hold for the counts of flows, which are never sampled:

    broker:  sent = delivered + dropped + unroutable + missing - duplicated
    link:    sent = received + dropped + missing - duplicated

In a cluster a request of a client is counted at the broker that has the client. A broker that it is
forwarded to counts it in a row of its own, `FROM_PEERS`, with the same equation, and both ends of
the link between them count it as of that link. So is a message to a name counted by the dispatcher
where it entered, and in a row `FROM_DISPATCHERS` by those that it was sent on to. One that comes
out of the file of messages on hold, as after a restart, is counted again in a row `FROM_HOLD`.

They need not hold in one window: a request of one window may end in a later one. So `missing` and
`duplicated` are running totals from the first window to the end of the row's, and those of the last
window are the result. They are computed for each kind of request and each run of a broker, so that
they do not cancel out, and then added up.

At the end of a day some requests are open. The flows after it bound their loss: it is at most the
number that is open at any later time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome
from .._schema import FROM_DISPATCHERS, FROM_HOLD, FROM_PEERS
from ._columns import is_asked, is_leg, is_name, is_outcome, start_of, total_where, with_columns_of

__all__ = ["AUDIT_SECONDS", "audit", "audit_totals"]

AUDIT_SECONDS: Final = 60
"""The default length of a window, in seconds."""

_DROPPED: Final = (
    Outcome.DROP,
    Outcome.REJECTED,
    Outcome.INVALID,
    Outcome.CANCELED,
    Outcome.FAILED,
    Outcome.RELEASED,
    Outcome.MODIFIED,
)
_DELIVERED: Final = (Outcome.DELIVER, Outcome.SETTLED)
_COUNTED: Final = ("sent", "received", "delivered", "dropped", "unroutable")
_ROW: Final = ("window_start", "src", "dst")


def audit(
    flows: DataFrame,
    nodes: DataFrame | None = None,
    window_seconds: int = AUDIT_SECONDS,
    until: datetime | None = None,
) -> DataFrame:
    """Compare the requests and messages that were accepted with their outcomes.

    A broker's row has its name as `src` and an empty `dst`: `sent` are the requests read,
    `received` the copies sent to destinations, `delivered` those that succeeded, `dropped` those
    dropped, rejected, invalid, canceled or failed, `unroutable` those without a destination. A
    broker in a cluster has another such row with `FROM_PEERS` as `dst`, for the requests that other
    brokers have forwarded to it; they are not in the first one, but in that of the other broker.
    Messages to names are counted likewise, with `FROM_DISPATCHERS`: accepted and pre-settled ones
    as delivered; rejected, released, dropped, and those in doubt as dropped. Those that have come
    out of the file of messages on hold are in a row with `FROM_HOLD`. A link's row has the log of
    the sending end as `src` and the link as `dst`: `sent` at that end, `received` at the other,
    `dropped` by the link.

    A link that is recorded at one end only has null for the other, and counts nothing as missing.
    A receiving end that received and recorded nothing looks the same.

    Args:
        flows: The table `flows`, from the start of the brokers or a time without open requests.
            Requests open at its start show as duplicated, those open at its end as missing.
        nodes: The table `dim_node`, for the names of links; without it they are numbers in hex.
        window_seconds: The length of a window; a flow counts in the one it began in.
        until: Return the windows that begin before this time. Later flows are not counted as sent
            or ended; they only show which of the requests open in a series' last window have ended,
            so that these are neither missing nor duplicated.

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
        counted = is_asked() | is_name(Kind.NAME, Kind.NAME_LEG, Kind.NAME_AGAIN)
        return total_where(counted & is_outcome(*outcomes), "frames")

    # Messages to workers are included in the balance only, where they add nothing: a flow that
    # exceeded the limit of its window has no tag set to tell them from requests.
    taken = total_where(is_outcome(Outcome.RECEIVED), "frames")
    ended = total_where(is_outcome(*_DELIVERED, Outcome.UNROUTABLE, *_DROPPED), "frames")
    dst = (
        sf.when(is_leg(), FROM_PEERS)
        .when(is_name(Kind.NAME_LEG), FROM_DISPATCHERS)
        .when(is_name(Kind.NAME_AGAIN), FROM_HOLD)
        .otherwise("")
        .alias("dst")
    )
    return (
        flows.filter(~sf.col("kind").isin(int(Kind.LINK), int(Kind.NAME_COPY), int(Kind.RELAY)))
        .groupBy("window_start", sf.col("broker").alias("src"), dst, "epoch", "kind")
        .agg(
            asked(Outcome.RECEIVED).alias("sent"),
            asked(Outcome.FORWARD).alias("received"),
            asked(*_DELIVERED).alias("delivered"),
            asked(*_DROPPED).alias("dropped"),
            asked(Outcome.UNROUTABLE).alias("unroutable"),
            (taken - ended).alias("open"),
        )
        .filter(sf.greatest(*_COUNTED, sf.abs("open")) > 0)
        .select(
            "window_start",
            "src",
            "dst",
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
        # Several runs may each have a row for a name.
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
    """Add up the open counts of each series, and then the series of a row, window by window.

    A series has no row for a window without counts. So the total is the sum of the changes of the
    series, which are 0 there.
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
    """Return the windows before a time; the last of each series includes what ended later."""
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
        `missing` and `duplicated` of the last.
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
