"""One Spark session a worker of the run; a printed reason where it cannot be had.

Workers take tests that stand beside one another, so that mostly one of them has Spark at all.
"""

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
    """Skip the tests with Spark where it cannot be had."""
    reason = reason_to_skip()
    if reason is None:
        return
    for item in items:
        if item.get_closest_marker("spark") is not None:
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
