"""What each command of `onward pipeline` does. Spark is imported when one of them runs."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ._pipeline_progress import Progress
from ._pipeline_session import check_first, is_local, session
from ._show import printable, table
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..pipeline.ingest import Lake
    from ..pipeline.report import Audit

__all__ = ["audit", "build_index", "ingest", "replay", "report", "verify_index"]


def ingest(arguments: argparse.Namespace) -> None:
    """Add new segments to a lake."""
    if arguments.remote:
        raise CommandError(
            "ingest cannot run over --remote: what Spark Connect calls for each batch cannot see "
            "the lake. Run it by spark-submit, or here, where the log and the lake can be seen",
            Status.USAGE,
        )
    _local(arguments, "log", "lake", "checkpoint")
    check_first(arguments, [("--log", arguments.log)])
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake, compact, ingest as run_ingest

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
        if arguments.compact is not None:
            progress.begin("compact")
            compacted = compact(spark, Path(arguments.lake), arguments.compact)
            progress.done("compact", str(compacted))
        again = Lake(arguments.lake).days_to_rerun()
    print(
        f"{done.segments:,} segments: {done.hops:,} hops, {done.flows:,} flows, "
        f"{done.events:,} route events"
    )
    if again:
        days = ", ".join(day.isoformat() for day in again[:10])
        print(f"events came late; make the reports again of: {days}")


def report(arguments: argparse.Namespace) -> None:
    """Make the reports of a day."""
    if "slo" in arguments.only and not arguments.slo:
        raise CommandError(
            "--only slo needs an objective: --slo NAME:SERVICE:MS:TARGET", Status.USAGE
        )
    lake = _lake_first(arguments)
    if arguments.html and not Path(arguments.html).resolve().parent.is_dir():
        raise CommandError(f"--html: there is no folder for {arguments.html}", Status.USAGE)
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
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
        print(f"{name}: {done.rows[name]:,} rows\n{table(shown.headings, shown.rows)}{more}\n")
    if arguments.format != "table":
        where = arguments.out or str(Path(lake) / "reports")
        print(f"{len(done.rows)} reports of {arguments.day} in {where}")
    if arguments.html:
        print(f"page: {arguments.html}")


def audit(arguments: argparse.Namespace) -> None:
    """See whether it all adds up."""
    lake = _lake_first(arguments)
    since, until = arguments.since, arguments.until
    if since is not None and until is not None and since >= until:
        raise CommandError("--since is not before --until", Status.USAGE)
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.ingest import Lake
        from ..pipeline.jobs import run_audit, stage

        with stage(progress, "audit") as current:
            found = run_audit(spark, Lake(lake), since, until)
            current.says(f"{len(found.rows) + found.more:,} brokers and links")
    print(_audit_text(found))
    if abs(found.missing) + abs(found.duplicated) > arguments.allow:
        raise CommandError(
            f"it does not add up: {found.missing:,} missing, {found.duplicated:,} duplicated",
            Status.USAGE,
        )


def replay(arguments: argparse.Namespace) -> None:
    """Rehearse a change."""
    lake = _lake_first(
        arguments, ("--table", arguments.table), ("--candidate", arguments.candidate)
    )
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
        from ..pipeline.jobs import Gates, Methods, run_replay

        opened = _open(lake, arguments.day, progress)
        done = run_replay(
            spark,
            opened,
            arguments.day,
            arguments.table,
            arguments.candidate,
            methods=Methods(
                arguments.shard_old,
                arguments.shard_new,
                arguments.method_old,
                arguments.method_new,
            ),
            gates=Gates(arguments.max_moved, arguments.fail_if_lost, arguments.max_skew),
            brokers=arguments.broker,
            out=arguments.out,
            progress=progress,
        )
    totals = done.totals
    print(table(done.tagsets.headings, done.tagsets.rows))
    print(
        f"{totals.frames:,} frames: {totals.moved:,} move ({totals.moved_ratio:.1%}), "
        f"{totals.lost:,} lose their route, {totals.gained:,} gain one; "
        f"skew {totals.skew_old:.2f} before, {totals.skew_new:.2f} after"
    )
    if totals.unknown:
        print(f"{totals.unknown:,} frames could not be resolved: the lake does not know their tags")
    if done.failed:
        raise CommandError("; ".join(map(str, done.failed)), Status.USAGE)


def build_index(arguments: argparse.Namespace) -> None:
    """Build a snapshot of routes."""
    if arguments.lake is None and (arguments.at is not None or arguments.broker):
        raise CommandError("--at and --broker go with --lake", Status.USAGE)
    if arguments.lake is None:
        check_first(arguments, [("--routes", arguments.routes)])
    else:
        _lake_first(arguments)
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
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
        f"{made.routes:,} routes with {made.postings:,} tags, {made.bitmaps:,} different ones, "
        f"in {made.bytes:,} bytes; bitmaps {made.xor}"
    )


def verify_index(arguments: argparse.Namespace) -> None:
    """Hold a snapshot against a lake."""
    arguments.lake = arguments.against
    _lake_first(arguments, ("--snapshot", arguments.snapshot), option="--against")
    with Progress(quiet=arguments.quiet) as progress, session(arguments, progress) as spark:
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
    if drift.differences:
        raise CommandError(
            f"{drift.missing:,} routes missing, {drift.unexpected:,} unexpected, "
            f"{drift.other_tags:,} with other tags, {drift.bitmaps:,} bitmaps wrong",
            Status.USAGE,
        )
    print(f"{drift.routes:,} routes, as the log says")


def _local(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        if not is_local(getattr(arguments, name)):
            raise CommandError(
                f"--{name} is a folder that driver and executors see, not a URI: mount the store",
                Status.USAGE,
            )


def _lake_first(
    arguments: argparse.Namespace, *others: tuple[str, str], option: str = "--lake"
) -> str:
    """Check what `check_first` does, for a command that reads a lake, and return its path."""
    _local(arguments, "lake")
    check_first(arguments, [(option, arguments.lake), *others])
    return str(arguments.lake)


def _open(path: str, day: date, progress: Progress) -> Lake:
    """Return the lake; say so if it has nothing of the day, which is no error."""
    from ..pipeline.ingest import Lake

    lake = Lake(path)
    lake.check()
    days = lake.days()
    if day not in days:
        has = f"it has {days[0]} to {days[-1]}" if days else "it has no day at all"
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
        (row.src or "-", row.dst or "-", *(_figure(getattr(row, name)) for name in figures))
        for row in found.rows
    ]
    more = f"\nand {found.more:,} more" if found.more else ""
    return table(("FROM", "LINK", *map(str.upper, figures)), rows) + more


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
