"""The tag index of many routes, built in two phases: partial bitmaps, and their unions.

```
routes ─▶ prepared: each with its number ─▶ partial bitmaps, in each task ─▶ by tag ─▶ unions
```

The index does not depend on the partitions of the routes, and its bitmaps have the bytes that
`write_snapshot` writes: a route's number is its position in the order of the route ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import Column, DataFrame, functions as sf

from ...protocol.broker import portable_bitmap
from .._schema import REPORT_TABLES

__all__ = ["MAX_PARTIALS", "build", "number_routes"]

MAX_PARTIALS: Final = 100_000
"""Partial bitmaps that a task holds; at the limit it emits all of them."""

ROWS: Final = 2_000
"""Bitmaps in one emitted batch."""

PARTIAL: Final = "key string, value string, part binary"
INDEX: Final = REPORT_TABLES["tag_index"]

Batch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


def number_routes(routes: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Number the routes by their positions in the order of the ids.

    A second sort may cut the partitions differently, which makes the numbers wrong. So the sorted
    rows are persisted until the caller releases them.

    Args:
        routes: The columns of `PREPARED`.

    Returns:
        The routes with a column `number`, in its order; and the frame to `unpersist`.
    """
    # The lower 33 bits of the id are the row's position in its partition.
    bits = 33
    placed = (
        routes.repartitionByRange("route_id")
        .sortWithinPartitions("route_id")
        .withColumn("place", sf.monotonically_increasing_id())
        .persist()
    )
    part = sf.shiftright(sf.col("place"), bits)
    # One row for each partition.
    counts = {
        int(row["part"]): int(row["n"])
        for row in placed.groupBy(part.alias("part")).agg(sf.count("*").alias("n")).collect()
    }
    before, starts = 0, list[Column]()
    for each in sorted(counts):
        starts += [sf.lit(each), sf.lit(before)]
        before += counts[each]
    within = sf.col("place").bitwiseAND(sf.lit((1 << bits) - 1))
    start = sf.element_at(sf.create_map(*starts), part.cast("int")) if starts else sf.lit(0)
    return placed.withColumn("number", start + within), placed


def build(routes: DataFrame, *, max_partials: int = MAX_PARTIALS) -> DataFrame:
    """Return the tag index of routes: the report `tag_index`.

    Args:
        routes: The frame of `number_routes`, or any with `number`, `keys` and `values`.
        max_partials: See `MAX_PARTIALS`.
    """
    return (
        routes.select("number", "keys", "values")
        .mapInArrow(partial(_partials, max_partials), PARTIAL)
        .repartition("key", "value")
        .sortWithinPartitions("key", "value")
        .mapInArrow(_unions, INDEX)
    )


# --- phase one --------------------------------------------------------------------------------


def _partials(limit: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    held: dict[tuple[str, str | None], BitMap] = {}
    for batch in batches:
        for tag, numbers in _grouped(batch):
            bitmap = held.get(tag)
            if bitmap is None:
                held[tag] = numbers
            else:
                bitmap |= numbers
            # Within the batch, which may have any number of tags.
            if len(held) >= limit:
                yield from _handed_on(held)
                held = {}
    yield from _handed_on(held)


def _grouped(batch: Batch) -> Iterator[tuple[tuple[str, str | None], BitMap]]:
    """Yield each tag of a batch with the routes that carry it."""
    keys, values = batch.column("keys"), batch.column("values")
    offsets: npt.NDArray[np.int32] = keys.offsets.to_numpy()
    lengths = offsets[1:] - offsets[:-1]
    numbers = np.repeat(np.asarray(batch.column("number")), lengths).astype(np.uint32)
    if not len(numbers):
        return
    key = keys.flatten().dictionary_encode()
    # Null is a value: it must neither be lost nor become the empty text.
    value = values.flatten().dictionary_encode(null_encoding="encode")
    width = len(value.dictionary)
    codes = np.asarray(key.indices).astype(np.int64) * width + np.asarray(value.indices)
    # Stable, so that numbers of equal tags stay in order.
    order = np.argsort(codes, kind="stable")
    sorted_codes, numbers = codes[order], numbers[order]
    begins = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
    ends = np.append(begins[1:], len(codes))
    names, texts = key.dictionary.to_pylist(), value.dictionary.to_pylist()
    # The fastest input for a bitmap.
    view = memoryview(numbers.tobytes()).cast("I")
    heads = sorted_codes[begins].tolist()
    for code, begin, end in zip(heads, begins.tolist(), ends.tolist(), strict=True):
        tag = names[code // width], texts[code % width]
        yield tag, BitMap(view[begin:end])


def _handed_on(held: dict[tuple[str, str | None], BitMap]) -> Iterator[Batch]:
    tags = list(held)
    for at in range(0, len(tags), ROWS):
        some = tags[at : at + ROWS]
        yield pa.record_batch(
            [
                pa.array([key for key, _ in some], pa.string()),
                pa.array([value for _, value in some], pa.string()),
                pa.array([held[tag].serialize() for tag in some], pa.binary()),
            ],
            names=["key", "value", "part"],
        )


# --- phase two --------------------------------------------------------------------------------


def _unions(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the unions of adjacent bitmaps of one tag, also across batches."""
    made: list[tuple[str, str | None, int, bytes]] = []
    tag: tuple[str, str | None] | None = None
    parts: list[BitMap] = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("key", "value", "part")]
        for key, value, part in zip(*columns, strict=True):
            if (key, value) != tag:
                if tag is not None:
                    made.append(_united(tag, parts))
                tag, parts = (key, value), []
            parts.append(BitMap.deserialize(part))
        while len(made) >= ROWS:
            yield _index_rows(made[:ROWS])
            del made[:ROWS]
    if tag is not None:
        made.append(_united(tag, parts))
    if made:
        yield _index_rows(made)


def _united(tag: tuple[str, str | None], parts: list[BitMap]) -> tuple[str, str | None, int, bytes]:
    numbers = parts[0] if len(parts) == 1 else BitMap.union(*parts)
    return *tag, len(numbers), portable_bitmap(numbers)


def _index_rows(rows: list[tuple[str, str | None, int, bytes]]) -> Batch:
    keys, values, counts, bitmaps = zip(*rows, strict=True)
    return pa.record_batch(
        [
            pa.array(keys, pa.string()),
            pa.array(values, pa.string()),
            pa.array(counts, pa.int64()),
            pa.array(bitmaps, pa.binary()),
        ],
        names=["key", "value", "n", "bitmap"],
    )
