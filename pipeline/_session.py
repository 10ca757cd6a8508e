"""The set-up of a Spark session; settings of `spark-submit` or the cluster stay."""

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
        # A tag index takes half as long to build as with the default, 10,000.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
)
"""Settings of every session. Those of `spark-submit` or the cluster take precedence, except for
the time zone: days and hours are UTC."""

_TIME_ZONE: Final = "spark.sql.session.timeZone"

LOCAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        # Counts look keys up in tables of hundreds of megabytes: large pages, and a collector
        # with cheaper writes, save a tenth of the core time.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:+UseTransparentHugePages",
        # These checksums detect a stage that was repeated with another result. On one machine no
        # output of a stage is lost, so none is repeated.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
)
"""Additional settings where the pipeline starts Spark itself, on this machine."""

TEST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        # Compiling an expression takes longer than interpreting it for a few rows. With this
        # compiler alone the cache of machine code is small and would be swept all the time.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        ),
    }
)
"""Additional settings for tests with small data: Spark starts and plans in half of the time."""


def build_session(
    application: str, conf: Mapping[str, str] | None = None, *, remote: str | None = None
) -> SparkSession:
    """Return the active session, or start one; the format `onward` is registered with it.

    Under `spark-submit` the master and the given settings stay as they are. Otherwise Spark runs
    on all cores of this machine, or on `SPARK_MASTER` or `conf`'s `spark.master`.

    Args:
        application: The name that Spark shows.
        conf: Settings that replace those of `CONF` and `LOCAL`, except for the time zone.
        remote: The address of a Spark Connect server: `sc://host:port`. It needs no Java here.

    Raises:
        JavaMissing: Java is missing or too old.
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
        # Workers default to the first python3 on the path, which may lack these packages.
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
