"""A soak of a node and a broker under attack: service for honest clients, and cleanup afterwards.

The attacks run at once, each in its own process: messages that make the node connect out; 15 MB to
30 destinations that do not read, whole and in fragments; channels to as many; fragments without an
end; peers of an echo, requesters and destinations that do not read or read a few bytes a second;
messages in circles, or back and forth over long routes and growing; floods from one connection to
the node, also with slow routes, and to the broker; queries to the management service about a full
table of routes; requests that fill the queue for destinations; and connections that send only
SETUP, or nothing. All connections are over 127.0.0.1.

Honest clients send a request to the node and one to the broker every 50 ms, the latter to a
destination of their own. The exit status is 1 if one of these checks fails:

- Each honest request is answered with the right data within `WORST` seconds, and half of them
  within `USUAL`.
- The memory of the process stays below `HIGHEST`. Its objects afterwards take no more memory than
  before, except for `KEPT`: tables and caches with a limit.
- No exposed worker connects out for a peer.
- After the attackers have ended, so have their descriptors, routes, streams, waiting requests,
  workers and tasks.

The lag of the attacked loop and of the honest clients' loop is printed as well, by wall clock and
in CPU time of the loop's thread. The difference of the two is time of other processes.

    python benchmarks/hostile.py --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from _hostile_attacks import ATTACKS, REACHED
from _idle import resident_bytes
from _loop_lag import LAGS, LoopLag
from _report import Report
from _rivals import raise_file_limit
from _soakpeer import Peer, dial
from _wire import PAYLOAD_NEXT_COMPLETE, STREAM_ID, TYPE, frame, request_frame

from onward.actors import Node, new_event_loop

__all__ = ["Honest", "Victim", "run"]

HERE: Final = Path(__file__).resolve().parent
SERVICE: Final = "honest"
KEPT_IN_RAM: Final = 64.0
"""Most memory that it may have more of afterwards, in MiB, where objects cannot be measured."""
EVERY: Final = 0.05
"""Seconds between two honest requests."""
PATIENCE: Final = 30.0
"""Seconds after which a request counts as not answered."""
WORST: Final = 5.0
"""The most seconds of an honest request."""
USUAL: Final = 0.5
"""The most seconds of half of the honest requests."""
HIGHEST: Final = 1024.0
"""The most memory of the attacked process, in MiB."""
KEPT: Final = {"small objects": 100_000, "large objects": 8 * 1024 * 1024}
"""The allowed growth afterwards: objects of at most 512 bytes, and bytes of larger objects."""
SETTLING: Final = 60.0
"""Seconds for the attacked process to release everything."""
FILES: Final = 20_000
ERROR: Final = 0x2C00
PAYLOAD: Final = 0x2800


@dataclass(slots=True)
class Honest:
    """A client that sends honest requests of one kind, with their results.

    Attributes:
        name: The kind of request.
        times: The seconds of each answered request.
        failed: The error of each other request.
    """

    name: str
    times: list[float] = field(default_factory=list[float])
    failed: list[str] = field(default_factory=list[str])

    async def keep_asking(
        self, ask: Callable[[bytes], Awaitable[bytes]], over: asyncio.Event
    ) -> None:
        """Send requests until the event is set, whether or not earlier ones are answered."""
        asking: set[asyncio.Task[None]] = set()
        number = 0
        while not over.is_set():
            number += 1
            task = asyncio.create_task(self._ask(ask, b"%d" % number))
            asking.add(task)
            task.add_done_callback(asking.discard)
            await asyncio.sleep(EVERY)
        await asyncio.gather(*asking)

    async def _ask(self, ask: Callable[[bytes], Awaitable[bytes]], data: bytes) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await ask(data)
        except Exception as error:  # noqa: BLE001 - every error is a failed request
            self.failed.append(f"{type(error).__name__}: {error}")
            return
        self.times.append(time.perf_counter() - began)
        if answer != data:
            self.failed.append("other data than sent")

    def report(self, report: Report) -> None:
        """Add the figures."""
        times = self.times or [PATIENCE]
        report.figure(f"{self.name}: answered", len(self.times), "")
        report.target(f"{self.name}: not answered", len(self.failed), "", at_most=0)
        report.target(f"{self.name}: median", 1000 * median(times), "ms", at_most=1000 * USUAL)
        report.target(f"{self.name}: worst", 1000 * max(times), "ms", at_most=1000 * WORST)
        for text in sorted(set(self.failed))[:5]:
            report.note(f"{self.name}: {self.failed.count(text)} x {text}")


class _Destination(Peer):
    """A destination that answers each request with its own data."""

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        metadata = 3 + int.from_bytes(body[:3])
        self.send(frame(stream_id, PAYLOAD_NEXT_COMPLETE, body[metadata:]))


class _Requester(Peer):
    """A requester that awaits the answers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._next = 1
        self._answers: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, data: bytes) -> bytes:
        """Send a request, and return the answer."""
        stream_id, self._next = self._next, self._next + 2
        written = bytearray(request_frame(SERVICE, data))
        written[STREAM_ID.start : STREAM_ID.stop] = stream_id.to_bytes(4)
        answer = self._answers[stream_id] = asyncio.get_running_loop().create_future()
        self.send(bytes(written))
        answered: bytes = await answer
        return answered

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        answer = self._answers.pop(stream_id)
        if answer.done():
            return
        if type_and_flags & TYPE == ERROR:
            answer.set_exception(RuntimeError(body[4:].decode(errors="replace")))
        else:
            answer.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the broker closed the connection"))


