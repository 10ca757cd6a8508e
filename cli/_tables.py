"""Tables of a running program: which rows are asked for, how they are printed, and how often."""

from __future__ import annotations

import argparse
import json
from asyncio import Lock, sleep
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from ._access import access_of
from ._arguments import positive, seconds
from ._columns import Column, columns_of
from ._run import Interrupted, StopRequest, run
from ._show import printable, table
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ._client import Ask

__all__ = [
    "CLEAR",
    "Look",
    "Selection",
    "absent",
    "add_selection",
    "add_watch",
    "interval_of",
    "pages",
    "pages_of_several",
    "print_answers",
    "repeated",
    "run_table",
    "select",
    "selection_of",
    "show",
]

CLEAR: Final = "\x1b[H\x1b[2J"
"""The control sequence that moves the cursor home and clears the screen."""

MAX_ROWS: Final = 4096
"""The maximum number of rows that are printed; the others are counted."""

PAGE: Final = 1024
"""The maximum number of rows in a page."""


class Look(NamedTuple):
    """One of the commands, and the table that it prints.

    Attributes:
        name: The name of the command, and of the question.
        help: Its help in one line.
        description: Its help.
        columns: The columns.
        nothing: The line in place of an empty table.
        has: The field that a row must have to be in the table; empty for none.
    """

    name: str
    help: str
    description: str
    columns: Sequence[Column]
    nothing: str
    has: str = ""


# --- which rows -----------------------------------------------------------------------------


class Selection(NamedTuple):
    """The rows that are asked for.

    Attributes:
        fields: The fields of the query, without the limit.
        top: The maximum number of rows.
    """

    fields: tuple[tuple[str, str], ...] = ()
    top: int = MAX_ROWS

    def query(self, limit: int, offset: int = 0) -> str:
        """Return the query for a page."""
        return urlencode([*self.fields, ("limit", str(limit)), ("offset", str(offset))])


