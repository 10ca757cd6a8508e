"""A broker of two processes beside one of a single process: requests for each second.

64 destinations of one service, and 64 requesters that keep 256 requests of request/response in
flight (raw frames, 64 bytes of data, as `broker.py`), in turn through `onward broker` and through
`onward broker --processes 2`. The system spreads the connections; a request stays in the process
that it came to, as that has a destination for it.

The load takes a core of its own, so on a machine of two cores the wall time says nothing. What
bounds the rate is the process with the most CPU time: each has one core at most. So the rate is
that of the requests for each CPU second of the busiest process.

Target: at least 1.7 times the rate. How the system spreads 64 requesters is a part of it: with 36
on one process the most is 1.78. Medians repeat to within 10 %.
"""

from __future__ import annotations

import argparse
import selectors
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from _rawload import Load, Window, _Destination, _Requester, cpu_seconds, rsocket_shape
from _report import Report
from broker import ONWARD, broker, spread

PEERS, IN_FLIGHT = 64, 256
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


def rates(load: Loads, pids: list[int], requests: int) -> tuple[float, float]:
    """Return the requests for each CPU second of the busiest process, and of all of them."""
    before = [cpu_seconds(each) for each in pids]
    window = load.run(requests)
    spent = [cpu_seconds(each) - was for each, was in zip(pids, before, strict=True)]
    return window.requests / max(spent), window.requests / sum(spent)


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="A broker of two processes.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    windows, requests = (QUICK_WINDOWS, QUICK_REQUESTS) if arguments.quick else (WINDOWS, REQUESTS)
    alone, busiest, together = list[float](), list[float](), list[float]()
    with (
        broker(ONWARD) as (one, port),
        broker([*ONWARD, "--processes", "2"]) as (two, shared),
        open_loads(port) as load_of_one,
        open_loads(shared) as load_of_two,
    ):
        own = started_by(two)
        load_of_one.run(requests // 10)
        load_of_two.run(requests // 10)
        for _ in range(windows):
            alone.append(rates(load_of_one, [one], requests)[0])
            most, both = rates(load_of_two, own, requests)
            busiest.append(most)
            together.append(both)
    report = Report("processes", noise=spread(alone))
    report.figure("one process", median(alone), "requests/s")
    report.figure("two processes, by the busiest", median(busiest), "requests/s")
    report.figure("requests for a CPU second of both", median(together), "requests")
    ratio = median(two / one for one, two in zip(alone, busiest, strict=True))
    report.target("two processes / one", ratio, "x", at_least=TARGET)
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
