"""Pykka's own tests, run against `Worker` and `ThreadWorker`.

Pykka's tests take the kind of actor as a parameter. They are in its source distribution,
which is fetched once for the installed version and kept in `.cache/pykka`; none of it is
in this repository. They run in a process of their own, as they stop all actors there are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "pykka"
VERSION = version("pykka")

# Tests with a parameter for the kind of actor; version 4.5.0 has 138. A number far below it
# would mean that the parameter has another name by now and nothing was tested.
AT_LEAST = 120

MARKER = '@pytest.fixture(scope="session", params=RUNTIMES.values())'
ADDITION = "import onward_runtime; onward_runtime.add_to(RUNTIMES, Runtime)\n\n\n"


def source_distribution() -> Path:
    """Return the archive, fetched if it is not there; skip the test if it cannot be had."""
    archive = CACHE / f"pykka-{VERSION}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Fetched aside and moved: several test processes may want it at once.
        with TemporaryDirectory(dir=CACHE) as aside:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-binary", "pykka", "--dest", aside, f"pykka=={VERSION}"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            fetched = Path(aside) / archive.name
            if not fetched.exists():
                reason = (done.stderr.strip() or done.stdout.strip()).splitlines()
                pytest.skip(f"pykka {VERSION} cannot be fetched: {reason[-1] if reason else '?'}")
            fetched.replace(archive)
    return archive


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Worker", "ThreadWorker"])
def test_runtime_tests_of_pykka_pass(kind: str, tmp_path: Path) -> None:
    with tarfile.open(source_distribution()) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"pykka-{VERSION}"
    conftest = source / "tests" / "conftest.py"
    text = conftest.read_text()
    assert MARKER in text
    conftest.write_text(text.replace(MARKER, ADDITION + MARKER))

    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "tests", "-q", "-c", os.devnull, "--rootdir", "."]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:asyncio"]
    command += ["-k", f"onward-{kind}", f"--junitxml={report}"]
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    done = subprocess.run(
        command,
        cwd=source,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    ran = int(suite.attrib["tests"]) - int(suite.attrib["skipped"])
    print(f"{ran} of Pykka {VERSION}'s tests pass against {kind}")
    assert ran >= AT_LEAST
