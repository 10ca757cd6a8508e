"""What all tests need: an installation that is as pyproject.toml says."""

from __future__ import annotations

import gc
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.counts import EXHAUSTIVE, FEW_EXAMPLES

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Try few examples of each property, unless everything is to be tried.

    How long an example takes says nothing on a machine that has other things to do.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("exhaustive", patient)
    settings.register_profile("few", patient, max_examples=FEW_EXAMPLES)
    settings.load_profile("exhaustive" if EXHAUSTIVE else "few")


def pytest_collection_finish() -> None:
    """Leave thousands of tests out of every look of the cycle collector."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Return the tests to the cycle collector: extensions in C look at the end for what is left."""
    gc.unfreeze()


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
