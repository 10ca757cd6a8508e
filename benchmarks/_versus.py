"""The comparison of brokers: warm-up, windows in turn, rates, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from _harness import noise
from _idle import SETTLING, collect_garbage, idle_connections, resident_bytes
from _mixedload import MixedLoad, Rated, Scenario, open_mixed_load
from _rawload import Window, cpu_seconds, open_load
from _report import Report
from _rivals import JAVA, NATS, RELAY, Rival, start

__all__ = ["Idle", "Latency", "Samples", "Size", "cpu_costs", "idle_cost", "latencies", "quantile"]

LONGEST = 3
"""The longest warm-up as a multiple of the shortest."""
AGREE = 0.05
"""The relative difference of the costs of two windows below which a load has settled."""
PREPARED = 256 * 1024 * 1024
"""The most bytes of requests for one window; the windows of large requests are shorter."""
FIRST_REQUESTS = 200
BARE = (NATS, RELAY)
"""Rivals that are measured only with request/response to one destination."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of measurement.

    Attributes:
        windows: Windows of each broker, in turn.
        window: Seconds of one.
        warm_up: The least seconds of load before the first window, for all but Java. After three
            times as many the report notes that the load has not settled.
        java_warm_up: The same for Java, before its first load.
        java_again: The same for Java, for each other kind of load.
        rate_window: Seconds of a window at a fixed rate.
        idle: Idle connections.
        quick: Whether nats-server gets one kind of load only: its connections take two seconds
            each to open.
    """

    windows: int
    window: float
    warm_up: float
    java_warm_up: float
    java_again: float
    rate_window: float
    idle: int
    quick: bool = False


class Load(Protocol):
    """A load that sends requests through a broker."""

    def run(self, requests: int) -> Window:
        """Send a number of requests and wait for their answers."""
        ...


@dataclass(slots=True)
class Samples:
    """The values of one broker, one for each window."""

    values: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        """The median of the windows."""
        return statistics.median(self.values)

    @property
    def noise(self) -> float:
        """The scatter of the middle half of the windows, relative to the median."""
        return noise(self.values)

    def over(self, other: Samples) -> float:
        """Return the median of the ratios of this to another, window by window."""
        return statistics.median(
            mine / its for mine, its in zip(self.values, other.values, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """One broker at a fixed rate: quantiles in seconds, and the share of requests that failed."""

    p50: Samples = field(default_factory=Samples)
    p99: Samples = field(default_factory=Samples)
    p999: Samples = field(default_factory=Samples)
    refused: Samples = field(default_factory=Samples)

    def add(self, window: Rated) -> None:
        """Add one window."""
        self.refused.values.append(window.refused)
        ordered = sorted(window.took)
        for samples, share in ((self.p50, 0.5), (self.p99, 0.99), (self.p999, 0.999)):
            samples.values.append(quantile(ordered, share))


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost of idle connections in a broker.

    Attributes:
        each: Bytes of memory for each.
        request: CPU seconds of a request to another destination meanwhile, by window.
    """

    each: float
    request: Samples


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of the ordered values does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def cpu_costs(
    scenario: Scenario, rivals: Sequence[Rival], size: Size, warm: set[str], report: Report
) -> dict[str, Samples]:
    """Measure the CPU seconds of each broker for a request, in windows that take turns.

    Args:
        scenario: The load.
        rivals: The brokers; those that do not support the load are left out.
        size: The amount of measurement.
        warm: The brokers that have had load; those measured are added.
        report: The report that notes a broker that did not settle.

    Raises:
        Refused: A broker answered the load with an error.
        RuntimeError: A broker sent an unexpected frame, closed a connection or stopped answering.
    """
    costs: dict[str, Samples] = {}
    with ExitStack() as stack:
        running: list[tuple[Rival, Load, int]] = []
        for rival in rivals:
            if rival.name in BARE and not scenario.uniform:
                continue
            if rival.name == NATS and size.quick and NATS in warm:
                continue
            load = stack.enter_context(_open(rival, scenario))
            rate = _settle(rival, load, scenario, size, warm, report)
            running.append((rival, load, _window_of(scenario, rate, size.window)))
            costs[rival.name] = Samples()
        for _ in range(size.windows):
            for rival, load, requests in running:
                before = cpu_seconds(rival.pid)
                load.run(requests)
                used = cpu_seconds(rival.pid) - before
                costs[rival.name].values.append(used / requests)
    return costs