@dataclass(slots=True)
class Victim:
    """The attacked process.

    Attributes:
        process: The process.
        node: The address of the node: `host:port`.
        broker: The address of the broker: `host:port`.
        highest: The most memory it had, in bytes.
    """

    process: Process
    node: str
    broker: str
    highest: int = 0

    @classmethod
    async def start(cls) -> Victim:
        """Start the process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "_hostile_victim.py"), stdin=PIPE, stdout=PIPE
        )
        where = json.loads(await _line_of(process))
        return cls(process, *(where[each].rpartition("//")[2] for each in ("node", "broker")))

    async def held(self) -> dict[str, Any]:
        """Return the resources of the process, with its descriptors and its memory."""
        if self.process.stdin is None:
            raise AssertionError("it has a standard input")
        self.process.stdin.write(b"\n")
        said: dict[str, Any] = json.loads(await _line_of(self.process))
        files = descriptors(self.process.pid)
        return {**said, "descriptors": files, "memory": resident_bytes(self.process.pid)}

    async def watch(self, over: asyncio.Event) -> None:
        """Measure the most memory until the event is set."""
        while not over.is_set():
            self.highest = max(self.highest, resident_bytes(self.process.pid))
            await asyncio.sleep(EVERY)

    async def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def descriptors(pid: int) -> int:
    """Return the number of files and sockets that a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _line_of(process: Process) -> bytes:
    if process.stdout is None:
        raise AssertionError("it has a standard output")
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the attacked process has ended")
    return line


COUNTED: Final = (
    *("tasks", "workers", "requests", "routes", "waiting", "waiting bytes"),
    *("connections", "streams", "descriptors"),
)
"""The resources that have to be released after the attackers have ended."""


async def settled(victim: Victim, before: dict[str, Any]) -> dict[str, Any]:
    """Return the resources when they are no more than before, or after `SETTLING` seconds."""
    deadline = time.monotonic() + SETTLING
    while True:
        after = await victim.held()
        let_go = all(after[each] <= before[each] for each in COUNTED) and all(
            after[each] - before[each] <= most for each, most in KEPT.items()
        )
        if let_go or time.monotonic() > deadline:
            return after
        await asyncio.sleep(0.5)


async def attack(name: str, victim: Victim) -> Process:
    """Start an attack."""
    ports = (each.rpartition(":")[2] for each in (victim.node, victim.broker))
    program = str(HERE / "_hostile_attacks.py")
    return await asyncio.create_subprocess_exec(sys.executable, program, name, *ports, stdout=PIPE)


