"""`onward draw`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from onward.cli import main
from onward.cli._status import Status
from tests.support.fixtures import Capsys

ROOT = Path(__file__).resolve().parents[2]
CITY = ROOT / "examples" / "topologies" / "5_city.toml"
SVG = "{http://www.w3.org/2000/svg}"

ODD = """\
title = "<&> \\"quoted\\""
[nodes.a.workers]
"x<y&" = "echo"
own = { class = "package.module:Own" }
[[links]]
from = "a"
to = "tcp://h:1/?a&b"
as = "out"
[[links]]
from = "a"
to = "tcp://h:1/?a&b"
as = "again"
"""


def test_the_picture_in_the_documentation_is_of_the_example(tmp_path: Path) -> None:
    assert main(["draw", str(CITY), "-o", str(tmp_path / "city.svg")]) == Status.OK
    drawn = (tmp_path / "city.svg").read_bytes()
    assert drawn == (ROOT / "docs" / "pictures" / "city.svg").read_bytes(), (
        "draw it again: onward draw examples/topologies/5_city.toml -o docs/pictures/city.svg"
    )


def test_it_goes_to_stdout_by_default() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "draw", str(CITY)], capture_output=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "pictures" / "city.svg").read_bytes()


def test_any_text_can_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(ODD)
    assert main(["draw", str(tmp_path / "t.toml"), "-o", str(tmp_path / "t.svg")]) == Status.OK
    root = ET.parse(tmp_path / "t.svg").getroot()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts == [
        '<&> "quoted"',
        *("out · tcp", "again · tcp"),
        *("a", "x%3Cy%26", "echo", "own", "Own"),
        "tcp://h:1/?a&b",
    ]
    assert root.attrib["aria-label"] == '<&> "quoted"'


def test_characters_that_xml_has_not_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        'title = "a\\u0001\\uffffb"\n[nodes.a.workers]\n"we\\u0002ird" = "echo"\n'
        '[[links]]\nfrom = "a"\nto = "tcp://h\\u001b:1"\nas = "x\\u0000\\U0001F600"'
    )
    assert main(["draw", str(tmp_path / "t.toml"), "-o", str(tmp_path / "t.svg")]) == Status.OK
    root = ET.parse(tmp_path / "t.svg").getroot()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[0] == root.attrib["aria-label"] == "a\ufffd\ufffdb"
    assert texts[-1] == "tcp://h\ufffd:1"


def test_a_picture_that_cannot_be_written(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["draw", str(CITY), "-o", str(tmp_path)]) == Status.FAILED
    assert capsys.readouterr().err == (f"onward draw: cannot write {tmp_path}: Is a directory\n")


def test_a_file_that_is_wrong(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "t.toml").write_text("")
    assert main(["draw", str(tmp_path / "t.toml")]) == Status.USAGE
    assert "there are no nodes" in capsys.readouterr().err