def latencies(
    scenario: Scenario,
    rivals: Sequence[Rival],
    shares: Sequence[float],
    size: Size,
    report: Report,
) -> list[tuple[float, float, Mapping[str, Latency]]]:
    """Measure the time of requests at rates that are shares of the slowest broker's maximum.

    Returns:
        For each share the rate, in requests a second, and the brokers.
    """
    found: list[tuple[float, float, Mapping[str, Latency]]] = []
    with ExitStack() as stack:
        loads: dict[str, MixedLoad] = {}
        best: list[float] = []
        for rival in rivals:
            load = stack.enter_context(open_mixed_load(rival.port, scenario))
            best.append(_settle(rival, load, scenario, size, {JAVA}, report))
            loads[rival.name] = load
        for share in shares:
            rate = min(best) * share
            seconds = min(size.rate_window, PREPARED / rate / (scenario.size + 128))
            by_name = {name: Latency() for name in loads}
            for _ in range(size.windows):
                for name, load in loads.items():
                    by_name[name].add(load.run_at(rate, seconds))
            found.append((share, rate, by_name))
    return found


def idle_cost(name: str, scenario: Scenario, size: Size, report: Report) -> Idle:
    """Start a new broker and measure it with many idle connections."""
    with start(name) as rival, _open(rival, scenario) as load:
        load.run(FIRST_REQUESTS)
        before = _memory(rival, report)
        with idle_connections(rival.port, size.idle):
            each = (_memory(rival, report) - before) / size.idle
            rate = _settle(rival, load, scenario, size, set(), report)
            requests = _window_of(scenario, rate, size.window)
            cost = Samples()
            for _ in range(size.windows):
                started = cpu_seconds(rival.pid)
                load.run(requests)
                cost.values.append((cpu_seconds(rival.pid) - started) / requests)
    return Idle(each, cost)


@contextmanager
def _open(rival: Rival, scenario: Scenario) -> Generator[Load]:
    """Connect the cheapest load for a scenario."""
    if scenario.uniform:
        shape = rival.shape(b"x" * scenario.size)
        with open_load(
            rival.port, requesters=1, in_flight=scenario.in_flight, shape=shape
        ) as uniform:
            yield uniform
    else:
        with open_mixed_load(rival.port, scenario) as mixed:
            yield mixed


def _settle(
    rival: Rival, load: Load, scenario: Scenario, size: Size, warm: set[str], report: Report
) -> float:
    """Run a load until its cost is stable; return its requests a second.

    If the cost is not stable after `LONGEST` times the least warm-up, the report notes that.
    """
    least = size.warm_up
    if rival.name == JAVA:
        least = size.java_again if JAVA in warm else size.java_warm_up
    warm.add(rival.name)
    started = time.perf_counter()
    requests, rate, last = min(FIRST_REQUESTS, 2 * scenario.in_flight), 0.0, 0.0
    differ = 1.0
    while (took := time.perf_counter() - started) < LONGEST * least:
        before = cpu_seconds(rival.pid)
        window = load.run(requests)
        cost = (cpu_seconds(rival.pid) - before) / requests
        rate = window.requests / window.seconds
        if took >= least and abs(cost - last) <= AGREE * cost:
            break
        differ = abs(cost - last) / cost if cost else 0.0
        last = cost
        requests = _window_of(scenario, rate, size.window)
    else:
        if not size.quick:  # a quick run measures nothing
            report.note(
                f"{rival.name}, {scenario.name}: not settled after {took:.0f} s of load, "
                f"the last two windows differ by {differ:.0%}"
            )
    return rate


def _window_of(scenario: Scenario, rate: float, seconds: float) -> int:
    most = PREPARED // (scenario.size + 128)
    return max(scenario.in_flight, min(most, round(rate * seconds)))


def _memory(rival: Rival, report: Report) -> int:
    if rival.name == JAVA and not collect_garbage(rival.pid):
        note = "java's memory has its garbage in it: there is no jcmd to collect it, or it failed"
        if note not in report.notes:
            report.note(note)
    time.sleep(SETTLING)
    return resident_bytes(rival.pid)
