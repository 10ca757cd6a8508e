"""What the documentation shows runs, and prints what the documentation says it prints."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from onward.actors.security import AuthenticationOptions, PasswordOptions
from onward.protocol.dispatch import read_provisions
from onward.protocol.rsocket import ConnectionLimits
from onward.transports import TcpOptions
from tests.support.pages import PAGES, ROOT, blocks, run_example, shown_outputs

# The steps of the tutorial; what else pages show is run in tests/examples/test_examples.py.
STEPS = sorted((ROOT / "examples" / "tutorial").glob("*.py"))


@pytest.mark.parametrize("file", STEPS, ids=lambda file: str(file.stem))
def test_a_step_of_the_tutorial_runs_and_prints_what_its_page_says(file: Path) -> None:
    run_example(file)


def test_every_shown_output_belongs_to_a_file_that_is_run() -> None:
    shown = {file for _, file, _ in shown_outputs()}
    assert shown
    examples = ROOT / "examples"
    assert shown <= {*STEPS, *examples.glob("*.py"), *examples.glob("names/*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_code_in_a_page_is_python(page: Path) -> None:
    for _, text in blocks(page.read_text(), "python"):
        try:
            ast.parse(text)
        except SyntaxError:
            # A fragment may await and return: it is a part of some function.
            ast.parse("async def fragment():\n" + textwrap.indent(text, "    "))


@pytest.mark.parametrize("page", ["dispatch-by-name", "routing-patterns", "undeliverable-messages"])
def test_files_of_provisions_can_be_read(page: str) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    files = [file for _, file in blocks(text, "toml")]
    assert files
    for file in files:
        assert read_provisions(file, page).provisions


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "changelog.d/README.md"]
)
def test_links_of_the_pages_outside_the_site_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


def test_each_claim_of_the_security_page_has_tests_that_there_are() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    tables = re.findall(
        r"^\| claim \| tests \|\n\| --- \| --- \|\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    claims = [row for table in tables for row in table.splitlines()]
    assert len(claims) > 40
    named = {row: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in claims}
    assert [row for row, tests in named.items() if not tests] == []
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"def {test}\b", (ROOT / file).read_text()), f"{file}::{test}"


def test_limits_of_the_security_page_are_those_of_the_table() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    options = ConnectionLimits()
    assert f"over {options.max_setup >> 10} KiB ends the connection" in text
    assert f"{options.setup_timeout:g} s for its SETUP" in text
    assert f"has {TcpOptions().tls_timeout:g} s for TLS" in text
    assert f"A frame has {TcpOptions().frame_timeout:g} s" in text
    assert f"listener {TcpOptions().max_unfinished >> 20} MiB together" in text
    assert f"mailboxes {TcpOptions().max_arrival_bytes >> 20} MiB a link" in text
    assert AuthenticationOptions().max_failures == 10
    assert "may fail ten times a minute" in text
    assert f"within {AuthenticationOptions().timeout:g} s and before any message" in text
    assert f"a queue of {PasswordOptions().queue}" in text
