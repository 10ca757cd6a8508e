"""A long run with everything that comes and goes: does each request end, and does memory stay?

Requesters send requests of all kinds and routings (response, stream, fire-and-forget; unicast,
shard, multicast), cancel some, and leave while others are open. Destinations are processes of
their own, which answer, answer late, fail, or say nothing; they are killed (-9) or leave, and new
ones come. What happens is drawn from a seed; when exactly it happens is up to the machine.

Held, and the exit status is 1 if one is not:

- Each request ends: requests sent = answers + errors + those cancelled or left by us. What is
  not cancelled ends within 20 s; nothing comes for a stream that has ended; no element without
  credit, and no other data than those sent.
- Nothing is left in the broker: no request outstanding with a route, none waiting, no route of
  a destination that has gone, no stream in the table of any connection.
- Memory is flat: after a fifth of the time (at least 20 s) it grows by at most 256 KiB a minute.
  A run of less than two minutes says nothing about that, and is not held to it.

    python benchmarks/soak.py --minutes 10 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _idle import resident_bytes
from _report import Report
from _rivals import ONWARD, Rival, raise_file_limit, start
from _soakload import PATIENCE, SERVICE, Requester, Tally
from _soakpeer import Peer
from _wire import ERROR, request_frame

DESTINATIONS, REQUESTERS = 4, 12
TICK = 0.02
"""Seconds from one round of requests to the next."""
ASKS = 12
"""Requests of a round."""
SECONDS_TO_LEAVE = 0.5
"""Mean time from one requester's leaving to the next one's."""
SECONDS_TO_DIE = 2.0
"""The same of destinations."""
WARM_UP, LEAST_WARM_UP = 0.2, 20.0
"""Share of the run, and seconds, before memory is looked at."""
LEAST_MINUTES = 2.0
"""A shorter run says nothing about memory."""
GROWTH = 256.0
"""Most growth of the broker's memory, in KiB a minute."""
SETTLING = 10.0
"""Seconds the broker is given at the end to forget who has left."""
FILES = 4096
MANAGEMENT = "onward.management"


class Question(Peer):
    """Asks the broker's management."""

    def __init__(self) -> None:
        super().__init__("soak-observer")
        self._next = 1
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, what: str) -> Any:
        """Return the answer, read from JSON."""
        stream_id, self._next = self._next, self._next + 2
        written = request_frame(MANAGEMENT, what.encode())
        answer = self._answers[stream_id] = asyncio.get_running_loop().create_future()
        self.send(written[:3] + stream_id.to_bytes(4) + written[7:])
        async with asyncio.timeout(PATIENCE):
            return await answer

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        if kind == ERROR:
            self._answers.pop(stream_id).set_exception(RuntimeError(body[4:].decode()))
        else:
            self._answers.pop(stream_id).set_result(json.loads(body))


