"""The pipeline's demo does its job: two brokers, over 10,000 messages, and an audit of zero."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import reason_to_skip
from tests.support.counts import UNMEASURED

DEMO = Path(__file__).resolve().parents[2] / "examples" / "pipeline_demo.py"

TIMEOUT = 900
"""Seconds, for a machine that is busy with other things; a minute and a half where it is not."""


# Each command of it is tested on one session by `tests/pipeline/jobs/test_command.py`.
@UNMEASURED
@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))
def test_it_records_ingests_reports_and_adds_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), str(tmp_path / "demo")],
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    printed = done.stdout
    assert done.returncode == 0, printed + done.stderr
    assert printed.splitlines()[-1] == "pipeline: ok"
    sent = re.search(r"([\d,]+) requests and messages; their outcomes:", printed)
    assert sent is not None
    assert int(sent[1].replace(",", "")) >= 10_000
    # A broker's row of the audit: read, handed on, delivered, dropped, unroutable, missing, twice.
    rows = dict(re.findall(r"^(eu|us) +- +([\d, ]+)$", printed, re.MULTILINE))
    assert set(rows) == {"eu", "us"}
    for row in rows.values():
        read, _, delivered, dropped, unroutable, missing, twice = (
            int(each.replace(",", "")) for each in row.split()
        )
        assert (missing, twice) == (0, 0)
        assert read == delivered + dropped + unroutable
        assert unroutable > 0
        assert dropped > 0
    assert re.search(r"paths +\d+ messages went in a circle", printed)
    page = tmp_path / "demo" / "report.html"
    assert "Audit: balanced" in page.read_text()


def test_a_folder_that_is_not_its_own_is_left_as_it_is(tmp_path: Path) -> None:
    precious = tmp_path / "thesis" / "chapter.txt"
    precious.parent.mkdir()
    precious.write_text("x")
    # Whether there is Java is asked first: any folder with this program in it will do.
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    for folder in (precious.parent, precious):
        done = subprocess.run(
            [sys.executable, str(DEMO), str(folder)],
            env={**os.environ, "JAVA_HOME": str(tmp_path / "java")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1
        assert f"pipeline: FAILED: {folder} " in done.stdout
        assert precious.read_text() == "x"


def test_without_java_it_says_so_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), str(tmp_path / "demo")],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "pipeline: FAILED: JAVA_HOME is" in done.stdout
    assert not (tmp_path / "demo").exists()
