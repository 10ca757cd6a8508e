"""The session the pipeline runs in, and the Java it needs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from onward.pipeline import (
    EVENT_TABLES,
    LAKE_TABLES,
    PARTITIONS,
    REPORT_TABLES,
    TEST,
    JavaMissing,
    _session,
    build_session,
    find_java,
)
from tests.support.fixtures import Patch


def java_that_prints(folder: Path, line: str, status: int = 0) -> Path:
    """Make a home with a `bin/java` that prints a line as its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\nexit {status}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.mark.parametrize(
    "line", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19']
)
def test_a_java_that_is_new_enough_is_found(line: str, tmp_path: Path, monkeypatch: Patch) -> None:
    java = java_that_prints(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert find_java() == java


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ('java version "1.8.0_402"', 0, "is Java 8"),
        ('openjdk version "11.0.2"', 0, "is Java 11"),
        ("no version at all", 0, "does not say its version"),
        ('openjdk version "17"', 1, "does not start"),
    ],
)
def test_a_java_that_will_not_do_is_told_with_what_to_do(
    line: str, status: int, said: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    java_that_prints(tmp_path, line, status)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissing, match=said) as raised:
        find_java()
    assert "Java 17 or newer" in str(raised.value)
    assert "apt-get install" in str(raised.value)


def test_a_home_without_java_is_told(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="no bin/java"):
        find_java()


def test_no_java_at_all_is_told(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="no java was found"):
        find_java()


@pytest.mark.spark
def test_the_session_keeps_utc_whatever_is_set(spark: SparkSession, monkeypatch: Patch) -> None:
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "Asia/Kolkata")
    # What spark-submit finds in spark-defaults.conf comes as properties of the process.
    monkeypatch.setattr(SparkConf, "contains", lambda _, key: key in {zone, "spark.master"})
    session = build_session("onward-tests", {**TEST, zone: "Asia/Kolkata"})
    assert session.conf.get(zone) == "UTC"


def test_a_remote_session_keeps_utc_whatever_is_set(monkeypatch: Patch) -> None:
    conf: dict[str, str] = {}

    class Conf:
        set = conf.__setitem__

        @staticmethod
        def isModifiable(key: str) -> bool:  # noqa: N802 - Spark's name
            return key != "spark.sql.warehouse.dir"

    class Builder:
        def __getattr__(self, _: str) -> object:
            return lambda *_: self

        conf = Conf()

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(_session, "register", lambda _: None)
    monkeypatch.setattr(Builder, "getOrCreate", lambda self: self, raising=False)

    given = {"spark.sql.session.timeZone": "Asia/Kolkata", "spark.sql.warehouse.dir": "x"}
    build_session("onward-tests", given, remote="sc://nowhere:1")

    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert "spark.sql.warehouse.dir" not in conf


@pytest.mark.spark
def test_the_session_thinks_in_utc_and_every_table_can_be_made(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    for tables in (EVENT_TABLES, LAKE_TABLES, REPORT_TABLES):
        for name, ddl in tables.items():
            made = spark.createDataFrame([], ddl)
            assert not set(made.columns) & set(PARTITIONS.get(name, ())), name
