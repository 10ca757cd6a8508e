"""The options of commands that record an event log, and how one is begun."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..protocol import counted
from ..protocol.eventlog import EventLogError
from ._arguments import positive, seconds, word
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..actors import Node

__all__ = ["add_event_log", "attach", "check_event_log", "node_name", "told", "total", "words"]

DEFAULT_RATE: Final = 0.01
DEFAULT_SEAL: Final = 60.0
DEFAULT_FLUSH: Final = 1.0
DEFAULT_FSYNC: Final = "seal"
DEFAULT_BYTES: Final = 10 * 1024 * 1024 * 1024
DEFAULT_AGE: Final = 7 * 24 * 3600.0

_OPTIONS: Final = ("name", "sample", "arrivals", "seal", "flush", "fsync", "max-bytes", "max-age")

_SELDOM: Final = {
    "pending": "bytes wait for the disk",
    "recovered": "files of earlier runs recovered",
    "bad": "files set aside",
    "deleted_unread": "files deleted before they were read",
}
"""What is told of the writer's figures if there is any of it."""


def add_event_log(parser: argparse.ArgumentParser, default_name: str | None) -> None:
    """Add the options of the event log.

    Args:
        parser: The command's.
        default_name: What the log is called if nothing is said; `None`: there are several logs,
            each with the name of its node.
    """
    group = parser.add_argument_group("event log")
    group.add_argument(
        "--event-log",
        metavar="DIR",
        help="record what is routed, in files in a folder of DIR that has the log's name",
    )
    if default_name is not None:
        group.add_argument(
            "--event-log-name",
            metavar="NAME",
            default=default_name,
            help="the log's name; no two that write in DIR may have the same (default %(default)s)",
        )
    group.add_argument(
        "--event-log-sample",
        metavar="RATE",
        type=_rate,
        default=DEFAULT_RATE,
        help="which part of all messages or requests has a record of its own, 0 to 1; counters "
        "count them all in any case (default %(default)g)",
    )
    group.add_argument(
        "--event-log-arrivals",
        action="store_true",
        help="sample messages that come over links as well: for nodes whose peers keep no log",
    )
    group.add_argument(
        "--event-log-seal",
        metavar="SECONDS",
        type=_some_seconds,
        default=DEFAULT_SEAL,
        help="after how long at most what was recorded can be read (default %(default)g)",
    )
    group.add_argument(
        "--event-log-flush",
        metavar="SECONDS",
        type=_some_seconds,
        default=DEFAULT_FLUSH,
        help="for how long at most records are kept back before they are written: so much a "
        "process that is killed loses (default %(default)g)",
    )
    group.add_argument(
        "--event-log-fsync",
        type=word("seal", "block", "never"),
        choices=("seal", "block", "never"),
        default=DEFAULT_FSYNC,
        help="when the disk is waited for, so that what was written outlasts a power cut: with "
        "each file as it is finished, each block, or never (default %(default)s)",
    )
    group.add_argument(
        "--event-log-max-bytes",
        metavar="BYTES",
        type=positive,
        default=DEFAULT_BYTES,
        help="over so many bytes the oldest files are deleted (default %(default)d)",
    )
    group.add_argument(
        "--event-log-max-age",
        metavar="SECONDS",
        type=_some_seconds,
        default=DEFAULT_AGE,
        help="files older than that are deleted (default %(default)g)",
    )

    options = {f"--event-log-{name}": f"event-log-{name}".replace("-", "_") for name in _OPTIONS}
    defaults = {option: (dest, parser.get_default(dest)) for option, dest in options.items()}
    parser.set_defaults(event_log_defaults=defaults)


def check_event_log(arguments: argparse.Namespace) -> None:
    """Check that no option of a log is given where there is no log.

    Raises:
        CommandError: One is, and says something else than what holds anyway.
    """
    if arguments.event_log is not None:
        return
    for option, (dest, default) in arguments.event_log_defaults.items():
        if getattr(arguments, dest, default) != default:
            raise CommandError(f"{option} goes with --event-log DIR", Status.USAGE)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate from 0 to 1")
    return value


def _some_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("it takes more than 0 seconds")
    return value


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the options as words of a command line, for a process that is to do the same."""
    if arguments.event_log is None:
        return []
    return [
        *("--event-log", arguments.event_log),
        *("--event-log-sample", repr(arguments.event_log_sample)),
        *(["--event-log-arrivals"] if arguments.event_log_arrivals else []),
        *("--event-log-seal", repr(arguments.event_log_seal)),
        *("--event-log-flush", repr(arguments.event_log_flush)),
        *("--event-log-fsync", arguments.event_log_fsync),
        *("--event-log-max-bytes", str(arguments.event_log_max_bytes)),
        *("--event-log-max-age", repr(arguments.event_log_max_age)),
    ]


def node_name(arguments: argparse.Namespace, default: str) -> str:
    """Return what a node is to be called: its log's name, if it has one, or else the default.

    What a log calls its workers begins with the node's name, which has to tell nodes apart.
    """
    named: str = default if arguments.event_log is None else arguments.event_log_name
    return named


async def attach(node: Node, arguments: argparse.Namespace, name: str | None = None) -> None:
    """Begin the event log of a node, if the command line asks for one.

    Args:
        node: The node, with nothing on it yet that is to be recorded.
        arguments: The command line.
        name: The log's name; by default what the command line says.

    Raises:
        CommandError: The name is none or in use, a limit is out of range, or the folder cannot be
            written.
    """
    if arguments.event_log is None:
        return
    # It takes its time to import; most run without.
    from ..actors.eventlog import EventLog, LogInUse, LogOptions

    called: str = name or arguments.event_log_name
    try:
        options = LogOptions(
            Path(arguments.event_log),
            called,
            sample_rate=arguments.event_log_sample,
            sample_arrivals=arguments.event_log_arrivals,
            seal_seconds=arguments.event_log_seal,
            flush_seconds=arguments.event_log_flush,
            fsync=arguments.event_log_fsync,
            max_bytes=arguments.event_log_max_bytes,
            max_age_seconds=arguments.event_log_max_age,
        )
    except (EventLogError, ValueError) as error:
        raise CommandError(f"--event-log: {error}", Status.USAGE) from error
    try:
        await EventLog.attach(node, options)
    except (LogInUse, EventLogError) as error:
        raise CommandError(f"--event-log: {error}") from error
    except OSError as error:
        folder = options.directory / called
        text = f"--event-log: cannot write to {folder}: {error.strerror or error}"
        raise CommandError(text) from error


def told(figures: Mapping[str, Any]) -> str:
    """Say in a line what an event log has recorded, and what it has lost.

    Args:
        figures: The fields of `EventLogStatistics`, as a broker tells them.
    """
    recorder, writer = figures["recorder"], figures["writer"]
    parts = [
        (
            f"event log: {counted(int(recorder['hops']), 'hop')}, "
            f"{counted(int(recorder['flows']), 'flow')}, "
            f"{counted(int(recorder['events']), 'event')}"
        )
    ]
    reasons = {reason: int(count) for reason, count in recorder["dropped"].items()}
    lost = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    parts.append(f"{sum(reasons.values())} of them lost: {lost}" if lost else "0 lost")
    parts += [f"{int(writer[name])} {what}" for name, what in _SELDOM.items() if writer[name]]
    if figures["trouble"]:
        parts.append(str(figures["trouble"]))
    return "; ".join(parts)


def total(node: Node) -> str:
    """Return what a line of totals says of a node's event log; empty if there is none."""
    log = node.event_log
    return "" if log is None else "; " + printable(told(asdict(log.statistics())))
