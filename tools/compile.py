"""Build the compiled wheel: `python tools/compile.py`.

The modules that `[tool.onward.compile]` of pyproject.toml names are compiled by mypyc; all others
are as they are in the wheel of pure Python. One source makes both: what mypyc compiles is
Python, and the .py files lie beside the compiled ones.

The folders are copied to build/compiled/tree, under a real `onward`, and the wheel is built there
and put into dist/. It is also unpacked to build/compiled/site: with that on PYTHONPATH, tests and
benchmarks of this repository run what is compiled.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "compiled"
TREE = BUILD / "tree"
SITE = BUILD / "site"
DIST = ROOT / "dist"

SETUP = """\
import sys

from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify(
    ["--config-file=mypy.ini", {modules}],
    opt_level="3",
    debug_level="1",
    strip_asserts=False,
    group_name="onward",
)
if sys.platform != "win32":
    # All is one library. Its functions are visible in it alone, so that the compiler may inline
    # them, and call them directly: a request through the broker takes 7 % less CPU.
    for extension in extensions:
        extension.extra_compile_args.append("-fvisibility=hidden")
setup(ext_modules=extensions)
"""
MYPY = """\
[mypy]
strict = true
explicit_package_bases = true
namespace_packages = true
mypy_path = $MYPY_CONFIG_FILE_DIR

[mypy-rsocket.*]
ignore_missing_imports = true
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the wheel, unpack it, and say how to use it."""
    argparse.ArgumentParser(description="Build the compiled wheel.").parse_args(arguments)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    compiler = find_compiler()
    if compiler is None:
        sys.exit(
            "compile: there is no C compiler. Install one (Debian: gcc and python3-dev; macOS: "
            "xcode-select --install), or name it in CC. Onward needs none: it runs as pure Python."
        )
    modules: list[str] = config["tool"]["onward"]["compile"]["modules"]
    print(f"compile: {len(modules)} modules with mypyc and {compiler}", flush=True)
    stage(config["tool"]["setuptools"]["package-dir"], modules)
    wheel = build_wheel()
    unpack(wheel)
    print(f"compile: install it with: pip install {wheel.relative_to(ROOT)}")
    print(f"compile: or try it with:  PYTHONPATH={SITE.relative_to(ROOT)} onward --version")


def find_compiler() -> str | None:
    """Return the C compiler that setuptools will use, if it is on the machine."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = str(named).split()[0]
    return shutil.which(command) or (command if sys.platform == "win32" else None)


def stage(packages: Mapping[str, str], modules: list[str]) -> None:
    """Copy what the wheel is made of; in the copy the folders are where they import from.

    Args:
        packages: The folder of each package that is not below another, by its name.
        modules: What is compiled.
    """
    shutil.rmtree(BUILD, ignore_errors=True)
    for package, folder in packages.items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, TREE / package.replace(".", "/"), ignore=ignored)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, TREE)
    text = (ROOT / "pyproject.toml").read_text()
    text = re.sub(r"^\[tool\.setuptools\.package-dir\]\n(.+\n)+", "", text, flags=re.MULTILINE)
    (TREE / "pyproject.toml").write_text(text)
    files = ", ".join(repr(name.replace(".", "/") + ".py") for name in modules)
    (TREE / "setup.py").write_text(SETUP.format(modules=files))
    (TREE / "mypy.ini").write_text(MYPY)


def build_wheel() -> Path:
    """Build the wheel in the copy and return where it is."""
    made = BUILD / "dist"
    made.mkdir()
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    log = BUILD / "build.log"
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-c", program, str(made)],
            cwd=TREE,
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


def unpack(wheel: Path) -> None:
    """Unpack the wheel for use by PYTHONPATH."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(SITE)


if __name__ == "__main__":
    main()
