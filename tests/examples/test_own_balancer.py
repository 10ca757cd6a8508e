"""The method that the documentation shows is found as an entry point, as its page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_balancer.py"
PAGE = ROOT / "docs" / "how-to" / "choose-a-method.md"


def project_file() -> str:
    """Return the piece of a pyproject.toml that the page shows."""
    found = re.search(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_it_is_found_as_an_entry_point(tmp_path: Path) -> None:
    # What an installed distribution is: its modules, and beside them what it says of itself.
    ((group, entries),) = tomllib.loads(project_file())["project"]["entry-points"].items()
    ((name, target),) = entries.items()
    module, _, _ = target.partition(":")
    (tmp_path / f"{module}.py").write_text(EXAMPLE.read_text())
    about = tmp_path / "presses-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: presses\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")

    program = (
        "from onward.actors.broker import Broker, BrokerOptions, ChoiceOptions\n"
        f"Broker(BrokerOptions(choice=ChoiceOptions(method={name!r})))\n"
        "print('known')"
    )
    found = run(tmp_path, program)
    assert (found.returncode, found.stderr, found.stdout) == (0, "", "known\n")
    missing = run(tmp_path / "elsewhere", program)
    assert f"ValueError: method: {name!r} is none of " in missing.stderr
