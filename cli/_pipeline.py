"""The command line of `onward pipeline`: reports on recorded traffic, with Spark."""

from __future__ import annotations

import argparse
from typing import Final

from . import _pipeline_run as run
from ._arguments import Commands, positive, word
from ._pipeline_arguments import (
    MAX_SEGMENTS,
    REPORTS,
    count,
    day,
    moment,
    objective,
    ratio,
    reports,
    skew,
)
from ._pipeline_session import add_session

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Process the event logs of brokers and nodes (--event-log) with Spark: ingest them into a lake of
Parquet files, make the reports of a day, audit, replay a change over the day's traffic, build a
tag index in bulk. Needs the extra `spark`, and Java 17 or newer.
"""

_EPILOG: Final = """\
A day is UTC, and always given: a report of the same day is the same whenever it is made, and
replaces the one before. The order: ingest, then report and audit, replay and index as needed.

exit status:
  0  done, and every gate holds
  1  failed, or there is nothing to audit; no partial result counts
  2  the command line is wrong, or a gate failed: an audit out of balance or of incomplete
     logs, --fail-if-lost, --max-moved, --max-skew, a table that differs from its log.
     The last line of a gate begins with "onward pipeline: gate failed"
"""

_FORMATS: Final = ("parquet", "json", "csv", "table")
_SHARD_METHODS: Final = ("jump", "modulo", "rendezvous", "bounded-ring")


def add_commands(commands: Commands) -> None:
    """Add the command, and the commands under it, to the parser."""
    parser = commands.add_parser(
        "pipeline",
        help="reports, audits and replays from event logs, with Spark",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    _add_ingest(jobs)
    _add_report(jobs)
    _add_replay(jobs)
    _add_index(jobs)
    _add_audit(jobs)


def _job(jobs: Commands, name: str, about: str, description: str) -> argparse.ArgumentParser:
    return jobs.add_parser(
        name,
        help=about,
        description=description,
        epilog="The exit statuses are those of onward pipeline --help.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", metavar="DIR", required=True, help="the lake, as given to ingest")


def _add_day(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--day", metavar="DATE", type=day, required=True, help="the day, YYYY-MM-DD, UTC"
    )


def _add_brokers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker",
        metavar="NAME",
        action="append",
        default=[],
        help="the log of this broker; may be repeated (default: all in the lake)",
    )


def _add_ingest(jobs: Commands) -> None:
    parser = _job(
        jobs,
        "ingest",
        "add new segments of event logs to a lake, each once",
        "Add the sealed segments of event logs that a lake does not have yet, each exactly once,\n"
        "even if the run before was killed. Runs by itself or by spark-submit, not by --remote.",
    )
    parser.add_argument(
        "--log", metavar="DIR", required=True, help="event logs: the DIR of --event-log"
    )
    parser.add_argument(
        "--lake", metavar="DIR", required=True, help="the lake; created if it does not exist"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="the progress of ingestion; belongs to the lake, and must not be lost",
    )
    parser.add_argument(
        "--max-segments",
        metavar="N",
        type=positive,
        default=MAX_SEGMENTS,
        help="segments in one batch at most (default %(default)d)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on as segments come, until Ctrl-C"
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="start a new checkpoint, for one that was lost"
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="go on without events that were deleted before they were read, and count them",
    )
    parser.add_argument(
        "--skip-corrupt",
        action="store_true",
        help="go on without damaged segments, and count their events as missing",
    )
    parser.add_argument(
        "--compact",
        metavar="DATE",
        type=day,
        help="in the end, put the small files of a closed day together",
    )
    parser.add_argument(
        "--drop",
        metavar="DATE",
        type=day,
        help="in the end, delete the events of a closed day for good; its reports stay, and the "
        "arrivals and departures of destinations",
    )
    add_session(parser, connect=False)
    parser.set_defaults(command=run.ingest)


def _add_report(jobs: Commands) -> None:
    parser = _job(
        jobs,
        "report",
        "make the reports of a day",
        "Make the reports of a day from a lake, and a page to look at with --html.\n"
        f"The reports: {', '.join(REPORTS)}.",
    )
    _add_lake(parser)
    _add_day(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where the reports go (default: reports/ in the lake)"
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        type=reports,
        default=[],
        help="these reports and no others",
    )
    parser.add_argument(
        "--format",
        type=word(*_FORMATS),
        choices=_FORMATS,
        default="parquet",
        help="the format; table is text on stdout, and writes no file (default %(default)s)",
    )
    parser.add_argument(
        "--rows",
        metavar="N",
        type=positive,
        default=20,
        help="rows of each report as --format table (default %(default)d)",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page, one file with all reports")
    parser.add_argument(
        "--slo",
        metavar="NAME:SERVICE:MS:TARGET",
        type=objective,
        action="append",
        default=[],
        help="an objective, as in checkout:orders:250:0.999; * is all services, - for MS any time; "
        "may be repeated",
    )
    add_session(parser)
    parser.set_defaults(command=run.report)


def _add_replay(jobs: Commands) -> None:
    parser = _job(
        jobs,
        "replay",
        "replay a day's traffic with a changed table or method",
        "Resolve a day's sampled traffic twice, with the current and with the changed table and\n"
        "methods, by the broker's own code, and report which requests move or lose their route.",
    )
    _add_lake(parser)
    _add_day(parser)
    parser.add_argument(
        "--table",
        metavar="FILE",
        required=True,
        help="the current table: a snapshot, or routes as JSON lines (onward routes --save)",
    )
    parser.add_argument("--candidate", metavar="FILE", required=True, help="the changed table")
    for name, which in (("old", "is"), ("new", "would be")):
        parser.add_argument(
            f"--shard-{name}",
            metavar="METHOD",
            type=word(*_SHARD_METHODS),
            choices=_SHARD_METHODS,
            help=f"the method for shard requests as it {which}: {', '.join(_SHARD_METHODS)} "
            "(default: the method of each request, else the broker's default)",
        )
        parser.add_argument(
            f"--method-{name}",
            metavar="METHOD",
            help=f"the method for unicast requests as it {which}",
        )
    _add_brokers(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where the result goes (default: reports/ in the lake)"
    )
    parser.add_argument(
        "--fail-if-lost", action="store_true", help="exit status 2 if a frame loses its route"
    )
    parser.add_argument(
        "--max-moved", metavar="PART", type=ratio, help="exit status 2 if more moves, as in 0.1"
    )
    parser.add_argument(
        "--max-skew",
        metavar="N",
        type=skew,
        help="exit status 2 if, after the change, the busiest route of a tag set has more than N "
        "times the mean",
    )
    parser.add_argument(
        "--max-unknown",
        metavar="PART",
        type=ratio,
        default=0.0,
        help="exit status 2 if the tags of more are unknown to lake or log (default %(default)g)",
    )
    parser.add_argument(
        "--max-stale",
        metavar="PART",
        type=ratio,
        default=0.0,
        help="exit status 2 if more was delivered and has no route in --table, which is then old "
        "or of another broker (default %(default)g)",
    )
    add_session(parser)
    parser.set_defaults(command=run.replay)


def _add_index(jobs: Commands) -> None:
    parser = _job(
        jobs,
        "index",
        "build a tag index in bulk, or compare one with a log",
        "Build the tag index of many routes as a snapshot that a broker loads (onward broker\n"
        "--index), or compare the snapshot of a live broker with its log.",
    )
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    build = _job(steps, "build", "build a snapshot", "Build a snapshot of routes.")
    source = build.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--routes",
        metavar="PATH",
        help="routes as Parquet or JSON lines: route, service, tags, weight",
    )
    source.add_argument("--lake", metavar="DIR", help="a lake: the routes in its log")
    build.add_argument(
        "--at",
        metavar="TIME",
        type=moment,
        help="the routes of a lake at that time, UTC (default: at its end)",
    )
    _add_brokers(build)
    build.add_argument("--out", metavar="DIR", required=True, help="where the snapshot goes")
    add_session(build)
    build.set_defaults(command=run.build_index)
    verify = _job(
        steps,
        "verify",
        "compare a snapshot with a lake",
        "Print the routes in a snapshot that the log does not have, and the other way round.\n"
        "Exit status 2 if they differ.",
    )
    verify.add_argument(
        "--snapshot", metavar="FILE", required=True, help="the snapshot (onward routes --save)"
    )
    verify.add_argument("--against", metavar="DIR", required=True, help="the lake")
    verify.add_argument(
        "--at", metavar="TIME", type=moment, help="the routes of the log at that time, UTC"
    )
    _add_brokers(verify)
    add_session(verify)
    verify.set_defaults(command=run.verify_index)


def _add_audit(jobs: Commands) -> None:
    parser = _job(
        jobs,
        "audit",
        "check that all received requests have been accounted for",
        "Compare the requests that brokers read, and the messages that links were given, with\n"
        "their outcomes. Exit status 2 if they do not balance, or if a log is incomplete, as a\n"
        "balance means nothing then; 1 if there is nothing to audit. Requests in progress at\n"
        "--since show as duplicated. Those in progress at --until, or at the end of the lake,\n"
        "show as missing, unless the lake has their end.",
    )
    _add_lake(parser)
    parser.add_argument(
        "--since", metavar="TIME", type=moment, help="the start, UTC (default: the first)"
    )
    parser.add_argument(
        "--until", metavar="TIME", type=moment, help="the end, UTC (default: the last)"
    )
    parser.add_argument(
        "--allow",
        metavar="N",
        type=count,
        default=0,
        help="how many may be out of balance, because they were in progress at either end (default "
        "0); a log that did not record what was received has no balance",
    )
    parser.add_argument(
        "--allow-lost",
        metavar="N",
        type=count,
        default=0,
        help="how many events may be missing from the lake or not recorded, for a known loss "
        "(default 0)",
    )
    add_session(parser)
    parser.set_defaults(command=run.audit)
