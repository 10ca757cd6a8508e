"""`onward broker`: route the requests of RSocket clients by tags."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from ..actors import Node
from ..actors.tracing import HopTracer
from ._arguments import Commands
from ._broker_options import add_options
from ._broker_plan import Listening, plan_of
from ._broker_serve import serve
from ._config import Configure, add_config
from ._event_log import attach, node_name
from ._logs import LogWriter, server_log
from ._process import Place, Process
from ._reconfigure import Reconfiguration
from ._rules import reload_of
from ._run import StopRequest, run
from ._service import Service
from ._snapshots import load_routes

__all__ = ["add_commands", "work_of"]

_DESCRIPTION: Final = """\
Run a broker: RSocket clients connect to it and register as destinations with tags. The broker
routes their requests to destinations that carry the requested tags. Prints `listening URI` for
each listener once all of them accept connections, and a line of totals at the end. SIGTERM lets the
connections end for up to 25 seconds, Ctrl-C for 2, SIGUSR2 for --drain-timeout; a second SIGTERM or
Ctrl-C stops at once. SIGHUP reads certificates and the like anew.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "broker", help="route requests of RSocket clients by tags", description=_DESCRIPTION
    )
    add_options(parser)
    add_config(parser, "broker", _command)


def _command(arguments: argparse.Namespace, read: Configure) -> None:
    place = Place.of(os.environ)
    with server_log(arguments, None if place is None else place.index) as log:
        if place is not None:
            _run_in(place, arguments, read, log)
        elif arguments.processes > 1:
            from ._processes import run_processes  # the others go without what it imports

            run_processes(arguments, read, log)
        else:
            _run(Reconfiguration(arguments, read), log)


def _run(running: Reconfiguration, log: LogWriter) -> None:
    service = Service()
    run(work_of(running, service), {**service.signals(), "SIGUSR1": log.reopen})


def _run_in(place: Place, arguments: argparse.Namespace, read: Configure, log: LogWriter) -> None:
    """Run one process of several."""

    def placed() -> argparse.Namespace:
        made = read()
        made.place = place
        return made

    arguments.place = place
    running, service = Reconfiguration(arguments, placed), Service()
    process = Process(place, service)

    async def work(stop: StopRequest) -> None:
        async with process.runs(stop):
            await work_of(running, service, process)(stop)

    run(work, {"SIGHUP": process.request_reload, "SIGUSR1": log.reopen})


def work_of(
    running: Reconfiguration, service: Service, process: Process | None = None
) -> Callable[[StopRequest], Awaitable[None]]:
    """Return the function that runs the broker of a configuration.

    Args:
        running: The configuration.
        service: The ties to the system, which get the parts that a reload reads.
        process: Its ties to others, as one of several; `None` for a broker alone.

    Raises:
        CommandError: The configuration is not valid; the error names all faults.
    """
    arguments = running.current
    plan = plan_of(arguments, running.newest)
    listening, admin = plan.listening, plan.admin
    # Read before the event loop starts, which it would block.
    expected = (
        [] if arguments.index is None else load_routes(arguments.index, plan.options.max_routes)
    )
    if arguments.config is not None:
        # The first part: the others read the files that it names.
        service.reloads.add("configuration", running.prepare)
    if listening.authorization is not None:
        service.reloads.add("rules", reload_of(running.newest, listening.authorization))
    listeners: Sequence[tuple[str, Listening]] = plan.listeners
    if process is not None:
        listeners = process.listeners(listeners, listening, plan.clustering)
        admin = None  # that of all processes is served by the one that has started them
    if admin is not None:
        admin = replace(admin, newest=running.shared_tls)

    async def opened(node: Node) -> None:
        plan.methods.runs_on(node)
        await _opened(node, arguments)

    async def work(stop: StopRequest) -> None:
        try:
            await serve(
                stop,
                [uri for uri, _ in listeners],
                plan.options,
                listening,
                own=[own for _, own in listeners],
                name=node_name(arguments, "broker"),
                quiet=arguments.quiet,
                expected=expected,
                opened=opened,
                service=service,
                admin=admin,
                running=running,
                clustering=plan.clustering,
                process=process,
            )
        finally:
            await plan.methods.close()

    return work


async def _opened(node: Node, arguments: argparse.Namespace) -> None:
    if arguments.trace:
        node.add_instrument(HopTracer(node))
    await attach(node, arguments)
