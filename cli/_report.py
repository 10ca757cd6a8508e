"""`onward report`: all that a broker tells in one archive, and what to do about it."""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ._access import access_of
from ._arguments import Commands
from ._audits import Finding, audit
from ._broker_options import add_broker
from ._report_archive import MAX_REPORT, read_archive, write_archive
from ._report_scrub import scrubbed
from ._run import StopRequest, run
from ._show import printable
from ._status import CommandError, Status
from ._tables import Selection, pages

if TYPE_CHECKING:
    from ._client import Ask

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Write all that a running broker tells into one archive, to find out later what is wrong: figures,
tables, metrics, options, recent events, and the stacks of its threads. Then say what stands out,
and what to do about it. What looks like a secret is hidden; names of services, tags, addresses and
principals are in it.

With --check, look through an archive that there is, without a broker.
"""

FORMAT: Final = 1
"""The number of the archive's form."""

_ANSWERS: Final = {
    "self": "/api/v1/self",
    "statistics": "statistics",
    "problems": "/api/v1/problems",
    "overview": "/api/v1/overview",
    "live": "/livez?verbose",
    "ready": "/readyz?verbose",
    "config": "/api/v1/config",
    "links": "/api/v1/links",
    "dead-letters": "dead-letters",
    "metrics": "/metrics",
    "events": "/api/v1/recent-events",
    "stacks": "/debug/stacks",
    "tasks": "/debug/tasks",
}
"""The parts that are one answer."""

_TABLES: Final = {
    "services": "/api/v1/services?",
    "connections": "/api/v1/connections?",
    "connections-closed": "/api/v1/connections?state=closed&",
    "routes": "/api/v1/routes?",
    "waiting": "/api/v1/waiting?",
    "limits": "/api/v1/limits?",
    "workers": "/api/v1/workers?",
}
"""The parts that are tables, page by page."""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="write all that a broker tells into an archive, and say what to do",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_broker(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="the archive, a new file (default: onward-report-TIME.tar.gz)",
    )
    parser.add_argument(
        "--check", metavar="ARCHIVE", type=Path, help="look through this archive instead"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    if arguments.check is not None:
        if arguments.output is not None:
            raise CommandError("--output and --check do not go together", Status.USAGE)
        parts = read_archive(arguments.check)
    else:
        made = time.time()
        default = f"onward-report-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(made))}.tar.gz"
        path: Path = arguments.output or Path(default)
        if path.exists():
            raise CommandError(f"{path} exists")
        parts = _gather(arguments, made)
        write_archive(path, parts, made)
        if not arguments.json:
            print(printable(f"written to {path}, {path.stat().st_size} bytes"))
    print(_shown(audit(parts), as_json=arguments.json))


def _gather(arguments: argparse.Namespace, made: float) -> dict[str, Any]:
    """Return the parts of a report about a broker, without secrets."""
    access = access_of(arguments)
    parts: dict[str, Any] = {}
    missing: dict[str, str] = {}

    async def work(stop: StopRequest) -> None:
        from ._client import asking

        async def ask_all() -> None:
            async with asking(arguments.broker, arguments.timeout, access) as ask:
                for name in (*_ANSWERS, *_TABLES):
                    try:
                        parts[name] = await _part(ask, name)
                    except CommandError as error:
                        missing[name] = str(error).removeprefix(f"{arguments.broker}: ")

        await stop.unless(ask_all())

    run(work)
    if not parts:
        raise CommandError(next(iter(missing.values()), "the broker tells nothing"))
    found = {name: scrubbed(part) for name, part in parts.items()}
    left = MAX_REPORT
    for name in tuple(found):
        left -= len(json.dumps(found[name]))
        if left < 0:
            del found[name]
            missing[name] = f"the report has over {MAX_REPORT} bytes"
    head = {
        "format": FORMAT,
        "made": made,
        "broker": arguments.broker,
        "missing": missing,
        "made_by": {"onward": version("onward"), "python": platform.python_version()},
    }
    return {"report": scrubbed(head), **found}


async def _part(ask: Ask, name: str) -> Any:
    """Return a part.

    Raises:
        CommandError: The broker does not tell it.
    """
    question = _ANSWERS.get(name)
    if question is not None:
        answer = await ask(question)
    else:
        answer = await pages(ask, _TABLES[name], Selection())
    error: Any = answer.get("error") if hasattr(answer, "get") else None
    if error is not None:
        raise CommandError(str(error))
    return answer


def _shown(findings: list[Finding], *, as_json: bool) -> str:
    if as_json:
        rows = [{**each._asdict(), "level": each.level.value} for each in findings]
        return json.dumps(rows, indent=2)
    if not findings:
        return "nothing stands out"
    lines: list[str] = []
    for each in findings:
        lines.append(printable(f"{each.level.value}: {each.audit}: {each.text}"))
        lines.append(printable(f"    {each.advice}"))
    return "\n".join(lines)
