"""The conversion of Spark's errors of a disk into errors of the pipeline."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException

from ._errors import DiskRefused, FileGone, known_error

__all__ = ["spark_refusals"]


@contextmanager
def spark_refusals(path: str | Path) -> Generator[None]:
    """Convert errors of the file system, raised here or in Spark, into errors of the pipeline.

    Args:
        path: The path that is written.

    Raises:
        PipelineError: The error is a known one; other errors are raised unchanged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileGone(str(error.filename or path)) from None
    except OSError as error:
        raise DiskRefused(str(path), error.strerror or str(error)) from None
    except (PySparkException, Py4JError) as error:
        known = known_error(error, str(path))
        if known is None:
            raise
        raise known from None
