"""Requests that one broker forwards to another, beside requests within one; and idle brokers.

The load of `broker.py` (64 requests of request/response in flight, 64 bytes of data, raw frames) in
turn through one broker, and through two: the requester is connected to one, the destination to the
other. Each broker is a process of its own; what counts is the CPU time of both together. The same
is measured of the compiled build, if there is one (`make compiled`), and of two nats-servers that
are joined by a route, with an equal load of their protocol. They are found as by `rivals.py`, and
what is missing is left out, with a note. The load is a process of its own; its CPU time for a
request is a figure of its own.

Then Onward's brokers take turns at one fixed rate, a quarter of what the forwarded load managed;
latency counts from when a request was due.

At last nine brokers form a cluster without clients, and their CPU time is measured at rest.

Targets: a forwarded request takes at most 2.2 times the CPU time of a local one, and the p99 of its
latency is at most twice that of a local one. Both brokers read and relay it; to that comes the
ADDRESS with its pin. Medians of the ratios of neighbouring windows repeat to within 4 % on a quiet
machine. On a machine with fewer free cores than there are processes, three of them, each has to
warm its caches anew after another has run: that is part of what is measured. Each idle broker of
nine takes at most 0.2 % of a core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from statistics import median
from uuid import UUID, uuid4

from _idle_cluster import BROKERS, idle_brokers, idle_shares
from _nats import nats_shape
from _nats_route import nats_server, routed_servers, routed_shape
from _rawload import (
    DATA,
    SERVICE,
    Load,
    Sent,
    Shape,
    connect,
    cpu_seconds,
    open_load,
    rsocket_shape,
)
from _report import Report
from _rivals import (
    COMPILED,
    LISTENING,
    NATS,
    ONWARD,
    Missing,
    OtherPrograms,
    compiled_environment,
    compiled_note,
    running,
)
from broker import IN_FLIGHT, spread

PEER = [sys.executable, str(Path(__file__).with_name("_peer_broker.py"))]
TARGET = 2.2
"""CPU time of a forwarded request, in both brokers, against a local one."""

LATENCY_TARGET = 2.0
"""The p99 of the latency of a forwarded request, against a local one at the same rate."""

IDLE = 0.2
"""Per cent of a core that an idle broker of a cluster uses."""

RATED = 10
"""Requests of a window for each one of a window at a fixed rate."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of measurement.

    Attributes:
        windows: Windows of each load.
        requests: Requests of each window.
        rest: Seconds for which idle brokers are measured.
        brokers: How many they are.
    """

    windows: int
    requests: int
    rest: float
    brokers: int


FULL = Size(9, 100_000, 20.0, BROKERS)
QUICK = Size(1, 10_000, 1.0, 3)

_METADATA = 9
"""The offset of the length of the metadata in a request."""


def pinned(frame: bytes, route_id: UUID) -> bytes:
    """Return a request as the other broker passes it on: with the tag RouteId in its ADDRESS."""
    text = str(route_id).encode()
    tag = b"\x82" + bytes([0x80 | len(text)]) + text
    start = _METADATA + 3
    entry = start + 1 + frame[start] + 1  # behind the name of its type
    tags = entry + 3 + 6 + 16  # behind the header and the origin
    made = bytearray(frame[:tags] + tag + frame[tags:])
    for at in (0, _METADATA, entry):
        made[at : at + 3] = (int.from_bytes(made[at : at + 3]) + len(tag)).to_bytes(3)
    return bytes(made)


def shape_of(far: int, route_id: UUID) -> Shape:
    """Return the shape of a load with its destination at another broker, under a fixed route id."""
    plain = rsocket_shape()
    request, number = plain.request.written, plain.request.number

    def connected(port: int, name: str) -> socket:
        return connect(far, name, route_id.bytes) if name == SERVICE else connect(port, name)

    sent = Sent(request, number, pinned(request, route_id), number, plain.request.same)
    return Shape(sent, plain.answer, plain.numbers, connected, keep_alive=plain.keep_alive)


@dataclass(frozen=True, slots=True)
class Contender:
    """One program, as one broker and as two.

    Attributes:
        name: Its name.
        alone: The load through one broker.
        pid: The process id of that broker.
        between: The load through two.
        near: The process id of the broker of the requester.
        far: That of the broker of the destination.
    """

    name: str
    alone: Load
    pid: int
    between: Load
    near: int
    far: int


@contextmanager
def onward(name: str) -> Generator[Contender]:
    """Start three of Onward's brokers, two of which are linked.

    Raises:
        Missing: There is no such build.
    """
    environment = compiled_environment() if name == COMPILED else {}
    route_id = uuid4()
    with ExitStack() as stack:

        def started(*words: str) -> tuple[int, int]:
            return stack.enter_context(running([*PEER, *words], LISTENING, environment))

        pid, port = started()
        far, far_port = started()
        near, near_port = started(f"rsocket+tcp://127.0.0.1:{far_port}", SERVICE, str(route_id))
        alone = stack.enter_context(open_load(port, requesters=1, in_flight=IN_FLIGHT))
        shape = shape_of(far_port, route_id)
        between = stack.enter_context(
            open_load(near_port, requesters=1, in_flight=IN_FLIGHT, shape=shape)
        )
        yield Contender(name, alone, pid, between, near, far)


@contextmanager
def nats() -> Generator[Contender]:
    """Start three nats-servers, two of which are joined by a route.

    Raises:
        Missing: nats-server is not installed on this machine.
    """
    with (
        nats_server() as (pid, port, _),
        routed_servers() as ((near, far), near_port, far_port),
        open_load(port, requesters=1, in_flight=IN_FLIGHT, shape=nats_shape(DATA)) as alone,
        open_load(
            near_port, requesters=1, in_flight=IN_FLIGHT, shape=routed_shape(far_port)
        ) as between,
    ):
        yield Contender(NATS, alone, pid, between, near, far)


@dataclass(slots=True)
class Costs:
    """The figures of each window of one contender, for each request.

    Attributes:
        local: CPU seconds of a local request.
        at_near: CPU seconds of a forwarded one at the broker of its requester.
        at_far: CPU seconds of it at the broker of its destination.
        load: CPU seconds of this process for a forwarded one.
        local_rate: Local requests in a second.
        rate: Forwarded ones in a second.
    """

    local: list[float] = field(default_factory=list[float])
    at_near: list[float] = field(default_factory=list[float])
    at_far: list[float] = field(default_factory=list[float])
    load: list[float] = field(default_factory=list[float])
    local_rate: list[float] = field(default_factory=list[float])
    rate: list[float] = field(default_factory=list[float])

    def add(self, contender: Contender, requests: int) -> None:
        """Run a window of local requests, and one of forwarded ones."""
        (used,), rate, _ = cost(contender.alone, requests, contender.pid)
        self.local.append(used)
        self.local_rate.append(rate)
        (near, far), rate, load = cost(contender.between, requests, contender.near, contender.far)
        self.at_near.append(near)
        self.at_far.append(far)
        self.rate.append(rate)
        self.load.append(load)

    @property
    def forwarded(self) -> list[float]:
        """CPU seconds of a forwarded request in both brokers."""
        return [sum(each) for each in zip(self.at_near, self.at_far, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of a forwarded request's CPU time to that of a local one, by window."""
        return median(far / near for near, far in zip(self.local, self.forwarded, strict=True))


