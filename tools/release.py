"""Build the files of a release and check them: `python -m tools.release`.

All comes from the commit that is checked out, exported into a folder of its own: a source
distribution, and made of that a wheel of pure Python and a compiled one for this interpreter.
Everything is built twice, in folders of different names, with fresh environments, and compared byte
by byte. Then the files are looked into, and each is installed into an empty environment outside of
the checkout and used. They are in dist/ in the end, with their digests in SHA256SUMS.

Nothing is published: the workflow `release` does that, where it also builds the compiled wheels of
all other interpreters and machines. A wheel for Linux that is built here is for this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Final

from tools import build_backend, release_checks, sbom

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
SUMS: Final = "SHA256SUMS"
TAG: Final = "ONWARD_TAG"
"""The variable with the tag that is released, if one is: `v` and the version."""

KINDS: Final = {"sdist": False, "pure wheel": False, "compiled wheel": True}
"""The files of a release, and whether they are compiled."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build and check everything; end with status 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description="Build the files of a release and check them.")
    parser.add_argument(
        "--sbom",
        type=Path,
        metavar="FILE",
        help="take this bill of materials instead of making one: that of a published wheel, to "
        "build the same bytes again",
    )
    given = parser.parse_args(arguments)
    if build_backend.find_compiler() is None:
        sys.exit(f"release: {build_backend.NO_COMPILER}")
    commit, at = _git("rev-parse", "HEAD"), _git("log", "-1", "--format=%ct")
    if _git("status", "--porcelain"):
        _say("what is not committed is not in it")
    os.environ["SOURCE_DATE_EPOCH"] = at
    tag = os.environ.get(TAG)
    with tempfile.TemporaryDirectory(prefix="onward-release-") as name:
        work = Path(name).resolve()
        source = export(work / "source")
        version = build_backend.read_version(source)
        _say(f"Onward {version} of {commit[:12]}")
        if tag is not None and tag != f"v{version}":
            sys.exit(f"release: the tag is {tag}, and the version {version}")
        bill = work / build_backend.SBOM_NAME
        if given.sbom is None:
            describe(source, bill, work / "dependencies")
        else:
            shutil.copy(given.sbom, bill)
        first = build(source, work / "first", bill)
        # Of another length, so that no offset is the same by chance if a path gets into a file.
        second = build(source, work / "second" / "of-another-length", bill)
        compare(first, second)
        check(first, source)
        for kind, file in first.items():
            folder = work / "tried" / file.name
            folder.mkdir(parents=True)
            for line in release_checks.try_out(file, source, folder, compiled=KINDS[kind]):
                _say(f"{kind}: {line}")
        deliver([*first.values(), bill])


def export(to: Path) -> Path:
    """Export the commit into a folder, as a clean checkout has it."""
    to.mkdir(parents=True)
    packed = to.with_suffix(".tar")
    _git("archive", "--format=tar", f"--output={packed}", "HEAD")
    with tarfile.open(packed) as archive:
        archive.extractall(to, filter="data")
    return to


def describe(source: Path, bill: Path, folder: Path) -> None:
    """Install the dependencies into an environment, and write the bill of materials of it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, *sbom.requirements(source)], check=True)
    command: list[str | Path] = [sys.executable, "-m", "tools.sbom", "--python", python, bill]
    subprocess.run(command, cwd=source, check=True)


def build(source: Path, folder: Path, bill: Path) -> dict[str, Path]:
    """Build all files of a release, the wheels out of the source distribution.

    Args:
        source: The exported commit.
        folder: Where to build.
        bill: The bill of materials of the wheels.

    Returns:
        The files by their kinds.
    """
    started = time.monotonic()
    own = folder / "source"
    shutil.copytree(source, own, symlinks=True)
    sdist = _build("--sdist", own, folder / "sdist", {})
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    wanted = {build_backend.SBOM: str(bill)}
    pure = _build("--wheel", unpacked, folder / "pure", wanted)
    compiles = wanted | {build_backend.COMPILE: "1"}
    compiled = _build("--wheel", unpacked, folder / "compiled", compiles)
    _say(f"built in {time.monotonic() - started:.0f} s")
    return dict(zip(KINDS, (sdist, pure, compiled), strict=True))


def _build(what: str, source: Path, to: Path, wanted: Mapping[str, str]) -> Path:
    command = [sys.executable, "-m", "build", what, "--outdir", str(to), str(source)]
    done = subprocess.run(
        command,
        env={**os.environ, **wanted},
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-30:]), file=sys.stderr)
        sys.exit(f"release: cannot build: {' '.join(command)}")
    (file,) = to.iterdir()
    return file


def compare(first: Mapping[str, Path], second: Mapping[str, Path]) -> None:
    """Compare two builds byte by byte."""
    for kind, file in first.items():
        other = second[kind]
        if (file.name, file.read_bytes()) != (other.name, other.read_bytes()):
            kept = ROOT / "build" / "release"
            shutil.rmtree(kept, ignore_errors=True)
            for number, each in enumerate((file, other), 1):
                (kept / str(number)).mkdir(parents=True)
                shutil.copy(each, kept / str(number))
            sys.exit(f"release: {file.name}: the second build differs; both are in {kept}")
    _say("the second build is equal byte by byte")


def check(files: Mapping[str, Path], source: Path) -> None:
    """Look into the files, and have twine check their metadata."""
    problems = [
        f"{files['sdist'].name}: {each}"
        for each in release_checks.find_sdist_problems(files["sdist"], source)
    ]
    for kind in ("pure wheel", "compiled wheel"):
        file = files[kind]
        found = release_checks.find_wheel_problems(file, source, compiled=KINDS[kind])
        problems += [f"{file.name}: {each}" for each in found]
    if problems:
        sys.exit("release: " + "\nrelease: ".join(problems))
    twine = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files.values())]
    subprocess.run(twine, check=True)


def deliver(files: Iterable[Path]) -> None:
    """Put the files and their digests into dist/, in place of those of before."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sums = ""
    for file in files:
        shutil.copy(file, DIST)
        sums += f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        _say(f"{file.stat().st_size:>10,} bytes  dist/{file.name}")
    (DIST / SUMS).write_text(sums)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=PIPE, text=True)
    return done.stdout.strip()


def _say(text: str) -> None:
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    main()
