"""The Spark session of a command: checks before its start, and handling of its errors."""

from __future__ import annotations

import argparse
import importlib.util
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ._pipeline_arguments import memory, remote, setting
from ._pipeline_output import Kept, kept_output
from ._pipeline_progress import ProgressReporter
from ._status import CommandError, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["add_session", "check_first", "is_local", "known_failures", "session"]

_MODULES: Final = ("pyspark", "pandas", "pyarrow", "plotly")

_MEMORY: Final = re.compile(
    r"OutOfMemoryError|Could not reserve enough space|Invalid maximum heap size|GC overhead"
    r"|Cannot allocate memory|insufficient memory|Too small maximum heap|must be at least"
)

_LAST_WORDS: Final = 2.0
"""Seconds to wait for the end of Java's output when it does not start."""

_MOST: Final = 400
"""Most characters of an error of Spark in one line."""


def add_session(parser: argparse.ArgumentParser, *, connect: bool = True) -> None:
    """Add the options of the Spark session."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, unless by spark-submit (default: SPARK_MASTER, or all cores here)",
    )
    group.add_argument(
        "--remote",
        metavar="URI",
        type=remote,
        help="a Spark Connect server, sc://HOST:PORT; it needs no Java here, and sees the paths"
        if connect
        else argparse.SUPPRESS,
    )
    group.add_argument(
        "--driver-memory",
        metavar="SIZE",
        type=memory,
        help="memory of the virtual machine here, as in 4g (default 1g)",
    )
    group.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        type=setting,
        action="append",
        default=[],
        help="a setting of Spark; may be repeated",
    )
    group.add_argument(
        "--trace", action="store_true", help="show all output of Spark, and the stack of an error"
    )
    group.add_argument("--quiet", action="store_true", help="do not report progress")


def is_local(path: str) -> bool:
    """Whether a path is in this machine's file system, and not s3a://... or the like."""
    return "://" not in path


def check_first(arguments: argparse.Namespace, folders: Iterable[tuple[str, str]] = ()) -> None:
    """Check all conditions that do not need Spark.

    Args:
        arguments: The arguments of `add_session`.
        folders: Options, and the folders or files that they name and that must exist.

    Raises:
        CommandError: Something is missing; the text says how to get it.
    """
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"{' and '.join(missing)} not installed: " + _how_to_install(remote=arguments.remote)
        )
    if arguments.remote is None:
        from ..pipeline import JavaMissing, find_java

        try:
            find_java()
        except JavaMissing as error:
            raise CommandError(str(error)) from None
        for option, path in folders:
            if is_local(path) and not Path(path).exists():
                raise CommandError(f"{option}: there is no {path}", Status.USAGE)
    elif importlib.util.find_spec("grpc") is None:
        raise CommandError(f"--remote needs more: {_how_to_install(remote=True)}")
    elif arguments.master or arguments.driver_memory:
        raise CommandError(
            "--master and --driver-memory are for a Spark that is started here, not for --remote",
            Status.USAGE,
        )


def _how_to_install(*, remote: object) -> str:
    extra = "spark-connect" if remote else "spark"
    return f"pip install '.[{extra}]' in Onward's folder"


@contextmanager
def session(arguments: argparse.Namespace, progress: ProgressReporter) -> Generator[SparkSession]:
    """Start a session, or use the existing one; stop it at the end if it was started here.

    Raises:
        CommandError: Spark does not start, or fails; the text is one line with the cause.
    """
    from pyspark.sql import SparkSession

    from ..pipeline import build_session

    conf = dict(arguments.conf)
    if arguments.master:
        conf["spark.master"] = arguments.master
    if arguments.driver_memory:
        conf["spark.driver.memory"] = arguments.driver_memory
    found = SparkSession.getActiveSession()
    quieted = nullcontext(Kept()) if arguments.trace or found else kept_output()
    began = time.monotonic()
    if not found:
        progress.begin("spark")
    kept = Kept()
    try:
        with quieted as kept:
            spark = build_session("onward-pipeline", conf, remote=arguments.remote)
    except Exception as error:
        if arguments.trace:
            raise
        # Its last output may still be in the pipe.
        kept.wait(_LAST_WORDS)
        raise CommandError(_not_started(error, kept.text(), began)) from error
    if not found:
        progress.done("spark", f"{spark.version} at {_where(spark, arguments)}")
    try:
        with known_failures(arguments, kept):
            yield spark
    finally:
        if not found:
            # A virtual machine that has died cannot be stopped.
            with suppress(Exception):
                spark.stop()


def _where(spark: Any, arguments: argparse.Namespace) -> str:
    if arguments.remote:
        # The part after the host may be a token.
        return str(arguments.remote).partition(";")[0]
    return str(spark.conf.get("spark.master"))


def _not_started(error: Exception, said: str, began: float) -> str:
    if _MEMORY.search(f"{error} {said}"):
        lines = [line.strip() for line in said.splitlines() if _MEMORY.search(line)]
        why = f" ({lines[-1][:_MOST]})" if lines else ""
        return f"Java could not allocate its memory{why}; see --driver-memory"
    seconds = time.monotonic() - began
    reason = f"{one_line(error)}{_end_of(said)}"
    return f"Spark did not start ({seconds:.0f} s): {reason}; --trace shows more"


def _end_of(said: str) -> str:
    """Return the last line that looks like a reason."""
    lines = [line.strip() for line in said.splitlines()]
    told = [
        line
        for line in lines
        if re.search(r"error|exception|could not|invalid", line, re.IGNORECASE)
    ]
    return f" ({told[-1][:_MOST]})" if told else ""


@contextmanager
def known_failures(arguments: argparse.Namespace, kept: Kept) -> Generator[None]:
    """Turn errors of Spark into one line with the cause, unless --trace is given.

    Raises:
        CommandError: In place of an error of Spark or of the pipeline.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
    from pyspark.errors import PySparkException

    from ..pipeline._errors import PipelineError, known_error

    try:
        yield
    except (CommandError, KeyboardInterrupt):
        raise
    except PipelineError as error:
        if arguments.trace:
            raise
        raise CommandError(str(error)) from error
    except (PySparkException, Py4JError, ConnectionError) as error:
        if arguments.trace:
            raise
        text = f"{error} {kept.text()}"
        ours = known_error(error)
        if ours is not None:
            raise CommandError(str(ours)) from error
        if _MEMORY.search(text):
            raise CommandError(
                "Spark ran out of memory: give it more with --driver-memory (default 1g), or on a "
                "cluster spark.executor.memory"
            ) from error
        raise CommandError(f"Spark failed: {one_line(error)}; --trace shows the stack") from error


def one_line(error: BaseException) -> str:
    """Return the text of an error of Spark, without the stacks in it."""
    lines = [line.strip() for line in str(error).splitlines()]
    # The details that gRPC gives for a server of Spark Connect.
    details = [line.removeprefix("details = ") for line in lines if line.startswith("details = ")]
    if details:
        return details[0].strip('"')[:_MOST]
    told = [line for line in lines if line and not line.startswith(("at ", "File ", "...", "JVM"))]
    # For a failed task, the last cause is the informative one.
    causes = [line for line in told if line.startswith("Caused by:")]
    if not causes and "Python worker" in str(error):
        causes = [line for line in told if re.match(r"(\w+\.)*\w+(Error|Exception): \S", line)]
    first = told[0] if told else type(error).__name__
    text = f"{first} ({causes[-1]})" if causes else first
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
