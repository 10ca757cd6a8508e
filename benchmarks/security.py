"""What TLS costs a request through the broker process, in CPU time.

A load of raw frames (`_rawload.py`) keeps 64 requests of request/response in flight between two
connections. It takes turns with the same load through a bare relay (`_relay.py`), which replaces
stream ids and does nothing else, both without TLS and with it. The load's side of TLS is a tunnel
in its own process (`_tls_tunnel.py`), so that only the broker's and the relay's are counted. The
certificate has a key of ECDSA P-256, and the cipher is what OpenSSL selects.

Targets: the compiled build with TLS costs at most 1.3 times the relay with TLS; TLS adds to a
request of either build at most 1.3 times what it adds to one of the relay. Figures repeat to within
10 % on a quiet machine.
"""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import trustme
from _rawload import Load, cpu_seconds, open_load
from _report import Report
from _rivals import COMPILED, ONWARD, RELAY, Missing, command_of, running

HERE = Path(__file__).parent
IN_FLIGHT = 64
TARGET = 1.3
PORT = re.compile(r"listening \S+:(\d+)$")


class Size(NamedTuple):
    """The number of windows, and the requests of each."""

    windows: int
    requests: int


FULL, QUICK = Size(9, 40_000), Size(1, 4_000)


class Lane(NamedTuple):
    """A process that passes requests on, and the load through it."""

    pid: int
    load: Load

    def cost(self, requests: int) -> float:
        """Return the CPU time of the process for a request, in microseconds."""
        before = cpu_seconds(self.pid)
        window = self.load.run(requests)
        return 1e6 * (cpu_seconds(self.pid) - before) / window.requests


def open_lane(stack: ExitStack, name: str, certificate: Path | None) -> Lane:
    """Start a process and the load through it.

    Raises:
        Missing: It is not on this machine.
    """
    command, environment = command_of(name)
    if name != RELAY:
        command += (
            "broker",
            "--listen",
            f"rsocket+{'tls' if certificate else 'tcp'}://127.0.0.1:0",
        )
    if certificate is not None:
        command += ("--certificate", str(certificate)) if name != RELAY else (str(certificate),)
    pid, port = stack.enter_context(running(command, PORT, environment))
    if certificate is not None:
        tunnel = [sys.executable, str(HERE / "_tls_tunnel.py"), str(port)]
        _, port = stack.enter_context(running(tunnel, PORT))
    load = stack.enter_context(open_load(port, requesters=1, in_flight=IN_FLIGHT))
    load.run(2_000)
    return Lane(pid, load)


def measure(size: Size, report: Report) -> dict[tuple[str, bool], float]:
    """Return the median cost of a request by process, and whether there is TLS."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder, "server.pem")
        issued = trustme.CA().issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        lanes: dict[tuple[str, bool], Lane] = {}
        for name in (ONWARD, COMPILED, RELAY):
            try:
                for certificate in (None, file):
                    lanes[name, certificate is not None] = open_lane(stack, name, certificate)
            except Missing as reason:
                report.note(f"{name}: {reason}")
        costs: dict[tuple[str, bool], list[float]] = {each: [] for each in lanes}
        for _ in range(size.windows):
            for each, lane in lanes.items():
                costs[each].append(lane.cost(size.requests))
    for each, windows in costs.items():
        scatter = (max(windows) - min(windows)) / 2 / median(windows)
        report.noise = max(report.noise, scatter)
        words = f"{each[0]} with TLS" if each[1] else each[0]
        report.figure(words, median(windows), "µs", scatter)
    return {each: median(windows) for each, windows in costs.items()}


def compare(costs: dict[tuple[str, bool], float], report: Report) -> None:
    """Add the targets."""
    relay, relay_adds = costs[RELAY, True], costs[RELAY, True] - costs[RELAY, False]
    for name in (ONWARD, COMPILED):
        if (name, True) not in costs:
            continue
        adds = costs[name, True] - costs[name, False]
        whole = f"{name} / relay, both with TLS"
        if name == COMPILED:
            report.target(whole, costs[name, True] / relay, "x", at_most=TARGET)
        else:
            report.figure(whole, costs[name, True] / relay, "x")
        report.target(f"TLS adds to {name} / to relay", adds / relay_adds, "x", at_most=TARGET)


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="What TLS costs a request.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    report = Report("security")
    compare(measure(QUICK if arguments.quick else FULL, report), report)
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
