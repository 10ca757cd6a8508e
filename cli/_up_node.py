"""`onward up --node`: one node of a topology, controlled by the parent command or alone."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from ..actors.topology import RunningNode, factories
from ..protocol import OnwardError
from ..protocol.topology import NodePlan, TopologyPlan, engine_name
from ._event_log import attach
from ._run import Interrupted, StopRequest, run
from ._show import printable
from ._status import CommandError, Status
from ._up_brokers import answering
from ._up_steps import Said, Steps, encode

__all__ = ["lead", "run_node", "show_identities"]

PATIENCE: Final = 30.0
"""Seconds for which a node that runs alone waits for each node it has links to."""


def run_node(plan: TopologyPlan, arguments: argparse.Namespace) -> None:
    """Run one node until it is asked to stop.

    Raises:
        CommandError: There is no such node, or it cannot be run.
        TopologyError: A class of a worker cannot be used.
    """
    name: str = arguments.node
    try:
        plan.node(name)
    except LookupError as error:
        raise CommandError(str(error), Status.USAGE) from error
    if arguments.led:
        run(lambda stop: lead(stop, plan, name, Steps(), arguments))
    else:
        run(lambda stop: _alone(stop, plan, name, arguments))


async def lead(
    stop: StopRequest,
    plan: TopologyPlan,
    name: str,
    steps: Steps,
    arguments: argparse.Namespace | None = None,
) -> None:
    """Perform the steps until their end or a signal; then close them."""
    try:
        led = _Led(plan, name, arguments)
        is_alone = False
        try:
            while True:
                step = await stop.unless(steps.next())
                is_alone = step is None
                if step is None or step["do"] == "end":
                    return
                steps.folder = step.get("directory", steps.folder)
                if not await stop.unless(led.do(step)):
                    return
        except Interrupted:
            return
        finally:
            await led.stop()
            if is_alone:
                steps.remove_folder()
    finally:
        steps.close()


class _Led:
    def __init__(self, plan: TopologyPlan, name: str, arguments: argparse.Namespace | None) -> None:
        self._arguments = arguments
        self._plan = plan
        self._name = name
        self._token = ""
        self._running: RunningNode | None = None
        self._stack = AsyncExitStack()

    async def do(self, step: Said) -> bool:
        """Perform a step and write its outcome; return whether to go on."""
        try:
            said = await self._do(step)
        except (OnwardError, CommandError) as error:
            said = {"failed": str(error)}
        print(f"{self._token} {encode(said)}", flush=True)
        return "failed" not in said

    async def _do(self, step: Said) -> Said:
        if step["do"] == "listen":
            self._token = step["token"]
            made = factories(self._plan, nodes=[self._name])
            running = RunningNode(self._plan, self._name, made, directory=step["directory"])
            self._running = running
            await running.open()
            if self._arguments is not None:
                await attach(running.node, self._arguments, self._name)
            uris = await running.listen(step.get("uris"))
            await self._stack.enter_async_context(answering([running.broker]))
            show_identities(self._plan.node(self._name), running.identities)
            for uri in uris.values():
                print(f"listening {printable(uri)}", flush=True)
            return {"uris": uris, "identities": running.identities}
        if self._running is None:
            raise AssertionError(f"unexpected step {step}")
        if step["do"] == "link":
            await self._running.link(step["uris"], step["identities"])
        elif step["do"] == "start":
            await self._running.start_workers()
        elif step["do"] == "subscribe":
            await self._running.subscribe()
        elif step["do"] == "ask":
            index: int = step["index"]
            outcome = await self._running.ask(self._plan.requests[index])
            return {"ok": outcome.ok, "told": outcome.told, "seconds": outcome.seconds}
        else:
            raise AssertionError(f"unexpected step {step}")
        return {}

    async def stop(self) -> None:
        await self._stack.aclose()
        if self._running is not None:
            await self._running.stop()


async def _alone(
    stop: StopRequest, plan: TopologyPlan, name: str, arguments: argparse.Namespace
) -> None:
    uris = {each.id: each.uri for each in plan.listeners if each.is_fixed}
    running = RunningNode(plan, name, factories(plan, nodes=[name]))
    try:
        await running.open()
        await attach(running.node, arguments, name)
        made = await stop.unless(running.listen())
        show_identities(plan.node(name), running.identities)
        for uri in made.values():
            print(f"listening {printable(uri)}", flush=True)
        async with answering([running.broker]):
            await stop.unless(running.link(uris, patience=PATIENCE))
            await stop.unless(running.start_workers())
            await stop.unless(running.subscribe())
            print(f"up: {name}", flush=True)
            if arguments.duration is not None:
                await stop.unless(asyncio.sleep(arguments.duration))
            else:
                await stop.wait()
    except Interrupted:
        return
    finally:
        await running.stop()


def show_identities(node: NodePlan, identities: Mapping[str, str], before: str = "") -> None:
    """Print the identity of a node, if it has one, and those of its engines, topics and domains.

    Args:
        node: The node.
        identities: The texts of identities, by their names in the file.
        before: What each line begins with.
    """
    plan = node.identity
    if plan is None:
        return
    engines = {each: identities[engine_name(node.name, each)] for each in plan.engines}
    lines = [f"identity {identities[node.name]}"]
    lines += [f"engine {text} {engine}" for engine, text in engines.items()]
    lines += [f"topic {identities[each.name]} {each.name}" for each in plan.topics]
    lines += [f"domain {identities[each.name]} {each.name}" for each in plan.domains]
    for line in lines:
        print(printable(f"{before}{line}"), flush=True)
