"""The plan of a batch: the segments that the lake lacks, and its state afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from .._errors import DuplicateBroker, SegmentDamaged
from .._schema import LAKE_TABLES
from ..source import arrow_schema, columns_of
from ._parts import LakeFiles
from ._state import BrokerState, LakeState, Skipped, add_range, microseconds

__all__ = ["BatchPlan", "SegmentRow", "plan", "unfolded"]

SegmentRow = Mapping[str, Any]
"""A row of the source's table `segments`."""


@dataclass(slots=True)
class BatchPlan:
    """The plan of a batch.

    Attributes:
        rows: The segments that the lake lacks, by broker and number.
        duplicates: The number of segments that it has already.
        damaged: The segments that cannot be read and are skipped.
        brokers: The state of all brokers after the batch.
    """

    rows: list[SegmentRow] = field(default_factory=list[SegmentRow])
    duplicates: int = 0
    damaged: list[SegmentRow] = field(default_factory=list[SegmentRow])
    brokers: dict[str, BrokerState] = field(default_factory=dict[str, BrokerState])

    def total(self, column: str) -> int:
        """Return the sum of a column over the segments."""
        return sum(int(row[column]) for row in self.rows)


def plan(
    rows: Sequence[SegmentRow],
    state: LakeState,
    looks: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> BatchPlan:
    """Compare the segments of a batch with the state of the lake.

    Args:
        rows: The segments.
        state: The state of the lake.
        looks: For each path the file's size and time of modification, in nanoseconds, before it
            was read.

    Raises:
        DuplicateBroker: A segment is of another log than the broker's others.
        SegmentDamaged: The lake has some of a segment's events, but not all.
    """
    batch = BatchPlan(brokers=dict(state.brokers))
    for row in sorted(rows, key=lambda row: (row["broker"], row["epoch"], row["first_seq"])):
        name, log_id = row["broker"], row["log_id"] or ""
        broker = batch.brokers.get(name) or BrokerState(log_id, 0, "")
        if row["damaged"] is not None:
            batch.damaged.append(row)
            batch.brokers[name] = _skip(broker, row, looks.get(row["path"], (row["size"], 0)))
            continue
        if not broker.log_id:
            # No segment of this log could be read so far.
            broker = replace(broker, log_id=log_id)
        if broker.log_id != log_id:
            raise DuplicateBroker(
                name,
                f"the one in the lake (log id {broker.log_id})",
                f"the one of {row['path']} (log id {log_id})",
            )
        if _had(broker, row):
            batch.duplicates += 1
            continue
        batch.rows.append(row)
        batch.brokers[name] = _with(broker, row)
    batch.brokers = {name: broker.fold() for name, broker in batch.brokers.items()}
    return batch


def unfolded(rows: Sequence[SegmentRow], state: LakeState, files: LakeFiles) -> LakeState:
    """Return the state with the folded ranges restored for brokers with old segments.

    An old segment is of a folded epoch. The table `segments` has the ranges.
    """
    old = {
        row["broker"]
        for row in rows
        if row["broker"] in state.brokers and row["epoch"] <= state.brokers[row["broker"]].folded
    }
    if not old:
        return state
    brokers = {
        name: broker.unfold(_ranges_of(name, files)) if name in old else broker
        for name, broker in state.brokers.items()
    }
    return replace(state, brokers=brokers)


def _ranges_of(broker: str, files: LakeFiles) -> Iterator[tuple[int, int, int]]:
    """Yield epoch, first and last number of all segments of a broker that the lake has."""
    # Imported late: it is seldom needed and slow to load.
    from pyarrow.dataset import dataset, field as field_of

    schema = arrow_schema(columns_of(LAKE_TABLES["segments"]))
    paths = [str(file) for part in files.parts("segments") for file in part.path.glob("*.parquet")]
    table = dataset(paths, schema=schema, format="parquet").to_table(
        columns=["epoch", "first_seq", "last_seq", "damaged"], filter=field_of("broker") == broker
    )
    for row in table.to_pylist():
        if row["damaged"] is None and row["last_seq"] >= row["first_seq"]:
            yield row["epoch"], row["first_seq"], row["last_seq"]


def _had(broker: BrokerState, row: SegmentRow) -> bool:
    """Whether the lake has a segment already.

    Raises:
        SegmentDamaged: The lake has some of its events, but not all.
    """
    epoch, first, last = row["epoch"], row["first_seq"], row["last_seq"]
    if last < first:
        # An empty segment has no numbers to compare. But names rise, and all up to the newest were
        # read, or recorded as skipped.
        name = _name(row)
        return name <= broker.segment and all(each.name != name for each in broker.skipped)
    if broker.has(epoch, first, last):
        return True
    if broker.overlaps(epoch, first, last):
        raise SegmentDamaged(row["path"], "some of its events are in the lake, others not")
    return False


def _name(row: SegmentRow) -> str:
    return str(row["path"]).split("/")[1]


def _skip(broker: BrokerState, row: SegmentRow, look: tuple[int, int]) -> BrokerState:
    first, last = row["first_seq"], row["last_seq"]
    skipped = Skipped(_name(row), row["epoch"], first, first if last is None else last, *look)
    return broker.with_skipped(skipped)


def _with(broker: BrokerState, row: SegmentRow) -> BrokerState:
    epoch, first, last = row["epoch"], row["first_seq"], row["last_seq"]
    newest = _name(row)
    broker = broker.without_skipped(newest)
    ended: datetime = row["ended"]
    if newest > broker.segment:
        broker = replace(broker, segment=newest, sealed_through=microseconds(ended))
    return replace(
        broker,
        ranges=add_range(broker.ranges, epoch, first, last) if last >= first else broker.ranges,
        segments=broker.segments + 1,
        events=broker.events + row["hops"] + row["flows"] + row["events"],
    )
