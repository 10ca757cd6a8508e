"""Spark finds the format by its name: in an installed wheel, and in a zip of `--py-files`.

What Spark does to find it is done here as it does it, in a Python of its own that has no editable
install, and without Java.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onward.pipeline import BadOption, known_error
from onward.pipeline.source import EventLogSource
from tests.support.eventlogs import write_log

ROOT = Path(__file__).resolve().parents[3]

LOOK = """
import sys
from importlib import import_module
from pkgutil import iter_modules

sys.path[:0] = sys.argv[1:3]
found = [each.name for each in iter_modules() if each.name.startswith("pyspark_")]
assert found == ["pyspark_onward"], found
source = import_module("pyspark_onward").DefaultSource
from pyspark.sql.datasource import DataSource
from pyspark.cloudpickle import dumps, loads

assert issubclass(source, DataSource) and source.name() == "onward"
made = loads(dumps(source))({"path": sys.argv[3], "table": "flows", "columns": "seq"})
reader = made.reader(made.schema())
rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
print(made.schema(), rows, source.__module__, import_module("onward.pipeline").__file__)
"""


def zip_of_packages(path: Path) -> None:
    """Lay the packages out as a wheel does.

    `onward` has no `__init__`: up to Python 3.12 it is only found in a zip that has an entry for
    the folder. `zip -r` and `shutil.make_archive` make one; a wheel has none.
    """
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("onward")
        for package, folder in listed["package-dir"].items():
            for file in (ROOT / folder).rglob("*.py"):
                inside = file.relative_to(ROOT / folder)
                if "pyspark_onward" not in inside.parts:
                    archive.write(file, Path(*package.split("."), inside))


def test_spark_finds_it_in_a_zip(tmp_path: Path) -> None:
    zip_of_packages(tmp_path / "onward.zip")
    truth = write_log(tmp_path / "log")
    # Where Spark is, which need not be where Onward is.
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    packages = Path(str(spec.origin)).parent.parent

    # -S: without the editable install, whose finder answers for the checkout.
    ran = subprocess.run(
        [sys.executable, "-S", "-c", LOOK, tmp_path / "onward.zip", packages, tmp_path / "log"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    said = f"seq bigint {len(truth.flows)} onward.pipeline.source._source "
    assert ran.stdout.startswith(said), ran.stdout
    assert "onward.zip" in ran.stdout


def test_the_package_that_spark_looks_for_has_it() -> None:
    # By name: it stands beside `onward` only where it is installed.
    assert import_module("pyspark_onward").DefaultSource is EventLogSource


@pytest.mark.spark
def test_wrong_options_are_told_where_they_are_given(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no table 'hop'") as raised:
        spark.read.format("onward").option("table", "hop").load(str(tmp_path))
    assert isinstance(known_error(str(raised.value)), BadOption)
