"""Every example runs alone, warns of nothing, and prints what its docstring and its pages say."""

from __future__ import annotations

import ast
import runpy
import textwrap
from pathlib import Path

import pytest

from tests.support.fixtures import Capsys
from tests.support.pages import as_shown, run_example

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The demos show ports and random addresses all over the place, and one needs Spark, which warns of
# things on its own; they have tests of their own.
ELSEWHERE = {"demo.py", "pipeline_demo.py", "rows_as_messages.py"}
FILES = sorted(each for each in EXAMPLES.glob("*.py") if each.name not in ELSEWHERE)
NAMES = sorted(EXAMPLES.glob("names/*.py"))


def promised(file: Path) -> str:
    """Return the block that follows "It prints" in an example's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    _, mark, rest = docstring.partition("It prints")
    assert mark, f"{file.name} does not say what it prints"
    lines = rest.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("    "))
    return textwrap.dedent("\n".join(lines[start:])).strip()


def test_there_are_examples_of_each_kind() -> None:
    assert {file.stem for file in FILES} >= {
        "all_together",
        "changed_payload",
        "composed_workers",
        "custom_address_type",
        "forwarder_and_echo",
        "from_pykka",
        "multicast_and_sharding",
        "own_balancer",
        "own_transport",
        "pipe_transport",
        "python_client",
        "remote_call",
        "remote_watch",
        "restart_backoff",
        "routing_forwarding",
        "routing_server",
        "routing_session",
        "routing_transports",
        "services_of_a_node",
        "synchronous_client",
        "typed_payloads",
        "typed_service",
        "typed_pipeline",
        "web_pipeline",
        "worker_as_destination",
        "worker_pool",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_an_example_prints_what_it_says(file: Path) -> None:
    assert run_example(file).strip() == promised(file)


@pytest.mark.parametrize("file", NAMES, ids=lambda file: str(file.stem))
def test_an_example_of_names_prints_what_it_says(file: Path, capsys: Capsys) -> None:
    # In this process, as the start of another one takes longer than they do.
    runpy.run_path(str(file), run_name="__main__")
    assert as_shown(file, capsys.readouterr().out).strip() == promised(file)


def test_a_transport_takes_about_two_hundred_lines() -> None:
    source = (EXAMPLES / "own_transport.py").read_text()
    transport = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Transport")
    )
    assert transport.end_lineno is not None
    # From the first line of the file to the last of the transport; then comes its use.
    assert transport.end_lineno < 200