def cost(load: Load, requests: int, *pids: int) -> tuple[list[float], float, float]:
    """Run a window.

    Returns:
        The CPU seconds of each of some processes for a request, the requests in a second, and the
        CPU seconds of this process for a request.
    """
    before, own = [cpu_seconds(pid) for pid in pids], time.process_time()
    window = load.run(requests)
    own = time.process_time() - own
    used = [cpu_seconds(pid) - at for pid, at in zip(pids, before, strict=True)]
    count = window.requests
    return [each / count for each in used], count / window.seconds, own / count


def p99(took: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(took)[len(took) * 99 // 100]


@dataclass(slots=True)
class Late:
    """The p99 of the latencies of each window of one contender, in seconds."""

    local: list[float] = field(default_factory=list[float])
    forwarded: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class Found:
    """All figures of a run.

    Attributes:
        costs: The costs by the name of the contender.
        rate: The rate for the latencies, in requests for each second.
        late: The latencies by the name of the contender.
        idle: The shares of a core that idle brokers of a cluster use, in per cent.
        alone: The same of a broker without peer brokers.
        notes: What was left out, and why.
    """

    costs: dict[str, Costs] = field(default_factory=dict[str, Costs])
    rate: float = 0.0
    late: dict[str, Late] = field(default_factory=dict[str, Late])
    idle: list[float] = field(default_factory=list[float])
    alone: float = 0.0
    notes: list[str] = field(default_factory=list[str])


def measure(size: Size) -> Found:
    """Measure all contenders in turn, and then idle brokers for some seconds."""
    found, others, requests = Found(), OtherPrograms(), size.requests
    with ExitStack() as stack:
        contenders = list[Contender]()
        for name, start in ((ONWARD, onward(ONWARD)), (COMPILED, onward(COMPILED)), (NATS, nats())):
            try:
                contenders.append(stack.enter_context(start))
            except Missing as missing:
                found.notes.append(f"{name} is left out: {missing}")
                continue
            if name == COMPILED and (note := compiled_note()):
                found.notes.append(note)
        for each in contenders:
            Costs().add(each, requests // 10)
            found.costs[each.name] = Costs()
        for _ in range(size.windows):
            for each in contenders:
                found.costs[each.name].add(each, requests)
        found.rate = median(found.costs[ONWARD].rate) / 4
        ours = [each for each in contenders if each.name != NATS]
        found.late = {each.name: Late() for each in ours}
        for _ in range(size.windows):
            for each in ours:
                late, count = found.late[each.name], requests // RATED
                late.local.append(p99(each.alone.run_at(count, found.rate)))
                late.forwarded.append(p99(each.between.run_at(count, found.rate)))
    with idle_brokers(1, size.rest) as pids:
        (found.alone,) = idle_shares(pids, size.rest)
    with idle_brokers(size.brokers, size.rest) as pids:
        found.idle = idle_shares(pids, size.rest)
    # The brokers that have ended are children of this process: they do not count.
    found.notes.append(f"other programs used {others.share():.0%} of the machine meanwhile")
    return found


def report_on(found: Found) -> Report:
    """Report the medians, and the ratio of each pair of windows."""
    report = Report("cluster", noise=spread(found.costs[ONWARD].local))
    for name, costs in found.costs.items():
        _report_costs(report, name, costs)
    report.figure("rate for the latencies", found.rate, "/s")
    for name, late in found.late.items():
        report.figure(f"{name}: p99 of a local request", median(late.local) * 1e6, "µs")
        report.figure(f"{name}: p99 of a forwarded request", median(late.forwarded) * 1e6, "µs")
        ratio = median(far / near for near, far in zip(late.local, late.forwarded, strict=True))
        report.target(f"{name}: p99, forwarded / local", ratio, "x", at_most=LATENCY_TARGET)
    brokers = len(found.idle)
    report.figure("an idle broker alone", found.alone, "% of a core")
    report.figure(f"an idle broker of {brokers}, median", median(found.idle), "% of a core")
    report.target(f"an idle broker of {brokers}, the worst", max(found.idle), "%", at_most=IDLE)
    for note in found.notes:
        report.note(note)
    return report


def _report_costs(report: Report, name: str, costs: Costs) -> None:
    report.figure(f"{name}: CPU of a local request", median(costs.local) * 1e6, "µs")
    report.figure(f"{name}: of a forwarded one, both brokers", median(costs.forwarded) * 1e6, "µs")
    report.figure(f"{name}: of it, at the requester's broker", median(costs.at_near) * 1e6, "µs")
    report.figure(f"{name}: of it, at the destination's", median(costs.at_far) * 1e6, "µs")
    report.figure(f"{name}: CPU of the load, beside that", median(costs.load) * 1e6, "µs")
    report.figure(f"{name}: local requests", median(costs.local_rate), "/s")
    report.figure(f"{name}: forwarded requests", median(costs.rate), "/s")
    if name == NATS:
        report.figure(f"{name}: forwarded / local", costs.ratio, "x")
        return
    report.target(f"{name}: forwarded / local", costs.ratio, "x", at_most=TARGET)
    if costs.ratio > TARGET:
        report.note(
            f"{name}: the requester's broker has to pin the request, and to count it for its"
        )
        report.note("route, and each of the two runs on caches that the other has used since")


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Requests from one broker to another.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    report_on(measure(QUICK if arguments.quick else FULL)).print(as_json=arguments.json)


if __name__ == "__main__":
    main()
