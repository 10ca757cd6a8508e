"""The memory of an idle worker, and the number of workers started in a second.

100,000 workers are spawned on one node, each with a random address of its own, and one message is
sent to the last one to check that they run. Memory is the growth of the process's resident set; it
includes the table and everything else the node keeps for the workers. Each run has its own process,
as an interpreter does not return its memory.

Targets: at most 1.5 KiB for each worker, at least 50,000 started each second.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time

from _harness import Report, parse_arguments, repeat

from onward.actors import Node, Worker, new_event_loop
from onward.protocol import Message


class Idle(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, b"here")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


async def measure(count: int) -> dict[str, float]:
    """Start and stop a number of workers."""
    async with Node() as node:
        await node.request((node.spawn(Idle),), b"?")
        gc.collect()
        before = resident_bytes()
        began = time.perf_counter()
        addresses = [node.spawn(Idle) for _ in range(count)]
        await node.request((addresses[-1],), b"?")
        started = time.perf_counter()
        gc.collect()
        after = resident_bytes()
        began_stop = time.perf_counter()
        await node.stop(timeout=60)
        stopped = time.perf_counter()
        assert node.statistics().worker_count == 0
    return {
        "started, workers/s": count / (started - began),
        "stopped, workers/s": count / (stopped - began_stop),
        "memory, KiB/worker": (after - before) / count / 1024,
    }


def main() -> None:
    """Run the benchmark."""
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            print(json.dumps(runner.run(measure(int(sys.argv[2])))))
        return
    arguments = parse_arguments(__doc__)
    count = 2000 if arguments.quick else 100_000

    def once() -> dict[str, float]:
        command = [sys.executable, __file__, "--one", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result: dict[str, float] = json.loads(done.stdout)
        return result

    measured = repeat(arguments.runs, once)
    report = Report("workers", arguments)
    report.add(measured)
    report.at_most("memory, KiB/worker", 1.5)
    report.at_least("started, workers/s", 50_000)
    report.print()


if __name__ == "__main__":
    main()
