"""Node, with what the programs of `js/` need installed beside them."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

from tests.peers.foreign import NPM, PeerMissing

__all__ = ["JAVASCRIPT", "node"]

JAVASCRIPT = Path(__file__).with_name("js")
OLDEST_NODE = 18
INSTALL_TIMEOUT = 180.0
"""Seconds."""


def node() -> str:
    """Return the path of Node, with the packages of `js/package.json` installed.

    Raises:
        PeerMissing: There is no Node, or they cannot be installed.
    """
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        raise PeerMissing("node and npm are not installed")
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, check=True
    ).stdout
    if int(re.findall(r"\d+", version)[0]) < OLDEST_NODE:
        raise PeerMissing(f"node {version.strip()} is older than {OLDEST_NODE}")
    if problem := _install(npm):
        raise PeerMissing(f"npm install failed: {problem}")
    return found


def _install(npm: str) -> str | None:
    """Install what `package.json` names, once; return what went wrong.

    Test processes that run side by side wait for the first one of them.
    """
    modules = JAVASCRIPT / "node_modules"
    modules.mkdir(exist_ok=True)
    wanted = (JAVASCRIPT / "package.json").read_text()
    installed = modules / ".installed"
    with (modules / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if installed.exists() and installed.read_text() == wanted:
            return None
        try:
            subprocess.run(
                [npm, *NPM[1:]],
                cwd=JAVASCRIPT,
                capture_output=True,
                text=True,
                check=True,
                timeout=INSTALL_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {INSTALL_TIMEOUT} s"
        except subprocess.CalledProcessError as error:
            return str(error.stderr).strip().partition("\n")[0]
        installed.write_text(wanted)
        return None
