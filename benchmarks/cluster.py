"""Requests that one broker forwards to another, beside requests within one broker.

The load of `broker.py` (64 requests of request/response in flight, 64 bytes of data, raw frames) in
turn through one broker, and through two: the requester is connected to one, the destination to the
other. Each broker is a process of its own; what counts is the CPU time of both together.

Then both take turns at one fixed rate, a quarter of what the forwarded load managed; latency counts
from when a request was due.

Targets: a forwarded request takes at most 2.2 times the CPU time of a local one, and the p99 of its
latency is at most twice that of a local one. Both brokers read and relay it; to that comes the
ADDRESS with its pin. Medians of the ratios of neighbouring windows repeat to within 4 % on a quiet
machine. On a machine with fewer free cores than there are processes, three of them, each has to
warm its caches anew after another has run: that is part of what is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from statistics import median
from uuid import UUID, uuid4

from _rawload import SERVICE, Load, Sent, Shape, connect, cpu_seconds, open_load, rsocket_shape
from _report import Report
from broker import IN_FLIGHT, broker, spread

PEER = [sys.executable, str(Path(__file__).with_name("_peer_broker.py"))]
TARGET = 2.2
"""CPU time of a forwarded request, in both brokers, against a local one."""

LATENCY_TARGET = 2.0
"""The p99 of the latency of a forwarded request, against a local one at the same rate."""

WINDOWS, REQUESTS = 9, 100_000
QUICK_WINDOWS, QUICK_REQUESTS = 1, 10_000
RATED = 10
"""Requests of a window for each one of a window at a fixed rate."""

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


@contextmanager
def two_brokers(route_id: UUID) -> Generator[tuple[tuple[int, int], int, int]]:
    """Start two brokers; yield their process ids, and the ports of the near and the far one."""
    with broker(PEER) as (far_pid, far_port):
        uri = f"rsocket+tcp://127.0.0.1:{far_port}"
        with broker([*PEER, uri, SERVICE, str(route_id)]) as (near_pid, near_port):
            yield (near_pid, far_pid), near_port, far_port


def cost(load: Load, requests: int, *pids: int) -> float:
    """Return the CPU seconds of some processes for each request of a window."""
    before = sum(map(cpu_seconds, pids))
    window = load.run(requests)
    return (sum(map(cpu_seconds, pids)) - before) / window.requests


def p99(took: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(took)[len(took) * 99 // 100]


@dataclass(slots=True)
class Found:
    """The figures of each window.

    Attributes:
        local: CPU seconds of a local request.
        at_near: CPU seconds of a forwarded one at the broker of its requester.
        at_far: CPU seconds of it at the broker of its destination.
        rate: The rate for the latencies, in requests for each second.
        local_p99: The p99 of the latency of a local request, in seconds.
        forwarded_p99: The same of a forwarded one.
    """

    local: list[float] = field(default_factory=list[float])
    at_near: list[float] = field(default_factory=list[float])
    at_far: list[float] = field(default_factory=list[float])
    rate: float = 0.0
    local_p99: list[float] = field(default_factory=list[float])
    forwarded_p99: list[float] = field(default_factory=list[float])


def measure(windows: int, requests: int) -> Found:
    """Measure local and forwarded requests in turn."""
    found = Found()
    route_id = uuid4()
    with (
        broker(PEER) as (pid, port),
        two_brokers(route_id) as (pids, near, far),
        open_load(port, requesters=1, in_flight=IN_FLIGHT) as alone,
        open_load(
            near, requesters=1, in_flight=IN_FLIGHT, shape=shape_of(far, route_id)
        ) as between,
    ):
        alone.run(requests // 10)
        window = between.run(requests // 10)
        for _ in range(windows):
            found.local.append(cost(alone, requests, pid))
            before = cpu_seconds(pids[1])
            both = cost(between, requests, *pids)
            found.at_far.append((cpu_seconds(pids[1]) - before) / requests)
            found.at_near.append(both - found.at_far[-1])
        found.rate = window.requests / window.seconds / 4
        for _ in range(windows):
            found.local_p99.append(p99(alone.run_at(requests // RATED, found.rate)))
            found.forwarded_p99.append(p99(between.run_at(requests // RATED, found.rate)))
    return found


def report_on(found: Found) -> Report:
    """Report the medians, and the ratio of each pair of windows."""
    local, at_near, at_far = found.local, found.at_near, found.at_far
    forwarded = [sum(each) for each in zip(at_near, at_far, strict=True)]
    report = Report("cluster", noise=spread(local))
    report.figure("CPU of a local request", median(local) * 1e6, "µs")
    report.figure("CPU of a forwarded request, both brokers", median(forwarded) * 1e6, "µs")
    report.figure("of it, at the requester's broker", median(at_near) * 1e6, "µs")
    report.figure("of it, at the destination's broker", median(at_far) * 1e6, "µs")
    ratio = median(far / near for near, far in zip(local, forwarded, strict=True))
    report.target("forwarded / local", ratio, "x", at_most=TARGET)
    if ratio > TARGET:
        report.note("the requester's broker has to pin the request, and to count it for its route,")
        report.note("and each of the two runs on caches that the other has used since")
    report.figure("rate for the latencies", found.rate, "/s")
    report.figure("p99 of a local request", median(found.local_p99) * 1e6, "µs")
    report.figure("p99 of a forwarded request", median(found.forwarded_p99) * 1e6, "µs")
    late = median(
        far / near for near, far in zip(found.local_p99, found.forwarded_p99, strict=True)
    )
    report.target("p99, forwarded / local", late, "x", at_most=LATENCY_TARGET)
    return report


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Requests from one broker to another.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    size = (QUICK_WINDOWS, QUICK_REQUESTS) if arguments.quick else (WINDOWS, REQUESTS)
    report_on(measure(*size)).print(as_json=arguments.json)


if __name__ == "__main__":
    main()
