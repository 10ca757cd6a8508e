"""Tables of all processes together: each row has the number of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from ._messages import HttpError, HttpRequest, HttpResponse, json_response
from ._paging import DEFAULT, MAX_OFFSET, MAX_PAGE, MAX_SORTED, first, number_of, page
from ._parts import Answers, Parts, ask_all, part_request

__all__ = ["Source", "all_rows", "page_of_all", "page_of_rows"]

PROCESS: Final = "process"


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a table: rows of some processes.

    Attributes:
        path: Where a process has them.
        fields: Fields of the query that choose them.
        once: Whether all processes have the same rows here, so that those of one are enough.
    """

    path: str
    fields: tuple[tuple[str, str], ...] = ()
    once: bool = False


async def page_of_all(
    parts: Parts, request: HttpRequest, sources: Sequence[Source]
) -> HttpResponse:
    """Return a page of a table of all processes.

    Rows in no order that is asked for are those of one process after the other. Filters and the
    order are the work of each process.

    Raises:
        HttpError: The query has an unknown field, or a wrong value.
    """
    limit, offset, sort = DEFAULT, 0, ""
    others: list[tuple[str, str]] = []
    for name, value in request.fields():
        if name == "limit":
            limit = number_of(name, value, MAX_PAGE)
        elif name == "offset":
            offset = number_of(name, value, MAX_OFFSET)
        elif name == "sort":
            sort = value
        else:
            others.append((name, value))
    by_process = sort.removeprefix("-") == PROCESS
    if sort and not by_process:
        if offset + limit > MAX_SORTED:
            text = f"with sort, offset and limit together are at most {MAX_SORTED}"
            raise HttpError(HTTPStatus.BAD_REQUEST, f"{text}; filter the rows")
        others.append(("sort", sort))
    places, missing = await _totals(parts, sources, others)
    if sort.startswith("-") and by_process:
        places.reverse()
    total = sum(count for _, _, count in places)
    most = offset + limit
    rows: list[Mapping[str, Any]] = []
    at = 0
    for number, source, count in places:
        ordered = bool(sort) and not by_process
        begin, end = (0, most) if ordered else (max(0, offset - at), most - at)
        at += count
        found, lost = await _rows(parts, number, source, others, begin, min(end, count))
        rows += [{**row, PROCESS: number} for row in found]
        missing |= lost
    if sort and not by_process:
        rows = first(rows, sort, most)[offset:]
    return json_response(
        {"total": total, "offset": offset, "rows": rows, "missing": sorted(missing)}
    )


async def _totals(
    parts: Parts, sources: Sequence[Source], fields: Sequence[tuple[str, str]]
) -> tuple[list[tuple[int, Source, int]], set[int]]:
    """Return where there are rows, and how many, in order; and the processes that are missing."""
    places: list[tuple[int, Source, int]] = []
    missing: set[int] = set()
    for source in sources:
        asked = part_request(source.path, [*fields, *source.fields, ("limit", "0")])
        # Of the same rows everywhere, those of a process that has answered before are taken.
        there = [each for each in parts.numbers if each not in missing]
        answers = await ask_all(parts, asked, numbers=there[:1] if source.once else None)
        missing.update(answers.missing)
        for number, answer in answers.json().items():
            places.append((number, source, int(answer["total"])))
    return places, missing


async def _rows(
    parts: Parts,
    number: int,
    source: Source,
    fields: Sequence[tuple[str, str]],
    begin: int,
    end: int,
) -> tuple[list[dict[str, Any]], set[int]]:
    """Return the rows of a process from one place to another, a page at a time."""
    found: list[dict[str, Any]] = []
    while begin + len(found) < end:
        start = begin + len(found)
        limit = min(MAX_PAGE, end - start)
        paged = [("offset", str(start)), ("limit", str(limit))]
        asked = part_request(source.path, [*fields, *source.fields, *paged])
        answers = await ask_all(parts, asked, numbers=[number])
        if answers.missing:
            return found, {number}
        rows: list[dict[str, Any]] = answers.json()[number]["rows"]
        found += rows
        if len(rows) < limit:  # some have gone meanwhile
            break
    return found, set()


async def all_rows(
    parts: Parts, path: str, fields: Sequence[tuple[str, str]] = ()
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return all rows of small tables, each with its process, and the processes that are missing.

    Of a larger table they are the first `MAX_PAGE` rows of each process.
    """
    answers = await ask_all(parts, part_request(path, [*fields, ("limit", str(MAX_PAGE))]))
    return rows_of(answers), list(answers.missing)


def rows_of(answers: Answers) -> list[dict[str, Any]]:
    """Return the rows of all processes, each with the number of its process."""
    return [
        {**row, PROCESS: number}
        for number, answer in answers.json().items()
        for row in answer["rows"]
    ]


async def page_of_rows(
    request: HttpRequest,
    rows: Iterable[Mapping[str, Any]],
    columns: tuple[str, ...],
    missing: Sequence[int],
    turn: asyncio.Lock,
) -> HttpResponse:
    """Return a page of rows that are all here. Raises as `page`."""
    more = {"missing": list(missing)}
    return await page(request, list(rows), dict, columns, turn=turn, more=more)
