"""Argument types of `onward pipeline`. This module does not need Spark."""

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
    *("traffic", "latency", "shards", "churn", "unroutable", "slo", "paths", "names"),
    "relays",
    "audit",
)
"""The names of the reports; a test compares them with those of `pipeline.jobs`."""


MAX_OBJECTIVES: Final = 64
"""Most objectives of one report."""

MAX_SEGMENTS: Final = 512
"""Default of the segments in one batch of an ingest. A test compares these two with those of
`pipeline`, which is imported when a command runs."""


@dataclass(frozen=True, slots=True)
class ObjectiveArgument:
    """An objective from the command line.

    Attributes:
        name: Its name.
        service: The service; `None` for all.
        latency_us: The longest latency, in microseconds; `None` for any.
        target: The share, more than 0 and less than 1.
    """

    name: str
    service: str | None
    latency_us: int | None
    target: float


def day(text: str) -> date:
    """Return a day.

    Raises:
        ArgumentTypeError: It is not one.
    """
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError("a day is YYYY-MM-DD, UTC")
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day: {error}") from None


def moment(text: str) -> datetime:
    """Return a time, UTC by default: a day, which stands for its beginning, or date and time.

    Raises:
        ArgumentTypeError: It is not one.
    """
    try:
        if len(text) == len("2026-11-20"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: {error}; as in 2026-11-20 or 2026-11-20T08:30Z"
        ) from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def reports(text: str) -> list[str]:
    """Return names of reports, given with commas between them.

    Raises:
        ArgumentTypeError: There is no such report.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in REPORTS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'!r} is not a report: there are {', '.join(REPORTS)}"
        )
    return names


def objective(text: str) -> ObjectiveArgument:
    """Return the objective NAME:SERVICE:MS:TARGET; `*` stands for all services, `-` for any time.

    Raises:
        ArgumentTypeError: It is not one.
    """
    try:
        name, service, limit, share = text.rsplit(":", 3)
        latency = None if limit in {"", "-"} else round(float(limit) * 1000)
        target = float(share[:-1]) / 100 if share.endswith("%") else float(share)
    except (ValueError, OverflowError):  # infinity is no number of microseconds
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
    """Return a number, 0 or more.

    Raises:
        ArgumentTypeError: It is not one.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def ratio(text: str) -> float:
    """Return a part from 0 to 1.

    Raises:
        ArgumentTypeError: It is not one.
    """
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part from 0 to 1")
    return value


def skew(text: str) -> float:
    """Return a skew: the busiest over the mean, so 1 or more.

    Raises:
        ArgumentTypeError: It is not one.
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
    """Return the key and the value of a setting of Spark.

    Raises:
        ArgumentTypeError: It is not KEY=VALUE.
    """
    key, mark, value = text.partition("=")
    if not (mark and key.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not spark.KEY=VALUE")
    return key, value


def memory(text: str) -> str:
    """Return a size of memory in Java's notation.

    Raises:
        ArgumentTypeError: It is not one.
    """
    if not re.fullmatch(r"[1-9]\d*[kmgtKMGT]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size as in 512m or 4g")
    return text.lower()


def remote(text: str) -> str:
    """Return the URI of a Spark Connect server.

    Raises:
        ArgumentTypeError: It is not one.
    """
    if not re.fullmatch(r"sc://[^/\s]+(/.*)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not sc://HOST:PORT")
    return text
