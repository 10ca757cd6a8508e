"""What all tests need: an installation that is as pyproject.toml says."""

from __future__ import annotations

import gc
import os
import tomllib
from collections.abc import Generator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import counts
from tests.support.counts import EXHAUSTIVE, FEW_EXAMPLES, TRIES, is_chosen

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Try few examples of each property, unless everything is to be tried; keep new files private.

    How long an example takes says nothing on a machine that has other things to do. The few are the
    same in each run, so that a test that passes, and a line that is covered, do so again.
    """
    # A fifth of the time of a collection goes into looks at tests that are all kept.
    gc.disable()
    # Files of credentials have to be the user's own.
    os.umask(0o077)
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("exhaustive", patient)
    settings.register_profile("few", patient, max_examples=FEW_EXAMPLES, derandomize=True)
    settings.load_profile("exhaustive" if EXHAUSTIVE else "few")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Import no module for the run of tests with a count that has none of them."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if TRIES != "counted" or not is_module:
        return None
    source = collection_path.read_text()
    return None if "hypothesis" in source or counts.__name__ in source else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another run has: see `tests/support/counts.py`."""
    others = [each for each in items if not is_chosen(each)]
    if others:
        left_out = frozenset(others)
        items[:] = [each for each in items if each not in left_out]
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish() -> None:
    """Leave thousands of tests out of every look of the cycle collector."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Return the tests to the cycle collector: extensions in C look at the end for what is left."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Start processes that do not measure either, for a test with `no_cover`.

    A process with coverage takes half a second more to start, and longer for all that it does.
    """
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("no_cover"):
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write half surrogate pairs in a report as escapes: names of files on Unix may have them.

    A report that has one cannot be sent from a worker of a parallel run, which ends the run.
    """
    report = yield
    report.sections = [(title, _printable(text)) for title, text in report.sections]
    if report.longrepr is not None and not report.skipped:
        text = str(report.longrepr)
        if _printable(text) != text:
            report.longrepr = _printable(text)
    return report


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def pytest_sessionstart() -> None:
    """Stop where entry points are out of date: tests would fail without saying why."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, wanted in declared.items():
        installed = {each.name: each.value for each in entry_points(group=group)}
        if any(installed.get(name) != value for name, value in wanted.items()):
            pytest.exit(
                f"the installed entry points {group} are not those of pyproject.toml; install "
                "again: rm -rf onward.egg-info; .venv/bin/python -m pip install --no-deps "
                "--no-build-isolation --editable .",
                returncode=4,
            )
