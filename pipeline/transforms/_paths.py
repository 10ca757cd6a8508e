"""The reports of the paths of messages, and of anomalies such as loops and losses.

Each hop of a message is recorded at its node, with its depth: the number of hops recorded before
it. One shuffle brings all hops of a trace together. They are reduced to distinct places, so that a
trace id used again and again has a bounded size, and sorted by depth. Clocks of different nodes are
not compared for that.

A message belongs to the day of its first hop. So hops of some minutes before and after a day are
read, too, and traces that are cut off at either end are not judged.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import with_columns_of
from ._histogram import bucket_column, with_quantiles

__all__ = [
    "LOOK_AROUND",
    "MAX_PATH",
    "MAX_PATHS",
    "MAX_PLACES",
    "SETTLED",
    "TEMPORARY",
    "path_anomalies",
    "paths",
]

LOOK_AROUND: Final = timedelta(minutes=5)
"""The time before and after a day of which hops are read, for messages in transit at midnight."""

SETTLED: Final = timedelta(seconds=10)
"""The time before the end of the logs in which a message's last hop need not be its end."""

TEMPORARY: Final = r"^(.*/)(?:[0-9]+#)?[0-9a-f]{32,}$"
"""Names of workers with 32 or more hexadecimal digits as address: `random_address` of a mailbox for
one answer, or of a child without a name. All of a node are one place."""

MAX_PATH: Final = 64
"""Most places of a path in the report, from its start."""

MAX_PATHS: Final = 10_000
"""Most paths in a report."""

MAX_PLACES: Final = 1_024
"""Most places of one trace, by worker and depth, that are used: those with the least depth."""

_LAST_DEPTH: Final = 255
"""The largest depth; deeper hops are recorded as this."""

_WAY: Final = ("shown",)
_WAY_AND_ENDS: Final = ("outcomes", "log", "shown")
"""Fields of a place besides its depth and worker. All are sorted and copied, so `paths` omits those
that only anomalies need."""


def paths(
    hops: DataFrame,
    top: int = 1_000,
    *,
    nodes: DataFrame | None = None,
    between: tuple[datetime, datetime] | None = None,
) -> DataFrame:
    """Return the paths of messages, each with the number of messages and the time they took.

    A path is the sequence of workers that handled the message, there and back, by the depth of
    their hops; workers of one depth, if it was copied, are sorted by number. The time is from the
    begin of the first hop to the end of the last, which compares the clocks of their nodes.

    Args:
        hops: The table `hops`. Only messages to workers count: a request to a broker has one hop,
            which is in the traffic matrix.
        top: The number of paths, the most frequent ones. At most `MAX_PATHS`.
        nodes: The table `dim_node`. With it all temporary addresses (`TEMPORARY`) of a node are one
            place, named by the one seen first; without it they differ.
        between: Return messages with a first hop from the first time on and before the second. Give
            hops from `LOOK_AROUND` before to `LOOK_AROUND` after. All messages by default.

    Returns:
        The report `paths`: `traces` is a sum of weights; the error of `p95_us` is `MAX_ERROR`.

    Raises:
        ValueError: `top` is less than 1 or more than `MAX_PATHS`.
    """
    if not 1 <= top <= MAX_PATHS:
        raise ValueError(f"top is {top}: it has to be from 1 to {MAX_PATHS}")
    took = sf.col("ended") - sf.col("began")
    counted = _stitched(hops, nodes, between, _WAY).select(
        _path().alias("path"), bucket_column(took).alias("bucket"), sf.col("weight").alias("n")
    )
    read = with_quantiles(counted, ("path",), p95_us=0.95).withColumnRenamed("n", "traces")
    return with_columns_of(read.orderBy(sf.desc("traces"), "path").limit(top), "paths")


