"""What is said while the pipeline works."""

from __future__ import annotations

import io

from onward.cli import _pipeline_progress
from onward.cli._pipeline_progress import ProgressReporter
from tests.support.fixtures import Patch


class Terminal(io.StringIO):
    """Text that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_stage_is_one_line_when_it_is_done() -> None:
    output = io.StringIO()
    with ProgressReporter(output=output) as progress:
        progress.begin("traffic")
        progress.done("traffic", "12 rows")
        progress.say("batch 3")
    lines = output.getvalue().splitlines()
    assert lines[0].split() == ["traffic", "0.0", "s", "12", "rows"]
    assert lines[1] == "batch 3"


def test_quiet_says_nothing() -> None:
    output = Terminal()
    with ProgressReporter(quiet=True, output=output) as progress:
        progress.begin("traffic")
        progress.say("batch 3")
        progress.done("traffic", "12 rows")
    assert output.getvalue() == ""


def test_a_terminal_has_a_live_line_that_is_wiped_in_the_end(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_pipeline_progress, "_OFTEN", 60.0)
    output = Terminal()
    with ProgressReporter(output=output) as progress:
        progress.begin("traffic")
        assert output.getvalue().endswith("...")
        progress.say("batch 3")
        assert output.getvalue().endswith("...")
        progress.done("traffic", "12 rows")
        progress.begin("latency" * 20)
        assert max(map(len, output.getvalue().split("\x1b[K"))) <= _pipeline_progress._WIDTH
    shown = output.getvalue()
    assert "batch 3\n" in shown
    assert "12 rows\n" in shown
    assert shown.endswith("\r\x1b[K")


def test_the_live_line_is_drawn_again_and_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_pipeline_progress, "_OFTEN", 0.001)
    output = Terminal()
    with ProgressReporter(output=output) as progress:
        progress.begin("traffic")
        # Its thread writes: this ends, or the test's own time limit does.
        while output.getvalue().count("traffic") < 3:
            pass
