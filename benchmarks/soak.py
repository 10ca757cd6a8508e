"""A soak of a broker with peers that join and leave: requests that end, and flat memory.

Requesters send requests of all kinds and routings (response, stream, channel, fire-and-forget,
metadata push; unicast, shard, sticky, multicast; some wait for a service that is rarely
registered), cancel some, and leave while others are open. Destinations are processes of their own,
which answer, answer late, fail, or do not answer, every third with leases. They are killed (-9) or
terminated, and new ones start. All connect by TCP, WebSocket and Unix socket in turn. The events
are drawn from a seed; their exact times depend on the machine.

The exit status is 1 if one of these checks fails:

- Each request ends: requests sent = answers + errors + those cancelled or left by the requester.
  One that is not cancelled ends within 20 s, or goes on: a stream or a channel is slow then, and
  stuck after 20 s without a frame. There is no frame for an ended stream, no element without credit
  in either direction or out of order, no request without a lease, and no changed data.
- No more requests without an answer arrive than were sent. At the end, when no peer leaves or is
  killed any more, all of them arrive.
- After all requests have ended, and while all peers are connected, the broker holds no stream in
  the table of any connection, no outstanding request of a route, and no waiting request. After all
  peers have left, it holds none of their routes.
- Memory is flat: after a fifth of the time (at least 90 s) it grows by at most 64 KiB a minute, for
  each broker.
  A run of less than eight minutes has no such check: in the first minutes the broker still fills
  its caches and the allocator its arenas.

With `--cluster` there are three brokers, to which peers connect in turn, and each minute one of
them is cut off the others for eight seconds. What it may hold at rest is then what it held before.
Memory is measured from six minutes on then, and only in a run of ten: a broker has a third of the
peers, so its caches take longer, and some begin anew with each link. The last that are full are the
metadata of forwarded requests (4,096 each way for each link), the recent events (1,000), and the
figures of the last five minutes. Not full by then are the texts of routes of other brokers, of
which 4,096 take an hour, and the rows of the last 1,000 connections of each listener, which take
as long: 20 and 25 KiB a minute of what is measured. On a busy machine fewer requests come in the
same time, and six minutes are too few: `--cluster --minutes 20` tells more there.

On stderr there is a line for each request that is slow or stuck: its age, what has come and from
which destinations (their process ids, and whether they are still there), the credit that is
outstanding, and how late this process itself was lately. If that is seconds, the machine is too
busy for the load.

    python benchmarks/soak.py --minutes 10 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from _idle import resident_bytes
from _report import Report
from _rivals import onward_at, raise_file_limit
from _soakcheck import Question, growth, held_by_requests, routes_of_the_gone
from _soakcluster import Cluster, cluster
from _soakload import PATIENCE, RARE, SERVICE, Requester, Tally
from _soakpeer import dial

DESTINATIONS, REQUESTERS = 4, 12
TICK = 0.02
"""Seconds between two rounds of requests."""
ASKS = 12
"""Requests of a round."""
SECONDS_TO_LEAVE = 0.5
"""Mean seconds between two requesters that leave."""
SECONDS_TO_DIE = 2.0
"""The same for destinations, and for the rare service to be registered, or not."""
LEASING = 3
"""One destination in this many has leases."""
COUNTED = 200
"""Requests of each kind without an answer that are sent while no peer leaves."""
LEAST_MINUTES, CLUSTER_MINUTES = 8.0, 10.0
"""The least minutes for a check of memory: of one broker, and of a cluster."""
WARM_UP, CLUSTER_WARM_UP = 90.0, 360.0
"""The least seconds before memory is measured, likewise."""
GROWTH = 64.0
"""The most growth of the broker's memory, in KiB a minute."""
FILES = 4096


@dataclass(slots=True)
class Destination:
    """The process of a destination, its last counts, and the task that reads them."""

    process: Process
    counts: Counter[str]
    reading: asyncio.Task[None]


