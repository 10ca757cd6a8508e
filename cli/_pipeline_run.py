"""The commands of `onward pipeline`. Spark is imported when one of them runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..protocol import counted
from ._pipeline_arguments import MAX_OBJECTIVES, ObjectiveArgument
from ._pipeline_progress import ProgressReporter
from ._pipeline_session import check_first, is_local, session
from ._show import printable, table
from ._status import CommandError, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.ingest import CompactSummary, Dropped, IngestSummary, Lake
    from ..pipeline.report import Audit

__all__ = ["audit", "build_index", "ingest", "replay", "report", "verify_index"]

_UNTOLD: Final = ("sent", "missing", "duplicated")
"""Figures that are unknown for a log in which no received request was recorded."""


def ingest(arguments: argparse.Namespace) -> None:
    """Add new segments to a lake."""
    if arguments.remote:
        raise CommandError(
            "ingest cannot run over --remote: the function that Spark Connect calls for each batch "
            "cannot see the lake. Run it by spark-submit, or where log and lake can be seen",
            Status.USAGE,
        )
    _local(arguments, "log", "lake", "checkpoint")
    check_first(arguments, [("--log", arguments.log)])
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake, ingest as run_ingest

        progress.begin("ingest")
        done = run_ingest(
            spark,
            Path(arguments.log),
            Path(arguments.lake),
            Path(arguments.checkpoint),
            max_segments=arguments.max_segments,
            follow=arguments.follow,
            rebuild=arguments.rebuild,
            allow_gaps=arguments.allow_gaps,
            skip_corrupt=arguments.skip_corrupt,
            progress=progress.say,
        )
        progress.done("ingest", f"{done.segments:,} segments in {done.batches:,} batches")
        # It is committed, whatever the outcome of the rest.
        late = Lake(arguments.lake).days_to_rerun()
        _print_ingested(done, [day for day in late if day != arguments.drop])
        _keep_house(spark, arguments, progress)


def _keep_house(
    spark: SparkSession, arguments: argparse.Namespace, progress: ProgressReporter
) -> None:
    """Compact a day and drop a day, each even if the other fails, and print the outcomes.

    Raises:
        CommandError: One of them failed, or both.
    """
    from ..pipeline import DayOpen
    from ..pipeline.ingest import Lake, compact

    failed: list[str] = []
    if arguments.compact is not None:
        there = arguments.compact in Lake(arguments.lake).days()
        progress.begin("compact")
        try:
            compacted = compact(spark, Path(arguments.lake), arguments.compact)
        except DayOpen as error:
            failed.append(f"--compact: {error}")
        else:
            progress.done("compact", _compacted_text(compacted))
            print(f"compacted: {_compacted_text(compacted) if there else _nothing_of(compacted)}")
    if arguments.drop is not None:
        there = arguments.drop in Lake(arguments.lake).days()
        progress.begin("drop")
        try:
            gone = Lake(arguments.lake).drop(arguments.drop)
        except DayOpen as error:
            failed.append(f"--drop: {error}")
        else:
            text = f"{_many(gone.files, 'file')} of {gone.day}, {_many(gone.bytes, 'byte')}"
            progress.done("drop", text)
            print(f"dropped: {text if there else _nothing_of(gone)}")
    if failed:
        raise CommandError("; ".join(failed))


def _nothing_of(done: CompactSummary | Dropped) -> str:
    return f"the lake has nothing of {done.day}"


def _print_ingested(done: IngestSummary, again: list[date]) -> None:
    print(
        f"{_many(done.segments, 'segment')}: {_many(done.hops, 'hop')}, "
        f"{_many(done.flows, 'flow')}, {_many(done.events, 'route event')}"
    )
    print(
        f"{done.damaged:,} damaged and skipped, {done.duplicates:,} there already, "
        f"{_many(done.late, 'event')} late; missing in the lake: {done.missing:,}"
    )
    if done.dropped:
        print(f"{_many(done.dropped, 'event')} left out, of days that had been dropped")
    if again:
        days = ", ".join(day.isoformat() for day in again[:10])
        print(f"events came late; make the reports again of: {days}")


def _compacted_text(done: CompactSummary) -> str:
    return (
        f"{_many(done.files_before, 'file')} of {done.day}, now {done.files_after:,}; "
        f"{_many(done.bytes_before, 'byte')}, now {done.bytes_after:,}"
    )


def report(arguments: argparse.Namespace) -> None:
    """Make the reports of a day."""
    if "slo" in arguments.only and not arguments.slo:
        raise CommandError(
            "--only slo needs an objective: --slo NAME:SERVICE:MS:TARGET", Status.USAGE
        )
    _check_objectives(arguments.slo)
    lake = _lake_first(arguments)
    if arguments.html and not Path(arguments.html).resolve().parent.is_dir():
        raise CommandError(f"--html: there is no folder for {arguments.html}", Status.USAGE)
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.jobs import run_report
        from ..pipeline.report import render
        from ..pipeline.transforms import Objective

        opened = _open(lake, arguments.day, progress)
        done = run_report(
            spark,
            opened,
            arguments.day,
            arguments.only,
            out=arguments.out,
            format=arguments.format,
            objectives=[
                Objective(each.name, each.service, each.latency_us, each.target)
                for each in arguments.slo
            ],
            page=arguments.html is not None,
            most=arguments.rows,
            progress=progress,
        )
        if done.page is not None:
            _write_text(arguments.html, render(done.page))
    for name, shown in done.shown.items():
        more = f"\nand {shown.more:,} more" if shown.more else ""
        print(
            f"{name}: {_many(done.rows[name], 'row')}\n{table(shown.headings, shown.rows)}{more}\n"
        )
    if arguments.format != "table":
        where = arguments.out or str(Path(lake) / "reports")
        print(f"{_many(len(done.rows), 'report')} of {arguments.day} in {where}")
    if arguments.html:
        print(f"page: {arguments.html}")


def _check_objectives(given: list[ObjectiveArgument]) -> None:
    if len(given) > MAX_OBJECTIVES:
        raise CommandError(
            f"--slo: {len(given)} objectives, over {MAX_OBJECTIVES}: make the others in a run of "
            "their own, with --out",
            Status.USAGE,
        )
    twice = [name for name, times in Counter(each.name for each in given).items() if times > 1]
    if twice:
        raise CommandError(
            f"--slo: there are several objectives {twice[0]!r}: give each a name of its own",
            Status.USAGE,
        )


def audit(arguments: argparse.Namespace) -> None:
    """Check the balance of a lake."""
    lake = _lake_first(arguments)
    since, until = arguments.since, arguments.until
    if since is not None and until is not None and since >= until:
        raise CommandError("--since is not before --until", Status.USAGE)
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake
        from ..pipeline.jobs import run_audit, stage

        with stage(progress, "audit") as current:
            found = run_audit(spark, Lake(lake), since, until)
            current.says(f"{len(found.rows) + found.more:,} brokers and links")
    if found.empty:
        between = " between --since and --until" if since or until else ""
        raise CommandError(f"nothing to audit: the lake has no flows{between}; see onward events")
    print(_audit_text(found))
    wrong = (
        list(_not_there(found)) if found.absent + found.unrecorded > arguments.allow_lost else []
    )
    if found.untold:
        wrong.append(
            f"of {_many(found.untold, 'request')} that ended none was recorded as received: the "
            "missing or duplicated ones are not known, and --allow does not cover them"
        )
    if found.missing + found.duplicated > arguments.allow:
        wrong.append(
            f"it does not add up: {found.missing:,} missing, {found.duplicated:,} duplicated"
        )
    if wrong:
        raise _gate_failed(*wrong)


def replay(arguments: argparse.Namespace) -> None:
    """Replay a day with a change."""
    lake = _lake_first(
        arguments, ("--table", arguments.table), ("--candidate", arguments.candidate)
    )
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.jobs import Gates, ReplayMethods, run_replay

        opened = _open(lake, arguments.day, progress)
        done = run_replay(
            spark,
            opened,
            arguments.day,
            arguments.table,
            arguments.candidate,
            methods=ReplayMethods(
                arguments.shard_old,
                arguments.shard_new,
                arguments.method_old,
                arguments.method_new,
            ),
            gates=Gates(
                arguments.max_moved,
                arguments.fail_if_lost,
                arguments.max_skew,
                arguments.max_unknown,
                arguments.max_stale,
            ),
            brokers=arguments.broker,
            out=arguments.out,
            progress=progress,
        )
    totals = done.totals
    print(table(done.tagsets.headings, done.tagsets.rows))
    print(
        f"{_many(totals.frames, 'frame')}: {totals.moved:,} would move ({totals.moved_ratio:.1%}), "
        f"{totals.lost:,} would lose a route, {totals.gained:,} would gain one, "
        f"{totals.nowhere:,} without one before and after; "
        f"skew {totals.skew_old:.2f} before, {totals.skew_new:.2f} after"
    )
    for count, what in (
        (totals.stale, "delivered, without a route in --table"),
        (
            totals.unknown,
            "could not be resolved: lake or log do not know the tags",
        ),
        (totals.failed, "went to any candidate: a plug-in failed"),
        (totals.own, "left out: for the broker's own services"),
    ):
        if count:
            print(f"{_many(count, 'frame')} {what}")
    if arguments.max_skew is not None and not totals.judged:
        print("the skew is not significant: no tag set has 100 sampled frames for each route")
    if done.failed:
        raise _gate_failed(*map(str, done.failed))


def build_index(arguments: argparse.Namespace) -> None:
    """Build a snapshot of routes."""
    if arguments.lake is None and (arguments.at is not None or arguments.broker):
        raise CommandError("--at and --broker go with --lake", Status.USAGE)
    if arguments.lake is None:
        _folder("--out", arguments.out)
        check_first(arguments, [("--routes", arguments.routes)])
        if arguments.remote:
            _make_absolute(arguments)
    else:
        _lake_first(arguments)
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake
        from ..pipeline.jobs import run_index, run_index_of_log

        if arguments.lake is None:
            made = run_index(spark, arguments.routes, arguments.out, progress)
        else:
            made = run_index_of_log(
                spark,
                Lake(arguments.lake),
                arguments.out,
                at=arguments.at,
                brokers=arguments.broker,
                progress=progress,
            )
    print(
        f"{_many(made.routes, 'route')} with {_many(made.postings, 'tag')}, "
        f"{made.bitmaps:,} different, in {_many(made.bytes, 'byte')}; bitmaps {made.xor}"
    )


def verify_index(arguments: argparse.Namespace) -> None:
    """Compare a snapshot with a lake."""
    arguments.lake = arguments.against
    _lake_first(arguments, ("--snapshot", arguments.snapshot), option="--against")
    with ProgressReporter(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake
        from ..pipeline.jobs import run_verify

        drift = run_verify(
            spark,
            arguments.snapshot,
            Lake(arguments.lake),
            at=arguments.at,
            brokers=arguments.broker,
            progress=progress,
        )
    for line in drift.shown:
        print(printable(line))
    through = (
        ""
        if drift.through is None
        else f"; the lake has the log up to {drift.through:%Y-%m-%d %H:%M:%S} UTC"
    )
    if drift.differences:
        raise _gate_failed(
            f"{_many(drift.missing, 'route')} missing, {drift.unexpected:,} unexpected, "
            f"{drift.other_tags:,} with other tags, {_many(drift.bitmaps, 'bitmap')} wrong{through}"
        )
    if not drift.routes:
        raise CommandError(
            f"nothing to verify: neither the snapshot nor the log has a route{through}"
        )
    print(f"{_many(drift.routes, 'route')}, as the log says{through}")


def _gate_failed(*reasons: str) -> CommandError:
    """Return the error of a command that is done, with a gate that does not hold."""
    return CommandError(f"gate failed: {'; '.join(reasons)}", Status.USAGE)


def _local(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        path = getattr(arguments, name)
        if not is_local(path):
            raise CommandError(
                f"--{name} is a folder that driver and executors see, not a URI: mount the store",
                Status.USAGE,
            )
        _folder(f"--{name}", path)


def _folder(option: str, path: str | None) -> None:
    """Check that an option's path is a folder, or can become one."""
    if path is None or not is_local(path):
        return
    nearest = next(each for each in (Path(path), *Path(path).resolve().parents) if each.exists())
    if not nearest.is_dir():
        raise CommandError(f"{option}: {nearest} is a file, not a folder", Status.USAGE)


