"""Sessions: the one place where Spark is set up, and only where nobody else has."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from ._java import find_java
from .source import register

__all__ = ["CONF", "LOCAL", "TEST", "build_session"]

CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # A tag index is made in half the time of the default 10,000.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
)
"""What holds wherever the pipeline runs. What `spark-submit` or the cluster has set stays, but for
the time zone: days and hours are those of UTC, whatever others are used to."""

_TIME_ZONE: Final = "spark.sql.session.timeZone"

LOCAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        # Counting is looking up keys in tables of hundreds of megabytes: large pages and a
        # collector that asks less of each write take a tenth less core time.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:+UseTransparentHugePages",
        # These sums find out a stage that was made twice and differed. On one machine what a stage
        # has made is not lost, so none is.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
)
"""What is added where the pipeline starts Spark itself, on this machine."""

TEST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
)
"""What is added for tests of small data: it starts in two thirds of the time."""


def build_session(
    application: str, conf: Mapping[str, str] | None = None, *, remote: str | None = None
) -> SparkSession:
    """Return the session there is, or start one; it knows the format `onward`.

    Under `spark-submit` the master and everything it was given stay as they are. Otherwise Spark
    runs on this machine, on all its cores, or on `SPARK_MASTER` or `conf`'s `spark.master`.

    Args:
        application: The name that Spark shows.
        conf: Settings that take the place of ours, but not of the time zone, which is UTC.
        remote: Where a Spark Connect server is: `sc://host:port`. It needs no Java here.

    Raises:
        JavaMissing: There is no Java that Spark could run on.
    """
    given = dict(conf or {})
    if remote is not None:
        return _remote(application, remote, {**CONF, **given})
    find_java()
    kept = SparkConf()
    builder = SparkSession.builder.appName(application)
    ours = {**CONF, **given}
    if not kept.contains("spark.master"):
        ours = {**CONF, **LOCAL, **given}
        ours.setdefault("spark.master", os.environ.get("SPARK_MASTER", "local[*]"))
        # Workers would take the first python3 on the path, which need not have our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    for key, value in ours.items():
        if not kept.contains(key):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.conf.set(_TIME_ZONE, CONF[_TIME_ZONE])
    register(session)
    return session


def _remote(application: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    session = SparkSession.builder.appName(application).remote(remote).getOrCreate()
    for key, value in conf.items():
        if key.startswith("spark.sql.") and session.conf.isModifiable(key):
            session.conf.set(key, value)
    session.conf.set(_TIME_ZONE, CONF[_TIME_ZONE])
    register(session)
    return session
