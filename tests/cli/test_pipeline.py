"""`onward pipeline`: its command line, what it checks before anything starts, and its errors."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from onward.cli import main
from onward.cli._pipeline_arguments import (
    MAX_OBJECTIVES,
    MAX_SEGMENTS,
    ObjectiveArgument,
    day,
    memory,
    moment,
    objective,
    ratio,
    reports,
    setting,
    skew,
)
from onward.cli._pipeline_output import MAX_KEPT, Kept
from onward.cli._pipeline_session import check_first, known_failures, one_line
from onward.cli._status import CommandError, Status
from tests.support.fixtures import Capsys, Patch

JOBS = ("ingest", "report", "replay", "index", "audit")
DAY = ("--day", "2026-11-20")


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_help(job: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", job, "--help"])
    assert f"usage: onward pipeline {job}" in capsys.readouterr().out


def test_help_says_what_each_exit_status_means(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", "--help"])
    printed = capsys.readouterr().out
    for status in ("0  done", "1  failed", "2  the command line is wrong, or a gate failed"):
        assert status in printed


def test_help_says_how_many_segments_are_a_batch(capsys: Capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", "ingest", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert f"segments in one batch at most (default {MAX_SEGMENTS})" in printed


def test_limits_are_those_of_the_pipeline() -> None:
    ingest = pytest.importorskip("onward.pipeline.ingest", exc_type=ImportError)
    transforms = pytest.importorskip("onward.pipeline.transforms", exc_type=ImportError)
    assert (ingest.MAX_SEGMENTS, transforms.MAX_OBJECTIVES) == (MAX_SEGMENTS, MAX_OBJECTIVES)


def test_help_needs_no_spark() -> None:
    program = (
        "import sys; from onward.cli import main\n"
        "try: main(['pipeline', 'report', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('pyspark', 'pandas', 'numpy', 'pyarrow', 'plotly')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("report", "--lake", "x", "--day", "2026-13-40"),
            "'2026-13-40' is not a day: month must be",
        ),
        (("report", "--lake", "x", "--day", "2026-02-30"), "is not a day: day"),
        (("report", "--lake", "x", "--day", "today"), "is not a day: a day is YYYY-MM-DD, UTC"),
        (("report", "--lake", "x"), "the following arguments are required: --day"),
        (
            ("report", "--lake", "x", *DAY, "--only", "weather"),
            "'weather' is not a report: there are",
        ),
        (("report", "--lake", "x", *DAY, "--slo", "a:b:c"), "is not NAME:SERVICE:MS:TARGET"),
        (("report", "--lake", "x", *DAY, "--slo", "a:b:5:1"), "is not between 0 and 1"),
        (("report", "--lake", "x", *DAY, "--conf", "a=b"), "'a=b' is not spark.KEY=VALUE"),
        (("report", "--lake", "x", *DAY, "--driver-memory", "much"), "is not a size as in 512m"),
        (("report", "--lake", "x", *DAY, "--remote", "host:1"), "'host:1' is not sc://HOST:PORT"),
        (("audit", "--lake", "x", "--since", "noon"), "'noon' is not a time"),
        (("replay", "--lake", "x", *DAY, "--max-moved", "2"), "is not a part from 0 to 1"),
        (("replay", "--lake", "x", *DAY, "--max-skew", "0.5"), "is not a number of at least 1"),
        (("index",), "the following arguments are required: STEP"),
        (("index", "build", "--out", "x"), "one of the arguments --routes --lake is required"),
        ((), "the following arguments are required: JOB"),
    ],
)
def test_a_wrong_command_line_has_status_2(
    words: tuple[str, ...], told: str, capsys: Capsys
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pipeline", *words])
    assert told in capsys.readouterr().err.replace("\n", " ")


def test_arguments_are_read() -> None:
    assert day("2026-11-20") == date(2026, 11, 20)
    assert moment("2026-11-20") == datetime(2026, 11, 20, tzinfo=UTC)
    assert moment("2026-11-20T08:30") == datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
    assert moment("2026-11-20T08:30+02:00") == datetime(2026, 11, 20, 6, 30, tzinfo=UTC)
    assert reports("traffic, slo") == ["traffic", "slo"]
    assert setting("spark.x=a=b") == ("spark.x", "a=b")
    assert memory("4G") == "4g"
    assert (ratio("0.1"), skew("1.5")) == (0.1, 1.5)
    assert objective("pay: cards:orders:2.5:75%") == ObjectiveArgument(
        "pay: cards", "orders", 2500, 0.75
    )
    assert objective("all:*:-:0.99") == ObjectiveArgument("all", None, None, 0.99)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":a:1:0.5", "n::1:0.5", "n:s:0:0.5", "n:s:9999999999:0.5"),
        *("n:s:inf:0.9", "n:s:-inf:0.9", "n:s:nan:0.9", "n:s:1e999:0.9", "n:s:-:nan", "n:s:-:inf"),
    ],
)
def test_an_objective_without_sense_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        objective(text)


def arguments(**given: Any) -> argparse.Namespace:
    defaults: dict[str, Any] = {
        "remote": None,
        "master": None,
        "driver_memory": None,
        "trace": False,
        "quiet": True,
        "conf": [],
    }
    return argparse.Namespace(**{**defaults, **given})


def without(*missing: str) -> Callable[[str], object]:
    return lambda name: None if name in missing else object()


def test_an_extra_that_is_missing_is_said_first(monkeypatch: Patch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without("pyspark", "pandas"))
    with pytest.raises(CommandError, match="pyspark and pandas not installed") as caught:
        check_first(arguments())
    assert "pip install '.[spark]' in Onward's folder" in str(caught.value)


def test_so_is_java_that_is_missing(monkeypatch: Patch, tmp_path: Path, capsys: Capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    status = main(["pipeline", "report", "--lake", str(tmp_path), *DAY])
    assert status == Status.FAILED
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err


def test_remote_needs_no_java_but_what_it_is_made_of(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", without())
    check_first(arguments(remote="sc://a:1"), [("--lake", "/elsewhere")])
    monkeypatch.setattr(importlib.util, "find_spec", without("grpc"))
    with pytest.raises(CommandError, match=r"pip install '\.\[spark-connect\]'"):
        check_first(arguments(remote="sc://a:1"))
    monkeypatch.setattr(importlib.util, "find_spec", without())
    with pytest.raises(CommandError, match="not for --remote"):
        check_first(arguments(remote="sc://a:1", master="local[1]"))


def test_ingest_refuses_remote_and_says_why(capsys: Capsys) -> None:
    words = ("--log", "l", "--lake", "k", "--checkpoint", "c", "--remote", "sc://a:1")
    assert main(["pipeline", "ingest", *words]) == Status.USAGE
    assert "ingest cannot run over --remote" in capsys.readouterr().err


def test_folders_are_folders(capsys: Capsys) -> None:
    words = ("--lake", "s3a://bucket/lake", *DAY)
    assert main(["pipeline", "report", *words]) == Status.USAGE
    assert "--lake is a folder that driver and executors see" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "--lake", "/nowhere", *DAY), "--lake: there is no /nowhere"),
        (("audit", "--lake", "/nowhere"), "--lake: there is no /nowhere"),
        (
            ("index", "build", "--routes", "/nowhere", "--out", "x"),
            "--routes: there is no /nowhere",
        ),
    ],
)
def test_what_is_not_there_is_said_before_spark_starts(
    words: tuple[str, ...], told: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without())
    monkeypatch.setattr("onward.pipeline.find_java", lambda: Path("/java"))
    assert main(["pipeline", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--lake", "FILE", *DAY),
        ("report", "--lake", ".", *DAY, "--out", "FILE"),
        ("report", "--lake", ".", *DAY, "--out", "FILE/below"),
        ("audit", "--lake", "FILE"),
        ("ingest", "--log", ".", "--lake", "FILE", "--checkpoint", "c"),
        ("ingest", "--log", ".", "--lake", "l", "--checkpoint", "FILE"),
        ("index", "build", "--routes", "r", "--out", "FILE"),
        ("index", "verify", "--snapshot", "s", "--against", "FILE"),
    ],
)
def test_a_file_instead_of_a_folder(words: tuple[str, ...], tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["pipeline", *(word.replace("FILE", str(file)) for word in words)]) == Status.USAGE
    assert f": {file} is a file, not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "--lake", "k", *DAY, "--only", "slo"), "--only slo needs an objective"),
        (
            ("report", "--lake", "k", *DAY, "--slo", "a:x:1:0.9", "--slo", "a:y:1:0.9"),
            "--slo: there are several objectives 'a'",
        ),
        (
            ("report", "--lake", "k", *DAY, *(f"--slo=s{n}:*:-:0.9" for n in range(65))),
            "--slo: 65 objectives, over 64",
        ),
        (("index", "build", "--routes", "r", "--out", "o", "--at", "2026-11-20"), "go with --lake"),
    ],
)
def test_options_that_go_together(words: tuple[str, ...], told: str, capsys: Capsys) -> None:
    assert main(["pipeline", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


# --- errors of Spark ------------------------------------------------------------------------
def failing(error: Exception, *, trace: bool = False, said: bytes = b"") -> None:
    kept = Kept()
    kept.add(said)
    with known_failures(arguments(trace=trace), kept):
        raise error


def test_an_error_of_spark_is_one_line_with_its_cause() -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import AnalysisException

    text = (
        "[PATH_NOT_FOUND] Path does not exist: file:/x.\n\tat org.apache.spark.A.b(A.scala:1)\n"
        "Caused by: java.io.IOException: no such thing\n\tat java.base/X"
    )
    with pytest.raises(CommandError) as caught:
        failing(AnalysisException(message=text))
    assert str(caught.value) == (
        "Spark failed: [PATH_NOT_FOUND] Path does not exist: file:/x. "
        "(Caused by: java.io.IOException: no such thing); --trace shows the stack"
    )
    with pytest.raises(AnalysisException):
        failing(AnalysisException(message=text), trace=True)


@pytest.mark.parametrize("said", [b"java.lang.OutOfMemoryError: Java heap space", b"GC overhead"])
def test_memory_that_ran_out_names_the_option(said: bytes) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(CommandError, match="--driver-memory"):
        failing(ConnectionRefusedError(111, "Connection refused"), said=said)


def test_an_error_of_the_pipeline_is_said_as_it_is_also_out_of_a_task() -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import PySparkRuntimeError

    from onward.pipeline._errors import NoCommit

    with pytest.raises(CommandError, match="run `onward pipeline ingest` first"):
        failing(NoCommit("/lake"))
    with pytest.raises(NoCommit):
        failing(NoCommit("/lake"), trace=True)
    inside = "Job aborted\nonward.pipeline._errors.NoCommit: /lake has no lake in it: run\n at x"
    with pytest.raises(CommandError, match="has no lake in it"):
        failing(PySparkRuntimeError(inside))


def test_a_line_is_not_too_long() -> None:
    assert one_line(ValueError("x" * 1000)).endswith("x...")
    assert one_line(ValueError("")) == "ValueError"


def test_of_what_a_python_worker_says_the_last_error_is_told() -> None:
    text = (
        "Thrown from the Python worker.\nTraceback:\n  File x\nModuleNotFoundError: No module y\n"
    )
    assert one_line(ValueError(text)) == (
        "Thrown from the Python worker. (ModuleNotFoundError: No module y)"
    )


def test_of_what_grpc_says_the_details_are_told() -> None:
    text = '<Error of RPC that terminated with:\n\tstatus = X\n\tdetails = "no token"\n>'
    assert one_line(ValueError(text)) == "no token"


def test_of_what_java_says_the_end_is_kept() -> None:
    kept = Kept()
    kept.add(b"a" * MAX_KEPT)
    kept.add(b"end")
    assert len(kept.text()) == MAX_KEPT
    assert kept.text().endswith("end")


def test_children_write_into_what_is_kept_and_we_do_not() -> None:
    program = (
        "import subprocess, sys\n"
        "from onward.cli._pipeline_output import kept_output\n"
        "with kept_output() as kept:\n"
        '    child = \'import sys; sys.stderr.write("ch"); sys.stdout.write("ild")\'\n'
        "    subprocess.run([sys.executable, '-c', child])\n"
        "print('ours', file=sys.stderr)\n"
        "kept.wait(30)\n"
        "print(sorted(kept.text()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (f"{sorted('child')}\n", "ours\n")