def _lake_first(
    arguments: argparse.Namespace, *others: tuple[str, str], option: str = "--lake"
) -> str:
    """Run the checks of a command that reads a lake, and return the lake's path."""
    if not is_local(arguments.lake):
        _local(arguments, "lake")
    _folder(option, arguments.lake)
    _folder("--out", getattr(arguments, "out", None))
    check_first(arguments, [(option, arguments.lake), *others])
    if arguments.remote:
        _make_absolute(arguments)
    return str(arguments.lake)


def _make_absolute(arguments: argparse.Namespace) -> None:
    """Make paths absolute: a server of Spark Connect has another current folder."""
    for name in ("lake", "out", "routes", "table", "candidate", "snapshot"):
        path = getattr(arguments, name, None)
        if path and is_local(path):
            setattr(arguments, name, str(Path(path).absolute()))


def _open(path: str, day: date, progress: ProgressReporter) -> Lake:
    """Return the lake; print a line if it has no data of the day, which is no error."""
    from ..pipeline.ingest import Lake

    lake = Lake(path)
    lake.check()
    days = lake.days()
    if day not in days:
        has = f"it has {days[0]} to {days[-1]}" if days else "it has no days"
        progress.say(f"the lake has nothing of {day}; {has}")
    return lake


def _write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def _audit_text(found: Audit) -> str:
    figures = ("sent", "received", "delivered", "dropped", "unroutable", "missing", "duplicated")
    rows = [
        (
            row.src or "-",
            row.dst or "-",
            *(
                "-" if row.untold and name in _UNTOLD else _figure(getattr(row, name))
                for name in figures
            ),
        )
        for row in found.rows
    ]
    more = f"\nand {found.more:,} more" if found.more else ""
    lacking = "".join(f"\n{line}" for line in (*_untold(found), *_lacking(found)))
    return table(("FROM", "LINK", *map(str.upper, figures)), rows) + more + lacking