@dataclass(slots=True)
class Soak:
    """A run, with its peers and its counts.

    Attributes:
        pids: The process ids of the brokers.
        uris: The URIs of its listeners, which peers use in turn.
        chance: The source of everything random.
        tally: The counts of the requests.
        received: Requests without an answer as counted by ended destinations, by kind.
        memory: Seconds since the start, and memory in bytes, of each broker.
        files: Open files and threads of each broker, before the first peer and after the last.
        lag: The longest delay of this process's own timers since the last look, in seconds.
    """

    pids: Sequence[int]
    uris: Sequence[str]
    chance: random.Random
    tally: Tally = field(default_factory=Tally)
    received: Counter[str] = field(default_factory=Counter[str])
    memory: dict[int, list[tuple[float, int]]] = field(
        default_factory=dict[int, list[tuple[float, int]]]
    )
    files: list[Sequence[tuple[int, int]]] = field(default_factory=list[Sequence[tuple[int, int]]])
    killed: int = 0
    left: int = 0
    lag: float = 0.0
    _requesters: list[Requester] = field(default_factory=list[Requester])
    _destinations: list[Destination] = field(default_factory=list[Destination])
    _rare: list[Destination] = field(default_factory=list[Destination])
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _names: itertools.count[int] = field(default_factory=itertools.count)
    _leases: itertools.count[int] = field(default_factory=itertools.count)
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    async def run(self, seconds: float) -> None:
        """Start and end peers for a time, then let the open requests end."""
        for _ in range(DESTINATIONS):
            await self._add_destination()
        for _ in range(REQUESTERS):
            await self._add_requester()
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._replace_destinations(),
                self._replace_requesters(),
                self._offer_now_and_then(),
            )
        ]
        started = seen = time.monotonic()
        while (now := time.monotonic()) - started < seconds:
            if not self.memory or now - seen >= 1:
                seen = now
                for pid in self.pids:
                    measured = self.memory.setdefault(pid, [])
                    measured.append((now - started, resident_bytes(pid)))
                self._look_for_late()
            for _ in range(ASKS):
                self.chance.choice(self._requesters).ask()
            before = time.monotonic()
            await asyncio.sleep(TICK)
            self.lag = max(self.lag, time.monotonic() - before - TICK)
            for task in tasks:
                if task.done():
                    task.result()
        self._over.set()
        await asyncio.gather(*tasks)
        await self._until(lambda: not any(each.waits() for each in self._requesters), math.inf)

    async def count_what_is_not_answered(self) -> list[str]:
        """Send requests without an answer while no peer leaves; return the wrong counts."""
        for _ in range(COUNTED):
            self.chance.choice(self._requesters).tell_counted()
            await asyncio.sleep(TICK / 2)
        counted = [kind for kind in self.tally.told if kind.startswith("counted")]
        came = self._count_received
        await self._until(lambda: all(came()[each] == COUNTED for each in counted), PATIENCE)
        wrong = [
            f"{came()[kind]} of {COUNTED} x {kind} came"
            for kind in counted
            if came()[kind] != COUNTED
        ]
        for kind, sent in self.tally.told.items():
            most = sent * (DESTINATIONS if kind.startswith("multicast") else 1)
            if came()[kind] > most:
                wrong.append(f"{came()[kind]} x {kind} came of {sent} sent")
        for kind, count in came().items():
            if kind.startswith("wrong"):
                self.tally.wrong[kind] += count
        return wrong

    async def leftovers(self, rests: Sequence[tuple[Question, int]]) -> list[str]:
        """Return what the brokers hold with all peers connected, and after all have left.

        Args:
            rests: A client of each broker, and the streams that the broker has at rest.
        """
        wrong = [text for each, rest in rests for text in await held_by_requests(each, rest=rest)]
        for requester in self._requesters:
            requester.leave()
        await self.close()
        for question, rest in rests:
            wrong += await routes_of_the_gone(question)
            wrong += await held_by_requests(question, rest=rest)
        return wrong

    async def close(self) -> None:
        """Kill the destinations that still run."""
        for destination in (*self._destinations, *self._rare):
            await self._stop(destination, signal.SIGKILL)

    def _look_for_late(self) -> None:
        """Count and describe the requests that have become slow or stuck."""
        now = asyncio.get_running_loop().time()
        there = {each.process.pid for each in (*self._destinations, *self._rare)}
        for requester in self._requesters:
            for late in requester.late(now):
                if late.stuck:
                    self.tally.wrong[f"{late.kind}: not ended within {PATIENCE:.0f} s"] += 1
                else:
                    self.tally.slow[late.kind] += 1
                gone = [str(pid) for pid in late.destinations if pid not in there]
                said = f"{'stuck' if late.stuck else 'slow'}: {requester.name}: {late.text}"
                said += f"; gone: {', '.join(gone) or 'none'}; lag {self.lag:.2f} s"
                print(said, file=sys.stderr, flush=True)
        self.lag = 0.0

    def _count_received(self) -> Counter[str]:
        return sum((each.counts for each in self._destinations), self.received)

    async def _until(self, true: Callable[[], bool], patience: float) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if true():
                return
            await asyncio.sleep(TICK)
            self._look_for_late()

    async def _pause(self, mean: float) -> bool:
        """Wait for a random time; return whether the run goes on."""
        try:
            async with asyncio.timeout(self.chance.expovariate(1 / mean)):
                await self._over.wait()
        except TimeoutError:
            return True
        return False

    async def _replace_destinations(self) -> None:
        while await self._pause(SECONDS_TO_DIE):
            which = self._destinations.pop(self.chance.randrange(len(self._destinations)))
            kill = self.chance.random() < 0.7
            await self._stop(which, signal.SIGKILL if kill else signal.SIGTERM)
            self.killed += kill
            await self._add_destination()

    async def _offer_now_and_then(self) -> None:
        """Register the rare service for a time, and then not, in turn."""
        while await self._pause(SECONDS_TO_DIE):
            self._rare.append(await self._start_destination(RARE))
            await self._pause(SECONDS_TO_DIE)
            await self._stop(self._rare.pop(), signal.SIGKILL)

    async def _replace_requesters(self) -> None:
        while await self._pause(SECONDS_TO_LEAVE):
            self._requesters.pop(self.chance.randrange(len(self._requesters))).leave()
            self.left += 1
            await self._add_requester()

    async def _add_requester(self) -> None:
        chance = random.Random(self.chance.random())
        requester = Requester(f"requester-{next(self._names)}", self.tally, chance)
        self._requesters.append(await dial(self._turn(), requester))

    async def _add_destination(self) -> None:
        self._destinations.append(await self._start_destination(SERVICE))

    async def _start_destination(self, service: str) -> Destination:
        program = Path(__file__).with_name("_soakdestination.py")
        lease = "lease" if next(self._leases) % LEASING == 0 else "free"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(str(program), self._turn(), service, str(self.chance.random()), lease),
            stdout=PIPE,
            stdin=DEVNULL,
        )
        if process.stdout is None or await process.stdout.readline() != b"ready\n":
            raise RuntimeError("a destination could not register")
        counts: Counter[str] = Counter()
        reading = asyncio.create_task(_read_counts(process.stdout, counts))
        return Destination(process, counts, reading)

    async def _stop(self, destination: Destination, how: signal.Signals) -> None:
        if destination.process.returncode is None:
            destination.process.send_signal(how)
        await destination.process.wait()
        await destination.reading
        # The last counts; requests received after them are not known.
        self.received += destination.counts
        destination.counts.clear()

    def _turn(self) -> str:
        return self.uris[next(self._turns) % len(self.uris)]