def add_selection(parser: argparse.ArgumentParser, columns: Sequence[Column]) -> None:
    """Add the options for the rows, and for how they are printed."""
    known = ", ".join(each.heading.lower().replace(" ", "-") for each in columns)
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help=f"sort by a column: numbers and times from the largest one, texts from A: {known}",
    )
    parser.add_argument("--reverse", action="store_true", help="sort in the reverse order")
    parser.add_argument(
        "--top", metavar="N", type=positive, help=f"print at most so many rows (default {MAX_ROWS})"
    )
    parser.add_argument(
        "--filter",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="print only rows with this value in a field, by its name in --json; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_watch(parser)


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add the option to print something repeatedly."""
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=seconds,
        help="print it repeatedly, at this interval, until Ctrl-C; with --json one table a line",
    )


def selection_of(arguments: argparse.Namespace, columns: Sequence[Column]) -> Selection:
    """Return the rows that the options ask for.

    Raises:
        CommandError: There is no such column, or a filter is not FIELD=VALUE.
    """
    fields: list[tuple[str, str]] = []
    for given in arguments.filter:
        name, mark, value = given.partition("=")
        if not mark or name in ("sort", "limit", "offset"):
            raise CommandError(f"--filter {given!r} is not FIELD=VALUE", Status.USAGE)
        fields.append((name, value))
    if arguments.sort is not None:
        column = _sorted_by(arguments.sort, columns)
        falls = column.falls ^ arguments.reverse
        fields.append(("sort", f"-{column.field}" if falls else column.field))
    elif arguments.reverse:
        raise CommandError("--reverse goes with --sort", Status.USAGE)
    top: int = MAX_ROWS if arguments.top is None else arguments.top
    if top > MAX_ROWS:
        raise CommandError(f"--top takes at most {MAX_ROWS}", Status.USAGE)
    return Selection(tuple(fields), top)


def _sorted_by(word: str, columns: Sequence[Column]) -> Column:
    given = _folded(word)
    for column in columns:
        if given in (_folded(column.heading), _folded(column.field)):
            return column
    known = ", ".join(each.heading.lower().replace(" ", "-") for each in columns)
    raise CommandError(f"there is no column {word!r}: {known}", Status.USAGE)


def _folded(word: str) -> str:
    return word.lower().replace("-", " ").replace("_", " ")


def _is_table(answer: Any) -> bool:
    """Whether an answer has rows."""
    try:
        return all(isinstance(row, dict) for row in answer["rows"])
    except (TypeError, KeyError):
        return False


async def pages(ask: Ask, question: str, selection: Selection) -> Any:
    """Ask a broker for the rows of a table, page by page.

    Args:
        ask: The function that asks.
        question: The question, up to the query.
        selection: The rows.
    """
    rows: list[Any] = []
    while True:
        limit = min(selection.top - len(rows), PAGE)
        answer = await ask(question + selection.query(limit, len(rows)))
        if not _is_table(answer):
            return answer  # it is refused when it is shown
        rows += answer["rows"]
        if len(answer["rows"]) < limit or len(rows) >= selection.top:
            return {**answer, "rows": rows[: selection.top]}


async def pages_of_several(ask: Ask, questions: Sequence[str], selection: Selection) -> Any:
    """Ask a broker for the rows of a table that are the answers to several questions.

    Args:
        ask: The function that asks.
        questions: The questions, up to their queries; no row is in two answers.
        selection: The rows.
    """
    answer = await pages(ask, questions[0], selection)
    for question in questions[1:]:
        other = await pages(ask, question, selection)
        if not (_is_table(answer) and _is_table(other)):
            return answer if _is_table(other) else other  # it is refused when it is shown
        rows = [*answer["rows"], *other["rows"]]
        answer = {**answer, "total": answer["total"] + other["total"], "rows": rows}
        answer = await select(answer, selection)
    return answer


async def select(answer: Any, selection: Selection, has: str = "") -> Any:
    """Return an answer with the rows that are asked for, of a program that has sent them all.

    Args:
        answer: The answer.
        selection: The rows.
        has: The field that a row must have; empty for none.

    Raises:
        CommandError: A row has no such field.
    """
    if not _is_table(answer):
        return answer  # it is refused when it is shown
    if has:
        kept = [row for row in answer["rows"] if has in row]
        gone = len(answer["rows"]) - len(kept)
        answer = {**answer, "total": answer["total"] - gone, "rows": kept}
    if not selection.fields and selection.top >= len(answer["rows"]):
        return answer
    # The pages of the admin interface, which are a slow import; most commands go without.
    from ..transports.admin._messages import HttpError, HttpRequest
    from ..transports.admin._paging import page

    rows: list[Mapping[str, Any]] = answer["rows"]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    whole: list[dict[str, Any]] = [{name: row.get(name) for name in names} for row in rows]
    found: list[Any] = []
    total, more = 0, True
    while more:
        limit = min(selection.top - len(found), PAGE)
        request = HttpRequest("GET", "/", selection.query(limit, len(found)))
        try:
            made = await page(request, whole, dict[str, Any], names, turn=Lock())
        except HttpError as error:
            raise CommandError(error.text, Status.USAGE) from None
        part = json.loads(made.body if isinstance(made.body, bytes) else b"{}")
        total, found = part["total"], [*found, *part["rows"]]
        more = len(part["rows"]) == limit and len(found) < selection.top
    # Rows that the program has left out cannot be looked at.
    return {**answer, "total": total + answer["total"] - len(answer["rows"]), "rows": found}


# --- printing -------------------------------------------------------------------------------


def show(look: Look, answer: Any) -> str:
    """Format an answer as a table.

    Raises:
        CommandError: It is an error, or no such answer.
    """
    try:
        if "error" in answer:
            raise CommandError(f"the answer is: {printable(str(answer['error']))}")
        total, rows = int(answer["total"]), answer["rows"]
        columns = columns_of(look.columns, rows)
        cells = [[column.cell(row) for column in columns] for row in rows]
        headings = [column.heading for column in columns]
        lines = [table(headings, cells) if cells else look.nothing]
        if total > len(rows):
            lines.append(f"... and {total - len(rows)} more")
        if answer.get("reasons"):
            counts = sorted(answer["reasons"].items(), key=lambda each: -int(each[1]))
            told = ", ".join(f"{int(count)} {reason}" for reason, count in counts)
            lines += ["", printable(f"by reason: {told}")]
        lines += absent(answer)
        return "\n".join(lines)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise CommandError(f"the answer has no {look.name}") from error


def absent(answer: Any) -> list[str]:
    """Return a line for each process of a broker that is missing in its answer."""
    return [f"process {int(number)} does not answer" for number in answer.get("missing", ())]


def interval_of(arguments: argparse.Namespace) -> float | None:
    """Return the seconds between two tables; `None` for one table.

    Raises:
        CommandError: They are none.
    """
    every: float | None = arguments.watch
    if every == 0:
        raise CommandError("--watch takes more than 0 seconds", Status.USAGE)
    return every


async def repeated(
    every: float | None,
    ask: Callable[[], Awaitable[Any]],
    show: Callable[[Any], str],
    *,
    as_json: bool,
) -> None:
    """Print an answer once, or repeatedly.

    Args:
        every: The seconds from an answer to the next question; `None`: there is one.
        ask: Returns an answer.
        show: Formats it, and checks it.
        as_json: Whether it is printed as JSON, one line for each of several.
    """
    while True:
        answer = await ask()
        shown = show(answer)
        if as_json:
            print(json.dumps(answer, indent=None if every else 2), flush=True)
        else:
            print(f"{CLEAR if every else ''}{shown}", flush=True)
        if every is None:
            return
        await sleep(every)


def run_table(work: Callable[[], Coroutine[Any, Any, None]], every: float | None) -> None:
    """Run what prints a table, until it is done or the command is asked to stop.

    Raises:
        Interrupted: The command was asked to stop before the only table was printed.
    """

    async def until_stopped(stop: StopRequest) -> None:
        try:
            await stop.unless(work())
        except Interrupted:
            if every is None:
                raise

    run(until_stopped)


def print_answers(
    arguments: argparse.Namespace,
    rows: Callable[[Ask], Awaitable[Any]],
    show: Callable[[Any], str],
) -> None:
    """Print answers of a broker, as the options of the command say.

    Args:
        arguments: The options: `--broker`, `--watch`, `--json` and those of access.
        rows: Asks for an answer.
        show: Formats it, and checks it.

    Raises:
        CommandError: The options are wrong, or the broker does not answer.
    """
    every, access = interval_of(arguments), access_of(arguments)

    async def work() -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import asking

        async with asking(arguments.broker, arguments.timeout, access) as ask:
            await repeated(every, lambda: rows(ask), show, as_json=arguments.json)

    run_table(work, every)
