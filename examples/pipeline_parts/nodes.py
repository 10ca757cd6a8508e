"""Traffic between nodes: there and back through a relay, some in a circle, and to a node that dies.

`near` is this process; `mid` and `far` are `onward node` with event logs; `lost` keeps none, and is
killed: what is sent there ends at the link that has gone, and near's log says so.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from demo_parts.processes import ONWARD, Child, child

from onward.actors import Node
from onward.actors.eventlog import EventLog, LogOptions

from .pace import TICKS, Tally, ticks

LOST_AT = TICKS * 2 // 3
TIMEOUT = 20.0


async def start_node(
    stack: AsyncExitStack, name: str, workers: tuple[str, ...], expose: str, log: Path | None
) -> Child:
    """Start `onward node`."""
    words = ["node", "--quiet", "--listen", "tcp://127.0.0.1:0", "--expose", expose]
    for worker in workers:
        words += ["--worker", worker]
    if name == "mid":
        words += ["--allow", "other", "--allow", "1#127.0.0.1:*"]
    if log is not None:
        words += ["--event-log", str(log), "--event-log-name", name, "--event-log-sample", "1"]
    started = child(name, *ONWARD, *words, show=lambda _line: False)
    return await stack.enter_async_context(started)


async def busy(stack: AsyncExitStack, log: Path, tally: Tally) -> None:
    """Start the nodes, make the requests of all steps, and stop them cleanly."""
    mid = await start_node(stack, "mid", ("relay=forward", "other=forward"), "relay", log)
    far = await start_node(stack, "far", ("echo=echo",), "echo", log)
    lost = await start_node(stack, "lost", ("echo=echo",), "echo", None)
    to_mid, to_far, to_lost = [await each.listening("tcp") for each in (mid, far, lost)]
    straight = f"1#{to_mid} => relay => 1#{to_far} => echo"
    circle = f"1#{to_mid} => relay => other => relay => other => 1#{to_far} => echo"
    async with Node("near") as near:
        await EventLog.attach(near, LogOptions(log, "near", sample_rate=1.0))
        async for number in ticks():
            requests = [near.request(straight, b"hello", timeout=TIMEOUT) for _ in range(10)]
            if number % 10 == 0:
                requests.append(near.request(circle, b"round", timeout=TIMEOUT))
                tally.circles += 1
            if number < LOST_AT:
                requests.append(near.request(f"1#{to_lost} => echo", b"there?", timeout=TIMEOUT))
            if number == LOST_AT:
                await lost.kill()
            if LOST_AT <= number < LOST_AT + 20:
                near.send(f"1#{to_lost} => echo", b"still there?")
                tally.sent += 1
            await asyncio.gather(*(tally.of(each) for each in requests))
    for node in (mid, far):
        await node.stop()