async def _read_counts(output: asyncio.StreamReader, counts: Counter[str]) -> None:
    """Keep the last counts that a destination printed."""
    async for line in output:
        if line.endswith(b"}\n"):
            counts.clear()
            counts.update(json.loads(line))


def _report_counts(report: Report, soak: Soak) -> None:
    """Report what peers have done, and how often."""
    tally = soak.tally
    report.figure("requesters that left", soak.left, "")
    report.figure("destinations killed", soak.killed, "")
    for kind, sent in sorted(tally.sent.items()):
        report.figure(f"{kind}: sent", sent, "")
        for (of, how), count in sorted(tally.ends.items()):
            if of == kind:
                report.figure(f"{kind}: {how}", count, "")
        if kind in tally.slow:
            report.figure(f"{kind}: took over {PATIENCE:.0f} s", tally.slow[kind], "")
    for kind, sent in sorted(tally.told.items()):
        report.figure(f"{kind}: sent", sent, "")
        report.figure(f"{kind}: received", soak.received[kind], "")


def summary(soak: Soak, wrong: Sequence[str], minutes: float) -> Report:
    """Return the report of a run."""
    report = Report("soak")
    tally = soak.tally
    _report_counts(report, soak)
    for number, measured in enumerate(soak.memory.values()):
        name = f"broker {number}: " if len(soak.memory) > 1 else ""
        report.figure(f"{name}memory at the end", measured[-1][1] / 1024, "KiB")
        for share in (0.2, 0.6):
            held = measured[int(len(measured) * share)][1]
            report.figure(f"{name}memory after {share:.0%} of the time", held / 1024, "KiB")
        for when, found in zip(("at the start", "at the end"), soak.files, strict=False):
            report.figure(f"{name}open files {when}", found[number][0], "")
            report.figure(f"{name}threads {when}", found[number][1], "")
    report.target("requests without an end", tally.open, "", at_most=0)
    report.target("things that went wrong", tally.wrong.total(), "", at_most=0)
    report.target("things lost, or left in the broker", len(wrong), "", at_most=0)
    several = len(soak.pids) > 1
    warm_up = CLUSTER_WARM_UP if several else WARM_UP
    slopes = [growth(each, warm_up) for each in soak.memory.values()]
    if several:
        for number, each in enumerate(slopes):
            report.figure(f"broker {number}: growth of memory", each, "KiB/min")
    slope = max(slopes, default=0.0)
    if minutes < (CLUSTER_MINUTES if several else LEAST_MINUTES):
        report.figure("growth of memory, too short to tell", slope, "KiB/min")
    else:
        report.target("growth of memory", slope, "KiB/min", at_most=GROWTH)
    for text in (*(f"{count} x {what}" for what, count in tally.wrong.items()), *wrong):
        report.note(text)
    return report


