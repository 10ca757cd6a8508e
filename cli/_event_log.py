"""The event-log options of commands, and the start of a log."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..protocol import counted
from ..protocol.eventlog import EventLogError
from ._arguments import seconds, size, word
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ._process import Place

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
"""Figures of the writer that are reported if they are not zero."""


def add_event_log(parser: argparse.ArgumentParser, default_name: str | None) -> None:
    """Add the options of the event log.

    Args:
        parser: The command's parser.
        default_name: The log's default name; `None` for several logs, each with the name of its
            node.
    """
    group = parser.add_argument_group("event log")
    group.add_argument(
        "--event-log",
        metavar="DIR",
        help="record routed messages, in files in a folder of DIR that has the log's name",
    )
    if default_name is not None:
        group.add_argument(
            "--event-log-name",
            metavar="NAME",
            default=default_name,
            help="the log's name; each log in DIR needs its own (default %(default)s)",
        )
    group.add_argument(
        "--event-log-sample",
        metavar="RATE",
        type=_rate,
        default=DEFAULT_RATE,
        help="the part of all messages or requests that is sampled, 0 to 1; counters "
        "count them all in any case (default %(default)g)",
    )
    group.add_argument(
        "--event-log-arrivals",
        action="store_true",
        help="sample messages that come over links too: for nodes with peers that keep no log",
    )
    group.add_argument(
        "--event-log-seal",
        metavar="SECONDS",
        type=_some_seconds,
        default=DEFAULT_SEAL,
        help="the longest time until records can be read (default %(default)g)",
    )
    group.add_argument(
        "--event-log-flush",
        metavar="SECONDS",
        type=_some_seconds,
        default=DEFAULT_FLUSH,
        help="the longest time for which records are held back before they are written: a process "
        "that is killed loses them (default %(default)g)",
    )
    group.add_argument(
        "--event-log-fsync",
        type=word("seal", "block", "never"),
        choices=("seal", "block", "never"),
        default=DEFAULT_FSYNC,
        help="when to sync to the disk, so that written records survive a power cut: with "
        "each file as it is finished, each block, or never (default %(default)s)",
    )
    group.add_argument(
        "--event-log-max-bytes",
        metavar="BYTES",
        type=size,
        default=DEFAULT_BYTES,
        help="above this number of bytes the oldest files are deleted (default %(default)d)",
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
    """Check that the options of a log are not given without a log.

    Raises:
        CommandError: One is given with a value other than its default.
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
    """Return the options as words of a command line, for another process with the same log."""
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
    """Return a node's name: its log's name, or else the default.

    The log's names of workers begin with the node's name, so it has to be unique.
    """
    named: str = default if arguments.event_log is None else log_name(arguments)
    return named


def log_name(arguments: argparse.Namespace) -> str:
    """Return the name of the log: each of several processes has its own."""
    place: Place | None = getattr(arguments, "place", None)
    name: str = arguments.event_log_name
    return name if place is None else f"{name}-{place.index}"


async def attach(node: Node, arguments: argparse.Namespace, name: str | None = None) -> None:
    """Attach an event log to a node, if the command line asks for one.

    Args:
        node: The node, before it has any workers to record.
        arguments: The command line.
        name: The log's name; by default that of the command line.

    Raises:
        CommandError: The name is not valid or in use, a limit is out of range, or the folder cannot
            be written.
    """
    if arguments.event_log is None:
        return
    # A slow import, which most runs do not need.
    from ..actors.eventlog import EventLog, LogInUse, LogOptions

    called = name or log_name(arguments)
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
    """Return a line about the records of an event log, and its losses.

    Args:
        figures: The fields of `EventLogStatistics`, as a broker reports them.
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
    """Return the totals of a node's event log as a line; empty if there is none."""
    instruments = node.instruments
    figures: Any = {} if instruments is None else instruments.figures()
    return "; " + printable(told(figures["event_log"])) if "event_log" in figures else ""
