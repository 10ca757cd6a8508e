"""The options of the sink, checked on the driver before any task starts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pyspark.sql.types import BinaryType, StringType, StructType

from ...protocol.batches import MAX_BATCH, MAX_NUMBER, MAX_QUERY, MAX_ROWS
from ...protocol.options import Range, check_options
from .._errors import BadOption

__all__ = ["SinkOptions", "read_options"]

BROKER: Final = "rsocket+"
"""The prefix of a broker's URI; any other is of a node."""

_NUMBERS: Final[dict[str, tuple[int, int, int]]] = {
    # Default, least and most.
    "epoch": (0, 0, MAX_NUMBER),
    "chunkrows": (500, 1, MAX_ROWS),
    "chunkbytes": (1024 * 1024, 1, MAX_BATCH),
    "window": (8, 1, 1000),
    "retries": (5, 0, 1000),
    "maxdestinations": (1000, 1, 100_000),
    "maxbuffered": (64 * 1024 * 1024, 1, 1 << 40),
}
_TEXTS: Final = ("uri", "route", "query", "payload", "id", "timeout")
_SPELLED: Final = {
    "chunkrows": "chunkRows",
    "chunkbytes": "chunkBytes",
    "maxdestinations": "maxDestinations",
    "maxbuffered": "maxBuffered",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of the sink. In Spark's options the names are `chunkRows` and so on.

    Attributes:
        uri: The endpoint of a node (`tcp://host:port`, or another transport) or of a broker
            (`rsocket+tcp://host:port`).
        destination: The route from that node, or the tag query for that broker; `None` if each
            row has its own in a column.
        column: That column: `route` or `query`.
        payload: The column of payloads, binary or string.
        id: The identity of the writer. Rows of one id, epoch and partition are taken once. The
            default is random for each write, so that only retries of its tasks are recognised. Set
            it with `epoch` or not at all. A query that restarts with a new checkpoint needs a new
            id.
        epoch: The number of the run: the batch id in `foreachBatch`. Later runs have greater
            numbers. A failed run is repeated with its own number, even after later ones.
        chunk_rows: Most rows of a message.
        chunk_bytes: Most bytes of rows in a message; a larger row is sent alone.
        window: Most unanswered messages of a task. For a receiver that does not keep up the limit
            is lower, down to one.
        timeout: Seconds to wait for an answer, and for a receiver that does not keep up since the
            last message it took. Then the task fails.
        retries: How often a failed message is sent again before the task fails. Refusals of a
            receiver that does not keep up do not count.
        max_destinations: Most different destinations of a task's rows. One more fails the task.
        max_buffered: Most bytes of a task's rows that wait for a full message. At the limit all
            are sent at once, in messages that are not full.
    """

    uri: str
    destination: str | None
    column: str
    payload: str
    id: str
    epoch: Annotated[int, Range(least=0, most=MAX_NUMBER)]
    chunk_rows: Annotated[int, Range(least=1, most=MAX_ROWS)]
    chunk_bytes: Annotated[int, Range(least=1, most=MAX_BATCH)]
    window: Annotated[int, Range(least=1, most=1000)]
    timeout: Annotated[float, Range(above=0, most=86_400, unit="seconds")]
    retries: Annotated[int, Range(least=0, most=1000)]
    max_destinations: Annotated[int, Range(least=1, most=100_000)]
    max_buffered: Annotated[int, Range(least=1, most=1 << 40)]

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def to_broker(self) -> bool:
        """Whether the rows go to a broker by tags, and not to a node by a route."""
        return self.uri.startswith(BROKER)


def read_options(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Return the options of a write, checked against the columns.

    Raises:
        BadOption: An option is missing, unknown or out of range, or a column is missing, of another
            type, or unused.
    """
    options = {key.lower(): value for key, value in given.items()}
    known = (*_TEXTS, *_NUMBERS)
    unknown = sorted(set(options) - set(known))
    if unknown:
        names = ", ".join(_SPELLED.get(each, each) for each in known)
        raise BadOption(f"the sink has no option {unknown[0]!r}; it has {names}")
    uri = options.get("uri", "")
    if "://" not in uri:
        raise BadOption(
            "say where the rows go with .option('uri', ...): tcp://host:port of a node, or "
            "rsocket+tcp://host:port of a broker"
        )
    column, other = ("query", "route") if uri.startswith(BROKER) else ("route", "query")
    if other in options:
        raise BadOption(f"{uri} is asked by a {column}, not a {other}: give the option {column!r}")
    numbers = {key: _number(key, options) for key in _NUMBERS}
    made = SinkOptions(
        uri=uri,
        destination=options.get(column),
        column=column,
        payload=options.get("payload", "payload"),
        id=_identity(options),
        epoch=numbers["epoch"],
        chunk_rows=numbers["chunkrows"],
        chunk_bytes=numbers["chunkbytes"],
        window=numbers["window"],
        timeout=_seconds(options.get("timeout", "30")),
        retries=numbers["retries"],
        max_destinations=numbers["maxdestinations"],
        max_buffered=numbers["maxbuffered"],
    )
    _check_columns(made, schema)
    return made


def _number(key: str, options: Mapping[str, str]) -> int:
    default, least, most = _NUMBERS[key]
    text = options.get(key, str(default))
    if not (text.isdecimal() and text.isascii() and least <= int(text) <= most):
        name = _SPELLED.get(key, key)
        raise BadOption(f"{name} is {text!r}, not a number from {least} to {most}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise BadOption(f"timeout is {text!r}, not seconds, more than 0 and at most a day")
    return value


def _identity(options: Mapping[str, str]) -> str:
    text = options.get("id")
    if text is None:
        if "epoch" in options:
            raise BadOption(
                "epoch without id: name the query with .option('id', ...), the same in "
                "each run of the same query and of no other"
            )
        return uuid.uuid4().hex
    if not 1 <= len(text.encode()) <= MAX_QUERY:
        raise BadOption(f"id has {len(text.encode())} bytes, not 1 to {MAX_QUERY}")
    if "epoch" not in options:
        raise BadOption(
            "id without epoch: a second write of the same id and epoch is dropped as had already. "
            "Say which run it is with .option('epoch', ...), as foreachBatch has it; or leave both "
            "out, and each write is one of its own"
        )
    return text


def _check_columns(options: SinkOptions, schema: StructType) -> None:
    wanted = [options.payload]
    if options.destination is None:
        wanted.append(options.column)
    types = {field.name: field.dataType for field in schema.fields}
    for name in wanted:
        if name not in types:
            what = f"give the option {name!r} or the" if name == options.column else "name the"
            raise BadOption(f"there is no column {name!r} among {', '.join(types)}: {what} column")
        allowed = StringType if name == options.column else (StringType, BinaryType)
        if not isinstance(types[name], allowed):
            raise BadOption(
                f"the column {name!r} is {types[name].simpleString()}: what is sent is binary or "
                "string, and where to is a string. Cast it, or make JSON of it with to_json"
            )
    left = sorted(set(types) - set(wanted))
    if left:
        raise BadOption(
            f"the column {left[0]!r} would not be sent: select {' and '.join(wanted)}, and put "
            f"what shall arrive into {options.payload!r}"
        )