def _open_files(pid: int) -> tuple[int, int]:
    """Return the numbers of open files and of threads of a process."""
    place = Path("/proc") / str(pid)
    return len(list((place / "fd").iterdir())), len(list((place / "task").iterdir()))


async def _rest(uri: str) -> tuple[Question, int]:
    """Connect to a broker without peers; return the client, and the broker's streams at rest."""
    question = await dial(uri, Question())
    figures = await question.ask("statistics")
    return question, figures["streams"]


async def run(pid: int, uris: Sequence[str], minutes: float, seed: int) -> Report:
    """Run the soak against a broker."""
    soak = Soak([pid], uris, random.Random(seed))
    return summary(soak, await _run(soak, [uris[0]], minutes, None), minutes)


async def run_cluster(folder: Path, minutes: float, seed: int) -> Report:
    """Run the soak against three brokers that are cut off in turn."""
    async with cluster(folder) as brokers:
        soak = Soak(brokers.pids, brokers.uris, random.Random(seed))
        wrong = await _run(soak, brokers.first, minutes, brokers)
    report = summary(soak, wrong, minutes)
    report.figure("partitions", brokers.partitions, "")
    return report


async def _run(
    soak: Soak, first: Sequence[str], minutes: float, brokers: Cluster | None
) -> list[str]:
    """Run the soak, and return what was lost, or left in the brokers."""
    rests = [await _rest(uri) for uri in first]
    soak.files.append([_open_files(pid) for pid in soak.pids])
    cutting = None
    if brokers is not None:
        cutting = asyncio.create_task(brokers.cut_now_and_then(soak.chance))
    try:
        await soak.run(minutes * 60)
        if cutting is not None and brokers is not None:
            cutting.cancel()
            await asyncio.wait([cutting])
            await brokers.joined()
        wrong = await soak.count_what_is_not_answered()
        wrong += await soak.leftovers(rests)
        soak.files.append([_open_files(pid) for pid in soak.pids])
    finally:
        if cutting is not None:
            cutting.cancel()
        await soak.close()
    for question, _ in rests:
        question.transport.close()
    return wrong


def main() -> int:
    """Run the soak with the arguments of the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="A long run with everything coming and going.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument(
        "--cluster", action="store_true", help="three brokers, one cut off at times"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    raise_file_limit(FILES)
    with TemporaryDirectory() as folder:
        wanted = (
            "rsocket+tcp://127.0.0.1:0",
            "rsocket+ws://127.0.0.1:0",
            f"rsocket+unix://{folder}/soak",
        )
        if arguments.cluster:
            report = asyncio.run(run_cluster(Path(folder), arguments.minutes, arguments.seed))
        else:
            with onward_at(*wanted) as (pid, uris):
                report = asyncio.run(run(pid, uris, arguments.minutes, arguments.seed))
    report.print(as_json=arguments.json)
    return 0 if all(target.met for target in report.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
