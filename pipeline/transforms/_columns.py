"""Columns shared by the transforms: codes of the log, times, and the columns of a report."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, functions as sf

from ...protocol.eventlog import PEER_BROKER, Kind, Outcome, name_id
from .._schema import REPORT_TABLES

__all__ = [
    "FAILED",
    "hour_of",
    "is_asked",
    "is_leg",
    "is_name",
    "is_outcome",
    "is_relay",
    "minute_of",
    "start_of",
    "start_us",
    "total_where",
    "with_columns_of",
]

FAILED: Final = (
    Outcome.UNROUTABLE,
    Outcome.REJECTED,
    Outcome.INVALID,
    Outcome.DROP,
    Outcome.FAILED,
)
"""Outcomes that are failures. A request that its requester cancels is none."""

_NAMES: Final = Kind.NAME, Kind.NAME_LEG, Kind.NAME_AGAIN, Kind.NAME_COPY


def is_asked() -> Column:
    """Whether a row is of a request to a broker, or of a message to a tag query.

    Messages to workers are of kind `MESSAGE`, too, but have no tag set.
    """
    request = sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH))
    return request | ((sf.col("kind") == int(Kind.MESSAGE)) & (sf.col("tagset_id") != 0))


def is_leg() -> Column:
    """Whether a row is of requests that another broker of a cluster has forwarded to this one.

    That one counts them as requests, so over all brokers each is counted once.
    """
    asked = sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH))
    return asked & (sf.col("origin_node") == name_id(PEER_BROKER))


def is_name(*kinds: Kind) -> Column:
    """Whether a row is of messages to names: of these kinds, or of any of a dispatcher."""
    return sf.col("kind").isin(*map(int, kinds or _NAMES))


def is_relay() -> Column:
    """Whether a row is of messages that a relay of identities passes on."""
    return sf.col("kind") == int(Kind.RELAY)


def is_outcome(*outcomes: Outcome) -> Column:
    """Whether a row has one of these outcomes."""
    if len(outcomes) == 1:
        return sf.col("outcome") == int(outcomes[0])
    return sf.col("outcome").isin(*map(int, outcomes))


def total_where(condition: Column, column: str) -> Column:
    """Return the sum of a column over the rows of a group with a condition; 0 if none."""
    return sf.sum(sf.when(condition, sf.col(column)).otherwise(0))


def start_of(column: str, seconds: int) -> Column:
    """Return the start of the interval of so many seconds that a time is in, in UTC.

    `date_trunc` uses the session's time zone, which may have half hours.
    """
    return sf.timestamp_micros(start_us(column, seconds))


def start_us(column: str, seconds: int) -> Column:
    """Return `start_of` in microseconds, for use as a part of a key."""
    micros = sf.unix_micros(column)
    return micros - sf.pmod(micros, sf.lit(seconds * 1_000_000))


def minute_of(column: str) -> Column:
    """Return the start of the minute that a time is in."""
    return start_of(column, 60)


def hour_of(column: str) -> Column:
    """Return the start of the hour, UTC, that a time is in."""
    return start_of(column, 3600)


def with_columns_of(frame: DataFrame, report: str) -> DataFrame:
    """Select the declared columns of a report, in their order and types."""
    # No type of a report has a comma and a space in it.
    declared = (column.split(" ", 1) for column in REPORT_TABLES[report].split(", "))
    return frame.select(*(sf.col(name).cast(kind).alias(name) for name, kind in declared))
