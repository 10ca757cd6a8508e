"""`onward up`: a topology file as processes, in one process, or simulated."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..actors import Node
from ..actors.topology import KINDS, RequestOutcome, Topology, read
from ..protocol.topology import TopologyError, TopologyLimits, TopologyPlan
from ._arguments import Commands, add_log, seconds, set_up_log
from ._event_log import add_event_log, attach, check_event_log
from ._run import Interrupted, StopRequest, run
from ._show import printable, table
from ._status import CommandError, Status
from ._up_brokers import answering
from ._up_node import show_identities

__all__ = [
    "RESTART_FIRST",
    "RESTART_LIMIT",
    "RESTART_LONGEST",
    "RESTART_STEADY",
    "add_commands",
    "judge",
    "read_file",
]

RESTART_FIRST: Final = 1.0
"""Delay before a node that has ended is started again, in seconds; doubled each time in a row."""

RESTART_LONGEST: Final = 30.0
"""Longest such delay, in seconds."""

RESTART_STEADY: Final = 60.0
"""Seconds after which a node that ends has not ended in a row with its end before."""

RESTART_LIMIT: Final = 5
"""Most restarts of a node in a row; when it ends once more, all nodes are ended."""

_DESCRIPTION: Final = """\
Run a topology file: its nodes, workers, listeners and links. Each node is a process, which this
command starts. It ends them on Ctrl-C, SIGTERM, or when one of them ends; with --keep the others
run on then, and with --restart that one is started again. Their output is shown with the name of
the node in front.

With --check the requests in the file are made and the topology is ended again; the status is 0
if all of them have the expected outcome.
"""

_EPILOG: Final = """\
examples:
  onward up shop.toml
  onward up --check --in-process shop.toml
  onward up --simulated --seed 7 shop.toml
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "up",
        help="run a topology file",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the topology file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--in-process", action="store_true", help="run all nodes in this process")
    how.add_argument(
        "--simulated",
        action="store_true",
        help="run them in a simulated network, with the faults and events in the file and a clock "
        "that does not wait; makes the requests of the file, and ends",
    )
    how.add_argument(
        "--node",
        metavar="NAME",
        help="run this node alone; the listeners it has links to need URIs with ports",
    )
    how.add_argument("--kinds", action="store_true", help="print the kinds of worker, and end")
    ended = parser.add_mutually_exclusive_group()
    ended.add_argument(
        "--keep",
        action="store_true",
        help="when a node ends, let the others run; end with the last one",
    )
    ended.add_argument(
        "--restart",
        action="store_true",
        help="when a node ends, start it again, at the same URIs, after "
        f"{RESTART_FIRST:g} s, and after twice the time when it ends again within "
        f"{RESTART_STEADY:g} s; end all when it has ended {RESTART_LIMIT + 1} times in a row",
    )
    parser.add_argument(
        "--check", action="store_true", help="make the requests of the file, and end"
    )
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="SECONDS",
        type=seconds,
        help="end after this time; simulated: after this virtual time",
    )
    parser.add_argument(
        "--seed", type=int, help="the random seed of a simulated run; the file's by default"
    )
    # Given to a node by the command that runs all of them.
    parser.add_argument("--led", action="store_true", help=argparse.SUPPRESS)
    add_event_log(parser, None)
    add_log(parser)
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    set_up_log(arguments.log)
    if arguments.kinds:
        print(_kinds())
        return
    if arguments.file is None:
        raise CommandError("which FILE?", Status.USAGE)
    if arguments.seed is not None and not arguments.simulated:
        raise CommandError("--seed goes with --simulated", Status.USAGE)
    plan = read_file(arguments.file)
    _check_words(plan, arguments)
    _import_from(Path(arguments.file))
    try:
        if arguments.simulated:
            # A slow import; the other ways to run go without.
            from ._up_simulated import run_simulated

            judge(run_simulated(plan, arguments))
        elif arguments.in_process:
            run(lambda stop: _in_process(stop, plan, arguments))
        elif arguments.node is not None:
            from ._up_node import run_node

            run_node(plan, arguments)
        else:
            from ._up_processes import run_processes

            run_processes(plan, arguments)
    except TopologyError as error:
        raise _unusable(error) from error


