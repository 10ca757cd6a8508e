"""Programs that `make peers` alone builds, as that takes minutes and a network.

They are built in `build/peers`, of copies: what tools write beside sources stays there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["HERE", "NPM", "PeerMissing", "built", "check_asked"]

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "peers"
SWITCH = "ONWARD_PEERS"
"""The environment variable that `make peers` sets."""
LONGEST_REASON = 200
NPM = (
    *("npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"),
    # Without the network npm would try for minutes: three tries of each package are enough.
    *("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
    *("--fetch-timeout=30000", "--loglevel=error"),
)
"""Installs what a `package.json` names."""


class PeerMissing(Exception):
    """A program cannot run on this machine; the text says why."""


def check_asked() -> None:
    """Check that programs are to be built at all.

    Raises:
        PeerMissing: Nobody asked for it.
    """
    if not os.environ.get(SWITCH):
        raise PeerMissing("built and run by `make peers` only")


def built(
    name: str,
    commands: Iterable[Sequence[str]],
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Build the programs of a folder, unless they are there already; return where they are.

    Processes that run side by side wait for the first one of them. What is built needs neither
    tools nor a network, until a file of the folder changes.

    Args:
        name: The folder.
        commands: What builds it, one after the other, in a copy of the folder.
        timeout: How long each may take, in seconds.
        environment: More variables for them.

    Raises:
        PeerMissing: A tool is missing, or the build failed; or nobody asked for it.
    """
    check_asked()
    place = BUILD / name
    place.mkdir(parents=True, exist_ok=True)
    done = place / ".built"
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _digest(HERE / name)
        if not (done.exists() and done.read_text() == wanted):
            shutil.copytree(HERE / name, place, dirs_exist_ok=True)
            for command in commands:
                _run(command, place, timeout, environment or {})
            done.write_text(wanted)
    return place


def _digest(folder: Path) -> str:
    """Return a digest of all sources of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _run(
    command: Sequence[str], place: Path, timeout: float, environment: Mapping[str, str]
) -> None:
    if not shutil.which(command[0]):
        raise PeerMissing(f"{command[0]} is not installed")
    shown = " ".join(command[:2])
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{shown} did not end within {timeout:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        marked = (line for line in lines if "error" in line.lower())
        reason = next(marked, lines[-1] if lines else "no message")
        raise PeerMissing(f"{shown} failed: {reason[:LONGEST_REASON]}")