@dataclass(slots=True)
class Soak:
    """A run: who is there, and what was seen.

    Attributes:
        broker: The broker.
        chance: Decides everything that is not decided by time.
        tally: What became of the requests.
        memory: Seconds since the start, and the broker's memory in bytes.
    """

    broker: Rival
    chance: random.Random
    tally: Tally = field(default_factory=Tally)
    memory: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    killed: int = 0
    left: int = 0
    _requesters: list[Requester] = field(default_factory=list[Requester])
    _destinations: list[Process] = field(default_factory=list[Process])
    _names: int = 0

    async def run(self, seconds: float) -> None:
        """Come and go for so long, then let what is open end."""
        for _ in range(DESTINATIONS):
            await self._add_destination()
        for _ in range(REQUESTERS):
            await self._add_requester()
        dying = asyncio.create_task(self._replace_destinations())
        leaving = asyncio.create_task(self._replace_requesters())
        started = time.monotonic()
        while (passed := time.monotonic() - started) < seconds:
            if not self.memory or passed - self.memory[-1][0] >= 1:
                self.memory.append((passed, resident_bytes(self.broker.pid)))
                self._look_for_overdue()
            for _ in range(ASKS):
                self.chance.choice(self._requesters).ask()
            await asyncio.sleep(TICK)
            for task in (dying, leaving):
                if task.done():
                    task.result()
        for task in (dying, leaving):
            task.cancel()
        await asyncio.gather(dying, leaving, return_exceptions=True)
        for _ in range(round((PATIENCE + SETTLING) / TICK)):
            if not self.tally.open:
                break
            await asyncio.sleep(TICK)

    async def leftovers(self, question: Question) -> list[str]:
        """Say what the broker still holds, once every destination has gone."""
        rows: list[dict[str, Any]] = await question.ask("routes")
        wrong = [
            f"{row['outstanding']} requests outstanding with {row['peer']}"
            for row in rows
            # The management's own row has the question that is being answered.
            if row["service"] != MANAGEMENT and row["outstanding"]
        ]
        for requester in self._requesters:
            requester.leave()
        await self.close()
        ours = {MANAGEMENT, question.name}
        deadline = time.monotonic() + SETTLING
        while left := [row for row in rows if row["service"] not in ours]:
            if time.monotonic() > deadline:
                wrong.append(f"{len(left)} routes of those who have gone")
                break
            await asyncio.sleep(0.1)
            rows = await question.ask("routes")
        figures = await question.ask("statistics")
        if figures["waiting"]:
            wrong.append(f"{figures['waiting']} requests waiting")
        # One is that of this very question.
        if figures["streams"] != 1:
            wrong.append(f"{figures['streams']} streams in the tables")
        return wrong

    async def close(self) -> None:
        """Kill the destinations that still run."""
        for process in self._destinations:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _look_for_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for requester in self._requesters:
            for kind in requester.overdue(now):
                self.tally.wrong[f"{kind}: not ended within {PATIENCE:.0f} s"] += 1

    async def _replace_destinations(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / SECONDS_TO_DIE))
            process = self._destinations.pop(self.chance.randrange(len(self._destinations)))
            kill = self.chance.random() < 0.7
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            await process.wait()
            self.killed += kill
            await self._add_destination()

    async def _replace_requesters(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / SECONDS_TO_LEAVE))
            self._requesters.pop(self.chance.randrange(len(self._requesters))).leave()
            self.left += 1
            await self._add_requester()

    async def _add_requester(self) -> None:
        self._names += 1
        chance = random.Random(self.chance.random())
        requester = Requester(f"requester-{self._names}", self.tally, chance)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: requester, "127.0.0.1", self.broker.port)
        await requester.ready
        self._requesters.append(requester)

    async def _add_destination(self) -> None:
        program = Path(__file__).with_name("_soakpeer.py")
        arguments = (str(self.broker.port), SERVICE, str(self.chance.random()))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), *arguments, stdout=PIPE, stdin=DEVNULL
        )
        self._destinations.append(process)
        if process.stdout is None or await process.stdout.readline() != b"ready\n":
            raise RuntimeError("a destination could not register")


def growth(memory: Sequence[tuple[float, int]]) -> float:
    """Return the slope of memory after the warm-up, in KiB a minute."""
    if not memory:
        return 0.0
    start_at = max(memory[-1][0] * WARM_UP, LEAST_WARM_UP)
    late = [(passed, held) for passed, held in memory if passed >= start_at]
    if len(late) < 3:
        return 0.0
    slope = statistics.linear_regression([at for at, _ in late], [held for _, held in late]).slope
    return slope * 60 / 1024


def summary(soak: Soak, wrong: Sequence[str], minutes: float) -> Report:
    """Sum up a run."""
    report = Report("soak")
    tally = soak.tally
    report.figure("requesters that left", soak.left, "")
    report.figure("destinations killed", soak.killed, "")
    for kind, sent in sorted(tally.sent.items()):
        report.figure(f"{kind}: sent", sent, "")
        for (of, how), count in sorted(tally.ends.items()):
            if of == kind and how != "sent":
                report.figure(f"{kind}: {how}", count, "")
    if soak.memory:
        report.figure("memory at the end", soak.memory[-1][1] / 1024, "KiB")
    report.target("requests without an end", tally.open, "", at_most=0)
    report.target("things that went wrong", tally.wrong.total(), "", at_most=0)
    report.target("things left in the broker", len(wrong), "", at_most=0)
    slope = growth(soak.memory)
    if minutes < LEAST_MINUTES:
        report.figure("growth of memory, too short to tell", slope, "KiB/min")
    else:
        report.target("growth of memory", slope, "KiB/min", at_most=GROWTH)
    for text in (*(f"{count} x {what}" for what, count in tally.wrong.items()), *wrong):
        report.note(text)
    return report


async def run(broker: Rival, minutes: float, seed: int) -> Report:
    """Soak a broker."""
    soak = Soak(broker, random.Random(seed))
    loop = asyncio.get_running_loop()
    question = Question()
    try:
        await soak.run(minutes * 60)
        await loop.create_connection(lambda: question, "127.0.0.1", broker.port)
        await question.ready
        wrong = await soak.leftovers(question)
        question.transport.close()
    finally:
        await soak.close()
    return summary(soak, wrong, minutes)


def main() -> int:
    """Soak as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description="A long run with everything coming and going.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    raise_file_limit(FILES)
    with start(ONWARD) as broker:
        report = asyncio.run(run(broker, arguments.minutes, arguments.seed))
    report.print(as_json=arguments.json)
    return 0 if all(target.met for target in report.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
