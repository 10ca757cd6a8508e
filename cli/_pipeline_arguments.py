"""Types of arguments of `onward pipeline`. Nothing here needs Spark."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Final

__all__ = [
    "MAX_OBJECTIVES",
    "MAX_SEGMENTS",
    "ObjectiveArgument",
    "count",
    "day",
    "memory",
    "moment",
    "objective",
    "ratio",
    "remote",
    "reports",
    "setting",
    "skew",
]

REPORTS: Final = (
    *("traffic", "latency", "shards", "churn", "unroutable", "slo", "paths", "audit"),
)
"""The reports; a test holds them to those of `pipeline.jobs`."""


MAX_OBJECTIVES: Final = 64
"""Objectives of one report."""

MAX_SEGMENTS: Final = 512
"""Segments in one batch of an ingest, if nothing else is said. A test holds these two to those of
`pipeline`, which is imported when a command runs."""


@dataclass(frozen=True, slots=True)
class ObjectiveArgument:
    """An objective as it was given.

    Attributes:
        name: Its name.
        service: The service; `None` for all.
        latency_us: Within how many microseconds; `None` for any time.
        target: The share, more than 0 and less than 1.
    """

    name: str
    service: str | None
    latency_us: int | None
    target: float


def day(text: str) -> date:
    """Read a day.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError("a day is YYYY-MM-DD, UTC")
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no day: {error}") from None


def moment(text: str) -> datetime:
    """Read a time, UTC unless it says so: a day, which stands for its beginning, or date and time.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        if len(text) == len("2026-11-20"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: {error}; as in 2026-11-20 or 2026-11-20T08:30Z"
        ) from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def reports(text: str) -> list[str]:
    """Read names of reports with commas between.

    Raises:
        ArgumentTypeError: There is no such report.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in REPORTS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'!r} is no report: there are {', '.join(REPORTS)}"
        )
    return names


def objective(text: str) -> ObjectiveArgument:
    """Read NAME:SERVICE:MS:TARGET; `*` stands for all services, and `-` for any time.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        name, service, limit, share = text.rsplit(":", 3)
        latency = None if limit in {"", "-"} else round(float(limit) * 1000)
        target = float(share[:-1]) / 100 if share.endswith("%") else float(share)
    except (ValueError, OverflowError):  # of infinity there is no number of microseconds
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME:SERVICE:MS:TARGET, as in checkout:orders:250:0.999"
        ) from None
    if not (name and service):
        raise argparse.ArgumentTypeError(f"{text!r} has no name or no service; * is all services")
    if not 0 < target < 1:
        raise argparse.ArgumentTypeError(f"the target of {text!r} is not between 0 and 1")
    if latency is not None and not 0 < latency < 2**32:
        raise argparse.ArgumentTypeError(f"the time of {text!r} is not from 0.001 to 4294967 ms")
    return ObjectiveArgument(name, None if service == "*" else service, latency, target)


def count(text: str) -> int:
    """Read a number, 0 or more.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def ratio(text: str) -> float:
    """Read a part from 0 to 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part from 0 to 1")
    return value


def skew(text: str) -> float:
    """Read a skew: the busiest over the mean, so 1 or more.

    Raises:
        ArgumentTypeError: It is none.
    """
    value = _number(text)
    if not value >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def setting(text: str) -> tuple[str, str]:
    """Read KEY=VALUE of Spark's.

    Raises:
        ArgumentTypeError: It is none.
    """
    key, mark, value = text.partition("=")
    if not (mark and key.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not spark.KEY=VALUE")
    return key, value


def memory(text: str) -> str:
    """Read a size of memory as Java writes it.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not re.fullmatch(r"[1-9]\d*[kmgtKMGT]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size as in 512m or 4g")
    return text.lower()


def remote(text: str) -> str:
    """Read where a Spark Connect server is.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not re.fullmatch(r"sc://[^/\s]+(/.*)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not sc://HOST:PORT")
    return text
