"""What the event log costs: a recorded hop, one that is not sampled, a count, and a broker's CPU.

- *hop*: `Recorder.hop` with everything: the clock, packing, and full blocks handed to a writer that
  writes them to a disk; with the look-up of the two names, and without;
- *not sampled*: the check that each request pays, one less and a comparison;
- *count*: what each request pays for its counters, three times: a `Cell` counted on;
- *broker*: the CPU time of a request through `onward broker`, with an event log at the
  default sampling and without, window by window in turn.

The bare operations beside them, in the same run: `struct.pack_into` of the same record, and an
addition to an attribute. Noise as in `_harness`.

Targets: a recorded hop at most 400 ns, the check at most 50 ns, and a broker's request at most 1.03
times as dear.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _harness import Report, parse_arguments, repeat
from _rawload import cpu_seconds, open_load
from broker import IN_FLIGHT, ONWARD, broker

from onward.actors.eventlog import LogOptions, LogWriter, Recorder
from onward.protocol.eventlog import HOP, Kind, Outcome

MESSAGE, DELIVER = int(Kind.MESSAGE), int(Outcome.DELIVER)


class Held:
    """Something with a number, as requests and their counters are."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 1 << 60


def timed(work: Callable[[int], None], count: int) -> float:
    """Return the nanoseconds of CPU time for each of so many."""
    began = time.thread_time_ns()
    work(count)
    return (time.thread_time_ns() - began) / count


def loop(count: int) -> None:
    """Do nothing so many times: what the loop around the others costs."""
    for _ in range(count):
        pass


def pack(count: int) -> None:
    """Pack a record so many times."""
    block = bytearray(64 * 1024)
    into = HOP.pack_into
    for number in range(count):
        into(block, 64 * (number & 1023), number, 1, 2, 3, 1, 3, 0, 0, 1, 2, 3, 4, 5, 6, 100)


def add(count: int) -> None:
    """Add to an attribute so many times."""
    held = Held()
    for _ in range(count):
        held.left -= 1


def recorded(count: int) -> dict[str, float]:
    """Record so many of each on a real disk; return nanoseconds for each."""
    with tempfile.TemporaryDirectory() as folder:
        options = LogOptions(Path(folder), "bench", max_pending=1 << 30)
        writer = LogWriter(options)
        epoch = writer.open()
        recorder = Recorder(writer, options, "bench", log_id=writer.log_id, epoch=epoch)
        recorder.begin()
        origin, dest = recorder.name("(unregistered)"), recorder.name("orders")
        cell = recorder.flows.cell(MESSAGE, DELIVER, origin="a", dest="b")
        hop, name = recorder.hop, recorder.name

        def hops(count: int) -> None:
            for number in range(count):
                hop(number, 0, MESSAGE, DELIVER, 0, 0, origin, dest, 1, 1, 250, 64, 100)

        def named(count: int) -> None:
            for number in range(count):
                one, two = name("(unregistered)"), name("orders")
                hop(number, 0, MESSAGE, DELIVER, 0, 0, one, two, 1, 1, 250, 64, 100)

        def unsampled(count: int) -> None:
            recorder.left = 1 << 60
            for _ in range(count):
                recorder.left -= 1
                if recorder.left > 0:
                    continue
                raise AssertionError("a sample")

        def counted(count: int) -> None:
            for _ in range(count):
                if not cell.frames:
                    cell.add(64)
                else:
                    cell.frames += 1
                    cell.bytes += 64

        around = timed(loop, count)
        found = {
            "recorded hop, ns": timed(hops, count) - around,
            "recorded hop with its names, ns": timed(named, count) - around,
            "not sampled, ns": timed(unsampled, count) - around,
            "count, ns": timed(counted, count) - around,
            "bare pack, ns": timed(pack, count) - around,
            "bare addition, ns": timed(add, count) - around,
        }
        recorder.close()
        dropped = recorder.statistics().dropped
        writer.close(60.0)
        if dropped:
            raise RuntimeError(f"events were dropped: {dropped}")
    return found


def broker_cost(windows: int, requests: int) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of a request, with an event log and without, by window."""
    with_log: list[float] = []
    without: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        log = [*ONWARD, "--event-log", folder]
        with (
            broker(log) as (log_pid, log_port),
            broker(ONWARD) as (pid, port),
            open_load(log_port, requesters=1, in_flight=IN_FLIGHT) as log_load,
            open_load(port, requesters=1, in_flight=IN_FLIGHT) as load,
        ):
            log_load.run(requests // 5)
            load.run(requests // 5)
            for number in range(windows):
                lanes = [(with_log, log_load, log_pid), (without, load, pid)]
                # Whoever is first has the warmer machine, or the colder one.
                for figures, each, process in lanes if number % 2 else reversed(lanes):
                    before = cpu_seconds(process)
                    each.run(requests)
                    figures.append((cpu_seconds(process) - before) / requests)
    return with_log, without


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments(__doc__, runs=9)
    count = 20_000 if arguments.quick else 1_000_000
    measured = repeat(arguments.runs, lambda: recorded(count))
    windows, requests = (1, 20_000) if arguments.quick else (15, 100_000)
    with_log, without = broker_cost(windows, requests)
    report = Report("eventlog", arguments)
    report.add(measured)
    report.ratio("hop / bare pack", measured["recorded hop, ns"], measured["bare pack, ns"])
    report.ratio("count / bare addition", measured["count, ns"], measured["bare addition, ns"])
    report.add({"broker CPU for a request, µs": [1e6 * each for each in without]})
    report.add({"the same with an event log, µs": [1e6 * each for each in with_log]})
    report.ratio("broker with / without", with_log, without)
    report.at_most("recorded hop, ns", 400.0)
    report.at_most("not sampled, ns", 50.0)
    report.at_most("broker with / without", 1.03)
    report.print()


if __name__ == "__main__":
    main()
