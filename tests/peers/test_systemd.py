"""Programs of systemd: units are verified, and a socket is passed to a broker."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import TIMEOUT

pytestmark = pytest.mark.peer(destination="onward", transport="unix")

ONWARD = str(Path(sys.executable).with_name("onward"))
NOTIFY_RELOAD = 253
"""The first version that knows `Type=notify-reload`; older ones warn of it."""


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str) -> str:
    """Run a command to its end, and return all that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.peer(requester="systemd-analyze")
@pytest.mark.parametrize("command", ["broker", "node"])
def test_the_unit_is_verified(command: str, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    scheme = "rsocket+tcp" if command == "broker" else "tcp"
    unit = run(ONWARD, "systemd-unit", command, "--listen", f"{scheme}://127.0.0.1:8001")
    file = tmp_path / f"onward-{command}.service"
    file.write_text(unit)
    complaints = run(analyze, "verify", "--man=no", str(file)).splitlines()
    version = re.search(r"systemd (\d+)", run(analyze, "--version"))
    assert version
    if int(version[1]) < NOTIFY_RELOAD:
        complaints = [each for each in complaints if not each.endswith("notify-reload")]
    assert complaints == []


@pytest.mark.peer(requester="systemd-socket-activate")
def test_a_broker_is_started_with_a_socket_by_its_first_client(tmp_path: Path) -> None:
    activate = tool("systemd-socket-activate")
    path = tmp_path / "broker.sock"
    command = [activate, "--listen", str(path), "--fdname=web", ONWARD, "broker"]
    with subprocess.Popen(
        [*command, "--listen", "rsocket+unix://sd:web"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        try:
            assert process.stderr.readline().startswith("Listening on ")
            # The connection waits in the socket until the broker accepts it.
            words = ("--broker", f"rsocket+unix://{path}", "--timeout", f"{TIMEOUT:g}")
            assert "onward.management" in run(ONWARD, "routes", *words)
            assert process.stdout.readline() == f"listening rsocket+unix://{path}\n"
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
