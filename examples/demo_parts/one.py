"""Requests to one of several destinations: all interactions, and a destination that is killed.

Destinations and requester are written with the `rsocket` package, as any client would be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from .processes import Child, Requester, Routes, program
from .stage import Record, check, heading, say, shown, signatures


async def interactions(requester: Requester, alpha: Child, beta: Child, record: Record) -> None:
    """Run each of the five interactions."""
    heading("Every interaction of RSocket, each to one destination that has the tags")
    signed = Counter[str]()
    for text in ("one", "two", "three", "four"):
        answers = await requester.ask("request/response", text, to="service=echo")
        check(answers[0].startswith(text), f"a wrong answer: {answers}")
        signed += signatures(answers)
    check(signed == {"alpha": 2, "beta": 2}, f"the requests were not taken in turn: {signed}")
    record.done.add("request/response", 4, "4 answers", shown(signed))

    for process in (alpha, beta):
        name = process.name
        for what in ("fire-and-forget", "metadata push"):
            await requester.ask(what, f"for {name}", to=f"service=echo instance={name}")
            # It has no answer; the destination says that it came.
            await process.says(f"{what} 'for {name}'")
    for what in ("fire-and-forget", "metadata push"):
        record.done.add(what, 2, "none is due", "alpha 1, beta 1")

    answers = await requester.ask("request/stream", "5", to="service=echo")
    signed = signatures(answers)
    check([each[0] for each in answers] == list("12345"), f"a wrong stream: {answers}")
    check(len(signed) == 1, f"one stream from two destinations: {signed}")
    record.done.add("request/stream", 1, "5 elements", shown(signed))

    answers = await requester.ask("request/channel", "a", "b", "c", to="service=echo")
    signed = signatures(answers)
    check([each[0] for each in answers] == list("abc"), f"a wrong channel: {answers}")
    check(len(signed) == 1, f"one channel from two destinations: {signed}")
    record.done.add("request/channel", 3, "3 elements", shown(signed))


async def takeover(requester: Requester, routes: Routes, alpha: Child, record: Record) -> None:
    """Kill a destination with a request in its hands, and go on with the other."""
    heading("One destination is killed, the other takes over")
    held = asyncio.create_task(
        requester.ask("request/response", "hold", to="service=echo instance=alpha")
    )
    await alpha.says("request/response 'hold'")
    say("alpha", "is killed, with a request in its hands")
    await alpha.kill()
    error = await held
    # Handed over and lost: the requester cannot know whether it was done.
    check(str(error).startswith("CANCELED"), f"the request in alpha's hands got {error!r}")
    record.done.add("... while alpha is killed", 1, "CANCELED", "broker: in doubt")

    await routes.until("echo", "instance", {"beta"})
    signed = Counter[str]()
    for text in ("five", "six", "seven"):
        signed += signatures(await requester.ask("request/response", text, to="service=echo"))
    check(signed == {"beta": 3}, f"beta did not take over: {signed}")
    record.done.add("... after that", 3, "3 answers", shown(signed))


async def run(tcp: str, routes: Routes, record: Record) -> None:
    """Run this part against a broker.

    Args:
        tcp: Where the broker listens for TCP, host:port.
        routes: Its table.
        record: Gets what was done.
    """
    heading("Two destinations and a requester come to the broker")
    host, _, port = tcp.rpartition(":")
    async with AsyncExitStack() as stack:
        alpha, beta = [
            await stack.enter_async_context(
                program(name, "destination.py", host, port, "echo", name)
            )
            for name in ("alpha", "beta")
        ]
        asking = await stack.enter_async_context(
            program("requester", "requester.py", host, port, show=lambda _line: False)
        )
        requester = Requester(asking)
        await routes.until("echo", "instance", {"alpha", "beta"})

        await interactions(requester, alpha, beta, record)
        await takeover(requester, routes, alpha, record)
        await asking.end_of_input()
        await beta.stop()

    package = "the rsocket package"
    answered = requester.answered
    record.cast.add("requester", "a requester", package, "TCP", "asked")
    record.cast.add(
        "alpha", "a destination", package, "TCP", f"{answered['alpha']} answers, then killed"
    )
    record.cast.add("beta", "a destination", package, "TCP", f"{answered['beta']} answers")