def _untold(found: Audit) -> Iterator[str]:
    """Yield the logs that recorded outcomes, but no received requests."""
    for row in found.rows:
        if row.untold:
            ended = row.delivered + row.dropped + row.unroutable
            yield (
                f"{printable(row.src)}: {_many(ended, 'request')} ended, and none was "
                "recorded as received: how many are missing or duplicated is not known"
            )


def _lacking(found: Audit) -> Iterator[str]:
    """Yield the gaps of each log."""
    for hole in found.holes:
        log = printable(hole.log)
        if hole.unrecorded:
            why = f" ({', '.join(map(printable, hole.reasons))})" if hole.reasons else ""
            yield f"{log}: {_many(hole.unrecorded, 'event')} not recorded{why}"
        if hole.absent:
            yield f"{log}: {_many(hole.absent, 'event')} missing from the lake"
    if found.more_holes:
        yield f"incomplete logs that are not shown: {found.more_holes:,}"


def _not_there(found: Audit) -> Iterator[str]:
    if found.unrecorded:
        yield f"{_many(found.unrecorded, 'event')} not recorded"
    if found.absent:
        yield f"{_many(found.absent, 'event')} missing from the lake"


def _many(number: int, noun: str) -> str:
    """Return a number, with separated thousands, and its noun."""
    return counted(number, noun, ",")


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
