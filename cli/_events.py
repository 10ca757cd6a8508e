"""`onward events`: print the records of event logs, without Spark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from ..protocol import counted
from ..protocol.broker import format_id, format_tag
from ..protocol.eventlog import (
    EventLogError,
    Flag,
    Flow,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
    Segment,
    asked_text,
)
from ._arguments import Commands, positive, word
from ._event_logs import Check, check_log, compare, find_logs, read_file
from ._show import printable, table
from ._status import CommandError

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Print the records in the sealed segments of event logs: hops, flows and route events, in the order
of their numbers. Tag sets are user data, and are printed. With --check print no records, but check
every one, and report the faults.
"""

LIMIT: Final = 1000
HEADINGS: Final = ("SEGMENT", "LOG", "STARTED", "HOPS", "FLOWS", "EVENTS", "MISSING", "RATE")

Record: TypeAlias = Hop | Flow | RouteEvent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "events", help="print or check the records of an event log", description=_DESCRIPTION
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="the DIR of --event-log, the folder of one log in it, or one segment",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--only",
        type=word("hops", "flows", "events"),
        choices=("hops", "flows", "events"),
        help="print records of one sort; all by default",
    )
    what.add_argument("--segments", action="store_true", help="print a line for each segment")
    what.add_argument(
        "--check",
        action="store_true",
        help="check every segment and the sequence of segments; exit with 1 if one is damaged or "
        "missing",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a line of JSON for each record; with --segments for each segment, with --check "
        "for each log, and one more for faults between logs",
    )
    parser.add_argument(
        "--limit",
        metavar="NUMBER",
        type=positive,
        default=LIMIT,
        help=f"print at most so many records or segments; {LIMIT} by default",
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    logs = find_logs(arguments.path)
    if arguments.check:
        _check(logs, as_json=arguments.json)
    elif arguments.segments:
        paths = [path for segments in logs.values() for path in segments]
        _print_segments(paths[: arguments.limit], as_json=arguments.json)
        _more(len(paths) > arguments.limit)
    else:
        _print_records(logs, arguments)


def _print_records(logs: dict[Path, list[Path]], arguments: argparse.Namespace) -> None:
    paths = (path for segments in logs.values() for path in segments)
    records = (each for path in paths for each in _records(path, arguments.only))
    for segment, record in islice(records, arguments.limit):
        fields = _fields(segment, record)
        print(json.dumps(fields) if arguments.json else printable(_line(fields, record)))
    _more(next(records, None) is not None)


def _more(more: bool) -> None:
    if more:
        print("there are more: --limit sets how many are printed", file=sys.stderr)


def _records(path: Path, only: str | None) -> Iterator[tuple[Segment, Record]]:
    """Yield the records of a segment in the order of their numbers."""
    segment = _read(path)
    if segment is None:
        return
    sorts: dict[str, Iterator[Record]] = {
        "hops": segment.hops(),
        "flows": segment.flows(),
        "events": iter(segment.events),
    }
    wanted = [sorts[only]] if only else sorts.values()
    try:
        for record in merge(*wanted, key=lambda record: record.seq):
            yield segment, record
    except EventLogError as error:
        raise CommandError(f"{path}: {error}") from error


def _read(path: Path) -> Segment | None:
    segment = read_file(path)
    if segment is None:
        print(f"{path.name} has been deleted since it was found", file=sys.stderr)
    return segment


# --- records ------------------------------------------------------------------------------


def _time(us: int) -> str:
    try:
        return (_EPOCH + us * _US).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{us} us"


def _word(codes: type[IntEnum], code: int) -> str:
    try:
        return codes(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


def _fields(segment: Segment, record: Record) -> dict[str, object]:
    """Return a record with the names, routes and tag sets that it refers to."""
    who = {"broker": segment.header.broker, "epoch": segment.header.epoch, "seq": record.seq}
    if isinstance(record, RouteEvent):
        return {
            "type": "event",
            **who,
            "time": _time(record.ts_us),
            "event": record.name.name.lower(),
            "route": None if record.route_id is None else format_id(record.route_id),
            "node": record.node,
            "tags": [format_tag(tag) for tag in record.tags],
            "reason": record.reason,
        }
    between = {
        "kind": _word(Kind, record.kind),
        "outcome": _word(Outcome, record.outcome),
        "origin": segment.names[record.origin - 1] if record.origin else None,
        "dest": segment.names[record.dest - 1] if record.dest else None,
        "route": format_id(segment.routes[record.route - 1]) if record.route else None,
        "asked": asked_text(segment.tagsets[record.tagset - 1]) if record.tagset else None,
    }
    if isinstance(record, Flow):
        window = {"time": _time(record.window_us), "window_ms": record.window_ms}
        sums = {"frames": record.frames, "bytes": record.bytes}
        return {"type": "flow", **who, **window, **between, **sums}
    return {
        "type": "hop",
        **who,
        "time": _time(record.ts_us),
        **between,
        "trace": f"{record.trace_id:016x}",
        "shard_hash": f"{record.shard_hash:016x}" if record.flags & _HASHED else None,
        "hop": record.hop,
        "flags": [flag.name.lower() for flag in Flag if record.flags & flag and flag.name],
        "latency_us": record.latency_us,
        "bytes": record.bytes,
        "weight": record.weight,
    }


_HASHED: Final = Flag.SHARD | Flag.STICKY


def _line(fields: dict[str, object], record: Record) -> str:
    """Return a record as one line of text."""
    start = f"{fields['time']} {fields['broker']} {fields['epoch']}:{fields['seq']}"
    if isinstance(record, RouteEvent):
        tags = " ".join(map(format_tag, record.tags))
        rest = (fields["route"], record.node, tags, record.reason and f"({record.reason})")
        return " ".join(
            [start, "event", f"{fields['event']}", *(str(each) for each in rest if each)]
        )
    words = [start, f"{fields['type']}", f"{fields['kind']}", f"{fields['outcome']}"]
    words.append(f"{fields['origin'] or '-'} -> {fields['dest'] or '-'}")
    if fields["asked"]:
        words.append(f"[{fields['asked']}]")
    if isinstance(record, Flow):
        frames = counted(record.frames, "frame")
        words.append(f"{frames}, {counted(record.bytes, 'byte')} in {record.window_ms} ms")
    else:
        size = counted(record.bytes, "byte")
        words.append(f"{record.latency_us} us, {size}, trace {fields['trace']}")
    return " ".join(words)


# --- segments -----------------------------------------------------------------------------


def _print_segments(paths: list[Path], *, as_json: bool) -> None:
    rows: list[tuple[str | int, ...]] = []
    for path in paths:
        segment = _read(path)
        if segment is None:
            continue
        header, footer = segment.header, segment.footer
        if as_json:
            fields = {
                "path": str(path),
                "broker": header.broker,
                "log": header.log.hex(),
                "epoch": header.epoch,
                "first_seq": header.first_seq,
                "last_seq": footer.last_seq,
                "started": _time(header.started_us),
                "ended": _time(footer.ended_us),
                "sample_rate": header.sample_rate,
                "hops": footer.hops,
                "flows": footer.flows,
                "events": footer.events,
                "missing": segment.missing,
            }
            print(json.dumps(fields))
            continue
        counts = (footer.hops, footer.flows, footer.events, segment.missing)
        rows.append(
            (
                path.name,
                header.broker,
                _time(header.started_us),
                *counts,
                f"{header.sample_rate:g}",
            )
        )
    if rows:
        print(table(HEADINGS, rows))


def _check(logs: dict[Path, list[Path]], *, as_json: bool) -> None:
    wrong = 0
    checks: dict[Path, Check] = {}
    for folder, segments in logs.items():
        check = checks[folder] = check_log(folder, segments)
        print(json.dumps(_check_fields(folder, check)) if as_json else _check_text(folder, check))
        wrong += len(check.problems)
    between = list(compare(checks))
    if between and as_json:
        print(json.dumps({"log": None, "problems": between}))
    elif between:
        print(_wrong(between))
    wrong += len(between)
    if wrong:
        raise CommandError(f"{wrong} wrong; see above")


def _check_fields(folder: Path, check: Check) -> dict[str, object]:
    return {
        "log": folder.name,
        "segments": check.segments,
        "epochs": len(check.epochs),
        "hops": check.hops,
        "flows": check.flows,
        "events": check.events,
        "missing": check.missing,
        "lost": check.lost,
        "deleted": check.deleted,
        "notes": check.notes,
        "problems": check.problems,
    }


def _check_text(folder: Path, check: Check) -> str:
    what = (
        f"{printable(folder.name)}: {counted(check.segments, 'segment')} of "
        f"{counted(len(check.epochs), 'epoch')}: {counted(check.hops, 'hop')}, "
        f"{counted(check.flows, 'flow')}, {counted(check.events, 'event')}; "
        f"{check.missing} not recorded"
    )
    lines = [what, *(f"  note: {printable(note)}" for note in check.notes)]
    return "\n".join([*lines, _wrong(check.problems)] if check.problems else lines)


def _wrong(problems: list[str]) -> str:
    return "\n".join(f"  WRONG: {printable(problem)}" for problem in problems)