async def run(minutes: float, names: list[str]) -> Report:
    """Attack for a time, and report."""
    victim = await Victim.start()
    over = asyncio.Event()
    to_node, to_broker = (
        Honest("honest requests to the node"),
        Honest("honest requests to the broker"),
    )
    attackers: list[Process] = []
    try:
        async with Node("honest") as node:
            destination = await dial(f"rsocket+tcp://{victim.broker}", _Destination(SERVICE))
            requester = await dial(f"rsocket+tcp://{victim.broker}", _Requester("asks"))

            async def ask(data: bytes) -> bytes:
                route = f"1#{victim.node} => echo"
                return (await node.request(route, data, timeout=PATIENCE)).payload

            for _ in range(20):
                await ask(b"first")
                await requester.ask(b"first")
            before = await victim.held()
            asking = [
                asyncio.create_task(each)
                for each in (
                    to_node.keep_asking(ask, over),
                    to_broker.keep_asking(requester.ask, over),
                    victim.watch(over),
                )
            ]
            lag = LoopLag(asyncio.get_running_loop())
            attackers = [await attack(name, victim) for name in names]
            await asyncio.sleep(minutes * 60)
            during, ours = await victim.held(), lag.taken()
            reached = await _end(attackers)
            over.set()
            await asyncio.gather(*asking)
            after = await settled(victim, before)
            for peer in (destination, requester):
                peer.transport.close()
    finally:
        await _end(attackers)
        await victim.close()
    report = Report("hostile")
    for honest in (to_node, to_broker):
        honest.report(report)
    for each in LAGS:
        report.figure(f"the attacked loop: {each}", during["lag"][each], "ms")
    for each in LAGS:
        report.figure(f"the honest clients' loop: {each}", ours[each], "ms")
    summarize(report, before, during, after)
    mebibyte = 1024 * 1024
    report.target("memory, highest", victim.highest / mebibyte, "MiB", at_most=HIGHEST)
    for each, most in KEPT.items():
        report.target(f"{each}, more afterwards", after[each] - before[each], "", at_most=most)
    # The allocators keep part of the peak: a block in use pins the MiB around it.
    resident = (after["memory"] - before["memory"]) / mebibyte
    if before["large objects"]:
        report.figure("memory in RAM, more afterwards", resident, "MiB")
    else:  # a C library that does not tell what is in use
        report.target("memory in RAM, more afterwards", resident, "MiB", at_most=KEPT_IN_RAM)
    report.target("connections made for a peer", reached, "", at_most=0)
    return report


def summarize(
    report: Report, before: dict[str, Any], during: dict[str, Any], after: dict[str, Any]
) -> None:
    """Add the resources before, in the attack, and afterwards."""
    for each in COUNTED:
        report.figure(f"{each}, before", before[each], "")
        report.figure(f"{each}, attacked", during[each], "")
        report.target(f"{each}, left", max(0, after[each] - before[each]), "", at_most=0)
    for each in ("closed", "turned away", "dead letters"):
        report.note(f"{each}: {after[each]}")


async def _end(attackers: list[Process]) -> int:
    """End the attacks, and return the number of connections that the victim opened for them."""
    reached = 0
    for process in attackers:
        if process.returncode is None:
            process.terminate()
    for process in attackers:
        if process.stdout is not None:
            reached += (await process.stdout.read()).count(REACHED.encode())
        await process.wait()
    return reached


def main() -> int:
    """Attack with the arguments of the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="A node and a broker under attack.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument(
        "--attack",
        action="append",
        choices=list(ATTACKS),
        default=[],
        help="which; may be repeated (default: all at once)",
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    raise_file_limit(FILES)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(run(arguments.minutes, arguments.attack or list(ATTACKS)))
    report.print(as_json=arguments.json)
    return 0 if all(target.met for target in report.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
