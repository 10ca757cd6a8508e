"""The reading of a partition in a task: its segments, one by one, as Arrow batches.

A partition is a list of files: one large segment, or many small ones, as an idle broker writes an
empty segment each minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct, error as StructError  # noqa: N812 - a class
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ...protocol.eventlog import (
    MAX_HEADER,
    EventLogError,
    Segment,
    SegmentFooter,
    read_header,
    read_segment,
)
from .._errors import SegmentDamaged, SegmentGone
from .._schema import EVENT_TABLES
from ._arrow import arrow_schema
from ._decode import decode_batches
from ._listing import SegmentInfo, describe, refusal
from ._options import Options, columns_of

__all__ = ["MAX_FILES", "PACK_BYTES", "SegmentPaths", "load_segment", "pack", "read_partition"]

PACK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of small segments that one task reads; a larger segment is a task of its own."""

MAX_FILES: Final = 1_000
"""Most segments that one task reads."""

_log = logging.getLogger(__name__)

_MARGIN: Final = 86_400_000_000
"""Microseconds by which an event may be older than its segment: the duration of the request."""

_REFERENCES: Final[Mapping[str, str]] = dict.fromkeys(
    ("origin_node", "dest_node", "route_id", "tagset_id"), "bigint"
)

_DEFINED: Final = ("tagsets", "nodes", "routes")
_DEFINITIONS: Final = (b"N", b"P", b"T")
_BLOCK: Final = Struct("<cII")
_HEADER_LENGTH: Final = Struct("<I")
_HEADER_START: Final = 12

_NUMBERS: Final[Mapping[str, str]] = {"seq": "bigint"}


class SegmentPaths(InputPartition):
    """A partition: the paths of segments, relative to the directory of logs."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(0)
        self.paths = tuple(paths)


def pack(infos: Sequence[tuple[str, int]], *, ends_only: bool) -> list[SegmentPaths]:
    """Return partitions of segments, in order.

    Args:
        infos: Path and size in bytes of each segment.
        ends_only: Whether only the two ends of each file are read.
    """
    made: list[SegmentPaths] = []
    paths: list[str] = []
    held = 0
    for path, size in infos:
        weight = 0 if ends_only else size
        if paths and (held + weight > PACK_BYTES or len(paths) == MAX_FILES):
            made.append(SegmentPaths(paths))
            paths, held = [], 0
        paths.append(path)
        held += weight
    if paths:
        made.append(SegmentPaths(paths))
    return made


def read_partition(options: Options, partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of the table in a partition's segments, as Arrow batches.

    Raises:
        SegmentDamaged: A segment cannot be read, and `skipCorrupt` is off.
        SegmentGone: A segment was deleted.
        DuplicateBroker: A segment is in another broker's folder.
    """
    # Without partitions Spark passes one without a value.
    paths = partition.paths if isinstance(partition, SegmentPaths) else ()
    if options.table == "segments":
        yield from _ends(options, paths)
        return
    for path in paths:
        yield from _rows(options, path)


def _rows(options: Options, path: str) -> Iterator[Any]:
    broker, name = path.split("/")
    info = describe(options.path, broker, name, skip_damaged=options.skip_damaged)
    if not _may_have(info, options):
        return
    try:
        load = _load_definitions if options.table in _DEFINED else _load
        segment = load(options.path / path)
        batches = decode_batches(
            options.table,
            options.columns,
            segment,
            str(options.path / path),
            since=options.since,
            until=options.until,
        )
        # A damaged segment is skipped whole, so it is decoded in full before rows are yielded.
        yield from list(batches) if options.skip_damaged else batches
    except SegmentDamaged as error:
        if not options.skip_damaged:
            raise
        _log.warning("skipped: %s", error)


def load_segment(log: Path, path: str) -> Segment:
    """Return a sealed segment, read in full.

    Args:
        log: The directory of logs.
        path: The segment's path, relative to it.

    Raises:
        SegmentDamaged: The segment cannot be read.
        SegmentGone: It was deleted.
        NewerSegment: A newer version of Onward wrote it.
        DuplicateBroker: It is in another broker's folder.
    """
    describe(log, *path.split("/"))
    return _load(log / path)


