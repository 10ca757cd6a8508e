"""One Spark session for all tests that need one; a printed reason where it cannot be had."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from onward.pipeline import JavaMissing, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reason_to_skip() -> str | None:
    """Why Spark cannot be started here; `None` if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install '.[spark]'"
    try:
        find_java()
    except JavaMissing as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests with Spark first, or skip them where it cannot be had.

    One worker begins with all of them and has the one virtual machine; the others take from it
    what comes behind.
    """
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    reason = reason_to_skip()
    for item in items:
        if reason is not None and item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine, set up to start fast rather than to run fast."""
    from onward.pipeline import TEST, build_session

    # Spark kills its Python workers before they can save what was measured: it takes time, and
    # nothing comes of it.
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("COVERAGE_PROCESS"):
                patch.delenv(name)
        session = build_session("onward-tests", TEST)
    yield session
    session.stop()
