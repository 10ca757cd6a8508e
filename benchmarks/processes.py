"""A broker of two processes beside one of a single process: requests for each second.

64 destinations of one service, and 64 requesters that keep 256 requests of request/response in
flight (raw frames, 64 bytes of data, as `broker.py`), in turn through `onward broker` and through
`onward broker --processes 2`. The system spreads the connections. A request stays in the process
that it came to, as that has a destination for it: the share of those that cross to the other one is
counted by the processes, and told. What crossing costs is measured apart: with requesters at one
process, and their only destination at the other.

The load takes a core of its own, so on a machine of two cores the wall time says nothing. What
bounds the rate is the process with the most CPU time: each has one core at most. So the rate is
that of the requests for each CPU second of the busiest process. The share of a core that the load
generator takes is told beside it.

Target: at least 1.7 times the rate. How the system spreads 64 requesters is a part of it: with 36
on one process the most is 1.78. Medians repeat to within 10 %.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import selectors
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from uuid import uuid4

from _rawload import Load, Window, _Destination, _Requester, cpu_seconds, open_load, rsocket_shape
from _report import Report
from broker import ONWARD, broker, spread
from cluster import shape_of

from onward.cli._client import ask_broker

PEERS, IN_FLIGHT = 64, 256
PROCESSES, ASKED = 2, 30.0
TARGET = 1.7
WINDOWS, REQUESTS = 7, 100_000
QUICK_WINDOWS, QUICK_REQUESTS = 1, 10_000


@dataclass(frozen=True, slots=True)
class Loads:
    """A load with several destinations."""

    load: Load
    destinations: list[_Destination]

    def run(self, requests: int) -> Window:
        """Send a number of requests and wait for their answers; see `Load.run`."""
        for each in self.destinations[1:]:  # the first is that of the load
            each.keep_alive()
        return self.load.run(requests)


@contextmanager
def open_loads(port: int) -> Generator[Loads]:
    """Connect destinations and requesters to the broker at 127.0.0.1:`port`."""
    shape = rsocket_shape()
    destinations = [_Destination(port, shape) for _ in range(PEERS)]
    share = IN_FLIGHT // PEERS
    senders = [_Requester(port, f"requester-{n}", shape, share) for n in range(PEERS)]
    with selectors.DefaultSelector() as selector:
        for peer in (*destinations, *senders):
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        try:
            yield Loads(Load(senders, destinations[0], selector), destinations)
        finally:
            for peer in (*destinations, *senders):
                peer.socket.close()


def started_by(pid: int) -> list[int]:
    """Return the processes that a process has started; without any, the process itself."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found] or [pid]


def crossed(folder: str) -> int:
    """Return the requests that processes have handed to others, since the start."""

    async def ask() -> int:
        count = 0
        for number in range(PROCESSES):
            uri = f"rsocket+unix://{folder}/{number}.sock"
            rows = await ask_broker(uri, "routes", ASKED)
            count += sum(row["requests"] for row in rows if row["broker"])
        return count

    return asyncio.run(ask())


@dataclass(slots=True)
class Measured:
    """The figures of one broker, by window.

    Attributes:
        busiest: Requests for each CPU second of the busiest process.
        both: CPU seconds of a request in all processes together.
        own: The share of the wall time for which the load generator had a core.
    """

    busiest: list[float] = field(default_factory=list[float])
    both: list[float] = field(default_factory=list[float])
    own: list[float] = field(default_factory=list[float])

    def add(self, load: Loads | Load, pids: Sequence[int], requests: int) -> None:
        """Run a window."""
        before = [cpu_seconds(each) for each in pids]
        own, began = cpu_seconds(os.getpid()), time.monotonic()
        window = load.run(requests)
        self.own.append((cpu_seconds(os.getpid()) - own) / (time.monotonic() - began))
        spent = [cpu_seconds(each) - was for each, was in zip(pids, before, strict=True)]
        self.busiest.append(window.requests / max(spent))
        self.both.append(sum(spent) / window.requests)


def free_pair() -> int:
    """Return the first of two ports in a row that are free."""
    for first in range(20_000, 60_000, 2):
        with suppress(OSError), ExitStack() as held:
            for port in (first, first + 1):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise RuntimeError("no ports are free")


def measure(windows: int, requests: int) -> tuple[Measured, Measured, Measured, float]:
    """Measure one process, two, and two with requests that cross; and the share that has crossed.

    The share is that of the second broker, where no request has to cross.
    """
    alone, two, crossing = Measured(), Measured(), Measured()
    near, route_id = free_pair(), uuid4()
    several = [*ONWARD, "--processes", str(PROCESSES)]
    with TemporaryDirectory() as folder:
        at = ["--cluster-advertise", f"rsocket+tcp://127.0.0.1:{near}"]
        with (
            broker(ONWARD) as (one_pid, one_port),
            broker([*several, "--process-folder", folder]) as (two_pid, two_port),
            broker([*several, *at]) as (cross_pid, _),
            open_loads(one_port) as load_of_one,
            open_loads(two_port) as load_of_two,
            open_load(
                near, requesters=PEERS, in_flight=IN_FLIGHT, shape=shape_of(near + 1, route_id)
            ) as load_across,
        ):
            runs = (
                (alone, load_of_one, [one_pid]),
                (two, load_of_two, started_by(two_pid)),
                (crossing, load_across, started_by(cross_pid)),
            )
            for _, load, _ in runs:
                load.run(requests // 10)
            before = crossed(folder)
            for _ in range(windows):
                for measured, load, pids in runs:
                    measured.add(load, pids, requests)
            share = (crossed(folder) - before) / (windows * requests)
    return alone, two, crossing, share


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="A broker of two processes.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    windows, requests = (QUICK_WINDOWS, QUICK_REQUESTS) if arguments.quick else (WINDOWS, REQUESTS)
    alone, two, crossing, share = measure(windows, requests)
    report = Report("processes", noise=spread(alone.busiest))
    report.figure("one process", median(alone.busiest), "requests/s")
    report.figure("two processes, by the busiest", median(two.busiest), "requests/s")
    report.figure("of these requests, cross to the other", 100 * share, "%")
    report.figure("CPU of a request that stays, all together", 1e6 * median(two.both), "µs")
    report.figure("CPU of a request that crosses, both", 1e6 * median(crossing.both), "µs")
    ratio = median(b / a for a, b in zip(two.both, crossing.both, strict=True))
    report.figure("crosses / stays", ratio, "x")
    report.figure("share of a core that the load takes", median(two.own), "of 1")
    pairs = zip(alone.busiest, two.busiest, strict=True)
    report.target("two processes / one", median(b / a for a, b in pairs), "x", at_least=TARGET)
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
