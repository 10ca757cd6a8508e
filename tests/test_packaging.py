"""The folders, pyproject.toml and what gets installed say the same thing."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import onward

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("actors", "cli", "pipeline", "protocol", "transports")
ROOT_PACKAGE = {"onward": "package"}
PLUGINS = {"pyspark_onward": "pipeline/pyspark_onward"}
"""Packages that others find by a name that is not below ours, and where they are."""


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_pyproject_lists_every_package(config: dict[str, Any]) -> None:
    found = {
        "onward." + ".".join(init.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
        if str(init.parent.relative_to(ROOT)) not in PLUGINS.values()
    }
    assert set(config["tool"]["setuptools"]["packages"]) == found | {"onward"} | set(PLUGINS)
    mapping = config["tool"]["setuptools"]["package-dir"]
    folders = {f"onward.{folder}": folder for folder in FOLDERS}
    assert mapping == ROOT_PACKAGE | folders | PLUGINS
    # The compiled build copies the folders in this order, each into the one before it.
    assert next(iter(mapping)) == "onward"


def test_every_module_belongs_to_a_package() -> None:
    strays = [
        str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if not (file.parent / "__init__.py").exists()
    ]
    assert strays == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_type_checkers_find_the_folder(folder: str) -> None:
    link = ROOT / ".types" / "onward" / folder
    assert link.resolve() == ROOT / folder
    assert (ROOT / folder / "py.typed").exists()


def test_type_checkers_find_the_package_of_all_folders() -> None:
    for name in ("__init__.py", "py.typed"):
        assert (ROOT / ".types" / "onward" / name).resolve() == ROOT / "package" / name


def test_installed_version_is_that_of_the_package() -> None:
    assert importlib.metadata.version("onward") == onward.__version__


def test_the_package_of_all_folders_imports_none_of_them() -> None:
    program = "import sys, onward; print([each for each in sys.modules if 'onward.' in each])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("group", ["console_scripts", "onward.transports", "onward.address_types"])
def test_entry_points_resolve(config: dict[str, Any], group: str) -> None:
    project = config["project"]
    declared = project["scripts"] if group == "console_scripts" else project["entry-points"][group]
    installed = {
        each.name: each
        for each in importlib.metadata.entry_points(group=group)
        if each.value.startswith("onward.")
    }
    assert {name: each.value for name, each in installed.items()} == declared
    for each in installed.values():
        assert callable(each.load())


def test_dependencies_have_bounds_that_pip_reads(config: dict[str, Any]) -> None:
    for requirement in config["project"]["dependencies"]:
        assert re.match(r"[a-z0-9_-]+>=\d", requirement), requirement
