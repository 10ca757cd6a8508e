"""The time zone of a session while a job runs: UTC."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .._errors import PipelineError

__all__ = ["NotUtc", "in_utc"]

_ZONE: Final = "spark.sql.session.timeZone"


class NotUtc(PipelineError):
    """A time zone of the session that cannot be changed; times as text could be of another day."""

    def __init__(self, zone: str) -> None:
        super().__init__(
            f"the session's time zone is {zone} and cannot be changed: set {_ZONE}=UTC where the "
            "session is made"
        )
        self.zone = zone


@contextmanager
def in_utc(spark: SparkSession) -> Generator[None]:
    """Set a session's time zone to UTC, and restore it at the end.

    Raises:
        NotUtc: The time zone cannot be set.
    """
    before = str(spark.conf.get(_ZONE))
    if before == "UTC":
        yield
        return
    try:
        spark.conf.set(_ZONE, "UTC")
    except PySparkException:
        raise NotUtc(before) from None
    if spark.conf.get(_ZONE) != "UTC":
        raise NotUtc(before)
    try:
        yield
    finally:
        spark.conf.set(_ZONE, before)
