"""The pipeline, from end to end: `make pipeline`.

Two brokers, three shops, and four nodes record what they route, for about 20 seconds: requests to
one, to all and by shard with a hot key, requests without a route, slow ones and refused ones,
a shop that is killed with requests in hand, messages in a circle, and a node that dies. Then, with
Spark: their logs go into a lake, one more shop is rehearsed over the traffic, reports of the day
are made, and the audit has to balance.

The output is in `build/pipeline`, or the folder named on the command line: one that the demo made
before, which it empties, or one that is empty or does not exist. Every wait has a limit.
The last line is `pipeline: ok`, or what failed, with exit status 1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from demo_parts.processes import ONWARD, Child, child, printed
from demo_parts.stage import DemoFailed, check, heading, say
from pipeline_parts import lake, nodes, shops
from pipeline_parts.lake import Seen
from pipeline_parts.pace import Tally

from onward.pipeline import JavaMissing, find_java
from onward.protocol import OnwardError

FOLDER = Path(__file__).resolve().parent.parent / "build" / "pipeline"

MARKER = ".onward-pipeline-demo"
"""The file by which the demo knows a folder as its own. No other is ever emptied."""

TRAFFIC = 180.0
"""Seconds the traffic may take; without haste it is 20."""

MIDNIGHT = timedelta(minutes=3)
"""So short before midnight the demo waits: its traffic is to be of one day."""


async def broker(stack: AsyncExitStack, name: str, log: Path) -> tuple[Child, str]:
    """Start a broker that records, and return it with its URI."""
    words = ["broker", "--quiet", "--listen", "rsocket+tcp://127.0.0.1:0"]
    words += ["--no-route-timeout", "0.05"]
    words += ["--event-log", str(log), "--event-log-name", name, "--event-log-sample", "1"]
    started = await stack.enter_async_context(child(name, *ONWARD, *words))
    return started, f"rsocket+tcp://{await started.listening('rsocket+tcp')}"


async def traffic(folder: Path) -> Seen:
    """Run brokers and nodes, and leave their logs and the table of one broker behind."""
    log, tallies = folder / "log", {name: Tally() for name in ("eu", "us", "near")}
    heading("Traffic: two brokers, three shops, four nodes, with event logs")
    async with AsyncExitStack() as stack:
        eu, at_eu = await broker(stack, "eu", log)
        us, at_us = await broker(stack, "us", log)
        async with AsyncExitStack() as clients:
            asking = lake.ASKING
            europe = await shops.open_town(clients, at_eu, ("berlin", "lyon"), asking, seed=1)
            america = await shops.open_town(clients, at_us, ("quito",), asking, seed=2)
            say("all", "are there; now they talk, and Lyon is killed in the middle of it")
            await asyncio.gather(
                shops.busy(clients, europe, tallies["eu"], seed=3),
                shops.busy(clients, america, tallies["us"], seed=4),
                nodes.busy(clients, log, tallies["near"]),
            )
            await printed("routes", "--broker", at_eu, "--save", str(folder / "table.jsonl"))
            # All shops are still there, and go only after this.
            saved = datetime.now(UTC)
        await eu.stop()
        await us.stop()
    every = sum((tally.ended for tally in tallies.values()), Counter[str]())
    sent = sum(tally.sent for tally in tallies.values())
    ended = ", ".join(f"{number:,} {what}" for what, number in every.most_common())
    say("all", f"{sent:,} requests and messages; their outcomes: {ended}")
    return Seen(tallies, saved)


async def until_a_day_has_room() -> None:
    now = datetime.now(UTC)
    left = (now + MIDNIGHT).replace(hour=0, minute=0, second=0, microsecond=0) - now
    if timedelta(0) < left <= MIDNIGHT:
        say("all", f"wait {left.seconds + 1} s, until it is another day")
        await asyncio.sleep(left.seconds + 1)


async def main(folder: Path) -> Seen:
    # A signal ends the demo like a failure, so that no process is left behind.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await until_a_day_has_room()
    try:
        async with asyncio.timeout(TRAFFIC):
            return await traffic(folder)
    except TimeoutError:
        raise DemoFailed(f"the traffic did not end in {TRAFFIC:g} s") from None


@contextmanager
def stderr_in(path: Path) -> Generator[None]:
    """Redirect Java's warnings to a file. Python's output stays on the terminal."""
    ours = os.dup(2)
    before = sys.stderr
    with path.open("wb") as file, os.fdopen(ours, "w") as stderr:
        os.dup2(file.fileno(), 2)
        sys.stderr = stderr
        try:
            yield
        finally:
            sys.stderr = before
            os.dup2(ours, 2)


def begin_anew(folder: Path) -> None:
    """Make the demo's folder, or empty it if it is the demo's.

    Raises:
        DemoFailed: Something else is there; it is left as it is.
    """
    if folder.exists():
        if not folder.is_dir():
            raise DemoFailed(f"{folder} is no folder")
        if (folder / MARKER).is_file():
            shutil.rmtree(folder)
        elif any(folder.iterdir()):
            raise DemoFailed(
                f"{folder} has something in it that is not this demo's: name a folder that is "
                "empty or not there"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("The demo of the pipeline empties this folder when it runs.\n")


def run(folder: Path) -> int:
    """Run the demo and return its exit status."""
    try:
        find_java()
        begin_anew(folder)
        day = datetime.now(UTC).date()
        seen = asyncio.run(main(folder))
        if datetime.now(UTC).date() != day:
            day = datetime.now(UTC).date()
        with stderr_in(folder / "spark.log"):
            lake.run(folder, day, seen)
    except (DemoFailed, JavaMissing, OnwardError, OSError) as error:
        print(f"pipeline: FAILED: {error}", flush=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("pipeline: interrupted", flush=True)
        return 1
    check((folder / "report.html").is_file(), "there is no page")
    print(f"\npage: {folder / 'report.html'}\npipeline: ok")
    return 0


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER))
