"""Make the virtual environment, or bring it up to date: `python tools/environment.py [GROUP ...]`.

Runs under whatever Python the machine has and uses nothing but the standard library. The
Makefile calls it with the dependency groups of pyproject.toml that a target needs; what is
already there is left alone. A lock keeps two calls from writing at the same time, and a
stamp is written only after an installation that succeeded.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BASE = "base"
"""Stamp of the package itself with its run-time dependencies, which every group needs."""


def main(groups: list[str]) -> None:
    """Install the package, then each group, unless pyproject.toml is as it was last time."""
    with _lock(ROOT / ".venv.lock"):
        if not PYTHON.exists():
            _say(f"making {VENV.name} with Python {sys.version.split()[0]}")
            venv.create(VENV, with_pip=True, clear=True)
        if not _is_current(BASE):
            # --group needs pip 25.1; a fresh environment has the pip of its Python.
            _pip("--upgrade", "pip>=25.1")
            # Left by another installation, it would stand before the new metadata on the path of
            # whatever runs in this folder.
            shutil.rmtree(ROOT / "onward.egg-info", ignore_errors=True)
            _pip("--editable", str(ROOT))
            _stamp(BASE)
        for group in groups:
            if not _is_current(group):
                _pip("--group", f"{ROOT / 'pyproject.toml'}:{group}")
                _stamp(group)
            # Make compares times, we compare contents: tell it that all is well.
            _stamp_file(group).touch()
        _stamp_file(BASE).touch()


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pip(*arguments: str) -> None:
    _say("installing " + " ".join(each for each in arguments if not each.startswith("-")))
    command = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    status = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
    if status:
        sys.exit(f"environment: pip failed with status {status}")


def _stamp_file(name: str) -> Path:
    return VENV / f".{name}"


def _is_current(name: str) -> bool:
    file = _stamp_file(name)
    return file.exists() and file.read_text() == _digest()


def _stamp(name: str) -> None:
    _stamp_file(name).write_text(_digest())


def _digest() -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


def _say(text: str) -> None:
    print(f"environment: {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
