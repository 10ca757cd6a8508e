"""Rows of the lake, by hand: what a test does not say is nothing, or the first of its kind."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import LAKE_TABLES
from onward.protocol.eventlog import Kind, Outcome
from tests.support.traffic import SECOND, START, Row, time_of

BROKER, NODE = "b", "n"
TAGSET = 7


def flow(
    outcome: Outcome,
    at: float = 0,
    frames: int = 1,
    *,
    log: str = BROKER,
    kind: Kind = Kind.RESPONSE,
    dest: int = 0,
    tagset: int = TAGSET,
    epoch: int = 1,
    origin: int = 1,
    route: int = 0,
) -> Row:
    """Return a flow of a window that begins so many seconds after the start."""
    window = time_of(START + int(at * SECOND))
    ids = (origin, dest, route, tagset)
    return (log, epoch, 1, window, 10_000, *ids, int(kind), int(outcome), frames, 0)


def hop(
    trace: int,
    depth: int,
    dest: int,
    outcome: Outcome,
    *,
    log: str = NODE,
    kind: Kind = Kind.MESSAGE,
    tagset: int = 0,
    latency: int = 0,
    key: int = 0,
    weight: int = 1,
    at: float = 0,
) -> Row:
    """Return a hop of a message, or of a request."""
    when = time_of(START + int(at * SECOND))
    what = (int(kind), int(outcome), depth, 0)
    return (log, 1, 1, when, trace, *what, 1, dest, 0, tagset, key, latency, 0, weight)


def frame(spark: SparkSession, table: str, rows: list[Row]) -> DataFrame:
    """Return rows as a table of the lake."""
    return spark.createDataFrame(rows, LAKE_TABLES[table])
