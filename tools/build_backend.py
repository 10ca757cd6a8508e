"""The build backend that pyproject.toml names: setuptools, mypyc if wanted, archives in one form.

`pip`, `build` and cibuildwheel call the hooks of PEP 517 below. Without further words they make a
wheel of pure Python, which needs no compiler. These variables of the environment decide what
is built:

- `ONWARD_COMPILE=1`: the modules that `[tool.onward.compile]` of pyproject.toml names are compiled
  by mypyc; all others are as in the wheel of pure Python. One source makes both: what mypyc
  compiles is Python, and the .py files lie beside the compiled ones.
- `ONWARD_SBOM=FILE`: the file becomes part of the wheel's metadata, as `sboms/onward.cdx.json`
  (PEP 770).
- `SOURCE_DATE_EPOCH=SECONDS`: the time of all members of an archive; 1980 without it.

The folders are copied to build/wheel/tree, under a real `onward`, and the wheel is built there: so
mypyc sees the names that are imported, and nothing is left of an earlier build. The archives that
setuptools makes are then written anew, with sorted members, one time and one owner. Two builds of
one commit with the same tools are equal byte by byte, wherever and whenever they are made.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

COMPILE: Final = "ONWARD_COMPILE"
SBOM: Final = "ONWARD_SBOM"
SBOM_NAME: Final = "onward.cdx.json"

HERE: Final = Path()
"""The folder of the checkout: a frontend runs the hooks in the folder of pyproject.toml."""

STAGE: Final = Path("build") / "wheel"
"""Where a wheel is built, in that folder."""

FIRST_TIME: Final = 315_532_800
"""1980-01-01: no member of a zip archive is older."""

NEEDED: Final = ("README.md", "LICENSE")

NO_COMPILER: Final = (
    "there is no C compiler. Install one (Debian: gcc and python3-dev; macOS: xcode-select "
    "--install), or name it in CC. Onward needs none: it runs as pure Python."
)

BUILD: Final = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"

SETUP: Final = """\
import pathlib
import sys

from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify(
    ["--config-file=mypy.ini", {modules}],
    opt_level="3",
    debug_level="0",
    strip_asserts=False,
    group_name="onward",
)
if sys.platform != "win32":
    # All is one library. Its functions are visible in it alone, so that the compiler may inline
    # them, and call them directly: a request through the broker takes 7 % less CPU. And no path
    # of this machine gets into it.
    here = pathlib.Path.cwd()
    flags = ["-fvisibility=hidden", f"-ffile-prefix-map={{here}}=."]
    for extension in extensions:
        # Mypyc gives all of them one list.
        extension.extra_compile_args = [*extension.extra_compile_args, *flags]
setup(ext_modules=extensions)
"""

# What is not compiled is checked elsewhere, and may import what an extra brings.
MYPY: Final = """\
[mypy]
strict = true
follow_imports = silent
explicit_package_bases = true
namespace_packages = true
mypy_path = $MYPY_CONFIG_FILE_DIR

[mypy-rsocket.*]
ignore_missing_imports = true
"""

# Of these hooks those of setuptools do.
build_editable = build_meta.build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what building a wheel needs: with mypyc, what it reads the types of as well."""
    needs: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if not compiles():
        return needs
    config = read_config()
    mypy = [each for each in config["dependency-groups"]["check"] if str(each).startswith("mypy")]
    return [*needs, *mypy, *config["project"]["dependencies"]]


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build the source distribution; return its name."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    rewrite_sdist(Path(sdist_directory, name), source_time())
    return name


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; return its name."""
    compiled = compiles()
    if compiled and find_compiler() is None:
        raise SystemExit(f"onward: {NO_COMPILER}")
    sbom = read_sbom()
    config = read_config()
    tree = stage(config["tool"]["setuptools"]["package-dir"])
    if compiled:
        stage_setup(tree, config["tool"]["onward"]["compile"]["modules"])
    with tempfile.TemporaryDirectory() as made:
        # Mypyc is the same for the same source if sets have one order.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-c", BUILD, made]
        subprocess.run(command, cwd=tree, env=environment, check=True)
        (wheel,) = Path(made).glob("*.whl")
        rewrite_wheel(wheel, Path(wheel_directory, wheel.name), source_time(), sbom)
    return wheel.name


def compiles() -> bool:
    """Whether the wheel to build is the compiled one."""
    value = os.environ.get(COMPILE, "0")
    if value not in {"0", "1"}:
        raise SystemExit(f"onward: {COMPILE} must be 0 or 1, not {value!r}")
    return value == "1"


def find_compiler() -> str | None:
    """Return the C compiler that setuptools will use, if it is on the machine."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = str(named).split()[0]
    return shutil.which(command) or (command if sys.platform == "win32" else None)


