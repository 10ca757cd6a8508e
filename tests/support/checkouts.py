"""Copies of what a release is built from, and builds of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools import build_backend

ROOT = Path(__file__).resolve().parents[2]
HOOK = "import sys; sys.path.insert(0, 'tools'); import build_backend as b; b.{hook}(sys.argv[1])"


def copy_checkout(to: Path) -> Path:
    """Copy what archives are made of into a folder, and some files that are no part of them."""
    folders = build_backend.read_config(ROOT)["tool"]["setuptools"]["package-dir"].values()
    to.mkdir(parents=True)
    names = ("pyproject.toml", "README.md", "LICENSE", "SECURITY.md", "MANIFEST.in", "CHANGELOG.md")
    for name in names:
        shutil.copy(ROOT / name, to)
    ignored = shutil.ignore_patterns("*.pyc", "__pycache__", "node_modules", "target")
    for folder in (*folders, "tools", "examples"):
        shutil.copytree(ROOT / folder, to / folder, ignore=ignored, dirs_exist_ok=True)
    return to


def build(checkout: Path, hook: str, **variables: str) -> Path:
    """Call a hook of the build backend as a frontend does, and return the file that it makes."""
    made = checkout.parent / f"{checkout.name}-{hook}"
    made.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    subprocess.run(
        [sys.executable, "-c", HOOK.format(hook=hook), str(made)],
        cwd=checkout,
        env=kept | variables,
        check=True,
        capture_output=True,
    )
    (file,) = made.iterdir()
    return file
