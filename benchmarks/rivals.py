"""Onward's broker against the Java broker, nats-server and a bare relay: CPU, latency, memory.

All get the same load of raw frames in the same run and in turn (`_rawload.py`, `_mixedload.py`;
nats-server an equal one of its own protocol). The Java broker, rsocket-broker 0.3.0, has the JVM's
own defaults and is warmed up until two windows agree within 5 %, for at least ten seconds. If they
do not within thirty, it is measured all the same, and a note at the end reports that. The bare
relay (`_relay.py`) replaces stream ids and does nothing else: no broker in Python on this loop can
cost less. A broker that is not on the machine is left out, with a note.

*CPU* is the CPU time of all threads of the broker's process, for each request. *Latency* is
measured at a fixed rate in an open loop, the same for both brokers: shares of the slower one's
maximum. *Memory* is the growth of a newly started broker with many idle connections, each a route.

Targets: 1.5 times the requests of the Java broker for each CPU second, as many as nats-server at 64
in flight, a p99 no worse than Java's, no request refused at rates that all sustain, at most 20 KiB
for an idle connection and half of Java's. They apply to pure Python and, if `make compiled` has
been run, to the compiled build as well: `onward` and `compiled` in the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from _mixedload import ELEMENTS, Refused, Scenario
from _report import Report
from _rivals import (
    COMPILED,
    JAVA,
    NATS,
    ONWARD,
    RELAY,
    Missing,
    OtherPrograms,
    Rival,
    raise_file_limit,
    start,
)
from _versus import Idle, Latency, Samples, Size, cpu_costs, idle_cost, latencies
from _wire import Interaction, Routing

FULL = Size(
    windows=5,
    window=0.8,
    warm_up=1.0,
    java_warm_up=10.0,
    java_again=4.0,
    rate_window=2.0,
    idle=5_000,
)
QUICK = Size(
    windows=1,
    window=0.1,
    warm_up=0.1,
    java_warm_up=0.1,
    java_again=0.1,
    rate_window=0.2,
    idle=200,
    quick=True,
)

STANDARD = Scenario("response, 64 in flight")
MULTICAST = [
    Scenario("response of 10, multicast", routing=Routing.MULTICAST, destinations=10),
    Scenario(
        "fire-and-forget to 10, multicast",
        Interaction.FIRE_AND_FORGET,
        Routing.MULTICAST,
        destinations=10,
    ),
]
SCENARIOS = [
    STANDARD,
    Scenario("response, 1 in flight", in_flight=1),
    Scenario("response, 512 in flight", in_flight=512),
    Scenario("response of 1 KiB", size=1024),
    # More in flight would fill the sockets: the load would wait for itself.
    Scenario("response of 64 KiB, 8 in flight", size=64 * 1024, in_flight=8),
    Scenario(f"stream of {ELEMENTS}, 16 in flight", Interaction.STREAM, in_flight=16),
    Scenario("fire-and-forget", Interaction.FIRE_AND_FORGET),
    *MULTICAST,
]
SHARES = {STANDARD: (0.25, 0.5)}
"""The rates for latency, as shares of the slower broker's maximum; one for each other scenario."""
OTHER_SHARES = (0.5,)

FILES = 12_000
QUIET = 0.05
"""The share of the machine's CPU that other programs may use without spoiling latencies."""
CPU_RATIO, NATS_RATIO, P99_RATIO = 1.5, 1.0, 1.0
REFUSED = 0.0
"""In percent: at rates that both brokers sustain no request may fail."""
IDLE_LIMIT, IDLE_RATIO = 20 * 1024, 0.5
COLUMNS = (ONWARD, COMPILED, JAVA, NATS, RELAY)
RIVALS = COLUMNS[1:]
OURS = (ONWARD, COMPILED)
BROKERS = (*OURS, JAVA)
"""The brokers that support all kinds of load; their latencies and memory are measured."""

Costs = Mapping[str, Samples]


