"""What a scrape of the metrics does to the loop of a broker: how long it is held, and the CPU.

A broker with the admin interface runs in this process, with 10,000 series of its own: the labels of
a gauge, and histograms. A client in a process of its own scrapes it, again and again. A callback in
each turn of the loop takes the CPU time of it: so long a slice of the text holds the loop, and
requests wait. A timer that is due every 10 ms is late by the time of other programs as well.

Target: no turn takes more than 5 ms of CPU time, by the median of the windows' worst. The figures
repeat to within 20 % on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from statistics import median

from _loop_lag import LoopLag
from _report import Report

from onward.actors import Node, new_event_loop
from onward.actors.broker import Broker
from onward.actors.monitoring import Monitor
from onward.protocol.metrics import DurationHistogram, Metric, MetricFamily
from onward.transports.admin import AdminServer, admin_paths

SERIES = 10_000
HISTOGRAMS = 100
TARGET = 5.0
"""Milliseconds."""

CLIENT = """\
import http.client, sys
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    client.request("GET", "/metrics")
    text = client.getresponse().read()
print(text.count(b"\\n"))
"""

GAUGE = MetricFamily("onward_bench", "gauge", "A figure.", ("kind", "number"))
TIMES = MetricFamily("onward_bench_seconds", "histogram", "Times.", ("number",))


class Turns:
    """The CPU time of each turn of the loop that took some.

    A callback that schedules itself is called once in each turn. A timer would say how late it is,
    with the time that other processes had the machine for.

    Args:
        loop: The loop; it runs on the calling thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns: list[float] = []
        self._last = 0.0
        self._on = False

    def begin(self) -> None:
        """Start to measure."""
        self._turns.clear()
        self._on, self._last = True, time.thread_time()
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        now = time.thread_time()
        self._turns.append(1000 * (now - self._last))
        self._last = now
        if self._on:
            self._loop.call_soon(self._look)

    def taken(self) -> list[float]:
        """Return the turns of more than 0.1 ms, the shortest first, and stop measuring."""
        self._on = False
        return sorted(turn for turn in self._turns if turn > 0.1)


def series() -> Iterator[Metric]:
    """Yield the series of the benchmark."""
    buckets = HISTOGRAMS * 24
    values = (((("kind", str(number))), number * 0.1) for number in range(SERIES - buckets))
    yield Metric(GAUGE, values)
    histogram = DurationHistogram()
    for number in range(1000):
        histogram.add(number / 1000)
    yield Metric(TIMES, tuple(((str(at),), histogram.read()) for at in range(HISTOGRAMS)))


async def scraped(port: int, scrapes: int) -> int:
    """Scrape in a process of its own, and return the lines of the text."""
    command = (sys.executable, "-c", CLIENT, str(port), str(scrapes))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return int(printed)


async def measure(windows: int, scrapes: int) -> Report:
    """Measure some windows of scrapes, and the loop without any between them."""
    held: list[float] = []
    late: list[float] = []
    worst: list[float] = []
    idle: list[float] = []
    cost: list[float] = []
    lines = 0
    async with Node("bench") as node:
        broker = await Broker.attach(node)
        await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        monitor = Monitor(node, broker)
        monitor.metrics.add((GAUGE, TIMES), series)
        server = AdminServer("http://127.0.0.1:0", admin_paths(monitor))
        await node.start(lambda: server)
        port = int(server.uri.rpartition(":")[2])
        await scraped(port, 1)
        lag, turns = LoopLag(node.loop), Turns(node.loop)
        for _ in range(windows):
            lag.begin()
            await asyncio.sleep(0.2)
            idle.append(lag.taken()["lag, 99%, own"])
            lag.begin()
            before = time.thread_time()
            lines = await scraped(port, scrapes)
            cost.append(1000 * (time.thread_time() - before) / scrapes)
            taken = lag.taken()
            late.append(taken["lag, 99%, own"])
            turns.begin()
            await scraped(port, scrapes)
            ends = turns.taken()
            held.append(ends[len(ends) * 99 // 100])
            worst.append(ends[-1])
    noise = (max(cost) - min(cost)) / 2 / median(cost)
    report = Report("admin", noise=noise)
    report.figure("lines of the text", lines, "")
    report.figure("CPU of a scrape", median(cost), "ms")
    report.figure("timers late, 99%, own", median(late), "ms")
    report.figure("timers late without scrapes, 99%, own", median(idle), "ms")
    report.figure("loop held by a slice, 99%", median(held), "ms")
    report.target("loop held by a slice, worst", median(worst), "ms", at_most=TARGET)
    return report


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="A scrape of 10,000 series.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    size = (1, 5) if arguments.quick else (9, 50)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(measure(*size))
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
