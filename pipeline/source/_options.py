"""The options of the data source, checked before any file is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ...protocol.options import Count, check_options
from .._errors import BadOption
from .._schema import EVENT_TABLES

__all__ = ["Options", "columns_of", "read_options"]

_COLUMN: Final = re.compile(r"(\w+) ([\w<>,]+)(?:, |$)")

KNOWN: Final = {
    "path",
    "table",
    "columns",
    "brokers",
    "since",
    "until",
    "segments",
    "maxsegments",
    "ongap",
    "skipcorrupt",
    "check",
    "again",
}
"""All options, in lower case: Spark ignores case."""


def columns_of(ddl: str) -> dict[str, str]:
    """Return the columns of a table of `_schema`, each with its type, in order."""
    return dict(_COLUMN.findall(ddl))


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the data source.

    Attributes:
        path: The directory of logs, with a folder for each broker or node.
        table: One of `EVENT_TABLES`.
        columns: The columns to read, each with its type.
        brokers: The names of the logs to read; `None` for all.
        since: Read rows from this microsecond on; `None` for no limit.
        until: Read rows before this microsecond; `None` for no limit.
        segments: Read these files only, by their paths relative to `path`; `None` for all.
        max_segments: Most segments in a batch of a stream; `None` for no limit.
        skip_gaps: Continue where events were deleted before they were read.
        skip_damaged: Skip segments that cannot be read.
        check: Read segments in full even where header and footer suffice.
        again: A file that lists the skipped segments, with size and time of each file.
    """

    path: Path
    table: str
    columns: Mapping[str, str]
    brokers: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None
    segments: tuple[str, ...] | None = None
    max_segments: Count | None = None
    skip_gaps: bool = False
    skip_damaged: bool = False
    check: bool = False
    again: Path | None = None

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def ddl(self) -> str:
        """The schema of the rows."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


def read_options(given: Mapping[str, str]) -> Options:
    """Read the options of `spark.read` or `spark.readStream`.

    Raises:
        BadOption: There is no such option, or its value cannot be read.
    """
    options = {key.lower(): value for key, value in given.items()}
    if unknown := sorted(set(options) - KNOWN):
        raise BadOption(
            f"no option {unknown[0]!r} of the format onward; those there are: "
            + ", ".join(sorted(KNOWN))
        )
    if not options.get("path"):
        raise BadOption('no path: name the directory of the logs, as in .load("/var/log/onward")')
    table = options.get("table", "hops")
    if table not in EVENT_TABLES:
        raise BadOption(f"no table {table!r}; those there are: {', '.join(EVENT_TABLES)}")
    return Options(
        path=Path(options["path"].removeprefix("file://")),
        table=table,
        columns=_columns(table, options.get("columns")),
        brokers=_brokers(options.get("brokers")),
        since=_instant("since", options.get("since")),
        until=_instant("until", options.get("until")),
        segments=_lines(options.get("segments")),
        max_segments=_count("maxSegments", options.get("maxsegments")),
        skip_gaps=_choice("onGap", options.get("ongap", "fail"), "fail", "skip"),
        skip_damaged=_choice("skipCorrupt", options.get("skipcorrupt", "false"), "false", "true"),
        check=_choice("check", options.get("check", "false"), "false", "true"),
        again=Path(options["again"]) if options.get("again") else None,
    )


def _columns(table: str, text: str | None) -> dict[str, str]:
    all_columns = columns_of(EVENT_TABLES[table])
    if text is None:
        return all_columns
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in all_columns:
            raise BadOption(
                f"no column {name!r} in the table {table}; those there are: "
                + ", ".join(all_columns)
            )
    if len(set(names)) != len(names):
        raise BadOption(f"a column is there twice: {text}")
    return {name: all_columns[name] for name in names}


def _brokers(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _lines(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    paths = tuple(line for line in text.split("\n") if line)
    for path in paths:
        if len(parts := Path(path).parts) != 2 or ".." in parts or parts[0] == "/":
            raise BadOption(f"{path!r} is no segment: give <broker>/<file>, one a line")
    return paths


def _instant(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"{name}={text!r} is no time: give one as 2026-11-20 or 2026-11-20T08:30:00Z"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name}={text!r} is no number from 1 on")
    return int(text)


def _choice(name: str, text: str, no: str, yes: str) -> bool:
    if text.lower() not in (no, yes):
        raise BadOption(f"{name}={text!r}: give {no} or {yes}")
    return text.lower() == yes
