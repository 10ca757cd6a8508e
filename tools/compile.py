"""Build the compiled wheel and install it beside the checkout: `python -m tools.compile`.

The wheel is built by `tools/build_backend.py`, as by `ONWARD_COMPILE=1 pip wheel .`, with the mypy
and the setuptools of this environment, and put into dist/. Then it is installed twice:

- build/compiled/site has its files. With that on PYTHONPATH, benchmarks of this repository run
  what is compiled.
- build/compiled/venv is a virtual environment in which `onward` is the wheel, and all else is what
  this environment has. Tests run there without a sight of the folders of this repository.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools import build_backend

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "compiled"
SITE: Final = BUILD / "site"
VENV: Final = BUILD / "venv"
DIST: Final = ROOT / "dist"

PROGRAM: Final = "import sys; from tools import build_backend as b; b.build_wheel(sys.argv[1])"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the wheel, install it, and say how to use it."""
    parser = argparse.ArgumentParser(description="Build the compiled wheel and install it.")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="install this one instead")
    given = parser.parse_args(arguments)
    wheel: Path = build_wheel() if given.wheel is None else given.wheel.resolve()
    shutil.rmtree(SITE, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(SITE)
    install(wheel)
    print(f"compile: install it with: pip install {os.path.relpath(wheel, ROOT)}")
    print(f"compile: or try it with:  {VENV.relative_to(ROOT)}/bin/onward --version")


def build_wheel() -> Path:
    """Build the wheel and return where it is."""
    compiler = build_backend.find_compiler()
    if compiler is None:
        sys.exit(f"compile: {build_backend.NO_COMPILER}")
    print(f"compile: with mypyc and {compiler}", flush=True)
    shutil.rmtree(BUILD, ignore_errors=True)
    made = BUILD / "dist"
    made.mkdir(parents=True)
    log = BUILD / "build.log"
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(made)],
            cwd=ROOT,
            env={**os.environ, build_backend.COMPILE: "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        lines = log.read_text().splitlines()
        told = [line for line in lines if "error:" in line]
        print("\n".join((told or lines)[-30:]), file=sys.stderr)
        sys.exit(f"compile: failed; all of the output is in {log.relative_to(ROOT)}")
    (wheel,) = made.glob("*.whl")
    DIST.mkdir(exist_ok=True)
    return Path(shutil.copy(wheel, DIST))


def install(wheel: Path) -> None:
    """Make a virtual environment with the wheel and with the packages of this one."""
    venv.create(VENV, with_pip=False, clear=True)
    python = VENV / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout
    # A line of a .pth file adds a folder without the .pth files in it, so without the one that
    # makes this environment find Onward in the folders of the repository.
    packages = Path(site.strip()) / "packages_of_the_checkout.pth"
    packages.write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["-qq", "--no-deps", "--no-index", "--force-reinstall", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, str(wheel)], check=True)


if __name__ == "__main__":
    main()
