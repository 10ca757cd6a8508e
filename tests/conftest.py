"""What all tests need: an installation that is as pyproject.toml says."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
