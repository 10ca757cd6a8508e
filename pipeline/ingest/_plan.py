"""Which segments of a batch the lake lacks, and what it has when it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from .._errors import DuplicateBroker, SegmentDamaged
from ._state import BrokerState, LakeState, add_range, microseconds

__all__ = ["Batch", "SegmentRow", "plan"]

SegmentRow = Mapping[str, Any]
"""A row of the source's table `segments`."""


@dataclass(slots=True)
class Batch:
    """What a batch adds.

    Attributes:
        rows: The segments that the lake lacks, by broker and number.
        duplicates: How many it has already.
        damaged: The paths of those that cannot be read, and are skipped.
        brokers: All brokers, as of after the batch.
    """

    rows: list[SegmentRow] = field(default_factory=list[SegmentRow])
    duplicates: int = 0
    damaged: list[str] = field(default_factory=list[str])
    brokers: dict[str, BrokerState] = field(default_factory=dict[str, BrokerState])

    def total(self, column: str) -> int:
        """Return the sum of a column over the segments."""
        return sum(int(row[column]) for row in self.rows)

    @property
    def paths(self) -> list[str]:
        """The paths of the segments."""
        return [str(row["path"]) for row in self.rows]


def plan(rows: Sequence[SegmentRow], state: LakeState) -> Batch:
    """Hold the segments of a batch against what the lake has.

    Raises:
        DuplicateBroker: A segment is of another log than the broker's others.
        SegmentDamaged: It has events of which the lake has some, and not others.
    """
    batch = Batch(brokers=dict(state.brokers))
    for row in sorted(rows, key=lambda row: (row["broker"], row["epoch"], row["first_seq"])):
        if row["last_seq"] is None:
            batch.damaged.append(row["path"])
            continue
        name, log_id = row["broker"], row["log_id"]
        broker = batch.brokers.get(name) or BrokerState(log_id, 0, "")
        if broker.log_id != log_id:
            raise DuplicateBroker(
                name,
                f"the one in the lake (log id {broker.log_id})",
                f"the one of {row['path']} (log id {log_id})",
            )
        epoch, first, last = row["epoch"], row["first_seq"], row["last_seq"]
        if last >= first:
            if broker.has(epoch, first, last):
                batch.duplicates += 1
                continue
            if broker.overlaps(epoch, first, last):
                raise SegmentDamaged(row["path"], "some of its events are in the lake, others not")
        batch.rows.append(row)
        batch.brokers[name] = _with(broker, row)
    return batch


def _with(broker: BrokerState, row: SegmentRow) -> BrokerState:
    epoch, first, last = row["epoch"], row["first_seq"], row["last_seq"]
    newest = row["path"].split("/")[1]
    ended: datetime = row["ended"]
    if newest > broker.segment:
        broker = replace(broker, segment=newest, sealed_through=microseconds(ended))
    return replace(
        broker,
        ranges=add_range(broker.ranges, epoch, first, last) if last >= first else broker.ranges,
        segments=broker.segments + 1,
        events=broker.events + row["hops"] + row["flows"] + row["events"],
    )
