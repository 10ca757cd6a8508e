"""The AMQP edge of a dispatcher beside a bare server of Proton, for `dispatch.py`.

Both servers are processes of their own, and so is the load, which is Proton's client: it sends
messages of 64 bytes to an address and receives them from there, each unsettled. The servers take
turns. What counts is the rate, so other programs have an effect: the median of neighbouring ratios.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from _report import Report

__all__ = ["add_edge"]

PEER = str(Path(__file__).with_name("_proton_peer.py"))
BARE = (sys.executable, PEER, "serve")
EDGE = (
    *(sys.executable, "-m", "onward.cli", "dispatch"),
    *("--listen", "tcp://127.0.0.1:0", "--amqp", "amqp://127.0.0.1:0"),
)
TIMEOUT = 120.0


@contextmanager
def serving(command: Sequence[str], scheme: str) -> Generator[str]:
    """Run a server; yield its port, from the line with the scheme."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None:
            raise AssertionError("a server without output")
        for line in process.stdout:
            if line.startswith(f"listening {scheme}"):
                yield line.rpartition(":")[2].split()[-1]
                return
        raise AssertionError(f"{command} has ended")
    finally:
        process.terminate()
        process.wait(10)


def rate(port: str, messages: int) -> float:
    """Return the messages for a second through the server at a port."""
    command = (sys.executable, PEER, "load", port, str(messages))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    return messages / float(done.stdout)


def add_edge(report: Report, rounds: int, messages: int) -> None:
    """Add the rates of the edge and of a bare server to a report.

    Args:
        report: The report.
        rounds: Number of repetitions.
        messages: Messages in each.
    """
    if find_spec("proton") is None:
        report.note("AMQP edge: left out, as Proton is not installed (extra `onward[amqp]`)")
        return
    with serving(EDGE, "amqp://") as edge, serving(BARE, "") as bare:
        for port in (edge, bare):
            rate(port, messages // 4)
        rates = [(rate(edge, messages), rate(bare, messages)) for _ in range(rounds)]
    report.figure("AMQP edge", median(each for each, _ in rates), "/s")
    report.figure("bare Proton", median(each for _, each in rates), "/s")
    ratio = median(one / other for one, other in rates)
    report.target("AMQP edge / bare Proton", ratio, "x", at_least=0.8)