def path_anomalies(
    hops: DataFrame,
    *,
    nodes: DataFrame | None = None,
    between: tuple[datetime, datetime] | None = None,
    known_until: datetime | None = None,
) -> DataFrame:
    """Return the messages with an anomalous path.

    - `loop`: the message visited a worker twice before it was first delivered, or three times in
      all.
    - `black_hole`: the message was forwarded, and no later hop was recorded. It was lost, or went
      to a node without a log, or was in transit when the hops end.
    - `return_asymmetry`: the answer passed through other nodes than the request. Only where neither
      was copied.

    Args:
        hops: The table `hops`.
        nodes: As for `paths`; loops are still detected by the actual workers.
        between: As for `paths`.
        known_until: The time up to which all logs are known. A message with a last hop less than
            `SETTLED` before it is no black hole. By default all are judged.

    Returns:
        The report `path_anomalies`: a row for each trace and kind.
    """
    stitched = _stitched(hops, nodes, between, _WAY_AND_ENDS)
    lost = _is_black_hole()
    if known_until is not None:
        lost = lost & (sf.col("ended") <= sf.unix_micros(sf.lit(known_until - SETTLED)))
    order = stitched.select(
        "trace_id",
        "places",
        "ended",
        _path().alias("path"),
        sf.transform(sf.col("places"), lambda place: place["depth"]).alias("depths"),
        sf.sort_array(_dests(sf.col("places"))).alias("workers"),
        sf.array_min(_depths(Outcome.DELIVER)).alias("there"),
    )
    kinds = sf.array_compact(
        sf.array(
            sf.when(_is_loop(), sf.lit("loop")),
            sf.when(lost, sf.lit("black_hole")),
            sf.when(_is_asymmetric(), sf.lit("return_asymmetry")),
        )
    )
    told = order.select("trace_id", sf.explode(kinds).alias("kind"), "path")
    return with_columns_of(told, "path_anomalies")


def _stitched(
    hops: DataFrame,
    nodes: DataFrame | None,
    between: tuple[datetime, datetime] | None,
    known: tuple[str, ...],
) -> DataFrame:
    """Return a row for each trace: its places in order, its begin, end and weight.

    A place has `depth`, `dest` and the fields in `known`: a worker at a depth, its `outcomes` as a
    set of bits, the hash of the `log` with the hop, and the worker that is `shown`.
    """
    if nodes is not None:
        hops = hops.join(_temporary(nodes), hops["dest_node"] == sf.col("temporary"), "left")
    ended = sf.unix_micros("ts")
    # For each field: its value in a hop, and how the values of several hops are merged.
    said = {
        "outcomes": sf.call_function("shiftleft", sf.lit(1), sf.col("outcome").cast("int")),
        "log": sf.xxhash64("broker"),
        "shown": sf.col("dest_node") if nodes is None else sf.coalesce("stands_for", "dest_node"),
    }
    together = {"outcomes": sf.bit_or, "log": sf.max, "shown": sf.min}
    ends = ("first", "began", "ended", "weight") if between else ("began", "ended", "weight")
    bounds = {"first": sf.min, "began": sf.min, "ended": sf.max, "weight": sf.max}
    places = (
        # Messages to workers have no tag set; a message to a tag query is a request.
        hops.filter((sf.col("kind") == int(Kind.MESSAGE)) & (sf.col("tagset_id") == 0))
        .select(
            "trace_id",
            sf.col("hop").alias("depth"),
            sf.col("dest_node").alias("dest"),
            *(said[name].alias(name) for name in known),
            ended.alias("first"),
            (ended - sf.col("latency_us")).alias("began"),
            ended.alias("ended"),
            "weight",
        )
        # One shuffle for all that follows.
        .repartition("trace_id")
        .groupBy("trace_id", "depth", "dest")
        .agg(
            *(together[name](name).alias(name) for name in known),
            *(bounds[name](name).alias(name) for name in ends),
        )
    )
    by_depth = Window.partitionBy("trace_id").orderBy("depth", "dest")
    stitched = (
        places.withColumn("rank", sf.row_number().over(by_depth))
        .filter(sf.col("rank") <= MAX_PLACES)
        .groupBy("trace_id")
        .agg(
            sf.collect_list(sf.struct("depth", "dest", *known)).alias("places"),
            *(bounds[name](name).alias(name) for name in ends),
        )
        .withColumn("places", sf.sort_array("places"))
    )
    return stitched if between is None else stitched.filter(_began_between(*between))


def _began_between(begin: datetime, end: datetime) -> Column:
    """Whether a message belongs to a day.

    A message that began before belongs to the day before, unless it lasts longer than
    `LOOK_AROUND` into the day: a trace id that is used again and again belongs to each day.
    """

    def at(moment: datetime) -> Column:
        return sf.unix_micros(sf.lit(moment))

    first, last = sf.col("first"), sf.col("ended")
    return (first < at(end)) & ((first >= at(begin)) | (last >= at(begin + LOOK_AROUND)))