def _check_words(plan: TopologyPlan, arguments: argparse.Namespace) -> None:
    """Check that the options of the command and the file go together.

    Raises:
        CommandError: They do not.
    """
    if arguments.check and arguments.node is not None:
        raise CommandError("--check is for all nodes together, and --node for one", Status.USAGE)
    as_processes = not (arguments.in_process or arguments.simulated or arguments.node is not None)
    if (arguments.keep or arguments.restart) and (arguments.check or not as_processes):
        text = "--keep and --restart are for nodes that run as processes, without --check"
        raise CommandError(text, Status.USAGE)
    simulation = plan.simulation
    has_requests = bool(plan.requests or (arguments.simulated and simulation.requests))
    if arguments.check and not has_requests:
        raise CommandError("--check: the file has no requests to make", Status.USAGE)
    check_event_log(arguments)
    if arguments.simulated and arguments.event_log is not None:
        text = "--event-log is for nodes on the real clock, and --simulated has its own"
        raise CommandError(text, Status.USAGE)
    endless = not has_requests and not simulation.events and arguments.duration is None
    if arguments.simulated and endless:
        raise CommandError("the file has no requests to make; say --for SECONDS", Status.USAGE)


def read_file(name: str) -> TopologyPlan:
    """Return the plan of a topology file.

    Raises:
        CommandError: It cannot be read, or is not valid.
    """
    try:
        with Path(name).open("rb") as file:
            # One byte more than the limit is enough to see that there are too many.
            text = file.read(TopologyLimits().size + 1)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", Status.USAGE) from error
    try:
        return read(text, name)
    except TopologyError as error:
        raise _unusable(error) from error


def _unusable(error: TopologyError) -> CommandError:
    # A quoted text in a file may have any character.
    told = "\n".join(printable(line) for line in str(error).split("\n"))
    return CommandError(f"the topology cannot be used:\n{told}", Status.USAGE)


def _import_from(file: Path) -> None:
    """Make the classes of workers beside the file and in the current folder importable."""
    for folder in (str(Path.cwd()), str(file.resolve().parent)):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _kinds() -> str:
    rows = [
        (
            name,
            ", ".join(
                f"{key} ({option.type.value}{', required' if option.required else ''})"
                for key, option in kind.options.options.items()
            )
            or "-",
            kind.summary,
        )
        for name, kind in KINDS.items()
    ]
    return table(("KIND", "OPTIONS", "WHAT IT DOES"), rows)


# --- in this process ------------------------------------------------------------------------


async def _in_process(stop: StopRequest, plan: TopologyPlan, arguments: argparse.Namespace) -> None:
    try:
        # A start that is interrupted stops the parts started before.
        async def opened(node: Node) -> None:
            await attach(node, arguments, node.name)

        topology = await stop.unless(Topology.start(plan, opened=opened))
        async with topology, answering(topology.brokers()):
            for node in plan.nodes:
                show_identities(node, topology.identities, f"{node.name} | ")
            for name, uri in topology.uris.items():
                print(printable(f"{name} | listening {uri}"), flush=True)
            print(f"up: {printable(plan.title)}", flush=True)
            if arguments.check:
                judge(await stop.unless(topology.check()))
            elif arguments.duration is not None:
                await stop.unless(asyncio.sleep(arguments.duration))
            else:
                await stop.wait()
    except Interrupted:
        if arguments.check:
            raise


def judge(outcomes: Iterable[RequestOutcome]) -> None:
    """Print the outcomes of requests.

    Raises:
        CommandError: One is not as expected.
    """
    known = list(outcomes)
    for outcome in known:
        print(printable(str(outcome)), flush=True)
    failed = sum(not outcome.ok for outcome in known)
    if failed:
        raise CommandError(f"{failed} of {len(known)} requests had an unexpected outcome")
    if known:
        print(f"requests with the expected outcome: {len(known)}, all", flush=True)
