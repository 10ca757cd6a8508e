"""What the tests of all peers share, and the table of what they were run with."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.register_assert_rewrite("tests.peers.clients", "tests.peers.interactions")

from tests.peers.clients import Java  # noqa: E402
from tests.peers.foreign import PeerMissing  # noqa: E402
from tests.peers.javascript import node  # noqa: E402
from tests.peers.jvm import JavaMissing  # noqa: E402
from tests.peers.programs import TRANSPORTS  # noqa: E402
from tests.support.counts import UNMEASURED  # noqa: E402


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """What clients reach the broker by."""
    name: str = request.param
    return name


@pytest.fixture
def service() -> str:
    """The name of a service that no other test has."""
    return f"orders-{uuid.uuid4().hex}"


async def running_java() -> AsyncGenerator[Java]:
    """A JVM for the tests of a module, which have to run on the module's loop."""
    try:
        async with Java.running() as java:
            yield java
    except JavaMissing as error:
        pytest.skip(f"Java peer: {error}")


@pytest.fixture(scope="session")
def javascript() -> str:
    """The path of Node, with the packages of `js/package.json` installed."""
    try:
        return node()
    except PeerMissing as error:
        pytest.skip(f"JavaScript peer: {error}")


requesters = pytest_asyncio.fixture(running_java, scope="module", loop_scope="module")
destinations = pytest_asyncio.fixture(running_java, scope="module", loop_scope="module")


# --- the table ----------------------------------------------------------------------------------
FOLDER = Path(__file__).parent
COLUMNS = ("requester", "destination", "broker", "transport")


IN_SHORT = "test_request_response"
"""What `make test` asks of each peer. Its process costs more than a hundred other tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note what each test is run with, where the summary finds it, and leave most to test-all.

    None of this folder is measured.
    """
    for item in items:
        if item.get_closest_marker("peer") and isinstance(item, pytest.Function):
            item.user_properties.append(("peer", _described(item)))
            if item.originalname != IN_SHORT:
                item.add_marker(pytest.mark.exhaustive)
            # What is covered must not depend on the programs that are installed. Tests of a
            # transport with a peer are in the folder of the transport, and are measured.
            if item.path.is_relative_to(FOLDER):
                item.add_marker(UNMEASURED)


def _described(item: pytest.Function) -> dict[str, str]:
    """Return who asks whom by what.

    The parameters of the test say it, or the marker: `peer(requester=..., destination=...)`.
    Otherwise both are of the make that the module is named after.
    """
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    module = item.path.stem.removeprefix("test_")
    languages, _ = params.get("case", (params.get("languages", (module, module)), None))
    requester, destination = languages
    found = {
        "requester": requester,
        "destination": destination,
        "broker": "java" if module == "java_broker" else "onward",
        "transport": params.get("transport") or "-".join(params.get("across", ["tcp"])),
        "what": item.originalname.removeprefix("test_").replace("_", " "),
    }
    for marker in reversed(list(item.iter_markers("peer"))):
        found |= marker.kwargs
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print who has talked to whom, if the tests were to be told one by one."""
    if terminalreporter.verbosity <= 0:
        return
    _print_trouble(terminalreporter)
    table: dict[tuple[str, ...], Counter[str]] = {}
    skipped: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            described = dict(report.user_properties).get("peer")
            if described is None:
                continue
            row = tuple(described[column] for column in COLUMNS)
            table.setdefault((*row, described["what"]), Counter())[outcome] += 1
            if outcome == "skipped":
                skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if table:
        _print_table(terminalreporter, table, skipped)


def _print_table(
    reporter: pytest.TerminalReporter,
    table: dict[tuple[str, ...], Counter[str]],
    skipped: Counter[str],
) -> None:
    rows = [(*row, _summed(outcomes)) for row, outcomes in sorted(table.items())]
    head = (*COLUMNS, "interaction", "outcome")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    reporter.section("peers")
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        reporter.write_line("  ".join(cells).rstrip())
    for reason, count in sorted(skipped.items()):
        reporter.write_line(f"skipped {count}: {reason}")


def _print_trouble(reporter: pytest.TerminalReporter) -> None:
    """Print what became of the requests of each client of the clusters in trouble."""
    reports = (*reporter.stats.get("passed", []), *reporter.stats.get("failed", []))
    rows = [row for each in reports for name, row in each.user_properties if name == "cluster"]
    if not rows:
        return
    head = tuple(rows[0])
    cells = [head, *(tuple(str(value) for value in row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    reporter.section("clusters in trouble")
    for row in cells:
        words = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        reporter.write_line("  ".join(words).rstrip())
    for each in reports:
        for name, reason in each.user_properties:
            if name == "absent":
                reporter.write_line(reason)


def _summed(outcomes: Counter[str]) -> str:
    return ", ".join(
        outcome if count == 1 else f"{count} {outcome}" for outcome, count in outcomes.items()
    )