def _temporary(nodes: DataFrame) -> DataFrame:
    """Return temporary addresses, each with the first of its node, which represents all."""
    named = nodes.filter(sf.col("name").rlike(TEMPORARY)).select(
        sf.col("node").alias("temporary"),
        sf.regexp_extract("name", TEMPORARY, 1).alias("of"),
        "first_seen",
    )
    first = sf.min(sf.struct("first_seen", "temporary")).over(Window.partitionBy("of"))
    # One row for each, even if several logs have the name.
    return (
        named.groupBy("temporary", "of")
        .agg(sf.min("first_seen").alias("first_seen"))
        .select("temporary", first["temporary"].alias("stands_for"))
    )


def _ends_as(place: Column, outcome: Outcome) -> Column:
    return place["outcomes"].bitwiseAND(1 << outcome) != 0


def _depths(outcome: Outcome) -> Column:
    having = sf.filter(sf.col("places"), lambda place: _ends_as(place, outcome))
    return sf.transform(having, lambda place: place["depth"])


def _dests(places: Column) -> Column:
    return sf.filter(sf.transform(places, lambda place: place["dest"]), lambda dest: dest != 0)


def _path() -> Column:
    with_worker = sf.filter(sf.col("places"), lambda place: place["dest"] != 0)
    return sf.slice(sf.transform(with_worker, lambda place: place["shown"]), 1, MAX_PATH)


def _is_loop() -> Column:
    # Places are distinct: a worker that occurs twice was visited at two depths.
    again = sf.size("workers") != sf.size(sf.array_distinct("workers"))
    return sf.when(again, _goes_round()).otherwise(sf.lit(False))


def _goes_round() -> Column:
    until = sf.coalesce(sf.col("there"), sf.lit(_LAST_DEPTH))
    there = _dests(sf.filter(sf.col("places"), lambda place: place["depth"] <= until))
    twice_there = sf.size(there) != sf.size(sf.array_distinct(there))
    # A run of three in the sorted workers.
    runs = sf.aggregate(
        sf.col("workers"),
        sf.struct(
            sf.lit(0).cast("bigint").alias("dest"),
            sf.lit(0).alias("run"),
            sf.lit(0).alias("longest"),
        ),
        _count_run,
        lambda state: state["longest"],
    )
    return twice_there | (runs >= 3)


def _count_run(state: Column, dest: Column) -> Column:
    run = sf.when(dest == state["dest"], state["run"] + 1).otherwise(1)
    return sf.struct(
        dest.alias("dest"), run.alias("run"), sf.greatest(state["longest"], run).alias("longest")
    )


def _is_black_hole() -> Column:
    onward = sf.filter(_depths(Outcome.FORWARD), lambda depth: depth < _LAST_DEPTH)
    expected = sf.transform(onward, lambda depth: (depth + 1).cast("smallint"))
    unseen = sf.size(sf.array_except(expected, sf.col("depths"))) > 0
    return unseen & (sf.size("places") < MAX_PLACES)


def _is_asymmetric() -> Column:
    there = sf.col("there")
    returns = sf.filter(_depths(Outcome.RETURN), lambda depth: depth > there)
    home = sf.array_min(returns)
    single = sf.size("depths") == sf.size(sf.array_distinct("depths"))
    out = sf.filter(sf.col("places"), lambda place: place["depth"] <= there)
    back = sf.filter(
        sf.col("places"), lambda place: (place["depth"] >= there) & (place["depth"] <= home)
    )
    # The requesting node may have recorded no hop of the request.
    asked = sf.slice(_logs(back), -1, 1)
    differs = _without_repeats(sf.concat(asked, _logs(out))) != sf.reverse(
        _without_repeats(_logs(back))
    )
    return sf.when(home.isNotNull() & single, differs).otherwise(sf.lit(False))


def _logs(places: Column) -> Column:
    return sf.transform(places, lambda place: place["log"])


def _without_repeats(logs: Column) -> Column:
    """Reduce each run of one log to one: a message stays on a node for several hops."""
    empty = sf.array().cast("array<bigint>")
    return sf.aggregate(
        logs,
        empty,
        lambda kept, log: sf.when(sf.get(kept, sf.size(kept) - 1) == log, kept).otherwise(
            sf.concat(kept, sf.array(log))
        ),
    )