class Table:
    """The printed table."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def cpu_heading(self) -> None:
        """Print the heading of the lines of `cpu`."""
        line = f"{'CPU for a request, in µs':<36}{ONWARD:>9}{'':>6}"
        self._add(line + "".join(f"{name:>9}{'':>6}{'ratio':>7}" for name in RIVALS))

    def cpu(self, name: str, costs: Costs) -> None:
        """Print the CPU time of a request; a ratio is the rival's time to Onward's."""
        line = f"  {name:<34}"
        for column in COLUMNS:
            cost = costs.get(column)
            line += "-".rjust(9) + " " * 6 if cost is None else _microseconds(cost)
            if column != ONWARD:
                ratio = "" if cost is None else f"{cost.over(costs[ONWARD]):.2f}x"
                line += f"{ratio:>7}"
        self._add(line)

    def latency_heading(self) -> None:
        """Print the heading of the lines of `latency`."""
        line = f"{'latency, in µs, at requests/s':<46}"
        for name in BROKERS:
            line += f"{name + ' p50':>13}{'p99':>8}{'':>6}{'p99.9':>8}{'':>6}"
        self._add(f"{line}{'p99 ratio':>10}")

    def latency(self, name: str, rate: float, found: Mapping[str, Latency]) -> None:
        """Print the latencies at a rate; the ratio is of pure Python to Java."""
        line = f"  {name:<34}{rate:>10,.0f}"
        for broker in BROKERS:
            if (latency := found.get(broker)) is None:
                line += "-".rjust(13) + " " * 28
                continue
            line += f"{latency.p50.median * 1e6:>13.0f}"
            line += _microseconds(latency.p99, 8, 0) + _microseconds(latency.p999, 8, 0)
        if JAVA in found:
            line += f"{found[ONWARD].p99.over(found[JAVA].p99):>9.2f}x"
        for broker, latency in found.items():
            if refused := max(latency.refused.values):
                line += f"  {broker} refused up to {refused:.2%}"
        self._add(line)

    def idle(self, count: int, found: Mapping[str, Idle]) -> None:
        """Print the cost of idle connections."""
        self._add(f"{count:,} idle connections")
        for name, idle in found.items():
            self._add(
                f"  {name:<34}{idle.each / 1024:>9.1f} KiB each, "
                f"{idle.request.median * 1e6:.2f} µs of CPU for a request meanwhile"
            )

    def _add(self, line: str) -> None:
        self.lines.append(line.rstrip())
        print(self.lines[-1], flush=True)


def start_all(names: Sequence[str], stack: ExitStack, report: Report) -> list[Rival]:
    """Start the available brokers, and note why others are left out."""
    rivals: list[Rival] = []
    for name in names:
        try:
            rivals.append(stack.enter_context(start(name)))
        except Missing as missing:
            report.note(f"{name} is left out: {missing}")
            print(report.notes[-1], flush=True)
        else:
            if rivals[-1].note:
                report.note(rivals[-1].note)
                print(report.notes[-1], flush=True)
    return rivals


def measure_cpu(
    rivals: Sequence[Rival], size: Size, table: Table, report: Report
) -> list[Scenario]:
    """Measure and compare the CPU time of every scenario; return the scenarios measured.

    Scenarios with a routing that a broker refuses, as another version may, are left out.
    """
    table.cpu_heading()
    warm: set[str] = set()
    measured: list[Scenario] = []
    refused: set[Routing] = set()
    for scenario in SCENARIOS:
        if scenario.routing in refused:
            continue
        try:
            costs = cpu_costs(scenario, rivals, size, warm, report)
        except Refused as error:
            refused.add(scenario.routing)
            report.note(f"{scenario.routing.name.lower()} is left out: {error}")
            print(report.notes[-1], flush=True)
            continue
        measured.append(scenario)
        table.cpu(scenario.name, costs)
        for name, cost in costs.items():
            report.figure(f"{scenario.name}: {name}", cost.median * 1e6, "µs", cost.noise)
        report.noise = max(report.noise, costs[ONWARD].noise)
        for name in OURS:
            if name not in costs:
                continue
            label = f"{named(scenario.name, name)}: requests"
            if JAVA in costs:
                hold(report, f"{label} / Java's", costs[JAVA].over(costs[name]), CPU_RATIO)
            if NATS in costs and scenario is STANDARD:
                hold(report, f"{label} / NATS's", costs[NATS].over(costs[name]), NATS_RATIO)
    return measured


def measure_latency(
    scenarios: Sequence[Scenario],
    rivals: Sequence[Rival],
    size: Size,
    table: Table,
    report: Report,
) -> None:
    """Measure each scenario's latency, and compare p99 with Java's."""
    table.latency_heading()
    compared = [rival for rival in rivals if rival.name in BROKERS]
    for scenario in scenarios:
        if scenario.uniform and scenario.in_flight != STANDARD.in_flight and scenario.size == 64:
            continue  # at a fixed rate the number in flight follows from the rate
        shares = SHARES.get(scenario, OTHER_SHARES)
        for share, rate, found in latencies(scenario, compared, shares, size, report):
            label = scenario.name.partition(",")[0] if scenario.uniform else scenario.name
            table.latency(label, rate, found)
            at = f"{label} at {share:.0%}"
            for name, latency in found.items():
                for what, samples in (
                    ("p50", latency.p50),
                    ("p99", latency.p99),
                    ("p99.9", latency.p999),
                ):
                    report.figure(
                        f"{at}: {what}, {name}", samples.median * 1e6, "µs", samples.noise
                    )
            for name in OURS:
                if name not in found:
                    continue
                refused = max(found[name].refused.values)
                report.target(f"{named(at, name)}: refused", refused * 100, "%", at_most=REFUSED)
                if JAVA in found:
                    ratio = found[name].p99.over(found[JAVA].p99)
                    report.target(f"{named(at, name)}: p99 / Java's", ratio, "x", at_most=P99_RATIO)


def measure_idle(names: Sequence[str], size: Size, table: Table, report: Report) -> None:
    """Measure idle connections with newly started brokers."""
    found = {name: idle_cost(name, STANDARD, size, report) for name in names}
    table.idle(size.idle, found)
    for name, idle in found.items():
        report.figure(f"idle connection: {name}", idle.each, "B")
        report.figure(
            f"request beside idle connections: {name}",
            idle.request.median * 1e6,
            "µs",
            idle.request.noise,
        )
    for name in OURS:
        if name not in found:
            continue
        label = named("idle connection", name)
        report.target(label, found[name].each, "B", at_most=IDLE_LIMIT)
        if JAVA in found:
            ratio = found[name].each / found[JAVA].each
            report.target(f"{label} / Java's", ratio, "x", at_most=IDLE_RATIO)


def named(label: str, name: str) -> str:
    """Return the label of a figure, with the name of the build unless it is pure Python."""
    return label if name == ONWARD else f"{name}, {label}"


def hold(report: Report, name: str, ratio: float, at_least: float) -> None:
    """Add a ratio of requests for each CPU second as a target."""
    report.target(name, ratio, "x", at_least=at_least)


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="The broker beside its rivals.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs; no Java")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    names = [name for name in COLUMNS if not (arguments.quick and name == JAVA)]
    report = Report("rivals")
    if arguments.quick:
        report.note("java is left out: it is not for a quick run")
        print(report.notes[-1], flush=True)
    raise_file_limit(FILES)
    others = OtherPrograms()
    table = Table()
    with ExitStack() as stack:
        rivals = start_all(names, stack, report)
        measured = measure_cpu(rivals, size, table, report)
        measure_latency(measured, rivals, size, table, report)
        running = [rival.name for rival in rivals if rival.name in BROKERS]
    measure_idle(running, size, table, report)
    share = others.share()
    report.figure("CPU of the machine that other programs used", share * 100, "%")
    print(report.figures[-1])
    if share > QUIET:
        report.note("the machine was not quiet: read no latencies, and repeat the run")
    if report.notes:
        print("notes")
    for text in report.notes:
        print(f"  {text}")
    print(f"targets (noise {report.noise:.1%})")
    for target in report.targets:
        print(f"  {target}".rstrip())
    if arguments.json:
        print(json.dumps(report.as_object(), ensure_ascii=False))


def _microseconds(samples: Samples, width: int = 9, digits: int = 2) -> str:
    return f"{samples.median * 1e6:>{width}.{digits}f} ±{samples.noise:>3.0%}".ljust(width + 6)


if __name__ == "__main__":
    main()
