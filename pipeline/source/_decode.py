"""The decoding of a segment into Arrow; numpy decodes the records, without a loop in Python.

A segment numbers its names, routes and tag sets. These numbers are replaced by ids that are equal
in all segments, by one lookup for all rows in a table of at most 65,536 entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...protocol.eventlog import (
    FLOW,
    HOP,
    Flow,
    Hop,
    RouteEvent,
    Segment,
    asked_tags_text,
    asked_text,
    carried_tags_text,
    name_id,
    route_key,
    tagset_id,
)
from .._errors import SegmentDamaged
from .._schema import EVENT_TABLES
from ._arrow import FIRST_TIME, LAST_TIME, Column, arrow_schema, constant, integers, maps, times
from ._options import columns_of

__all__ = ["MAX_ROWS", "decode", "decode_batches"]

MAX_ROWS: Final = 131_072
"""Most rows in a batch: 8 MiB of hops."""

KNOWN_IDS: Final = 16_384
"""Most ids of names, of routes and of tag sets each that a process caches. The segments of a broker
share most of them. The least recently used are evicted."""

_name_id = lru_cache(KNOWN_IDS)(name_id)
_route_key = lru_cache(KNOWN_IDS)(route_key)
_tagset_id = lru_cache(KNOWN_IDS)(tagset_id)

_NUMPY: Final = {"Q": "<u8", "q": "<i8", "B": "u1", "H": "<u2", "I": "<u4"}


def _record(layout: Struct, names: Sequence[str]) -> Any:
    return np.dtype(list(zip(names, (_NUMPY[code] for code in layout.format[1:]), strict=True)))


_FLOW_FIELDS: Final = [field.name for field in fields(Flow)]
_HOP_RECORD: Final = _record(HOP, [field.name for field in fields(Hop)])
_FLOW_RECORD: Final = _record(FLOW, [*_FLOW_FIELDS[:-2], "spare", *_FLOW_FIELDS[-2:]])

_RENAMED: Final = {"ts": "ts_us", "window_start": "window_us"}
_IDS: Final = {
    "origin_node": ("origin", "nodes"),
    "dest_node": ("dest", "nodes"),
    "route_id": ("route", "routes"),
    "tagset_id": ("tagset", "tagsets"),
}


@dataclass
class _Ids:
    """The lazy tables of the ids for a segment's numbers; number 0, for none, has id 0."""

    segment: Segment

    @cached_property
    def nodes(self) -> Any:
        return _table(_name_id(name) for name in self.segment.names)

    @cached_property
    def routes(self) -> Any:
        return _table(_route_key(route) for route in self.segment.routes)

    @cached_property
    def tagsets(self) -> Any:
        return _table(_tagset_id(asked) for asked in self.segment.tagsets)


def _table(ids: Iterator[int]) -> Any:
    return np.array([0, *ids], dtype=np.int64)


def decode(table: str, columns: Sequence[str] | None, segment: Segment, path: str = "") -> Any:
    """Return a segment's rows of a table as one `pyarrow.RecordBatch`.

    Args:
        table: One of `EVENT_TABLES`, but not `segments`.
        columns: The columns, in order; `None` for all.
        segment: The segment.
        path: Its name in errors.

    Raises:
        SegmentDamaged: A record has an undefined number, or is out of order.
    """
    kinds = columns_of(EVENT_TABLES[table])
    chosen = {name: kinds[name] for name in (kinds if columns is None else columns)}
    batches = list(decode_batches(table, chosen, segment, path, max_rows=None))
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(chosen))


def decode_batches(
    table: str,
    columns: Mapping[str, str],
    segment: Segment,
    path: str,
    *,
    since: int | None = None,
    until: int | None = None,
    max_rows: int | None = MAX_ROWS,
) -> Iterator[Any]:
    """Yield a segment's rows of a table as Arrow batches, none of them empty.

    Args:
        table: One of `EVENT_TABLES`, but not `segments`.
        columns: The columns, each with its type, in order.
        segment: The segment.
        path: Its name in errors.
        since: Omit rows before this microsecond.
        until: Omit rows at or after this microsecond.
        max_rows: Most rows of a batch; `None` for one batch. Blocks are not split.

    Raises:
        SegmentDamaged: A record has an undefined number, is out of order, or has a time outside
            1970 to 2200 or a count that Spark cannot represent.
    """
    if table in ("hops", "flows"):
        layout, when = (_HOP_RECORD, "ts_us") if table == "hops" else (_FLOW_RECORD, "window_us")
        bodies = segment.hop_bodies if table == "hops" else segment.flow_bodies
        ids = _Ids(segment)
        last = 0
        for chunk in _chunks(bodies, max_rows and max_rows * layout.itemsize):
            rows: Any = np.frombuffer(chunk, dtype=layout)
            last = _check_order(rows["seq"], last, path)
            _check_times(rows[when], path)
            if table == "flows":
                _check_counts(rows, path)
            rows = _within(rows, rows[when], since, until)
            if len(rows):
                yield _records(rows, columns, segment, ids, path)
        return
    if table == "route_events":
        if not segment.events:
            return
        _check_times(np.array([event.ts_us for event in segment.events], dtype=np.int64), path)
    batch = _DIMENSIONS[table](columns, segment, since, until)
    if batch.num_rows:
        yield batch