def _load(path: Path) -> Segment:
    try:
        return read_segment(path.read_bytes())
    except FileNotFoundError:
        raise SegmentGone(str(path)) from None
    except EventLogError as error:
        raise refusal(str(path), error) from None


def _load_definitions(path: Path) -> Segment:
    """Load only a segment's definitions, a thousandth of it, without checking records."""
    try:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            return read_segment(_without_records(data))
    except FileNotFoundError:
        raise SegmentGone(str(path)) from None
    except EventLogError as error:
        raise refusal(str(path), error) from None
    except (ValueError, StructError):
        raise SegmentDamaged(str(path), "it ends in the middle of a block") from None


def _without_records(data: mmap) -> bytes:
    """Return a segment with the same definitions and no records."""
    header = read_header(data[:MAX_HEADER])
    at = _HEADER_LENGTH.unpack_from(data, 4)[0] + _HEADER_START
    pieces = [data[:at]]
    while at < len(data):
        kind, size, _ = _BLOCK.unpack_from(data, at)
        end = at + _BLOCK.size + size
        if end > len(data):
            raise ValueError(end)
        if kind in _DEFINITIONS:
            pieces.append(data[at:end])
        at = end
    empty = SegmentFooter(0, 0, 0, header.first_seq - 1, header.started_us)
    return b"".join((*pieces, empty.serialize()))


def _may_have(info: SegmentInfo, options: Options) -> bool:
    """Whether the segment may have rows of the table, by its header and footer."""
    header, footer = info.header, info.footer
    if header is None or footer is None:
        return False
    rows = {"hops": footer.hops, "flows": footer.flows, "route_events": footer.events}
    if rows.get(options.table, 1) == 0:
        return False
    if options.since is not None and footer.ended_us < options.since:
        return False
    return options.until is None or header.started_us - _MARGIN < options.until


def _ends(options: Options, paths: Sequence[str]) -> Iterator[Any]:
    rows: list[dict[str, object]] = []
    for path in paths:
        broker, name = path.split("/")
        info = describe(options.path, broker, name, skip_damaged=options.skip_damaged)
        if options.check and info.footer is not None:
            info = _checked(info, options)
        row = _row(info)
        rows.append({column: row[column] for column in options.columns})
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(options.columns))


def _checked(info: SegmentInfo, options: Options) -> SegmentInfo:
    """Read the segment in full; return it with a `reason` if a record is damaged."""
    path = options.path / info.path
    try:
        segment = _load(path)
        for table in ("hops", "flows"):
            for _ in decode_batches(table, _REFERENCES, segment, str(path)):
                pass
        for _ in decode_batches("route_events", _NUMBERS, segment, str(path)):
            pass
    except SegmentDamaged as error:
        if not options.skip_damaged:
            raise
        return replace(info, reason=str(error))
    return info


def _row(info: SegmentInfo) -> dict[str, object]:
    header, footer = info.header, info.footer
    row: dict[str, object] = {
        **dict.fromkeys(columns_of(EVENT_TABLES["segments"])),
        "broker": info.broker,
        "epoch": info.epoch,
        "first_seq": info.first_seq,
        "path": info.path,
        "size": info.size,
    }
    if info.reason:
        row["damaged"] = info.reason
    if header is None or footer is None:
        return row
    # No event of a damaged segment is read, whatever its footer counts.
    nothing = {"hops": 0, "flows": 0, "events": 0} if info.reason else {}
    return row | {
        "last_seq": footer.last_seq,
        "log_id": info.log_id,
        "version": header.version,
        "sample_rate": header.sample_rate,
        "started": header.started_us,
        "ended": footer.ended_us,
        "hops": footer.hops,
        "flows": footer.flows,
        "events": footer.events,
        **nothing,
    }
