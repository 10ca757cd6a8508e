"""The example of the sink prints what it says; on the session there is, to save a Java."""

from __future__ import annotations

import ast
import runpy
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "rows_as_messages.py"


@pytest.mark.exhaustive
@pytest.mark.spark
def test_the_output_of_the_example(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    docstring = ast.get_docstring(ast.parse(EXAMPLE.read_text())) or ""
    promised = docstring.partition("It prints\n\n")[2]
    runpy.run_path(str(EXAMPLE))["run"](spark)
    assert capsys.readouterr().out.strip() == textwrap.dedent(promised).strip()