def _chunks(bodies: Sequence[memoryview], size: int | None) -> Iterator[bytes]:
    """Yield blocks joined to chunks of about a size: many small batches cost more than copies."""
    piece: list[memoryview] = []
    held = 0
    for body in bodies:
        piece.append(body)
        held += len(body)
        if size is not None and held >= size:
            yield b"".join(piece)
            piece, held = [], 0
    if held:
        yield b"".join(piece)


def _check_order(seqs: Any, last: int, path: str) -> int:
    if len(seqs) == 0:
        return last
    if int(seqs[0]) <= last or bool((seqs[1:] <= seqs[:-1]).any()):
        raise SegmentDamaged(path, "records with numbers that do not rise")
    return int(seqs[-1])


def _check_times(when: Any, path: str) -> None:
    if len(when) and (int(when.min()) < FIRST_TIME or int(when.max()) >= LAST_TIME):
        raise SegmentDamaged(path, "a record with a time outside 1970 to 2200")


def _check_counts(rows: Any, path: str) -> None:
    # As signed numbers they would be negative.
    if max(int(rows["frames"].max(initial=0)), int(rows["bytes"].max(initial=0))) >= 1 << 63:
        raise SegmentDamaged(path, "a flow of more than 2**63 frames or bytes")


def _within(rows: Any, when: Any, since: int | None, until: int | None) -> Any:
    if since is not None:
        rows, when = rows[when >= since], when[when >= since]
    return rows if until is None else rows[when < until]


def _records(rows: Any, columns: Mapping[str, str], segment: Segment, ids: _Ids, path: str) -> Any:
    made: list[Column] = []
    for name, kind in columns.items():
        if name in _IDS:
            field, table = _IDS[name]
            try:
                made.append(pa.array(np.take(getattr(ids, table), rows[field])))
            except IndexError:
                raise SegmentDamaged(path, f"a number for {field} that it does not give") from None
        elif name == "broker":
            made.append(constant(segment.header.broker, kind, len(rows)))
        elif name == "epoch":
            made.append(constant(segment.header.epoch, kind, len(rows)))
        elif kind == "timestamp":
            made.append(times(rows[_RENAMED[name]]))
        else:
            made.append(integers(rows[name], kind))
    return pa.RecordBatch.from_arrays(made, schema=arrow_schema(columns))


# --- tables with few rows in a segment ------------------------------------------------------


def _few(columns: Mapping[str, str], segment: Segment, rows: int, made: Mapping[str, Any]) -> Any:
    header = segment.header
    constants: dict[str, object] = {
        "broker": header.broker,
        "epoch": header.epoch,
        "first_seq": header.first_seq,
        "first_seen": header.started_us,
    }
    arrays: list[Column] = []
    for name, kind in columns.items():
        if name in made:
            arrays.append(made[name]())
        elif kind == "timestamp":
            arrays.append(times(np.full(rows, constants[name], dtype=np.int64)))
        else:
            arrays.append(constant(constants[name], kind, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _integers_of(values: list[int]) -> Callable[[], Column]:
    return lambda: pa.array(values, type=pa.int64())


def _texts_of(values: list[str]) -> Callable[[], Column]:
    return lambda: pa.array(values, type=pa.string())


def _tagsets(
    columns: Mapping[str, str], segment: Segment, _since: int | None, _until: int | None
) -> Any:
    all_asked = segment.tagsets
    return _few(
        columns,
        segment,
        len(all_asked),
        {
            "tagset_id": lambda: pa.array([_tagset_id(asked) for asked in all_asked], pa.int64()),
            "tags": lambda: maps([asked_tags_text(asked) for asked in all_asked]),
            "text": lambda: pa.array([asked_text(asked) for asked in all_asked], pa.string()),
            "routing": _texts_of([asked.routing.name.lower() for asked in all_asked]),
            "method": _texts_of([asked.method for asked in all_asked]),
        },
    )


def _nodes(
    columns: Mapping[str, str], segment: Segment, _since: int | None, _until: int | None
) -> Any:
    names = list(segment.names)
    made = {"node": _integers_of([_name_id(name) for name in names]), "name": _texts_of(names)}
    return _few(columns, segment, len(names), made)


def _routes(
    columns: Mapping[str, str], segment: Segment, _since: int | None, _until: int | None
) -> Any:
    routes = segment.routes
    made = {
        "route_id": _integers_of([_route_key(route) for route in routes]),
        "uuid": _texts_of([_uuid(route) for route in routes]),
    }
    return _few(columns, segment, len(routes), made)


def _uuid(route: bytes) -> str:
    # The text of `uuid.UUID`, without creating one.
    text = route.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _route_events(
    columns: Mapping[str, str], segment: Segment, since: int | None, until: int | None
) -> Any:
    events = [
        event
        for event in segment.events
        if (since is None or event.ts_us >= since) and (until is None or event.ts_us < until)
    ]
    made = {
        "seq": _integers_of([event.seq for event in events]),
        "ts": lambda: times(np.array([event.ts_us for event in events], dtype=np.int64)),
        "event": _texts_of([event.name.name.lower() for event in events]),
        "route_id": _integers_of([_route_of(event) for event in events]),
        "node": _integers_of([_name_id(event.node) if event.node else 0 for event in events]),
        "tags": lambda: maps([carried_tags_text(event.tags) for event in events]),
        "reason": _texts_of([event.reason for event in events]),
    }
    return _few(columns, segment, len(events), made)


def _route_of(event: RouteEvent) -> int:
    return 0 if event.route_id is None else _route_key(event.route_id)


_DIMENSIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "tagsets": _tagsets,
    "nodes": _nodes,
    "routes": _routes,
    "route_events": _route_events,
}