def source_time() -> int:
    """Return the time that all members of an archive get, in seconds since 1970."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", FIRST_TIME)), FIRST_TIME)


def read_config(root: Path = HERE) -> dict[str, Any]:
    """Return pyproject.toml of a checkout."""
    return tomllib.loads((root / "pyproject.toml").read_text())


def read_version(root: Path = HERE) -> str:
    """Return the version: there is one place for it, `package/__init__.py`."""
    text = (root / "package" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def read_sbom() -> bytes | None:
    """Return the bill of materials that the wheel is to have, if there is one."""
    named = os.environ.get(SBOM)
    return Path(named).read_bytes() if named else None


def stage(packages: Mapping[str, str]) -> Path:
    """Copy what the wheel is made of, each folder to where it is imported from.

    Args:
        packages: The folder of each package that is not below another, by its name, a package
            before those below it.

    Returns:
        The folder with the copy.
    """
    shutil.rmtree(STAGE, ignore_errors=True)
    tree = STAGE / "tree"
    for package, folder in packages.items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, tree / package.replace(".", "/"), ignore=ignored)
    for name in NEEDED:
        shutil.copy(name, tree)
    text = (HERE / "pyproject.toml").read_text()
    text = re.sub(r"^\[tool\.setuptools\.package-dir\]\n(.+\n)+", "", text, flags=re.MULTILINE)
    (tree / "pyproject.toml").write_text(text)
    return tree


def stage_setup(tree: Path, modules: list[str]) -> None:
    """Add to the copy what compiles these modules."""
    files = ", ".join(repr(name.replace(".", "/") + ".py") for name in modules)
    (tree / "setup.py").write_text(SETUP.format(modules=files))
    (tree / "mypy.ini").write_text(MYPY)


def rewrite_wheel(wheel: Path, to: Path, at: int, sbom: bytes | None = None) -> None:
    """Write a wheel anew: sorted, with one time, and with the bill of materials.

    Args:
        wheel: The wheel that setuptools has built.
        to: The file to write.
        at: The time of all members, in seconds since 1970.
        sbom: The bill of materials, if the wheel is to have one.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {each: archive.read(each) for each in archive.namelist() if each[-1] != "/"}
    (record,) = [each for each in files if each.endswith(".dist-info/RECORD")]
    del files[record]
    metadata = record.removesuffix("RECORD")
    if sbom is not None:
        files[f"{metadata}sboms/{SBOM_NAME}"] = sbom
    # The metadata last, as PEP 427 recommends, and the record of all files behind them.
    ordered = sorted(files, key=lambda name: (name.startswith(metadata), name))
    lines = [f"{name},{_digest(files[name])},{len(files[name])}\n" for name in ordered]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (*ordered, record):
            member = zipfile.ZipInfo(name, time.gmtime(at)[:6])
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3
            mode = 0o755 if name.endswith((".so", ".dylib")) else 0o644
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, files[name])


def rewrite_sdist(sdist: Path, at: int) -> None:
    """Write a source distribution anew: sorted, with one time and one owner."""
    members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    with tarfile.open(sdist) as archive:
        for each in archive:
            file = archive.extractfile(each)
            if file is not None:
                members[each.name] = each, file.read()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (old, content) in sorted(members.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), at
            member.mode = 0o755 if old.mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(content))
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=at))


def _digest(content: bytes) -> str:
    value = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={value.decode()}"
