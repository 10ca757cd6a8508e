"""Use an installed Onward as its first page says: `python -I tools/smoke.py --kind KIND CHECKOUT`.

It runs under the Python of an environment that has Onward and nothing else, in an empty folder: the
version, the programs and the commands of README.md, with a broker behind real sockets. It needs
the standard library only. The first step that fails ends it, with status 1.
"""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BROKER: Final = "rsocket+tcp://127.0.0.1:8001"
"""Where the broker of the page listens. Here it gets a free port."""

WAIT: Final = 60.0
"""The seconds that a step may take."""


def main() -> None:
    """Run all steps; print a line for each."""
    parser = argparse.ArgumentParser(description="Use an installed Onward.")
    parser.add_argument("--kind", help="compiled or pure Python")
    parser.add_argument("checkout", type=Path)
    given = parser.parse_args()
    checkout: Path = given.checkout
    _origin(checkout)
    version = _run(_onward("--version"))
    if given.kind not in version:
        sys.exit(f"smoke: {version.strip()}: not {given.kind}")
    print(version.strip())
    page = (checkout / "README.md").read_text()
    programs: list[str] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    alone = [each for each in programs if BROKER not in each]
    with_broker = [each for each in programs if BROKER in each]
    for each in alone:
        _program(each)
    print(f"{len(alone)} programs of the first page")
    for command in re.findall(r"^onward ((?:up|draw) .*) (\S+)$", page, re.MULTILINE):
        _run(_onward(*shlex.split(command[0]), str(checkout / command[1])))
    print("a topology, run and drawn")
    with _broker() as (uri, admin):
        for each in with_broker:
            _program(each.replace(BROKER, uri))
        if "onward.management" not in _run(_onward("routes", "--broker", uri)):
            sys.exit("smoke: onward routes: no management service")
        with urllib.request.urlopen(f"{admin}/readyz", timeout=WAIT) as answer:
            if answer.status != 200:
                sys.exit(f"smoke: /readyz: {answer.status}")
    print(f"a broker with {len(with_broker)} program, its routes and its health, to an ordered end")


def _origin(checkout: Path) -> None:
    import onward.transports.rsocket

    file = Path(str(onward.transports.rsocket.__file__))
    if checkout.resolve() in file.resolve().parents:
        sys.exit(f"smoke: {file} is not an installed one")


def _onward(*arguments: str) -> list[str]:
    return [str(Path(sysconfig.get_path("scripts")) / "onward"), *arguments]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT)
    if done.returncode or done.stderr:
        sys.exit(f"smoke: {command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _program(text: str) -> None:
    """Run a program of the page; it has to print what its comments say."""
    promised = "".join(f"{line}\n" for line in re.findall(r"print\(.*\)  # (.*)", text))
    printed = _run([sys.executable, "-I", "-W", "error", "-c", text])
    if printed != promised:
        sys.exit(f"smoke: a program of the page printed {printed!r}, not {promised!r}")


@contextmanager
def _broker() -> Generator[tuple[str, str]]:
    """Start a broker; in the end it is stopped, and must stop in order."""
    listen = BROKER.replace(":8001", ":0")
    command = _onward("broker", "--listen", listen, "--admin", "http://127.0.0.1:0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            uri, admin = (process.stdout.readline().split()[-1] for _ in range(2))
            yield uri, admin
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT)
        finally:
            process.kill()
    if process.returncode:
        sys.exit(f"smoke: the broker ended with status {process.returncode}")


if __name__ == "__main__":
    main()
